//! Rebuilds the state from the readable part of a log, and determines what is missing.

use crate::clock;
use crate::log::{
    self, Cost, LogFinding, OpenError, RecordKind, RecordLocation, RecordReader, ReplayedItem,
    Storage,
};
use crate::state::change::{
    Ack, ChangeRecord, CreateTopic, Numbers, OpenLedger, StateChange, TopicEnd,
};
use crate::state::entries::EntryPosition;
use crate::state::entry::EntryHead;
use crate::state::replay::replay;
use crate::state::{BrokerState, BrokerTopic};
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Numbers of ledgers for each ms since 2026. After a restore the numbers go on from those of the
/// present: a broker takes fewer, so none from before the present was given, by whatever broker and
/// on whichever directory that was restored from the same files. Each topic takes a ledger at each
/// start, and the broker has at most 250,000 topics. Until 2060 they fit the 48 bits of a job id.
const LEDGERS_PER_MS: u64 = 256;
const YEAR_2026_MS: u64 = 1_767_225_600_000;
/// Numbers of ledgers that are skipped if the clock was set back.
const LEDGERS_SKIPPED: u64 = 1 << 32;
/// Numbers of topics that are skipped. Clients never see them.
const TOPICS_SKIPPED: u32 = 1 << 20;

/// The next numbers of ledgers and topics if changes are lost, or were made after the files were
/// stored: no number is given twice.
pub(super) fn numbers_after(state: &BrokerState) -> Numbers {
    let (topic, next) = state.next_numbers();
    let ledger = clock::wall_ms().saturating_sub(YEAR_2026_MS).saturating_mul(LEDGERS_PER_MS);
    let ledger = if ledger > next { ledger } else { next.saturating_add(LEDGERS_SKIPPED) };
    Numbers { topic: topic.saturating_add(TOPICS_SKIPPED), ledger }
}

/// Result of reading a damaged log.
#[derive(Debug)]
pub(super) struct SalvageReading {
    pub(super) state: BrokerState,
    pub(super) findings: Vec<LogFinding>,
    pub(super) lacks_inventory: bool,
    pub(super) reader: RecordReader,
    /// Number of changes that do not apply to the rest of the state, and the error of the first.
    pub(super) unapplied: (u64, String),
    /// Topics whose names are lost.
    pub(super) nameless: BTreeSet<u32>,
    /// Readable entries of unknown ledgers.
    pub(super) unplaced: u64,
}

#[derive(Debug, Default)]
struct SalvageReplay {
    state: BrokerState,
    /// Entries of unknown topics or ledgers, by topic and ledger.
    strays: BTreeMap<(u32, u64), Vec<(u64, RecordLocation)>>,
    deleted: BTreeSet<u32>,
    unapplied: (u64, String),
    /// Id of the next topic at the checkpoint.
    topics_then: u32,
}

/// Reads everything that is readable.
///
/// # Errors
/// A later version has written it, or the operating system refused.
pub(super) fn read(storage: &Arc<dyn Storage>) -> Result<SalvageReading, OpenError> {
    let mut taken = SalvageReplay::default();
    let survey = log::survey(storage, EntryHead::facts, &mut |replayed| taken.take(replayed))?;
    let log::LogSurvey { findings, lacks_inventory, reader } = survey;
    let SalvageReplay { state, strays, deleted, unapplied, topics_then } = taken;
    let (nameless, unplaced) = (BTreeSet::new(), 0);
    let mut read =
        SalvageReading { state, findings, lacks_inventory, reader, unapplied, nameless, unplaced };
    if read.has_lost_state() {
        let is_checkpoint_whole = !read.findings.iter().any(|finding| finding.cost == Cost::State);
        let first_unknown = if is_checkpoint_whole { topics_then } else { 0 };
        for ((topic, ledger), entries) in strays {
            let was_deleted = deleted.contains(&topic)
                || topic < first_unknown && read.state.topic(topic).is_none();
            if !was_deleted {
                read.take_in(topic, ledger, &entries);
            }
        }
        read.apply(numbers_after(&read.state));
    }
    if !read.findings.is_empty() {
        read.keep_ordinals();
    }
    Ok(read)
}

/// Why a start would refuse the log, if it would.
pub(super) fn refusal(storage: &dyn Storage) -> Option<String> {
    let mut state = BrokerState::default();
    let verified = log::verify(storage, &mut |replayed| replay(&mut state, replayed));
    verified.err().map(|error| error.to_string())
}

impl SalvageReplay {
    fn take(&mut self, replayed: ReplayedItem<'_>) -> Result<(), String> {
        match replayed {
            ReplayedItem::Checkpoint(mut piece) => {
                while !piece.is_empty() {
                    let record = ChangeRecord::decode_length_delimited(&mut piece);
                    self.change(record.map_err(|cause| cause.to_string())?)?;
                }
                self.topics_then = self.state.next_numbers().0;
            }
            // A survey reads the segments directly.
            ReplayedItem::Entries(run) => self.state.restore_run(&run),
            ReplayedItem::Record { head, location, mut body, before_checkpoint } => match head.kind
            {
                RecordKind::Entry => {
                    let entry = EntryHead::decode(&mut body).ok_or("an entry without a head")?;
                    let position = EntryPosition { ledger: head.ledger, entry: head.entry };
                    let topic = self.state.topic(head.topic);
                    if topic.is_some_and(|topic| topic.entries.ordinal_of(position).is_some()) {
                        self.state.restore(head.topic, position, location, &entry);
                    } else {
                        let of_ledger = self.strays.entry((head.topic, head.ledger));
                        of_ledger.or_default().push((head.entry, location));
                    }
                }
                RecordKind::Change if before_checkpoint => {}
                RecordKind::Change => {
                    let record = ChangeRecord::decode(body).map_err(|cause| cause.to_string())?;
                    self.change(record)?;
                }
            },
        }
        Ok(())
    }

    fn change(&mut self, record: ChangeRecord) -> Result<(), String> {
        let change = record.change.ok_or("a change of a kind that this version does not know")?;
        if let StateChange::DeleteTopic(delete) = &change {
            self.deleted.insert(delete.topic);
        }
        if let Err(cause) = self.state.apply(&change) {
            self.unapplied.0 += 1;
            if self.unapplied.0 == 1 {
                self.unapplied.1 = cause.to_string();
            }
        }
        Ok(())
    }
}

impl SalvageReading {
    /// Whether changes of the state may be lost, not only entries.
    pub(super) fn has_lost_state(&self) -> bool {
        self.findings.iter().any(|finding| finding.cost.is_state())
    }

    /// Adds the entries of a ledger whose start is lost, and possibly the start of its topic.
    /// Acknowledged ordinals are not assigned again, because their entries are unknown: the added
    /// entries are delivered again.
    fn take_in(&mut self, topic: u32, ledger: u64, entries: &[(u64, RecordLocation)]) {
        if self.state.topic(topic).is_none() {
            let name = format!("persistent://public/default/salvaged-{topic}");
            self.apply(CreateTopic { topic, name, ..CreateTopic::default() });
            self.nameless.insert(topic);
        }
        let Some(kept) = self.state.topic(topic) else { return };
        let first = kept.entries.ledgers().next().map(|(ledger, _)| ledger);
        if first.is_some_and(|first| ledger < first) {
            // They were trimmed.
            return;
        }
        let last = kept.entries.ledgers().last().map(|(ledger, _)| ledger);
        if last.is_some_and(|last| ledger <= last) {
            self.unplaced += entries.len() as u64;
            return;
        }
        let (end, first) = (kept.entries.end(), end_of(kept));
        let subscriptions: Vec<u32> = kept.subscriptions.keys().copied().collect();
        self.apply(TopicEnd { topic, end: first });
        if end < first {
            for subscription in subscriptions {
                let ranges = vec![end, first];
                self.apply(Ack { topic, subscription, ranges, ..Ack::default() });
            }
        }
        self.apply(OpenLedger { topic, ledger, first });
        for &(entry, location) in entries {
            let body = self.reader.read(location);
            let head = body.ok().and_then(|mut body| EntryHead::decode(&mut body));
            if let Some(head) = head {
                self.state.restore(topic, EntryPosition { ledger, entry }, location, &head);
            }
        }
    }

    /// Assigned ordinals are not reused even if their entries are lost: a cursor may have
    /// acknowledged them.
    fn keep_ordinals(&mut self) {
        let mut ends: BTreeMap<u32, u64> =
            self.state.topics().map(|(id, topic)| (id, end_of(topic))).collect();
        for (topic, position) in self.findings.iter().filter_map(entry_of) {
            let ordinal =
                self.state.topic(topic).and_then(|kept| kept.entries.ordinal_of(position));
            // A damaged record is not verified, so ordinals far off are ignored.
            let ordinal = ordinal
                .filter(|ordinal| *ordinal < ends.get(&topic).map_or(0, |end| end + 1_000_000));
            if let Some((end, ordinal)) = ends.get_mut(&topic).zip(ordinal) {
                *end = (*end).max(ordinal + 1);
            }
        }
        for (topic, end) in ends {
            self.apply(TopicEnd { topic, end });
        }
    }

    /// Applies a change that is made up here to complete the state.
    pub(super) fn apply(&mut self, change: impl Into<StateChange>) {
        if let Err(cause) = self.state.apply(&change.into()) {
            tracing::error!(%cause, "a change that completes the remaining data does not apply");
        }
    }

    /// Missing entries of a topic that may be needed, as inclusive ranges of ids.
    pub(super) fn lost(&self, topic: &BrokerTopic) -> Vec<(EntryPosition, EntryPosition)> {
        if self.findings.is_empty() {
            return Vec::new();
        }
        let horizon = topic.compacted.as_ref().map_or(0, |view| view.horizon);
        let is_needed = |ordinal| {
            let mut subscriptions = topic.durable().peekable();
            if subscriptions.peek().is_none() {
                return ordinal >= horizon;
            }
            subscriptions.any(|subscription| !subscription.cursor.is_acked(ordinal))
        };
        let mut ranges: Vec<(EntryPosition, EntryPosition)> = Vec::new();
        for ordinal in topic.entries.gone().filter(|&ordinal| is_needed(ordinal)) {
            let Some(position) = topic.entries.position_of(ordinal) else { continue };
            match ranges.last_mut() {
                Some((_, last))
                    if last.ledger == position.ledger && last.entry + 1 == position.entry =>
                {
                    *last = position;
                }
                Some(_) | None => ranges.push((position, position)),
            }
        }
        ranges
    }
}

/// The entry that a finding has cost.
pub(super) fn entry_of(finding: &LogFinding) -> Option<(u32, EntryPosition)> {
    match finding.cost {
        Cost::Entry(head) => {
            Some((head.topic, EntryPosition { ledger: head.ledger, entry: head.entry }))
        }
        Cost::Nothing | Cost::Entries(_) | Cost::Anything(_) | Cost::State => None,
    }
}

/// The first unused ordinal.
fn end_of(topic: &BrokerTopic) -> u64 {
    let acked = |subscription: &crate::state::BrokerSubscription| {
        subscription
            .cursor
            .acked()
            .iter()
            .last()
            .map_or(0, |(_, to)| to)
            .max(subscription.cursor.mark())
    };
    let acked = topic.durable().map(acked).max().unwrap_or(0);
    let opened = topic.entries.ledgers().last().map_or(0, |(_, first)| first);
    topic.entries.end().max(acked).max(opened)
}

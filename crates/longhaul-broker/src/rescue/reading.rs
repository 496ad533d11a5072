//! From what can be read of a log to the state that it leads to, and what is missing in it.

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

/// Numbers that are left out behind the highest known ones where changes are lost: nothing that was
/// lost gives its number to something new.
const LEDGERS_LEFT_OUT: u64 = 1_000_000;
const TOPICS_LEFT_OUT: u32 = 1_000;

/// What could be read.
#[derive(Debug)]
pub(super) struct SalvageReading {
    pub(super) state: BrokerState,
    pub(super) findings: Vec<LogFinding>,
    pub(super) lacks_inventory: bool,
    pub(super) reader: RecordReader,
    /// Changes that do not apply to what is left, and what the first one says.
    pub(super) unapplied: (u64, String),
    /// Topics whose names are lost.
    pub(super) nameless: BTreeSet<u32>,
    /// Entries that can be read and belong to no ledger that is known.
    pub(super) unplaced: u64,
}

#[derive(Debug, Default)]
struct SalvageReplay {
    state: BrokerState,
    /// Entries of topics or ledgers that are not known, by these.
    strays: BTreeMap<(u32, u64), Vec<(u64, RecordLocation)>>,
    deleted: BTreeSet<u32>,
    unapplied: (u64, String),
    /// The number that the next topic had at the checkpoint.
    topics_then: u32,
}

/// Reads all that can be read.
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
        let (topic, ledger) = read.state.next_numbers();
        let (topic, ledger) = (topic + TOPICS_LEFT_OUT, ledger + LEDGERS_LEFT_OUT);
        read.apply(Numbers { topic, ledger });
    }
    if !read.findings.is_empty() {
        read.keep_ordinals();
    }
    Ok(read)
}

/// Why a start would refuse the log, if it would.
pub(super) fn refusal(storage: &dyn Storage) -> Option<String> {
    let mut state = BrokerState::default();
    let verified = log::verify(storage, &mut |replayed| replay(&mut state, replayed).map(drop));
    verified.err().map(|error| error.to_string())
}

impl SalvageReplay {
    fn take(&mut self, replayed: ReplayedItem<'_>) -> Result<(), String> {
        match replayed {
            ReplayedItem::Checkpoint(mut image) => {
                while !image.is_empty() {
                    let record = ChangeRecord::decode_length_delimited(&mut image);
                    self.change(record.map_err(|cause| cause.to_string())?, false)?;
                }
                self.topics_then = self.state.next_numbers().0;
            }
            // A survey reads the segments themselves.
            ReplayedItem::Entries(run) => self.state.restore_run(&run),
            ReplayedItem::Record { head, place, mut body, before_checkpoint, may_be_unchecked } => {
                match head.kind {
                    RecordKind::Entry => {
                        let entry =
                            EntryHead::decode(&mut body).ok_or("an entry without a head")?;
                        let position = EntryPosition { ledger: head.ledger, entry: head.entry };
                        let topic = self.state.topic(head.topic);
                        if topic.is_some_and(|topic| topic.entries.ordinal_of(position).is_some()) {
                            self.state.restore(head.topic, position, place, &entry);
                        } else {
                            let of_ledger = self.strays.entry((head.topic, head.ledger));
                            of_ledger.or_default().push((head.entry, place));
                        }
                    }
                    RecordKind::Change if before_checkpoint => {}
                    RecordKind::Change => {
                        let record =
                            ChangeRecord::decode(body).map_err(|cause| cause.to_string())?;
                        self.change(record, may_be_unchecked)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn change(&mut self, record: ChangeRecord, may_be_unchecked: bool) -> Result<(), String> {
        let change = record.change.ok_or("a change of a kind that this version does not know")?;
        if let StateChange::DeleteTopic(delete) = &change {
            self.deleted.insert(delete.topic);
        }
        match self.state.apply(&change) {
            Err(cause) if !may_be_unchecked => {
                self.unapplied.0 += 1;
                if self.unapplied.0 == 1 {
                    self.unapplied.1 = cause.to_string();
                }
            }
            Ok(()) | Err(_) => {}
        }
        Ok(())
    }
}

impl SalvageReading {
    /// Whether changes of state may be lost, and not only entries.
    pub(super) fn has_lost_state(&self) -> bool {
        self.findings.iter().any(|finding| finding.cost.is_state())
    }

    /// Takes in the entries of a ledger whose beginning is lost, and maybe that of its topic.
    /// Ordinals that were acknowledged are left out, because nobody knows which entries had them:
    /// what is taken in is delivered again.
    fn take_in(&mut self, topic: u32, ledger: u64, entries: &[(u64, RecordLocation)]) {
        if self.state.topic(topic).is_none() {
            let name = format!("persistent://public/default/salvaged-{topic}");
            self.apply(CreateTopic { topic, name, created_at: 0 });
            self.nameless.insert(topic);
        }
        let Some(kept) = self.state.topic(topic) else { return };
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
        for &(entry, place) in entries {
            let body = self.reader.read(place);
            let head = body.ok().and_then(|mut body| EntryHead::decode(&mut body));
            if let Some(head) = head {
                self.state.restore(topic, EntryPosition { ledger, entry }, place, &head);
            }
        }
    }

    /// An ordinal that was given is not given again, though its entry is lost: a cursor may have
    /// acknowledged it.
    fn keep_ordinals(&mut self) {
        let mut ends: BTreeMap<u32, u64> =
            self.state.topics().map(|(id, topic)| (id, end_of(topic))).collect();
        for (topic, position) in self.findings.iter().filter_map(entry_of) {
            let ordinal =
                self.state.topic(topic).and_then(|kept| kept.entries.ordinal_of(position));
            // What a damaged record says is not verified: nothing is believed that is far off.
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

    /// What is made up here fits the state.
    fn apply(&mut self, change: impl Into<StateChange>) {
        if let Err(cause) = self.state.apply(&change.into()) {
            tracing::error!(%cause, "a change that was to complete what is left does not apply");
        }
    }

    /// The entries of a topic that are missing and that somebody may need, as ranges of ids with
    /// both ends.
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

/// The entry that a finding says it cost.
pub(super) fn entry_of(finding: &LogFinding) -> Option<(u32, EntryPosition)> {
    match finding.cost {
        Cost::Entry(head) => {
            Some((head.topic, EntryPosition { ledger: head.ledger, entry: head.entry }))
        }
        Cost::Nothing | Cost::Entries(_) | Cost::Anything(_) | Cost::State => None,
    }
}

/// The first ordinal that nothing has had.
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

//! The history of one task, entry by entry. Pure: takes messages in the order of their logs.

use super::silence::{HolderSilence, Silences};
use crate::client::logs::MessageOrigin;
use crate::client::tasks::{Update, ViewEntry, read_view_entry};
use crate::client::view::is_late;
use crate::lease::holder_in;
use crate::transport::Message;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, Entry, Outcome, lease_time};
use longhaul_core::protocol::fold::{IgnoredReason, TaskFold, Verdict};
use longhaul_core::protocol::key::{Key, OwnerId};
use longhaul_core::protocol::waits::WaitsFor;
use longhaul_core::task::{LogLines, Position, TaskId, TaskOutcome, WorkerIdentity, text};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How many log lines a history has, the newest.
const LINES_MAX: usize = 1_000;

/// The history of a task, from its remaining entries.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskHistory {
    /// The task.
    pub task: TaskId,
    /// The task's entries on the ledger and the metadata topic, by publish time; entries of one
    /// topic are in log order.
    pub entries: Vec<HistoryEntry>,
    /// The periods in which the task's holder was silent, in order of time.
    pub silences: Vec<HolderSilence>,
    /// Whether the ledger still has the task's first entries. Without them it is unknown which of
    /// the others were accepted.
    pub is_whole: bool,
}

/// One entry about a task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// The position in the partition of the ledger; for [`Shown`](HistoryEvent::Shown) and
    /// [`Evicted`](HistoryEvent::Evicted) entries, of the metadata topic.
    pub position: Position,
    /// When it was published, in ms since the epoch by the wall clock of its publisher.
    pub published_ms: u64,
    /// The epoch of the entry.
    pub epoch: Option<u32>,
    /// The publisher's owner id: 32 hexadecimal digits.
    pub owner: Option<String>,
    /// The operator that published it from outside: see
    /// [`ClientBuilder::operator`](crate::ClientBuilder::operator).
    pub operator: Option<String>,
    /// The worker behind the owner, if one of its heartbeats is still on the ledger; for a lease,
    /// its holder by name.
    pub worker: Option<Arc<WorkerIdentity>>,
    /// The content of the entry.
    pub event: HistoryEvent,
    /// Why the entry changes nothing; `None` if it counts.
    pub ignored: Option<Ignored>,
}

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryEvent {
    /// A worker claims the next epoch, to run this attempt.
    Claimed {
        /// The attempt.
        attempt: u32,
    },
    /// A gateway claims the next epoch, to lease this attempt to an HTTP worker.
    Leased {
        /// The attempt.
        attempt: u32,
        /// The name of that worker.
        worker: String,
    },
    /// The lease holder is alive. Its lease may be ended after a silence of `lease_time`.
    Renewed {
        /// The silence.
        lease_time: Duration,
    },
    /// A worker closes the task without running it.
    Closed {
        /// How the task ended.
        outcome: TaskOutcome,
        /// Why.
        reason: String,
    },
    /// The attempt has its result.
    Completed,
    /// The attempt failed, and the next one is due at `next_attempt_ms`.
    Failed {
        /// When the next attempt is due, in ms since the epoch.
        next_attempt_ms: u64,
        /// Why it failed.
        reason: String,
    },
    /// The task failed for good, or was cancelled while it ran.
    Ended {
        /// How the task ended.
        outcome: TaskOutcome,
        /// Why.
        reason: String,
    },
    /// The attempt was released, and does not count.
    Released,
    /// The task waits for other tasks.
    Parked {
        /// The ids of those tasks, and their keys as `key:<key>`.
        waits_for: Vec<String>,
    },
    /// No worker wanted the task where it was delivered: any worker may claim it.
    Offered,
    /// The attempt left a checkpoint for its successor.
    Checkpoint {
        /// The size of the checkpoint.
        bytes: usize,
    },
    /// A cancel was requested.
    CancelRequested {
        /// Why, as the operator said.
        reason: String,
    },
    /// A seal marks the task as terminal.
    Sealed,
    /// The metadata topic shows the task.
    Shown {
        /// As [`TaskMetadata::state`](crate::TaskMetadata::state), as a word: `running`, `waiting`,
        /// `completed`, `failed`, `cancelled`, `expired`.
        state: &'static str,
        /// The number of attempts shown.
        attempts: u32,
        /// The log lines of the attempt that no earlier entry has.
        log: Vec<String>,
        /// How many lines came before these that no entry has: an entry has the newest 32 of its
        /// attempt, and a history the newest 1,000 of its task.
        lines_lost: u64,
    },
    /// The task's entry on the metadata topic was removed.
    Evicted,
}

/// Why an entry changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Ignored {
    /// A claim whose epoch is not the next one: another worker was first.
    NotNext,
    /// A claim whose attempt is not above the last one.
    AttemptNotAbove,
    /// The task had already ended.
    TaskEnded,
    /// Its owner had been replaced by a higher epoch: a zombie wrote it.
    Replaced,
    /// The attempt was no longer running.
    NotRunning,
    /// The task was already sealed.
    Sealed,
    /// On the metadata topic: an entry of a higher epoch, or the end, was shown before.
    Late,
    /// The task's first entries are gone, so this is unknown.
    Unknown,
}

impl Ignored {
    pub(super) const fn of(reason: IgnoredReason) -> Self {
        match reason {
            IgnoredReason::EpochNotNext => Self::NotNext,
            IgnoredReason::AttemptNotAbove => Self::AttemptNotAbove,
            IgnoredReason::Terminal => Self::TaskEnded,
            IgnoredReason::Fenced => Self::Replaced,
            IgnoredReason::NotRunning => Self::NotRunning,
            IgnoredReason::Sealed | IgnoredReason::NotFolded => Self::Sealed,
        }
    }
}

/// Collects a task's history.
#[derive(Debug)]
pub(super) struct Collector {
    id: TaskId,
    fold: TaskFold,
    /// The last entry read follows entries that are gone.
    has_gap: bool,
    /// Some entry read so far follows entries that are gone.
    has_had_gap: bool,
    sealed: bool,
    ledger: Vec<(Option<OwnerId>, HistoryEntry)>,
    metadata: Vec<(Option<OwnerId>, HistoryEntry)>,
    /// The highest epoch shown, and whether it was the end.
    shown: Option<(u32, bool)>,
    workers: HashMap<OwnerId, Arc<WorkerIdentity>>,
    /// The lease holders by owner id.
    holders: HashMap<OwnerId, Arc<WorkerIdentity>>,
    lines: LinesKept,
    silences: Silences,
}

impl Collector {
    pub(super) fn new(id: TaskId) -> Self {
        Self {
            id,
            fold: TaskFold::default(),
            has_gap: false,
            has_had_gap: false,
            sealed: false,
            ledger: Vec::new(),
            metadata: Vec::new(),
            shown: None,
            workers: HashMap::new(),
            holders: HashMap::new(),
            lines: LinesKept::default(),
            silences: Silences::default(),
        }
    }

    /// Reads the next message of the ledger.
    pub(super) fn read_ledger(&mut self, found: MessageOrigin, message: &Message) {
        let Ok(entry) = ledger::read(message) else { return };
        self.silences.read(found, &entry, message.publish_time_ms);
        self.read_entry(&entry, message);
        self.silences.folded(&self.fold, &entry, message.publish_time_ms);
    }

    fn read_entry(&mut self, entry: &Entry, message: &Message) {
        match entry {
            Entry::Heartbeat(heartbeat) => {
                if self.workers.contains_key(&heartbeat.owner) {
                    return;
                }
                let said =
                    ledger::content(message).and_then(|content| WorkerIdentity::read(&content));
                self.workers.extend(said.map(|said| (heartbeat.owner, Arc::new(said))));
            }
            Entry::Seal(seal) if seal.entries.get(self.id.entry_id()).is_some() => {
                let ignored = self.sealed.then_some(Ignored::Sealed);
                self.sealed = true;
                self.fold = TaskFold::SEALED;
                self.note(message, None, Some(seal.key.owner), HistoryEvent::Sealed, ignored);
            }
            Entry::Claim(_)
            | Entry::Done(_)
            | Entry::Checkpoint(_)
            | Entry::Renewal(_)
            | Entry::Cancel(_) => {
                if entry.task() == Some(self.id) {
                    self.fold(entry, message);
                }
            }
            Entry::Seal(_) | Entry::Config(_) | Entry::Tombstone(_) => {}
        }
    }

    fn fold(&mut self, entry: &Entry, message: &Message) {
        let key = match entry.key() {
            Key::Once(key) => Some(key),
            Key::Seal(_) | Key::Cancel(_) | Key::Heartbeat(_) | Key::Config(_) => None,
        };
        let is_first = self.fold.epoch.0 == 0 && !self.sealed;
        let base = matches!(entry, Entry::Claim(claim) if claim.base.is_some());
        let first = |claim: &Claim| claim.key.epoch.0 == 1;
        let begins = base
            || matches!(entry, Entry::Cancel(_))
            || matches!(entry, Entry::Claim(claim) if first(claim));
        self.has_gap = if base { false } else { self.has_gap || (is_first && !begins) };
        self.has_had_gap |= self.has_gap;
        let verdict = self.fold.apply(entry);
        let ignored = match verdict {
            _ if self.has_gap && !self.sealed => Some(Ignored::Unknown),
            Verdict::Accepted => None,
            Verdict::Ignored(reason) => Some(Ignored::of(reason)),
        };
        let content = ledger::content(message).unwrap_or_default();
        let Some(event) = event(entry, &content) else { return };
        let (epoch, owner) = (key.map(|key| key.epoch.0), key.map(|key| key.owner));
        if let (HistoryEvent::Leased { worker, .. }, Some(owner)) = (&event, owner) {
            let holder = WorkerIdentity::named(worker);
            self.holders.insert(owner, Arc::new(holder));
        }
        self.note(message, epoch, owner, event, ignored);
    }

    fn note(
        &mut self,
        message: &Message,
        epoch: Option<u32>,
        owner: Option<OwnerId>,
        event: HistoryEvent,
        ignored: Option<Ignored>,
    ) {
        let on_ledger = !matches!(event, HistoryEvent::Shown { .. } | HistoryEvent::Evicted);
        let entry = HistoryEntry {
            position: message.position,
            published_ms: message.publish_time_ms,
            epoch,
            owner: owner.map(|owner| owner.to_string()),
            operator: ledger::operator(message).map(|(operator, _)| operator.to_owned()),
            worker: None,
            event,
            ignored,
        };
        let entries = if on_ledger { &mut self.ledger } else { &mut self.metadata };
        entries.push((owner, entry));
    }

    /// Reads the next message of the metadata topic.
    pub(super) fn read_metadata(&mut self, message: &Message) {
        match read_view_entry(message) {
            Some(ViewEntry::Updated(id, update)) if id == self.id => {
                let Update { shown, epoch, .. } = *update;
                let ended = shown.phase.is_terminal();
                let late = self.shown.is_some_and(|before| is_late(before, (epoch, ended)));
                if !late {
                    let high = self.shown.map_or(0, |(epoch, _)| epoch);
                    self.shown = Some((epoch.unwrap_or_default().max(high), ended));
                }
                let owner = message.properties.get("owner");
                let owner = owner.and_then(longhaul_core::protocol::key::parse_owner);
                let (state, attempts) = (shown.state(), shown.attempts);
                let (log, lines_lost) = self.lines.take(epoch, LogLines::read(&message.payload));
                let event = HistoryEvent::Shown { state, attempts, log, lines_lost };
                self.note(message, epoch, owner, event, late.then_some(Ignored::Late));
                self.lines.limit(&mut self.metadata);
            }
            Some(ViewEntry::Evicted(id)) if id == self.id => {
                self.shown = None;
                self.note(message, None, None, HistoryEvent::Evicted, None);
            }
            _ => {}
        }
    }

    /// The history as of `now_ms`.
    pub(super) fn finish(self, now_ms: u64) -> TaskHistory {
        let Self { id, has_had_gap, ledger, metadata, workers, holders, silences, .. } = self;
        // A task that is shown has been claimed, and a sealed task has ended.
        let claimed = |(_, entry): &(_, HistoryEntry)| entry.event != HistoryEvent::Sealed;
        let has_beginning =
            ledger.iter().any(claimed) || (ledger.is_empty() && metadata.is_empty());
        let entries = merge(ledger, metadata).into_iter().map(|(owner, entry)| {
            // The gateway claims a lease. All other entries of a lease are from its holder,
            // whichever gateway published them.
            let grants = matches!(entry.event, HistoryEvent::Leased { .. });
            let worker = owner.and_then(|owner| {
                let mut known = workers.iter();
                let mut granted = || known.find(|(worker, _)| owner.is_lease_of(**worker));
                let holder = || {
                    if grants { granted().map(|(_, holder)| holder) } else { holders.get(&owner) }
                };
                workers.get(&owner).or_else(holder).cloned()
            });
            HistoryEntry { worker, ..entry }
        });
        let silences = silences.finish(now_ms).into_iter().map(|(owner, silence)| {
            let worker = workers.get(&owner).or_else(|| holders.get(&owner)).cloned();
            HolderSilence { worker, ..silence }
        });
        TaskHistory {
            task: id,
            entries: entries.collect(),
            silences: silences.collect(),
            is_whole: has_beginning && !has_had_gap,
        }
    }
}

/// The log lines that the entries read so far have.
#[derive(Debug, Default)]
struct LinesKept {
    /// How many lines the attempt of each epoch has logged.
    logged: HashMap<Option<u32>, u64>,
    /// How many lines all entries have.
    count: usize,
    /// The entries before this one have none.
    oldest: usize,
}

impl LinesKept {
    /// The lines of an entry that no earlier one has, and how many are lost before them.
    fn take(&mut self, epoch: Option<u32>, log: LogLines) -> (Vec<String>, u64) {
        let logged = self.logged.entry(epoch).or_default();
        let before = std::mem::replace(logged, log.count().max(*logged));
        let (lines, lost) = log.behind(before);
        self.count += lines.len();
        (lines, lost)
    }

    /// Drops the oldest lines beyond the limit.
    fn limit(&mut self, entries: &mut [(Option<OwnerId>, HistoryEntry)]) {
        while self.count > LINES_MAX {
            let Some((_, entry)) = entries.get_mut(self.oldest) else { return };
            self.oldest += 1;
            if let HistoryEvent::Shown { log, lines_lost, .. } = &mut entry.event {
                self.count -= log.len();
                *lines_lost += log.len() as u64;
                log.clear();
            }
        }
    }
}

/// Merges both lists by time; each list keeps its order.
fn merge<T>(one: Vec<(T, HistoryEntry)>, other: Vec<(T, HistoryEntry)>) -> Vec<(T, HistoryEntry)> {
    let (mut one, mut other) = (one.into_iter().peekable(), other.into_iter().peekable());
    let mut merged = Vec::new();
    loop {
        let next = match (one.peek(), other.peek()) {
            (Some((_, a)), Some((_, b))) if b.published_ms < a.published_ms => other.next(),
            (Some(_), _) => one.next(),
            (None, _) => other.next(),
        };
        let Some(next) = next else { return merged };
        merged.push(next);
    }
}

fn event(entry: &Entry, content: &[u8]) -> Option<HistoryEvent> {
    let reason = || text::shortened(String::from_utf8_lossy(content).into_owned());
    Some(match entry {
        Entry::Claim(Claim { kind, attempt, lease_ms, .. }) => match kind {
            ClaimKind::Park => parked(content),
            ClaimKind::Offer(_) => HistoryEvent::Offered,
            ClaimKind::Run if lease_ms.is_some() => {
                let worker = text::shortened(holder_in(content).worker);
                HistoryEvent::Leased { attempt: *attempt, worker }
            }
            ClaimKind::Run => HistoryEvent::Claimed { attempt: *attempt },
            ClaimKind::Final => closed(TaskOutcome::Final, reason()),
            ClaimKind::Cancelled => closed(TaskOutcome::Cancelled, reason()),
            ClaimKind::Expired => closed(TaskOutcome::Expired, reason()),
        },
        Entry::Done(done @ Done { outcome, .. }) => match outcome {
            Outcome::Completed => HistoryEvent::Completed,
            Outcome::Failed(next) => {
                HistoryEvent::Failed { next_attempt_ms: next.at_ms, reason: reason() }
            }
            Outcome::Final => HistoryEvent::Ended { outcome: TaskOutcome::Final, reason: reason() },
            Outcome::Cancelled => {
                HistoryEvent::Ended { outcome: TaskOutcome::Cancelled, reason: reason() }
            }
            Outcome::Released(_) if done.parks() => parked(content),
            Outcome::Released(_) => HistoryEvent::Released,
        },
        Entry::Checkpoint(_) => HistoryEvent::Checkpoint { bytes: content.len() },
        Entry::Renewal(renewal) => {
            HistoryEvent::Renewed { lease_time: lease_time(renewal.lease_ms) }
        }
        Entry::Cancel(_) => HistoryEvent::CancelRequested { reason: reason() },
        Entry::Heartbeat(_) | Entry::Seal(_) | Entry::Config(_) | Entry::Tombstone(_) => {
            return None;
        }
    })
}

fn parked(content: &[u8]) -> HistoryEvent {
    let list = WaitsFor::of_content(content).unwrap_or_default();
    let waits_for = list.names.iter().map(ToString::to_string).collect();
    HistoryEvent::Parked { waits_for }
}

const fn closed(outcome: TaskOutcome, reason: String) -> HistoryEvent {
    HistoryEvent::Closed { outcome, reason }
}

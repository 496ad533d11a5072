//! The world around the machines: the ledger, the broker, and everything in flight.

use super::bounds::Bounds;
use super::fingerprint::Part;
use crate::judge::Judge;
use longhaul::{EntryId, Position, TaskId};
use longhaul_core::machine::Machine;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::fold::TaskFold;
use longhaul_core::protocol::key::{Epoch, Key, OwnerId};

/// A state of the world.
#[derive(Clone, Debug, Hash)]
pub struct World {
    /// The ledger.
    pub log: Part<Vec<Record>>,
    /// The workers.
    pub workers: Vec<Part<Worker>>,
    /// Entries in flight of workers that crashed or fenced themselves: they may still be stored.
    pub ghosts: Vec<Vec<Entry>>,
    /// The entries of the task topic.
    pub messages: Vec<Message>,
    /// Messages below this index are acknowledged for good.
    pub stored: u8,
    /// The worker that does not step.
    pub frozen: Option<u8>,
    /// The remaining faults.
    pub budget: Budget,
    /// The next owner id.
    pub next_owner: u8,
    /// The history, as far as the invariants need it.
    pub history: Part<Judge>,
}

/// An entry of the ledger.
#[derive(Clone, Debug, Hash)]
pub struct Record {
    /// The entry.
    pub entry: Entry,
    /// Whether compaction has removed it.
    pub removed: bool,
}

/// An entry of the task topic.
#[derive(Clone, Debug, Default, Hash)]
pub struct Message {
    /// The worker that has its delivery.
    pub at: Option<u8>,
    /// Whether it is acknowledged.
    pub acked: bool,
    /// Whether it can no longer be read.
    pub trimmed: bool,
}

/// The remaining faults, as in [`Bounds`].
#[derive(Clone, Copy, Debug, Hash)]
#[expect(missing_docs, reason = "each is described at the same field of `Bounds`")]
pub struct Budget {
    pub crash: u8,
    pub compact: u8,
    pub redeliver: u8,
    pub session: u8,
    pub spurious: u8,
    pub giveup: u8,
    pub cancel: u8,
    pub operate: u8,
    pub offers: u8,
    pub freeze: u8,
    pub thaw: u8,
    pub drain: u8,
    pub fences: u8,
    pub forgets: u8,
    pub merges: u8,
    pub after: u8,
}

/// A worker: the production machine and what surrounds it.
#[derive(Clone, Debug, Hash)]
pub struct Worker {
    /// The machine.
    pub machine: Machine,
    /// Index of the next record that it reads.
    pub cursor: u8,
    /// Where its bootstrap ends.
    pub end: u8,
    /// Publishes in flight.
    pub out: Vec<Entry>,
    /// Bodies that run.
    pub bodies: Vec<Body>,
    /// Other work in flight.
    pub effects: Vec<Effect>,
    /// Tasks whose claim in flight will come back late.
    pub late: u8,
    /// Messages that wait in the client's queue: the worker does not know of them.
    pub queue: u8,
    /// Tasks whose payload the driver has in memory.
    pub payloads: u8,
    /// Whether it takes nothing new and ends running attempts.
    pub draining: bool,
    /// Whether it is gone.
    pub left: bool,
}

/// A running body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Body {
    /// The task.
    pub task: u8,
    /// The epoch.
    pub epoch: Epoch,
    /// Whether the body was told that the task is cancelled.
    pub cancelled: bool,
}

/// Work that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// Reading the payload of a task.
    Payload(u8),
    /// Publishing the dead letter of a task.
    DeadLetter(u8),
    /// Publishing the dead letter, long after its receipt was faked.
    LateDeadLetter(u8),
    /// Showing the outcome of a task.
    View(u8),
    /// Showing the outcome, long after its receipt was faked.
    LateView(u8),
    /// Acknowledging a message.
    Ack(u8),
}

/// The partition of all tasks.
const PARTITION: i32 = 0;

impl Worker {
    /// A worker that must read the ledger up to `end` first.
    #[must_use]
    pub fn new(owner: u8, bounds: &Bounds, end: u8) -> Self {
        let Bounds { keys, .. } = *bounds;
        let mut machine = Machine::new(OwnerId(u128::from(owner)), bounds.workers_attempts());
        machine.set_letters(bounds.letters());
        machine.set_keys_max(if keys == 0 { usize::MAX } else { usize::from(keys) });
        if end == 0 {
            machine.bootstrap_ended();
        }
        Self {
            machine,
            cursor: 0,
            end,
            out: Vec::new(),
            bodies: Vec::new(),
            effects: Vec::new(),
            late: 0,
            queue: 0,
            payloads: 0,
            draining: false,
            left: false,
        }
    }

    /// Whether this task's claim in flight is late.
    #[must_use]
    pub const fn is_late(&self, task: u8) -> bool {
        self.late >> task & 1 == 1
    }
}

impl World {
    /// The first state.
    #[must_use]
    pub fn new(bounds: &Bounds) -> Self {
        let messages = if bounds.batch { 1 } else { bounds.tasks };
        Self {
            log: Part::new(Vec::new()),
            workers: (0..bounds.workers)
                .map(|number| Part::new(Worker::new(number, bounds, 0)))
                .collect(),
            ghosts: Vec::new(),
            messages: (0..messages).map(|_| Message::default()).collect(),
            stored: 0,
            frozen: None,
            budget: Budget {
                crash: bounds.crash,
                compact: bounds.compact,
                redeliver: bounds.redeliver,
                session: bounds.session,
                spurious: bounds.spurious,
                giveup: bounds.giveup,
                cancel: bounds.cancel,
                operate: bounds.operate,
                offers: bounds.offers,
                freeze: bounds.freeze,
                thaw: bounds.thaw,
                drain: bounds.drain,
                fences: bounds.fences,
                forgets: bounds.forgets,
                merges: bounds.merges,
                after: bounds.after,
            },
            next_owner: bounds.workers,
            history: Part::new(
                Judge::new(bounds.workers_attempts()).with_letters(bounds.letters()),
            ),
        }
    }

    /// Whether a worker can step at all.
    #[must_use]
    pub fn steps(&self, worker: usize) -> bool {
        self.frozen.map(usize::from) != Some(worker) && !self.workers[worker].left
    }

    /// Whether the owner keeps sending heartbeats.
    #[must_use]
    pub fn is_alive(&self, owner: OwnerId) -> bool {
        let of = |worker: &Worker| worker.machine.owners_alive().contains(&owner);
        self.workers.iter().enumerate().any(|(index, worker)| self.steps(index) && of(worker))
    }

    /// A follower's fold of the task's entries. `compacted`: without the entries that compaction
    /// removed.
    #[must_use]
    pub fn fold(&self, task: TaskId, compacted: bool) -> TaskFold {
        let mut fold = TaskFold::default();
        for record in self.log.iter().filter(|record| !(compacted && record.removed)) {
            match &record.entry {
                Entry::Seal(seal) if seal.entries.get(task.entry_id()).is_some() => {
                    return TaskFold::SEALED;
                }
                entry if entry.task() == Some(task) => drop(fold.apply(entry)),
                _ => {}
            }
        }
        fold
    }

    /// The next record for a reader at `cursor`.
    #[must_use]
    pub fn next_record(&self, cursor: u8) -> Option<usize> {
        let from = usize::from(cursor);
        let rest = self.log.iter().skip(from);
        rest.enumerate().find(|(_, record)| !record.removed).map(|(offset, _)| from + offset)
    }

    /// The number of acknowledged messages before the first unacknowledged one.
    #[must_use]
    pub fn mark_delete(&self) -> usize {
        self.messages.iter().take_while(|message| message.acked).count()
    }

    /// Whether the last entry of a key is a tombstone.
    #[must_use]
    pub fn is_gone(&self, key: Key) -> bool {
        let last = self.log.iter().rev().find(|record| record.entry.key() == key);
        last.is_some_and(|record| matches!(record.entry, Entry::Tombstone(_)))
    }

    /// Whether a key of a sealed task was tombstoned.
    #[must_use]
    pub fn is_swept(&self) -> bool {
        self.log.iter().any(|record| matches!(record.entry, Entry::Tombstone(_)))
    }

    /// The length of the ledger.
    #[must_use]
    pub fn end(&self) -> u8 {
        small(self.log.len())
    }
}

/// The id of a task.
#[must_use]
pub fn task_id(bounds: &Bounds, task: u8) -> TaskId {
    let (entry, batch_index) = if bounds.batch { (0, Some(u32::from(task))) } else { (task, None) };
    TaskId { ledger: 0, entry: u64::from(entry), partition: PARTITION, batch_index }
}

/// The number of a task.
#[must_use]
pub fn task_number(id: TaskId) -> u8 {
    id.batch_index.map_or_else(|| small(id.entry), small)
}

/// The tasks of a message.
pub fn members(bounds: &Bounds, message: u8) -> impl Iterator<Item = u8> + use<> {
    let (batch, tasks) = (bounds.batch, bounds.tasks);
    (0..tasks).filter(move |task| batch || *task == message)
}

/// The message of a task.
#[must_use]
pub const fn message_of(bounds: &Bounds, task: u8) -> u8 {
    if bounds.batch { 0 } else { task }
}

/// The entry id by which the broker acknowledges a message.
#[must_use]
pub fn entry_id(message: u8) -> EntryId {
    EntryId { ledger: 0, entry: u64::from(message) }
}

/// The position of a record in the ledger.
#[must_use]
pub fn position(index: usize) -> Position {
    Position { ledger: 0, entry: index as u64, batch_index: None }
}

/// Converts a number to `u8`. The worlds are small, so a larger number is a mistake in the
/// scenario.
///
/// # Panics
/// When the number does not fit.
#[must_use]
pub fn small<T: TryInto<u8>>(number: T) -> u8 {
    let number = number.try_into().ok();
    assert!(number.is_some(), "the world of a scenario outgrew a byte");
    number.unwrap_or(u8::MAX)
}

//! The world around the partitions: a clock, the ledger, the broker, and everything in flight.

use super::super::fingerprint::Part;
use super::bounds::TimedBounds;
use super::tamper::TimeFault;
use crate::judge::Judge;
use longhaul::{Position, TaskId};
use longhaul_core::partition::{Partition, PartitionSettings, Slots};
use longhaul_core::protocol::config::{LEDGER_FORMAT, LedgerConfig};
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::fold::TaskFold;
use longhaul_core::protocol::key::{Epoch, Key, OwnerId};
use longhaul_transport::moment::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The heartbeat interval. Short, so that an adopter's slot is one tick.
pub(super) const H: Duration = Duration::from_secs(1);
/// A tick: half a heartbeat interval.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// Ticks per heartbeat interval.
pub(super) const H_TICKS: u8 = 2;
/// The self-fence time: the shortest number of whole ticks above 2 heartbeat intervals.
pub(super) const G: Duration = Duration::from_millis(2500);
/// The ledger retention.
const R: Duration = Duration::from_secs(12);

/// All clocks begin here, so that no earlier time is cut off.
const START: Moment = Moment(Duration::from_secs(1_000));

/// The task.
pub(super) const TASK: TaskId = TaskId { ledger: 0, entry: 0, partition: 0, batch_index: None };

/// A state of the world.
#[derive(Clone, Debug, Hash)]
pub struct TimedWorld {
    /// The ledger.
    pub(super) log: Part<Log>,
    /// The workers.
    pub(super) workers: Vec<Part<Worker>>,
    /// Publishes in flight of workers that crashed, fenced themselves or lost their connection.
    /// They may still land.
    pub(super) ghosts: Vec<Vec<Sent>>,
    /// The worker to which the broker has delivered the task's message.
    pub(super) at: Option<u8>,
    /// Whether the message is acknowledged.
    pub(super) acked: bool,
    /// The stopped worker, and whether its clock stands still.
    pub(super) stopped: Option<(u8, bool)>,
    /// Whether there is an outage: no publish lands.
    pub(super) outage: bool,
    /// Ticks so far.
    pub(super) now: u8,
    /// The remaining budgets.
    pub(super) budget: Budget,
    /// The next owner id.
    pub(super) next_owner: u8,
    /// The history, as far as the invariants need it.
    pub(super) history: Part<Judge>,
}

/// The remaining budgets, as in [`TimedBounds`].
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Budget {
    pub(super) lag: u8,
    pub(super) outage: u8,
    pub(super) fail: u8,
    pub(super) crash: u8,
    pub(super) freeze: u8,
    pub(super) stand: u8,
    pub(super) giveup: u8,
    pub(super) lose: u8,
    pub(super) redeliver: u8,
    pub(super) cancel: u8,
    pub(super) compact: u8,
}

/// The ledger.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Log {
    /// The records that workers may still read one by one, in order.
    pub(super) records: Vec<Record>,
    /// The place of the last record.
    pub(super) end: u16,
    /// The owners of heartbeats that every worker has read. A bootstrap still reads the last one of
    /// each.
    pub(super) heard: BTreeSet<OwnerId>,
}

/// An entry of the ledger.
#[derive(Clone, Debug, Hash)]
pub(super) struct Record {
    pub(super) place: u16,
    pub(super) sent: Sent,
    /// The tick at which the entry landed.
    pub(super) landed: u8,
    /// Whether compaction has removed it.
    pub(super) removed: bool,
}

/// An entry that was published, and when.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) entry: Entry,
    pub(super) at: u8,
}

/// A worker: the production partition and what surrounds it.
#[derive(Clone, Debug, Hash)]
pub(super) struct Worker {
    pub(super) core: Partition,
    pub(super) slots: Slots,
    /// The place of the last record that the worker has read.
    pub(super) read: u16,
    /// Publishes in flight, in order.
    pub(super) out: Vec<Sent>,
    /// Entries that landed while the worker was stopped.
    pub(super) receipts: Vec<Entry>,
    /// Running bodies by epoch, and whether each was told that the task is cancelled.
    pub(super) bodies: BTreeMap<Epoch, bool>,
    /// Whether the worker has the payload.
    pub(super) payload: bool,
    /// Whether the worker has read the ledger and accepts deliveries.
    pub(super) consumes: bool,
    /// The ticks by which its clock is behind.
    pub(super) behind: u8,
    /// The judge's own account of what the worker has read, by the world's clock.
    pub(super) account: Account,
}

/// What a worker can know about live owners, by the world's clock.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Account {
    /// For each owner: when the last entry that the worker has read had landed.
    pub(super) spoke: BTreeMap<OwnerId, u8>,
    /// When the last own heartbeat that it has read was sent.
    pub(super) proof: Option<u8>,
    /// Since when own heartbeats have come back without a gap.
    pub(super) since: u8,
    /// The last live heartbeat read of each owner: when it was sent, and the worker's own clock in
    /// ticks when it was read.
    pub(super) beats: BTreeMap<OwnerId, (u8, u8)>,
    /// Whether the worker lost an entry.
    pub(super) lost: bool,
    /// The ticks for which the clock has stood still since a heartbeat of an owner was read.
    pub(super) stood: Option<u8>,
}

impl Worker {
    pub(super) fn new(bounds: &TimedBounds, number: u8, owner: u8, now: u8) -> Self {
        let halved = bounds.fault == TimeFault::HalfPatience && number == 1;
        let settings = PartitionSettings {
            ledger: LedgerConfig {
                version: 1,
                subscription: String::new(),
                heartbeat: if halved { H / 2 } else { H },
                ledger_retention: R,
                self_fence: G,
                format: LEDGER_FORMAT,
            },
            partition: TASK.partition,
            max_attempts: u32::from(bounds.attempts),
        };
        let (own, spare) = (owner_id(owner), owner_id(owner + 1));
        Self {
            core: Partition::new(settings, own, spare, moment(now)),
            slots: Slots::new(1),
            read: 0,
            out: Vec::new(),
            receipts: Vec::new(),
            bodies: BTreeMap::new(),
            payload: false,
            consumes: false,
            behind: 0,
            account: Account::default(),
        }
    }

    /// The worker's own clock.
    pub(super) fn clock(&self, now: u8) -> Moment {
        moment(now - self.behind)
    }

    /// Whether the worker must wait for publishes to land, and for entries to read.
    pub(super) fn lags(&self, log: &Log) -> [bool; 2] {
        [!self.out.is_empty(), self.read < log.end]
    }
}

impl TimedWorld {
    /// The first state.
    #[must_use]
    pub fn new(bounds: &TimedBounds) -> Self {
        let worker = |number| Part::new(Worker::new(bounds, number, 2 * number, 0));
        let mut world = Self {
            log: Part::new(Log::default()),
            workers: (0..bounds.workers).map(worker).collect(),
            ghosts: Vec::new(),
            at: None,
            acked: false,
            stopped: None,
            outage: false,
            now: 0,
            budget: Budget {
                lag: bounds.lag,
                outage: bounds.outage,
                fail: bounds.fail,
                crash: bounds.crash,
                freeze: bounds.freeze,
                stand: bounds.stand,
                giveup: bounds.giveup,
                lose: bounds.lose,
                redeliver: bounds.redeliver,
                cancel: bounds.cancel,
                compact: bounds.compact,
            },
            next_owner: 2 * bounds.workers,
            history: Part::new(Judge::new(u32::from(bounds.attempts))),
        };
        super::step::begin(bounds, &mut world);
        world
    }

    /// Whether a worker can step at all.
    pub(super) fn steps(&self, worker: usize) -> bool {
        self.stopped.is_none_or(|(stopped, _)| usize::from(stopped) != worker)
    }

    /// Whether the broker has a message that the worker accepts.
    pub(super) fn may_deliver(&self, worker: &Worker) -> bool {
        let waits = self.at.is_none() && !self.acked;
        let free = worker.consumes && worker.slots.free() > 0;
        waits && free && worker.core.may_take(worker.clock(self.now))
    }

    /// Whether nothing is in flight and every worker has read everything.
    pub(super) fn is_quiet(&self) -> bool {
        let settled = |worker: &Part<Worker>| worker.lags(&self.log) == [false; 2];
        self.stopped.is_none() && self.ghosts.is_empty() && self.workers.iter().all(settled)
    }

    /// Whether no trouble is under way: no outage, no publishes of dead incarnations, no running
    /// bodies.
    pub(super) fn is_sound(&self) -> bool {
        let idle = |worker: &Part<Worker>| worker.bodies.is_empty();
        let ended =
            self.workers.iter().enumerate().all(|(index, it)| idle(it) || !self.steps(index));
        !self.outage && self.ghosts.is_empty() && ended
    }

    /// A follower's fold of the task's entries. `compacted`: without the entries that compaction
    /// removed.
    pub(super) fn fold(&self, compacted: bool) -> TaskFold {
        let mut fold = TaskFold::default();
        for record in self.log.records.iter().filter(|record| !(compacted && record.removed)) {
            match &record.sent.entry {
                Entry::Seal(seal) if seal.entries.get(TASK.entry_id()).is_some() => {
                    return TaskFold::SEALED;
                }
                entry => drop(fold.apply(entry)),
            }
        }
        fold
    }

    /// Whether all keys of the task are gone.
    pub(super) fn is_swept(&self) -> bool {
        let records = &self.log.records;
        let gone = |(index, record): (usize, &Record)| {
            let tombstone = Entry::Tombstone(record.sent.entry.key());
            record.removed
                || record.sent.entry.task().is_none()
                || matches!(record.sent.entry, Entry::Tombstone(_))
                || records.iter().skip(index).any(|later| later.sent.entry == tombstone)
        };
        records.iter().enumerate().all(gone)
    }

    /// Describes the state.
    pub(super) fn show(&self) -> String {
        let sent = |sent: &Sent| format!("{}@{}", super::super::show::entry(&sent.entry), sent.at);
        let log: Vec<_> = self.log.records.iter().map(|record| sent(&record.sent)).collect();
        let mut text = format!("       tick {}, ledger: {}\n", self.now, log.join(" "));
        for (number, worker) in self.workers.iter().enumerate() {
            let machine = worker.core.machine();
            let out: Vec<_> = worker.out.iter().map(sent).collect();
            let state = machine.task(TASK).map(|task| (task.fold, task.stage, task.held));
            let stopped = if self.steps(number) { "" } else { " (stopped)" };
            text += &format!(
                "       worker {number}{stopped}: owner {}, read {}/{}, out [{}], {state:?}, {:?}\n",
                machine.owner().0,
                worker.read,
                self.log.end,
                out.join(" "),
                worker.account,
            );
        }
        text += &format!("       at {:?}, acked {}, {:?}", self.at, self.acked, self.budget);
        text
    }
}

/// The moment of a tick.
pub(super) fn moment(tick: u8) -> Moment {
    START + TICK * u32::from(tick)
}

/// The wall clock that all workers share, in ms.
pub(super) fn wall_ms(tick: u8) -> u64 {
    u64::try_from(moment(tick).0.as_millis()).unwrap_or(u64::MAX)
}

pub(super) const fn owner_id(owner: u8) -> OwnerId {
    OwnerId(owner as u128)
}

/// The position of a record. Heartbeats that only a bootstrap reads are before all records.
pub(super) const fn position(place: u16) -> Position {
    Position { ledger: 1, entry: place as u64, batch_index: None }
}

/// The owner of a heartbeat record. Heartbeats have one key for each owner.
pub(super) fn is_beat_of(record: &Record) -> Option<OwnerId> {
    match record.sent.entry.key() {
        Key::Heartbeat(owner) => Some(owner),
        Key::Once(_) | Key::Seal(_) | Key::Cancel(_) | Key::Config(_) => None,
    }
}

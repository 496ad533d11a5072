//! One worker on one partition of the ledger: the [`Machine`] with a clock. Pure: every call takes
//! the time, and the resulting work is returned as [`PartitionEffect`]s.
//!
//! The machine decides what follows from what; this module decides *when*: which owner is stale,
//! which retry is due, whether the view is fresh enough to claim, whether a claim came back in
//! time, when a finished task is sealed, and when the worker fences itself: `protocol::{silence,
//! rank}`.

mod admitting;
mod blocked;
mod bootstrap;
mod comparing;
mod delivering;
mod ended;
mod ends;
mod finishers;
mod handing_back;
mod holding;
mod judging;
mod leases;
mod lines;
mod looking;
mod parked;
mod reads;
mod scheduled;
mod sealing;
mod sent;
mod slots;
mod tickets;
mod unwanted;
mod wall;

use crate::agenda::Agenda;
use crate::machine::{Action, Machine, ReadEntry};
use crate::protocol::config::{LedgerConfig, LedgerConfigError};
use crate::protocol::entry::{Claim, ClaimKind, Entry, Outcome};
use crate::protocol::fold::{Phase, Verdict};
use crate::protocol::gap::Gaps;
use crate::protocol::hash::NameHash;
use crate::protocol::invariants::Violation;
use crate::protocol::key::{Epoch, OnceKey, OwnerId};
use crate::protocol::moment::Moment;
use crate::protocol::silence::{Lag, Silence};
use crate::protocol::waits::DependencyState;
use crate::task::{EntryId, Position, TaskId};
use admitting::Undecided;
use comparing::Comparing;
use ends::UndeliveredEnds;
use finishers::Finishers;
use looking::OpenTaskTimes;
use reads::Reads;
use scheduled::Scheduled;
use sealing::Finished;
use sent::Sent;
pub use slots::Slots;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
pub use tickets::ClaimLimits;
use tickets::PartitionTickets;
use unwanted::Unwanted;
use wall::WallClock;

/// The worker's settings that a partition needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionSettings {
    /// The settings that all workers of the ledger share: heartbeat interval, ledger retention,
    /// self-fence limit, subscription.
    pub ledger: LedgerConfig,
    /// The partition of the task topic; -1 without partitions.
    pub partition: i32,
    /// Maximum attempts of a task.
    pub max_attempts: u32,
}

/// An effect for the driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PartitionEffect {
    /// Perform the machine's action.
    Do(Action),
    /// The ledger was read to its end: start consuming.
    Ready,
    /// Another worker knows the ledger differently, also after this one has read the log.
    Differs {
        /// The other worker.
        other: OwnerId,
        /// How many more tasks and sealed entries the other one knows, if it knows more.
        lacks: u64,
        /// Whether this worker works all the same: somebody agrees with it, or it has worked before.
        works: bool,
    },
    /// The worker fenced itself: close the consumer, drop queued publishes, read the ledger again,
    /// draw a new [`Partition::set_spare_owner`]. Processors go on.
    Fenced,
    /// Another version of the ledger's settings keeps this worker out.
    Refused(LedgerConfigError),
    /// Take the tickets that the claim of this task needs: see [`Partition::grant_ticket`].
    AskForTicket(TaskId),
    /// Give back the tickets of this task.
    ReturnTicket(TaskId),
    /// Decide how this silent lease ends: see [`Partition::handle_lease_over`].
    LeaseOver(TaskId, Epoch),
    /// The claim of this task for a lease is no longer in flight.
    ClaimSettled(TaskId),
}

/// What the worker does with the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mode {
    /// It reads the ledger.
    Bootstrap,
    /// It works.
    Live,
    /// It works on what it has and takes nothing new.
    Draining,
}

/// A partition of a worker. See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Partition {
    settings: PartitionSettings,
    machine: Machine,
    /// The last position read.
    read_to: Option<Position>,
    silence: Silence,
    mode: Mode,
    /// Whether a drain was requested; it outlives a self-fence.
    draining: bool,
    started: Moment,
    wall: WallClock,
    /// The next owner id, drawn in advance: this module draws no random numbers.
    spare_owner: OwnerId,
    open: BTreeMap<TaskId, OpenTaskTimes>,
    /// The state of the dependencies of waiting tasks.
    waits: BTreeMap<TaskId, DependencyState>,
    agenda: Agenda<TaskId>,
    /// Tasks that wait for a free slot, in the order in which they became ready.
    waiting: Agenda<TaskId>,
    undecided: Undecided,
    tickets: PartitionTickets,
    /// Early deliveries; below, their order keys, the time of the next look, and whether the first
    /// waits for a slot.
    scheduled: Scheduled,
    kept_keys: BTreeMap<TaskId, NameHash>,
    next_kept: Option<Moment>,
    kept_is_due: bool,
    /// Tasks of types without a request.
    unwanted: Unwanted,
    /// Cancelled tasks that were delivered nowhere.
    ends: UndeliveredEnds,
    /// Tasks to claim or hand back when the next own heartbeat comes back.
    awaiting_heartbeat: BTreeSet<TaskId>,
    /// Payload reads in progress.
    reads: Reads,
    /// Tasks whose claim has a slot reserved, and when the claim was sent.
    claims: BTreeMap<TaskId, Moment>,
    /// Processors that have not ended, superseded or not, and the time by which each may begin.
    processors: BTreeMap<(TaskId, Epoch), Moment>,
    /// Slots given back since the last call of `run`.
    freed: usize,
    /// The last deliveries that went back to the broker.
    handed_back: VecDeque<EntryId>,
    sent: Sent,
    gaps: Gaps,
    comparing: Comparing,
    config: Option<LedgerConfig>,
    /// Whether this worker publishes its settings on a ledger that has none. A gateway does so when
    /// it leases its first task: before, a worker with other settings may come.
    shares_config: bool,
    finished: Finished,
    finishers: Finishers,
    /// Whether this worker was the first by rank when its last heartbeat came back.
    first: bool,
    effects: VecDeque<PartitionEffect>,
}

/// An entry read from the ledger.
#[derive(Clone, Debug)]
pub struct Inbound {
    /// Its position.
    pub position: Position,
    /// Publish time, in ms by its producer's wall clock.
    pub publish_time_ms: u64,
    /// The entry.
    pub entry: Entry,
}

impl Partition {
    /// Creates a partition that must read the ledger first. `owner` and `spare` are two fresh
    /// random ids.
    #[must_use]
    pub fn new(settings: PartitionSettings, owner: OwnerId, spare: OwnerId, now: Moment) -> Self {
        Self {
            machine: Machine::new(owner, settings.max_attempts),
            read_to: None,
            silence: Silence::new(settings.ledger.heartbeat),
            mode: Mode::Bootstrap,
            draining: false,
            started: now,
            wall: WallClock::default(),
            spare_owner: spare,
            open: BTreeMap::new(),
            waits: BTreeMap::new(),
            agenda: Agenda::default(),
            waiting: Agenda::default(),
            undecided: Undecided::default(),
            tickets: PartitionTickets::default(),
            scheduled: Scheduled::default(),
            kept_keys: BTreeMap::new(),
            next_kept: None,
            kept_is_due: false,
            unwanted: Unwanted::default(),
            ends: UndeliveredEnds::default(),
            reads: Reads::default(),
            awaiting_heartbeat: BTreeSet::new(),
            claims: BTreeMap::new(),
            processors: BTreeMap::new(),
            freed: 0,
            handed_back: VecDeque::new(),
            sent: Sent::default(),
            gaps: Gaps::default(),
            comparing: Comparing::default(),
            config: None,
            shares_config: true,
            finished: Finished::default(),
            finishers: Finishers::default(),
            first: false,
            effects: VecDeque::new(),
            settings,
        }
    }

    /// The machine.
    #[must_use]
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// How far this worker is behind in reading the ledger.
    #[must_use]
    pub fn lag(&self) -> Lag {
        self.silence.lag()
    }

    /// Replaces the owner id that a self-fence used up.
    pub const fn set_spare_owner(&mut self, owner: OwnerId) {
        self.spare_owner = owner;
    }

    /// Takes the next effect.
    pub fn poll_effect(&mut self) -> Option<PartitionEffect> {
        self.effects.pop_front()
    }

    /// Whether there is an effect.
    #[must_use]
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Handles an entry of the ledger at the wall-clock time `wall_ms`. Returns the verdict of the
    /// fold.
    pub fn handle_entry(
        &mut self,
        inbound: &Inbound,
        now: Moment,
        wall_ms: u64,
    ) -> Option<Verdict> {
        // Entries from before a self-fence may come until the follower is opened again: they prove
        // only that their owners were alive then.
        let is_void = matches!(self.effects.front(), Some(PartitionEffect::Fenced));
        if is_void || self.read_to.is_some_and(|position| inbound.position <= position) {
            return None;
        }
        self.read_to = Some(inbound.position);
        self.wall.set(now, wall_ms);
        self.record_owner(&inbound.entry, now);
        match &inbound.entry {
            Entry::Heartbeat(heartbeat) => self.handle_heartbeat(heartbeat, now),
            Entry::Config(config) => self.handle_config(config, now),
            Entry::Seal(seal) => self.handle_seal(inbound.position, seal, now),
            Entry::Claim(_)
            | Entry::Done(_)
            | Entry::Cancel(_)
            | Entry::Checkpoint(_)
            | Entry::Renewal(_)
            | Entry::Tombstone(_) => return self.handle_task_entry(inbound, now),
        }
        None
    }

    fn handle_task_entry(&mut self, inbound: &Inbound, now: Moment) -> Option<Verdict> {
        let id = inbound.entry.task();
        let was_over = id.is_some_and(|id| self.machine.fold(id).phase.is_terminal());
        let line = id.and_then(|id| self.machine.order_key(id));
        // A draining worker starts no attempt either: it is given back.
        let late = self.draining
            || id
                .and_then(|id| self.claims.get(&id))
                .is_some_and(|sent| now.since(*sent) > self.late_after(&inbound.entry));
        let gives_back = self.draining && self.gives_back(&inbound.entry);
        let verdict = self.machine.read(ReadEntry {
            position: inbound.position,
            entry: &inbound.entry,
            publish_time_ms: inbound.publish_time_ms,
            late,
        });
        if verdict.is_some() {
            self.gaps.read(&inbound.entry);
        }
        if let Some(id) = id.filter(|_| self.machine.is_ready()) {
            if late && self.is_own_run(&inbound.entry) {
                self.back_off(id, now);
            }
            if !was_over && self.machine.fold(id).phase.is_terminal() {
                self.finished.push(id.entry_id(), now, self.grain());
            }
            let moves = !self.machine.is_in_line(id) || self.machine.fold(id).is_parked();
            if let Some(line) = line.filter(|_| moves) {
                self.recheck_line(line, now);
            }
            self.recheck_own_end(id);
            self.update(id, matches!(inbound.entry, Entry::Cancel(_)), now);
            self.hear_lease(&inbound.entry, verdict, now);
            // A failure of this worker is shown first.
            if !self.is_own_failure(&inbound.entry) {
                self.drop_payload_until_due(id, now);
            }
            if gives_back && verdict == Some(Verdict::Accepted) {
                // No worker runs the task until another one takes it, which may take long.
                self.settle();
                self.pass_on(Action::ShowRetry(id));
            }
        }
        if let Entry::Claim(Claim { base: Some(_), .. }) = inbound.entry {
            self.sweep(now);
        }
        self.settle();
        if let Some(id) = id {
            self.settle_claim(id);
        }
        verdict
    }

    fn is_own_run(&self, entry: &Entry) -> bool {
        matches!(entry, Entry::Claim(claim @ Claim { kind: ClaimKind::Run, .. })
            if self.machine.is_claim_of_this_owner(claim))
    }

    /// Handles the receipt of a claim or an outcome.
    pub fn handle_receipt(&mut self, key: OnceKey) {
        self.sent.receipted(key);
    }

    /// Handles a claim or an outcome that may not be stored.
    pub fn handle_publish_failed(&mut self, key: OnceKey, now: Moment) {
        self.sent.given_up(key);
        self.machine.publish_failed(key);
        self.agenda.set_by(key.task, now);
        self.settle();
        self.settle_claim(key.task);
    }

    /// Handles an outcome that was refused because of its content: the attempt ends with `instead`.
    pub fn handle_publish_refused(&mut self, key: OnceKey, instead: Outcome) {
        self.sent.given_up(key);
        self.machine.publish_refused(key, instead);
        self.settle();
    }

    /// Handles the end of an attempt; its processor may go on: see
    /// [`Partition::handle_processor_gone`].
    pub fn handle_finished(&mut self, id: TaskId, epoch: Epoch, outcome: Outcome) {
        self.machine.finished(id, epoch, outcome);
        self.settle();
    }

    /// The key for a checkpoint of a running attempt; `None` if the attempt no longer runs.
    pub fn handle_checkpoint(&mut self, id: TaskId, epoch: Epoch) -> Option<OnceKey> {
        let key = self.machine.checkpoint(id, epoch);
        self.settle();
        key
    }

    /// Handles the receipt of a dead letter.
    pub fn handle_dead_letter_stored(&mut self, id: TaskId) {
        self.machine.dead_letter_stored(id);
        self.settle();
    }

    /// Handles the receipt of an ack.
    pub fn handle_acked(&mut self, entry: EntryId) {
        self.machine.acked(entry);
        self.settle();
    }

    /// Updates the times of a task after a change of its fold.
    fn update(&mut self, id: TaskId, cancelled: bool, now: Moment) {
        let fold = self.machine.task(id).map(|task| task.fold);
        let Some(fold) = fold.filter(|fold| !fold.phase.is_terminal()) else {
            if fold.is_some_and(|fold| fold.attempt == 0) && self.is_ended_from_outside(id) {
                // Its delivery may be kept here.
                self.look_for_kept(id, now);
            }
            self.open.remove(&id);
            self.waits.remove(&id);
            self.agenda.remove(id);
            self.undecided.tasks.remove(id);
            self.unwanted.remove(id);
            return;
        };
        let due = now + Duration::from_millis(fold.next_attempt.delay_ms);
        let open = self.open.entry(id).or_insert_with(|| OpenTaskTimes::new(&fold, now, due));
        open.follow(&fold, due);
        if cancelled {
            open.was_cancelled(now);
        }
        self.agenda.set(id, now);
        // An operator has rescheduled it: its own time does not count any more.
        let waits_for_time = fold.phase == Phase::Retry && fold.next_attempt.is_timed();
        let rescheduled = waits_for_time && fold.attempt == 0 && fold.epoch == Epoch(1);
        if cancelled && fold.phase == Phase::New || rescheduled {
            self.look_for_kept(id, now);
        }
    }

    /// Passes on the actions of the machine.
    fn settle(&mut self) {
        while let Some(action) = self.machine.poll_action() {
            self.pass_on(action);
        }
    }

    fn pass_on(&mut self, action: Action) {
        if self.leaves_to_finisher(&action) {
            return;
        }
        if let Action::Publish(entry) = &action
            && let Some(key) = entry.counted()
        {
            if self.machine.is_own(key.owner) {
                self.sent.published(key);
            } else {
                self.sent.published_for_lease(key, self.machine.owner());
            }
            self.record_end(entry);
        }
        self.record_attended(&action);
        if let Action::Start { task, epoch, .. } = action {
            // The slot of the claim becomes that of the processor; the slot of a lease is free
            // again.
            let sent = self.claims.remove(&task);
            self.freed += usize::from(self.machine.leases());
            let begin_by = sent.map(|sent| sent + self.settings.ledger.heartbeat);
            self.processors.insert((task, epoch), begin_by.unwrap_or_default());
        }
        if let Action::SetAside { violation: Violation { task: Some(task), .. }, .. } = action {
            self.awaiting_heartbeat.insert(task);
            self.settle_claim(task);
        }
        self.effects.push_back(PartitionEffect::Do(action));
    }
}

#[cfg(test)]
mod tests;

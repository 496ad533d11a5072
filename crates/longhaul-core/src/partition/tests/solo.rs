//! One partition with an exact clock. It wakes only by its own timer, and a test decides whether
//! each of its publishes lands, fails or is lost.

use super::*;
use crate::protocol::entry::{Done, Heartbeat, NextAttempt};

/// Another worker. It is after this one in the line for shared duties.
pub(super) const OTHER: OwnerId = OwnerId(10);

pub(super) const MILLISECOND: Duration = Duration::from_millis(1);

/// The most wake-ups with an action in a test. More of them mean that the partition spins.
const STEPS_MAX: usize = 50_000;

pub(super) struct Solo {
    pub(super) core: Partition,
    pub(super) slots: Slots,
    pub(super) now: Moment,
    /// Whether own heartbeats come back at once.
    pub(super) echoes: bool,
    /// Workers that publish a heartbeat whenever this one does.
    pub(super) alive: Vec<OwnerId>,
    /// Own heartbeats, in order.
    pub(super) beats: Vec<Heartbeat>,
    /// The last position read from the ledger.
    pub(super) place: u64,
    /// The last serial of another worker's keys.
    serial: u64,
}

/// A partition whose bootstrap has ended, and the time.
pub(super) fn live() -> (Partition, Moment) {
    let mut pair = Pair::new(1);
    let now = pair.now;
    (pair.workers.remove(0).core, now)
}

pub(super) fn effects(core: &mut Partition) -> Vec<PartitionEffect> {
    std::iter::from_fn(|| core.poll_effect()).collect()
}

pub(super) fn land(core: &mut Partition, place: u64, entry: Entry, now: Moment) {
    let position = Position { ledger: 2, entry: place, batch_index: None };
    core.handle_entry(&Inbound { position, publish_time_ms: WALL_MS, entry }, now, WALL_MS);
}

pub(super) fn task(entry: u64) -> TaskId {
    TaskId { entry, ..TASK }
}

pub(super) fn once(task: TaskId, epoch: u32, owner: OwnerId, serial: u64) -> OnceKey {
    OnceKey { task, epoch: Epoch(epoch), owner, serial }
}

/// Another worker's claim of a first attempt.
pub(super) fn claimed(task: TaskId) -> Entry {
    let (key, kind) = (once(task, 1, OTHER, 1), ClaimKind::Run);
    Entry::Claim(Claim::plain(key, 1, kind))
}

/// The entry that ends the claim.
pub(super) fn ended(task: TaskId, outcome: Outcome) -> Entry {
    Entry::Done(Done { key: once(task, 1, OTHER, 2), attempt: 1, outcome, writer: None })
}

pub(super) fn failed(delay: Duration) -> Outcome {
    let delay_ms = u64::try_from(delay.as_millis()).unwrap();
    Outcome::Failed(NextAttempt::new(WALL_MS + delay_ms, delay_ms))
}

/// Another worker's heartbeat.
pub(super) fn beat(uptime: Duration, receipted: u64) -> Entry {
    Entry::Heartbeat(Heartbeat {
        owner: OTHER,
        subscription: "longhaul".to_owned(),
        number: 1,
        receipted,
        underway: 0,
        uptime_ms: u64::try_from(uptime.as_millis()).unwrap(),
        ..Heartbeat::default()
    })
}

pub(super) fn reading(task: TaskId) -> PartitionEffect {
    PartitionEffect::Do(Action::ReadPayload(task))
}

pub(super) fn dropped(task: TaskId) -> PartitionEffect {
    PartitionEffect::Do(Action::DropPayload(task))
}

/// The published claims, in order.
pub(super) fn claims<'a>(effects: impl IntoIterator<Item = &'a PartitionEffect>) -> Vec<Claim> {
    let claim = |effect: &PartitionEffect| {
        let PartitionEffect::Do(Action::Publish(Entry::Claim(claim))) = effect else { return None };
        Some(*claim)
    };
    effects.into_iter().filter_map(claim).collect()
}

impl Solo {
    /// A partition whose bootstrap has ended.
    pub(super) fn new(slots: usize) -> Self {
        let (core, now) = live();
        Self::of(core, slots, now)
    }

    /// A partition that has read nothing.
    pub(super) fn fresh(slots: usize) -> Self {
        Self::with(LedgerConfig::default(), slots)
    }

    /// A partition that has read nothing, with these settings of the ledger.
    pub(super) fn with(ledger: LedgerConfig, slots: usize) -> Self {
        let now = Moment(Duration::from_secs(10_000));
        Self::of(Partition::new(settings(ledger), OwnerId(1), OwnerId(100), now), slots, now)
    }

    fn of(core: Partition, slots: usize, now: Moment) -> Self {
        let (alive, beats) = (Vec::new(), Vec::new());
        let slots = Slots::new(slots);
        Self { core, slots, now, echoes: true, alive, beats, place: 0, serial: 1_000 }
    }

    pub(super) fn read(&mut self, entry: Entry) {
        self.place += 1;
        land(&mut self.core, self.place, entry, self.now);
    }

    /// Another worker has failed at the task, which is due again after this delay.
    pub(super) fn read_failed(&mut self, task: TaskId, delay: Duration) {
        self.read(claimed(task));
        self.read(ended(task, failed(delay)));
    }

    pub(super) fn deliver(&mut self, task: TaskId) {
        let facts = new_task(&self.core, self.now);
        self.core.handle_delivery(task, &facts, self.now);
    }

    /// Reads the entry now. Returns its immediate effects.
    pub(super) fn land(&mut self, entry: Entry) -> Vec<PartitionEffect> {
        self.read(entry);
        self.effects()
    }

    /// The effects of the last call.
    pub(super) fn effects(&mut self) -> Vec<PartitionEffect> {
        effects(&mut self.core)
    }

    /// Does what is due now, until nothing is left. Returns the effects without own heartbeats.
    pub(super) fn run(&mut self) -> Vec<PartitionEffect> {
        let mut did = Vec::new();
        for _ in 0..STEPS_MAX {
            self.core.run(self.now, &mut self.slots);
            match self.core.poll_effect() {
                None => return did,
                Some(PartitionEffect::Do(Action::Publish(Entry::Heartbeat(beat)))) => {
                    self.beat(beat)
                }
                Some(effect) => did.push(effect),
            }
        }
        panic!("it does not come to rest: {:?}", did.last());
    }

    /// Publishes a heartbeat, and those of the other live workers.
    fn beat(&mut self, beat: Heartbeat) {
        for owner in self.alive.clone() {
            let (receipted, underway, max_attempts) = (0, 0, None);
            let other =
                Heartbeat { owner, number: 1, receipted, underway, max_attempts, ..beat.clone() };
            let other = Heartbeat { shown_to: None, leased: None, ..other };
            self.read(Entry::Heartbeat(other));
        }
        self.beats.push(beat.clone());
        if self.echoes {
            self.read(Entry::Heartbeat(beat));
        }
    }

    /// Lets time pass; the partition wakes only by its timer. Returns the effects with their times.
    pub(super) fn run_for(&mut self, time: Duration) -> Vec<(Moment, PartitionEffect)> {
        let until = self.now + time;
        let mut did = Vec::new();
        for _ in 0..STEPS_MAX {
            did.extend(self.run().into_iter().map(|effect| (self.now, effect)));
            let next = self.core.timeout().max(self.now);
            if next > until {
                self.now = until;
                return did;
            }
            self.now = next;
        }
        panic!("it does not sleep: {:?}", did.last());
    }

    /// The same, with times from the beginning of the wait.
    pub(super) fn wait(&mut self, time: Duration) -> Vec<(Duration, PartitionEffect)> {
        let begin = self.now;
        let did = self.run_for(time).into_iter();
        did.map(|(at, effect)| (at.since(begin), effect)).collect()
    }

    /// Claims a new task and reads the claim back, so that the task runs.
    pub(super) fn start(&mut self, task: TaskId) -> OnceKey {
        self.deliver(task);
        let claim = claims(&self.run()).pop().expect("a slot is free");
        self.land_claim(claim);
        let starts =
            |effect: &PartitionEffect| matches!(effect, PartitionEffect::Do(Action::Start { .. }));
        assert!(self.run().iter().any(starts));
        claim.key
    }

    /// Stores an own claim and reads it back.
    pub(super) fn land_claim(&mut self, claim: Claim) {
        self.core.handle_receipt(claim.key);
        self.read(Entry::Claim(claim));
    }

    fn key(&mut self, task: TaskId) -> OnceKey {
        self.serial += 1;
        once(task, 1, OTHER, self.serial)
    }

    /// Another worker claims the task.
    pub(super) fn claimed(&mut self, id: TaskId, batch_size: Option<u32>) {
        let (key, kind) = (self.key(id), ClaimKind::Run);
        self.land(Entry::Claim(Claim { batch_size, ..Claim::plain(key, 1, kind) }));
    }

    /// Another worker claims all tasks of this batch.
    pub(super) fn claimed_batch<const N: usize>(&mut self, batch: TaskId) -> [TaskId; N] {
        let size = u32::try_from(N).unwrap();
        let index = |at| Some(u32::try_from(at).unwrap());
        let tasks = std::array::from_fn(|at| TaskId { batch_index: index(at), ..batch });
        for id in tasks {
            self.claimed(id, Some(size));
        }
        tasks
    }

    /// Another worker, which has claimed the task, ends it.
    pub(super) fn ended(&mut self, id: TaskId, outcome: Outcome) {
        let key = self.key(id);
        self.land(Entry::Done(Done { key, attempt: 1, outcome, writer: None }));
    }

    /// Another worker has completed the task, and this one does nothing about it.
    pub(super) fn completed(&mut self, id: TaskId) {
        self.claimed(id, None);
        self.ended(id, Outcome::Completed);
    }

    /// Another worker has completed the task, and this one has closed it.
    pub(super) fn closed(&mut self, id: TaskId) {
        self.completed(id);
        self.deliver(id);
        self.see_to(id);
    }

    /// Confirms the entry on the metadata topic and the ack.
    pub(super) fn see_to(&mut self, id: TaskId) {
        self.core.handle_metadata_stored(id);
        self.core.handle_acked(id.entry_id());
        self.effects();
    }
}

/// The only published entry.
#[track_caller]
pub(super) fn published(effects: &[PartitionEffect]) -> Entry {
    let entries = effects.iter().filter_map(|effect| {
        let PartitionEffect::Do(Action::Publish(entry)) = effect else { return None };
        Some(entry.clone())
    });
    match entries.collect::<Vec<_>>().as_slice() {
        [entry] => entry.clone(),
        other => panic!("not one entry: {other:?} of {effects:?}"),
    }
}

/// The key of a published claim or outcome.
#[track_caller]
pub(super) fn key_of(entry: &Entry) -> OnceKey {
    let Key::Once(key) = entry.key() else { panic!("{entry:?} is not of a task") };
    key
}

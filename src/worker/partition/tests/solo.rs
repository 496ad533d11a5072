//! One partition whose clock goes exactly where it is told, and which wakes only when its own timer says so.

use super::holding::{land, live};
use super::*;
use crate::protocol::entry::{Done, Heartbeat, NextAttempt};

/// Another worker.
pub(super) const OTHER: OwnerId = OwnerId(9);

/// In this time it may wake, and ask for effects, so often at most: beyond that it spins.
const STEPS_MAX: usize = 2_000;

pub(super) struct Solo {
    pub(super) core: Partition,
    pub(super) slots: Slots,
    pub(super) now: Moment,
    /// Own heartbeats come back at once.
    pub(super) echoes: bool,
    /// Own heartbeats, in order.
    pub(super) beats: Vec<Heartbeat>,
    /// The last place of the ledger that was read.
    pub(super) place: u64,
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
    Entry::Claim(Claim { key, attempt: 1, kind, batch_size: None, base: None })
}

/// What ends it.
pub(super) fn ended(task: TaskId, outcome: Outcome) -> Entry {
    Entry::Done(Done { key: once(task, 1, OTHER, 2), attempt: 1, outcome })
}

pub(super) fn failed(delay: Duration) -> Outcome {
    let delay_ms = u64::try_from(delay.as_millis()).unwrap();
    Outcome::Failed(NextAttempt { at_ms: WALL_MS + delay_ms, delay_ms })
}

/// Another worker's heartbeat.
pub(super) fn beat(uptime: Duration, receipted: u64) -> Entry {
    Entry::Heartbeat(Heartbeat {
        owner: OTHER,
        subscription: "longhaul".to_owned(),
        number: 1,
        receipted,
        underway: Some(0),
        uptime_ms: u64::try_from(uptime.as_millis()).unwrap(),
    })
}

pub(super) fn reading(task: TaskId) -> Effect {
    Effect::Do(Action::ReadPayload(task))
}

/// What it claims, in order.
pub(super) fn claims<'a>(effects: impl IntoIterator<Item = &'a Effect>) -> Vec<Claim> {
    let claim = |effect: &Effect| {
        let Effect::Do(Action::Publish(Entry::Claim(claim))) = effect else { return None };
        Some(*claim)
    };
    effects.into_iter().filter_map(claim).collect()
}

impl Solo {
    /// Its bootstrap has ended.
    pub(super) fn new(slots: usize) -> Self {
        let (core, now) = live();
        Self::of(core, slots, now)
    }

    /// It has read nothing.
    pub(super) fn fresh(slots: usize) -> Self {
        let ledger = crate::WorkerConfig::default().ledger();
        let settings = PartitionSettings { ledger, partition: -1, attempts_max: 3 };
        let now = Moment(Duration::from_secs(10_000));
        Self::of(Partition::new(settings, OwnerId(1), OwnerId(100), now), slots, now)
    }

    fn of(core: Partition, slots: usize, now: Moment) -> Self {
        Self { core, slots: Slots::new(slots), now, echoes: true, beats: Vec::new(), place: 0 }
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
        self.core.handle_delivery(task, None, self.now);
    }

    /// Does what is due now, until nothing is left. Returns the effects without own heartbeats.
    pub(super) fn run(&mut self) -> Vec<Effect> {
        let mut did = Vec::new();
        for _ in 0..STEPS_MAX {
            self.core.run(self.now, &mut self.slots);
            match self.core.poll_effect() {
                None => return did,
                Some(Effect::Do(Action::Publish(Entry::Heartbeat(beat)))) => {
                    self.beats.push(beat.clone());
                    if self.echoes {
                        self.read(Entry::Heartbeat(beat));
                    }
                }
                Some(effect) => did.push(effect),
            }
        }
        panic!("it does not come to rest: {:?}", did.last());
    }

    /// So long it is called only when its timer says so. Returns the effects, and how long after the beginning they came.
    pub(super) fn wait(&mut self, time: Duration) -> Vec<(Duration, Effect)> {
        let begin = self.now;
        let mut did = Vec::new();
        for _ in 0..STEPS_MAX {
            did.extend(self.run().into_iter().map(|effect| (self.now.since(begin), effect)));
            let next = self.core.timeout().max(self.now);
            if next > begin + time {
                self.now = begin + time;
                return did;
            }
            self.now = next;
        }
        panic!("it does not sleep: {:?}", did.last());
    }

    /// Claims a new task and reads the claim back: it runs.
    pub(super) fn start(&mut self, task: TaskId) -> OnceKey {
        self.deliver(task);
        let claim = claims(&self.run()).pop().expect("a slot is free");
        self.land_claim(claim);
        let starts = |effect: &Effect| matches!(effect, Effect::Do(Action::Start { .. }));
        assert!(self.run().iter().any(starts));
        claim.key
    }

    /// An own claim is stored, and comes back.
    pub(super) fn land_claim(&mut self, claim: Claim) {
        self.core.handle_receipt(claim.key);
        self.read(Entry::Claim(claim));
    }
}

//! The effects of a step on the timed world.

use super::super::fingerprint::Part;
use super::super::world::small;
use super::bounds::TimedBounds;
use super::moves::{TimedMove, lag};
use super::tamper::TimeFault;
use super::world::{
    Account, Log, Record, Sent, TASK, TimedWorld, Worker, is_beat_of, owner_id, position, wall_ms,
};
use longhaul_core::facts::TaskFacts;
use longhaul_core::partition::Inbound;
use longhaul_core::protocol::entry::{Entry, Heartbeat, NextAttempt, Outcome};
use longhaul_core::protocol::fold::Verdict;
use longhaul_core::protocol::invariants::{FOLLOWERS, Violation};
use longhaul_core::protocol::key::{Epoch, Key};

/// A world in the middle of a step.
pub(super) struct Steps<'a> {
    pub(super) bounds: &'a TimedBounds,
    pub(super) world: TimedWorld,
    pub(super) violations: &'a mut Vec<Violation>,
}

/// Performs the workers' first steps.
pub(super) fn begin(bounds: &TimedBounds, world: &mut TimedWorld) {
    let mut violations = Vec::new();
    let mut steps = Steps { bounds, world: world.clone(), violations: &mut violations };
    for worker in 0..bounds.workers {
        steps.worker(worker, |_, _| {});
    }
    *world = steps.world;
}

/// The world after a step.
pub(super) fn step(
    bounds: &TimedBounds,
    world: &TimedWorld,
    step: TimedMove,
    violations: &mut Vec<Violation>,
) -> TimedWorld {
    let mut after = Steps { bounds, world: world.clone(), violations };
    after.take(step);
    let after = after.world;
    if bounds.only_notices() {
        violations.retain(|violation| violation.id == FOLLOWERS);
    }
    after
}

impl Steps<'_> {
    fn take(&mut self, step: TimedMove) {
        match step {
            TimedMove::Tick => self.tick(),
            TimedMove::Deliver { to } => {
                self.world.at = Some(to);
                self.worker(to, |after, worker| {
                    worker.payload = true;
                    let now = worker.clock(after.world.now);
                    worker.core.handle_delivery(TASK, &TaskFacts::default(), now);
                });
            }
            TimedMove::Redeliver => {
                self.world.budget.redeliver -= 1;
                self.world.at = None;
            }
            TimedMove::BrokerTimeout => self.world.at = None,
            TimedMove::Read { worker } => self.read_on(worker),
            TimedMove::Lose { worker } => {
                self.world.budget.lose -= 1;
                self.worker(worker, Self::lose);
            }
            TimedMove::Complete { worker } => {
                self.worker(worker, |after, state| after.end_body(state, Outcome::Completed));
            }
            TimedMove::Fail { worker } => self.fail(worker),
            TimedMove::Obey { worker } => {
                self.worker(worker, |after, state| after.end_body(state, Outcome::Cancelled));
            }
            TimedMove::Crash { worker } => self.crash(worker),
            TimedMove::Stop { worker, clock } => {
                let budget = &mut self.world.budget;
                *(if clock { &mut budget.stand } else { &mut budget.freeze }) -= 1;
                self.world.stopped = Some((worker, clock));
            }
            TimedMove::GoOn => self.go_on(),
            TimedMove::Compact => self.compact(),
            _ => self.carry(step),
        }
    }

    /// Steps of publishes in flight.
    fn carry(&mut self, step: TimedMove) {
        match step {
            TimedMove::Land { worker } => {
                let count = self.world.workers[usize::from(worker)].out.len();
                for _ in 0..if self.bounds.coarse { count } else { 1 } {
                    self.land(worker);
                }
            }
            TimedMove::Expire { worker } => self.worker(worker, |after, state| {
                let first = state.out.remove(0);
                after.publish_failed(state, &first);
            }),
            TimedMove::GhostLand { ghost } => {
                let ghost = usize::from(ghost);
                let sent = self.world.ghosts[ghost].remove(0);
                self.world.ghosts.retain(|left| !left.is_empty());
                self.append(sent);
            }
            TimedMove::GhostLost { ghost } => drop(self.world.ghosts.remove(usize::from(ghost))),
            TimedMove::ConnectionLost { worker } => {
                self.world.budget.giveup -= 1;
                self.worker(worker, |after, state| {
                    let out = std::mem::take(&mut state.out);
                    for sent in &out {
                        after.publish_failed(state, sent);
                    }
                    after.haunt(out);
                });
            }
            TimedMove::Outage { begins } => {
                self.world.budget.outage -= u8::from(begins);
                self.world.outage = begins;
            }
            TimedMove::Cancel => {
                self.world.budget.cancel -= 1;
                let at = self.world.now;
                self.append(Sent { entry: Entry::Cancel(TASK), at });
            }
            _ => {}
        }
    }

    fn tick(&mut self) {
        let (cost, _) = lag(self.bounds, &self.world);
        self.world.budget.lag = self.world.budget.lag.saturating_sub(cost);
        self.world.now += 1;
        for index in 0..self.world.workers.len() {
            if !self.world.steps(index) {
                if self.world.stopped.is_some_and(|(_, clock)| clock) {
                    self.world.workers[index].change(|worker| worker.behind += 1);
                }
                continue;
            }
            let worker = &self.world.workers[index];
            if worker.core.timeout() <= worker.clock(self.world.now) {
                self.worker(small(index), |_, _| {});
            }
        }
    }

    fn read_on(&mut self, worker: u8) {
        let read = |world: &TimedWorld| world.workers[usize::from(worker)].read;
        let (end, mut before) = (self.world.log.end, 0);
        while read(&self.world) >= before && read(&self.world) < end {
            before = read(&self.world);
            self.worker(worker, Self::read);
            if !self.bounds.coarse {
                break;
            }
        }
    }

    /// Reads the next entry of the ledger. A bootstrap first reads the heartbeats that every other
    /// worker has read.
    fn read(&mut self, worker: &mut Worker) {
        let now = self.world.now;
        if worker.read == 0 {
            for owner in self.world.log.heard.clone() {
                let beat = Heartbeat {
                    owner,
                    subscription: String::new(),
                    number: 0,
                    receipted: 0,
                    uptime_ms: 0,
                    ..Heartbeat::default()
                };
                let place = u64::try_from(owner.0).unwrap_or(u64::MAX);
                let place = longhaul::Position { ledger: 0, entry: place, batch_index: None };
                let inbound =
                    Inbound { position: place, publish_time_ms: 0, entry: Entry::Heartbeat(beat) };
                worker.core.handle_entry(&inbound, worker.clock(now), wall_ms(now));
            }
        }
        let next = self.world.next_record(worker.read).cloned();
        let Some(record) = next else {
            worker.read = self.world.log.end;
            return;
        };
        worker.read = record.place;
        let sent = worker.clock(record.sent.at.max(worker.behind));
        let clock = worker.clock(now);
        let fault = self.bounds.fault;
        let clock = fault.time_of_reading(worker, &record.sent.entry, sent, clock);
        let inbound = Inbound {
            position: position(record.place),
            publish_time_ms: wall_ms(record.sent.at),
            entry: fault.told(&record.sent.entry),
        };
        let wall = if fault == TimeFault::RetryDueAfterBootstrap { u64::MAX } else { wall_ms(now) };
        let owner = worker.core.machine().owner();
        let verdict = worker.core.handle_entry(&inbound, clock, wall);
        if verdict == Some(Verdict::Accepted) {
            let fold = worker.core.machine().fold(TASK);
            self.history(|history| history.accepted(&record.sent.entry, &fold));
        }
        if worker.core.machine().owner() == owner {
            self.take_account(worker, &record);
        }
    }

    fn lose(&mut self, worker: &mut Worker) {
        let next = self.world.next_record(worker.read);
        let Some(record) = next else { return };
        worker.read = record.place;
        worker.account.lost = true;
    }

    fn land(&mut self, worker: u8) {
        let steps = self.world.steps(usize::from(worker));
        let mut landed = None;
        self.worker(worker, |after, state| {
            let sent = state.out.remove(0);
            if steps {
                after.receipt(state, &sent.entry);
            } else {
                state.receipts.push(sent.entry.clone());
            }
            landed = Some(sent);
        });
        if let Some(sent) = landed {
            self.append(sent);
        }
    }

    pub(super) fn append(&mut self, sent: Sent) {
        if let Entry::Seal(seal) = &sent.entry
            && seal.entries.get(TASK.entry_id()).is_some()
        {
            let fold = self.world.fold(false);
            self.history(|history| history.sealed(TASK, &fold));
        }
        let landed = self.world.now;
        self.world.log.change(|log| {
            log.end += 1;
            log.records.push(Record { place: log.end, sent, landed, removed: false });
        });
    }

    /// Ends the running body with the lowest epoch.
    fn end_body(&mut self, worker: &mut Worker, outcome: Outcome) {
        let Some((epoch, _)) = worker.bodies.pop_first() else { return };
        self.ended(worker, epoch, outcome);
    }

    fn ended(&self, worker: &mut Worker, epoch: Epoch, outcome: Outcome) {
        worker.core.handle_finished(TASK, epoch, outcome);
        worker.core.handle_processor_gone(TASK, epoch, worker.clock(self.world.now));
    }

    fn fail(&mut self, worker: u8) {
        self.world.budget.fail -= 1;
        let now = self.world.now;
        let (at, retry) = (now + self.bounds.retry, u64::from(self.bounds.retry));
        let tick = u64::try_from(super::world::TICK.as_millis()).unwrap_or(u64::MAX);
        let next = NextAttempt::new(wall_ms(at), retry * tick);
        let attempts = u32::from(self.bounds.attempts);
        self.worker(worker, |after, state| {
            let last = state.core.machine().fold(TASK).attempt >= attempts;
            let outcome = if last { Outcome::Final } else { Outcome::Failed(next) };
            after.end_body(state, outcome);
        });
    }

    fn crash(&mut self, worker: u8) {
        self.world.budget.crash -= 1;
        let index = usize::from(worker);
        let out = self.world.workers[index].out.clone();
        self.haunt(out);
        let owner = self.world.next_owner;
        self.world.next_owner += 2;
        let new = Worker::new(self.bounds, worker, owner, self.world.now);
        self.world.workers[index] = Part::new(new);
        self.drop_delivery(worker);
        self.worker(worker, |_, _| {});
    }

    fn go_on(&mut self) {
        let Some((worker, clock)) = self.world.stopped.take() else { return };
        self.worker(worker, |after, state| {
            if clock {
                state.account.stood = Some(state.behind);
            }
            for entry in std::mem::take(&mut state.receipts) {
                after.receipt(state, &entry);
            }
        });
    }

    /// Ends the incarnation. Its publishes in flight may still land.
    pub(super) fn fenced(&mut self, number: u8, worker: &mut Worker) {
        let spare = owner_id(self.world.next_owner);
        self.world.next_owner += 1;
        worker.core.set_spare_owner(spare);
        self.haunt(std::mem::take(&mut worker.out));
        worker.receipts.clear();
        worker.read = 0;
        worker.consumes = false;
        worker.payload = worker.core.machine().task(TASK).is_some_and(|known| known.payload);
        worker.account = Account::default();
        self.drop_delivery(number);
    }

    fn haunt(&mut self, out: Vec<Sent>) {
        // Heartbeats of dead owners are dropped: no worker waits for them, and they would only add
        // states.
        let kept: Vec<Sent> =
            out.into_iter().filter(|sent| !matches!(sent.entry, Entry::Heartbeat(_))).collect();
        if !kept.is_empty() {
            self.world.ghosts.push(kept);
        }
    }

    fn drop_delivery(&mut self, worker: u8) {
        if self.world.at == Some(worker) {
            self.world.at = None;
        }
    }

    /// Keeps the last entry of each key, and no tombstone.
    fn compact(&mut self) {
        self.world.budget.compact -= 1;
        self.world.log.change(|log| {
            let keys: Vec<Key> = log.records.iter().map(|record| record.sent.entry.key()).collect();
            for (index, key) in keys.iter().enumerate() {
                let later = keys[index + 1..].contains(key);
                let record = &mut log.records[index];
                let tombstone = matches!(record.sent.entry, Entry::Tombstone(_));
                record.removed |= is_beat_of(record).is_none() && (later || tombstone);
            }
        });
    }

    /// Removes heartbeats that every worker has read.
    pub(super) fn tidy(&mut self) {
        let read = self.world.workers.iter().map(|worker| worker.read).min().unwrap_or(0);
        let old = |record: &Record| record.place <= read && is_beat_of(record).is_some();
        if self.world.log.records.iter().any(old) {
            self.world.log.change(|log: &mut Log| {
                for record in log.records.iter().filter(|record| old(record)) {
                    let Some(owner) = is_beat_of(record) else { continue };
                    if matches!(record.sent.entry, Entry::Tombstone(_)) {
                        log.heard.remove(&owner);
                    } else {
                        log.heard.insert(owner);
                    }
                }
                log.records.retain(|record| !old(record));
            });
        }
    }
}

impl TimedWorld {
    /// The next record for a reader.
    pub(super) fn next_record(&self, read: u16) -> Option<&Record> {
        self.log.records.iter().find(|record| record.place > read && !record.removed)
    }
}

//! The effects of steps on the world.

use super::bounds::Bounds;
use super::fingerprint::Part;
use super::moves::{End, Move, expires, is_seen_only, judge, offers};
use super::settle::Settle;
use super::tamper::Fault;
use super::world::{
    Effect, Worker, World, entry_id, members, position, small, task_id, task_number,
};
use longhaul_core::machine::{ReadEntry, Stage};
use longhaul_core::protocol::claim::{Decision, NextClaim};
use longhaul_core::protocol::entry::{Claim, Entry, NextAttempt, Outcome};
use longhaul_core::protocol::fold::Verdict;
use longhaul_core::protocol::hash::NameHash;
use longhaul_core::protocol::invariants::Violation;
use longhaul_core::protocol::key::{Epoch, Key, OnceKey, OwnerId};

/// The world after a step.
pub fn step(bounds: &Bounds, world: &World, step: Move, violations: &mut Vec<Violation>) -> World {
    let mut after = Settle { bounds, world: world.clone(), violations };
    if bounds.after < u8::MAX && world.is_swept() && step.counts_after(bounds, world) {
        after.world.budget.after -= 1;
    }
    match step {
        Move::Deliver { .. }
        | Move::Redeliver { .. }
        | Move::BrokerTimeout { .. }
        | Move::Trim { .. }
        | Move::Persist
        | Move::BrokerRestart => after.broker(step),
        Move::GhostLand { .. }
        | Move::Compact { .. }
        | Move::Cancel { .. }
        | Move::Operate { .. } => after.ledger(step),
        Move::Freeze { worker } => {
            after.world.budget.freeze -= 1;
            after.world.frozen = Some(worker);
        }
        Move::Thaw => after.thaw(),
        Move::Crash { worker, landing } => after.crash(worker, landing),
        Move::Leave { worker } => after.leave(worker),
        Move::Fence { worker, landing } => after.fence(worker, landing),
        Move::Land { worker } => after.land(worker),
        Move::LandTwice { worker } => {
            after.world.budget.giveup -= 1;
            let first = after.world.workers[usize::from(worker)].out[0].clone();
            after.append(first);
        }
        Move::Receive { worker, .. }
        | Move::SessionLost { worker }
        | Move::Read { worker }
        | Move::Take { worker, .. }
        | Move::Expire { worker, .. }
        | Move::Offer { worker, .. }
        | Move::Finish { worker, .. }
        | Move::ConnectionLost { worker }
        | Move::GiveUp { worker, .. }
        | Move::Seal { worker, .. }
        | Move::Merge { worker }
        | Move::Sweep { worker, .. }
        | Move::Effect { worker, .. }
        | Move::Close { worker, .. }
        | Move::Drain { worker } => {
            after.worker(worker, |after, state| after.worker_step(step, worker, state));
        }
    }
    after.world
}

impl Settle<'_> {
    fn broker(&mut self, step: Move) {
        match step {
            Move::Deliver { message, to } => {
                self.world.messages[usize::from(message)].at = Some(to);
                self.worker(to, |after, worker| {
                    if after.bounds.queue {
                        worker.queue |= 1 << message;
                    } else {
                        after.deliver(message, worker);
                    }
                });
            }
            Move::Redeliver { message } => {
                self.world.budget.redeliver -= 1;
                self.take_back(message);
            }
            Move::BrokerTimeout { message } => self.take_back(message),
            Move::Trim { message } => self.world.messages[usize::from(message)].trimmed = true,
            Move::Persist => self.world.stored = small(self.world.mark_delete()),
            Move::BrokerRestart => {
                self.world.budget.forgets -= 1;
                let stored = usize::from(self.world.stored);
                for message in self.world.messages.iter_mut().skip(stored) {
                    if message.acked {
                        message.acked = false;
                        message.at = None;
                    }
                }
            }
            _ => {}
        }
    }

    fn ledger(&mut self, step: Move) {
        match step {
            Move::GhostLand { ghost } => {
                let ghost = usize::from(ghost);
                let entry = self.world.ghosts[ghost].remove(0);
                self.world.ghosts.retain(|entries| !entries.is_empty());
                let entry = self.land_of_operator(entry);
                self.append(entry);
            }
            Move::Compact { end } => {
                self.world.budget.compact -= 1;
                self.compact(usize::from(end));
            }
            Move::Operate { task, action } => self.operate(task, action),
            Move::Cancel { task } => {
                self.world.budget.cancel -= 1;
                self.append(Entry::Cancel(task_id(self.bounds, task)));
            }
            _ => {}
        }
    }

    /// Keeps the last entry of each key below `end`, and no tombstone.
    fn compact(&mut self, end: usize) {
        let fault = self.bounds.fault;
        self.world.log.change(|log| {
            let keys: Vec<Key> =
                log.iter().take(end).map(|record| fault.compaction_key(&record.entry)).collect();
            for (index, key) in keys.iter().enumerate() {
                let later = keys[index + 1..].contains(key);
                let tombstone = matches!(log[index].entry, Entry::Tombstone(_));
                log[index].removed |= later || tombstone;
            }
        });
    }

    fn land(&mut self, worker: u8) {
        let mut landed = None;
        self.worker(worker, |_, worker| {
            let entry = worker.out.remove(0);
            let tombstone = |entry: &Entry| matches!(entry, Entry::Tombstone(_));
            if tombstone(&entry) && !worker.out.iter().any(tombstone) {
                worker.machine.tombstoned(true);
            }
            landed = Some(entry);
        });
        if let Some(entry) = landed {
            self.append(entry);
        }
    }

    fn thaw(&mut self) {
        self.world.budget.thaw -= 1;
        let Some(worker) = self.world.frozen.take() else { return };
        let bounds = *self.bounds;
        self.worker(worker, |_, state| {
            for task in 0..bounds.tasks {
                let stage = state.machine.task(task_id(&bounds, task)).map(|task| task.stage);
                if matches!(stage, Some(Stage::Claiming { .. })) {
                    state.late |= 1 << task;
                }
            }
            if bounds.lease == 2 {
                for body in std::mem::take(&mut state.bodies) {
                    let id = task_id(&bounds, body.task);
                    let outcome = failure(&bounds, state.machine.fold(id).attempt);
                    state.machine.finished(id, body.epoch, outcome);
                }
            }
        });
    }

    fn crash(&mut self, worker: u8, landing: u8) {
        self.world.budget.crash -= 1;
        let index = usize::from(worker);
        let out = self.world.workers[index].out.clone();
        self.haunt(out, landing);
        let owner = self.world.next_owner;
        self.world.next_owner += 1;
        let new = Worker::new(owner, self.bounds, self.world.end());
        self.world.workers[index] = Part::new(new);
        self.drop_deliveries(worker);
    }

    fn leave(&mut self, worker: u8) {
        let index = usize::from(worker);
        let gone = Worker { left: true, ..Worker::new(worker, self.bounds, 0) };
        self.world.workers[index] = Part::new(gone);
        self.drop_deliveries(worker);
    }

    fn fence(&mut self, worker: u8, landing: u8) {
        let index = usize::from(worker);
        self.world.budget.fences -= 1;
        let out = self.world.workers[index].out.clone();
        self.haunt(out, landing);
        let owner = self.world.next_owner;
        self.world.next_owner += 1;
        self.drop_deliveries(worker);
        self.worker(worker, |after, state| {
            state.machine.fence(OwnerId(u128::from(owner)));
            state.cursor = 0;
            state.end = after.world.end();
            state.out.clear();
            state.effects.clear();
            (state.late, state.queue) = (0, 0);
            // The payload of a kept attempt stays in memory.
            for task in 0..after.bounds.tasks {
                let known = state.machine.task(task_id(after.bounds, task));
                if !known.is_some_and(|known| known.payload) {
                    state.payloads &= !(1 << task);
                }
            }
            if state.end == 0 {
                state.machine.bootstrap_ended();
            }
        });
    }

    /// Entries in flight of a dead incarnation may still be stored, in order.
    fn haunt(&mut self, mut out: Vec<Entry>, landing: u8) {
        out.truncate(usize::from(landing));
        if !out.is_empty() {
            self.world.ghosts.push(out);
            self.world.ghosts.sort_by_key(|entries| entries.first().map(Entry::key));
        }
    }

    fn drop_deliveries(&mut self, worker: u8) {
        for message in &mut self.world.messages {
            if message.at == Some(worker) {
                message.at = None;
            }
        }
    }

    fn take_back(&mut self, message: u8) {
        self.world.messages[usize::from(message)].at = None;
    }

    fn deliver(&mut self, message: u8, worker: &mut Worker) {
        let bounds = self.bounds;
        let size = bounds.batch_size();
        for task in members(bounds, message) {
            worker.payloads |= 1 << task;
            worker.machine.delivered(task_id(bounds, task), size);
            worker.machine.record_limits(task_id(bounds, task), bounds.limits());
            if bounds.ordered && bounds.fault != Fault::NoLine {
                worker.machine.line_up(task_id(bounds, task), NameHash::of(b"key"));
            }
        }
    }

    fn worker_step(&mut self, step: Move, number: u8, worker: &mut Worker) {
        match step {
            Move::Receive { message, .. } => {
                worker.queue &= !(1 << message);
                self.deliver(message, worker);
            }
            Move::SessionLost { .. } => {
                self.world.budget.session -= 1;
                worker.machine.session_lost();
                worker.queue = 0;
                self.drop_deliveries(number);
            }
            Move::Read { .. } => self.read(worker),
            Move::Seal { .. } | Move::Merge { .. } | Move::Sweep { .. } => {
                self.sealing(step, worker);
            }
            Move::Take { task, live_owner, .. } => self.take(worker, task, live_owner),
            Move::Expire { task, .. } => {
                if let Some(claim) = expires(self.bounds, worker, task) {
                    worker.late &= !(1 << task);
                    worker.machine.claim(task_id(self.bounds, task), claim);
                }
            }
            Move::Offer { task, .. } => {
                self.world.budget.offers -= 1;
                if let Some(claim) = offers(self.bounds, worker, task) {
                    worker.machine.claim(task_id(self.bounds, task), claim);
                }
            }
            Move::Finish { body, end, .. } => self.finish(worker, usize::from(body), end),
            Move::ConnectionLost { .. } => {
                self.world.budget.giveup -= 1;
                for entry in std::mem::take(&mut worker.out) {
                    match entry {
                        Entry::Tombstone(_) => worker.machine.tombstoned(false),
                        entry => publish_failed(worker, &entry.key()),
                    }
                }
            }
            Move::GiveUp { task, .. } => {
                self.world.budget.giveup -= 1;
                if let Some(key) = last_publish(worker, task_id(self.bounds, task)) {
                    worker.machine.publish_failed(key);
                }
            }
            Move::Effect { index, .. } => {
                let effect = worker.effects.remove(usize::from(index));
                self.perform(worker, effect);
            }
            Move::Close { task, .. } => worker.machine.close(task_id(self.bounds, task)),
            Move::Drain { .. } => {
                self.world.budget.drain -= 1;
                worker.draining = true;
            }
            _ => {}
        }
    }

    fn read(&mut self, worker: &mut Worker) {
        let Some(index) = self.world.next_record(worker.cursor) else {
            worker.cursor = self.world.end();
            return self.end_bootstrap(worker);
        };
        worker.cursor = small(index + 1);
        let entry = self.world.log[index].entry.clone();
        let late = entry.task().is_some_and(|id| worker.is_late(task_number(id)));
        let late = (late && self.bounds.fault != Fault::LateClaimRun) || worker.draining;
        if let Entry::Seal(seal) = &entry {
            worker.machine.read_seal(position(index), seal);
        }
        let awaited = entry.task().and_then(|id| last_publish(worker, id)).map(Key::Once);
        let awaited = awaited == Some(entry.key());
        let read = ReadEntry { position: position(index), entry: &entry, publish_time_ms: 0, late };
        let verdict = worker.machine.read(read);
        if self.bounds.fault == Fault::CancelIgnored
            && awaited
            && let Entry::Claim(claim) = &entry
            && worker.machine.fold(claim.key.task).cancel
        {
            self.start(worker, claim.key.task, claim.key.epoch, claim.attempt);
        }
        if verdict == Some(Verdict::Accepted)
            && let Some(id) = entry.task()
        {
            let fold = worker.machine.fold(id);
            self.history(|history| history.accepted(&entry, &fold));
        }
        self.end_bootstrap(worker);
    }

    fn end_bootstrap(&mut self, worker: &mut Worker) {
        if !worker.machine.is_ready() && worker.cursor >= worker.end {
            worker.machine.bootstrap_ended();
        }
    }

    fn take(&mut self, worker: &mut Worker, task: u8, live_owner: bool) {
        let id = task_id(self.bounds, task);
        let (mut decision, _) = judge(self.bounds, &self.world, worker, task);
        if decision == Decision::ReadPayload {
            worker.machine.read_payload(id);
            if self.bounds.fetch {
                // The claim follows after the payload was read and all conditions were checked
                // again.
                return;
            }
            if self.bounds.fault != Fault::ClaimBeforePayload {
                worker.payloads |= 1 << task;
            }
            if self.bounds.fault != Fault::BatchUnknown {
                worker.machine.record_batch_size(id, self.bounds.batch_size());
            }
            worker.machine.payload_read(id, true);
            worker.machine.record_limits(id, self.bounds.limits());
            let _ = worker.machine.poll_action();
            (decision, _) = judge(self.bounds, &self.world, worker, task);
        }
        let Decision::Claim(claim) = decision else { return };
        if live_owner {
            self.world.budget.spurious -= 1;
        }
        worker.late &= !(1 << task);
        if self.bounds.fault == Fault::NewWithoutDelivery
            && worker.machine.task(id).is_some_and(|task| is_seen_only(&task))
        {
            // The machine would not publish it.
            let key =
                OnceKey { task: id, epoch: Epoch(1), owner: worker.machine.owner(), serial: 100 };
            let NextClaim { kind, attempt } = claim;
            return self.publish(worker, Entry::Claim(Claim::plain(key, attempt, kind)));
        }
        worker.machine.claim(id, claim);
    }

    fn finish(&mut self, worker: &mut Worker, body: usize, end: End) {
        let body = worker.bodies.remove(body);
        let id = task_id(self.bounds, body.task);
        let attempt = worker.machine.fold(id).attempt;
        let outcome = match end {
            End::Completed => Outcome::Completed,
            End::Failed => failure(self.bounds, attempt),
            End::Cancelled => Outcome::Cancelled,
            End::Released => Outcome::Released(NextAttempt::AFTER_DRAIN),
        };
        if !self.bounds.fail && end == End::Failed {
            self.world.budget.spurious -= 1;
        }
        worker.machine.finished(id, body.epoch, outcome);
    }
}

fn failure(bounds: &Bounds, attempt: u32) -> Outcome {
    if attempt < u32::from(bounds.attempts) {
        Outcome::Failed(NextAttempt::default())
    } else {
        Outcome::Final
    }
}

fn publish_failed(worker: &mut Worker, key: &Key) {
    match key {
        Key::Once(key) => worker.machine.publish_failed(*key),
        Key::Seal(_) => worker.machine.seal_failed(),
        _ => {}
    }
}

/// The key of the publish that the machine waits for.
fn last_publish(worker: &Worker, id: longhaul::TaskId) -> Option<OnceKey> {
    match worker.machine.task(id)?.stage {
        Stage::Claiming { epoch, serial, .. } => {
            Some(OnceKey { task: id, epoch, owner: worker.machine.owner(), serial })
        }
        Stage::Finishing { epoch, owner, serial, .. } => {
            Some(OnceKey { task: id, epoch, owner, serial })
        }
        _ => None,
    }
}

/// Passes the broker's ack to the machine.
pub(super) fn acknowledge(after: &mut Settle<'_>, worker: &mut Worker, message: u8) {
    let entry = &mut after.world.messages[usize::from(message)];
    let first = !std::mem::replace(&mut entry.acked, true);
    entry.at = None;
    if first {
        for task in members(after.bounds, message) {
            let id = task_id(after.bounds, task);
            after.history(|history| history.acked(id));
        }
    }
    worker.machine.acked(entry_id(message));
}

/// Adds an effect in flight, once.
pub(super) fn begin(worker: &mut Worker, effect: Effect) {
    if !worker.effects.contains(&effect) {
        worker.effects.push(effect);
        worker.effects.sort_unstable();
    }
}

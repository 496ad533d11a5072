//! Performs the partitions' effects as production's driver does, and judges them.

use super::super::check::tell_history;
use super::super::fingerprint::Part;
use super::step::Steps;
use super::tamper::TimeFault;
use super::world::{
    G, H, H_TICKS, Record, Sent, TASK, TICK, TimedWorld, Worker, position, wall_ms,
};
use crate::judge::Judge;
use longhaul_core::facts::TaskFacts;
use longhaul_core::machine::{Action, Stage, Stop};
use longhaul_core::partition::{Inbound, PartitionEffect};
use longhaul_core::protocol::claim::NextClaim;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Entry};
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::invariants::{
    ADOPTION, DUE, FOLLOWERS, KEYS, TAKEOVER, Violation, may_claim,
};
use longhaul_core::protocol::key::{Key, OwnerId};

impl Steps<'_> {
    /// Lets a worker step, and performs its partition's effects.
    pub(super) fn worker(&mut self, number: u8, act: impl FnOnce(&mut Self, &mut Worker)) {
        let index = usize::from(number);
        let mut worker = Worker::clone(&self.world.workers[index]);
        act(self, &mut worker);
        if self.world.steps(index) {
            loop {
                worker.core.run(worker.clock(self.world.now), &mut worker.slots);
                let Some(effect) = worker.core.poll_effect() else { break };
                self.perform(number, &mut worker, effect);
            }
        }
        self.world.workers[index] = Part::new(worker);
        self.tidy();
    }

    /// Records something in the history, and collects the violations.
    pub(super) fn history(&mut self, tell: impl FnOnce(&mut Judge)) {
        tell_history(&mut self.world.history, self.violations, tell);
    }

    fn perform(&mut self, number: u8, worker: &mut Worker, effect: PartitionEffect) {
        match effect {
            PartitionEffect::Ready => worker.consumes = true,
            PartitionEffect::Fenced => self.fenced(number, worker),
            // No worker of the model grants leases, its queue has no limits, and its log loses
            // nothing.
            PartitionEffect::Refused(_)
            | PartitionEffect::Differs { .. }
            | PartitionEffect::LeaseOver(..)
            | PartitionEffect::ClaimSettled(_)
            | PartitionEffect::AskForTicket(_)
            | PartitionEffect::ReturnTicket(_) => {}
            PartitionEffect::Do(action) => self.act(number, worker, action),
        }
    }

    fn act(&mut self, number: u8, worker: &mut Worker, action: Action) {
        let now = worker.clock(self.world.now);
        match action {
            Action::Publish(entry) => self.publish(worker, entry),
            Action::Tombstone(keys) => {
                for key in keys {
                    self.publish(worker, Entry::Tombstone(key));
                }
            }
            Action::Start { epoch, attempt, .. } | Action::Attend { epoch, attempt, .. } => {
                let fold = worker.core.machine().fold(TASK);
                let owner = match worker.core.machine().task(TASK).map(|task| task.stage) {
                    Some(Stage::Running(run)) => run.owner,
                    _ => worker.core.machine().owner(),
                };
                self.history(|history| history.started(TASK, (epoch, owner), attempt, &fold));
                worker.bodies.insert(epoch, false);
            }
            Action::SetAside { violation, .. } => self.violations.push(violation),
            Action::Stop { epoch, why: Stop::Fenced | Stop::SetAside | Stop::LetGo, .. } => {
                // A superseded body ends at once: these scenarios are not about the time that it
                // takes.
                if worker.bodies.remove(&epoch).is_some() {
                    worker.core.handle_processor_gone(TASK, epoch, now);
                }
            }
            Action::Stop { epoch, why: Stop::Cancelled, .. } => {
                worker.bodies.entry(epoch).and_modify(|cancelled| *cancelled = true);
            }
            Action::ReadPayload(id) => {
                worker.payload = true;
                worker.core.handle_payload(id, Some(&TaskFacts::default()), now);
            }
            Action::DropPayload(_) => worker.payload = false,
            Action::ShowRetry(_) => {}
            Action::DeadLetter(id) => {
                self.history(|history| history.dead_letter_stored(id));
                worker.core.handle_dead_letter_stored(id);
            }
            Action::ShowOutcome(id) => {
                let fold = worker.core.machine().fold(id);
                self.history(|history| history.view_shown(id, fold.phase, &fold));
                worker.core.handle_metadata_stored(id);
            }
            Action::Ack(_) => {
                self.world.at = None;
                if !std::mem::replace(&mut self.world.acked, true) {
                    self.history(|history| history.acked(TASK));
                }
                worker.core.handle_acked(TASK.entry_id());
            }
            Action::HandBack(_) => {
                if self.world.at == Some(number) {
                    self.world.at = None;
                }
            }
        }
    }

    fn publish(&mut self, worker: &mut Worker, entry: Entry) {
        match &entry {
            // All workers have the same settings, except for faults in settings.
            Entry::Config(_) => return,
            Entry::Claim(claim) => self.judge_claim(worker, claim),
            _ => {}
        }
        if is_used(&self.world, worker, &entry) {
            let what = "a write-once key was used again";
            self.violations.push(Violation { id: KEYS, what, task: entry.task() });
        }
        worker.out.push(Sent { entry, at: self.world.now });
    }

    pub(super) fn receipt(&mut self, worker: &mut Worker, entry: &Entry) {
        if let Some(key) = entry.counted() {
            worker.core.handle_receipt(key);
        }
        let tombstone = |sent: &Sent| matches!(sent.entry, Entry::Tombstone(_));
        if matches!(entry, Entry::Tombstone(_)) && !worker.out.iter().any(tombstone) {
            worker.core.handle_tombstoned(true, worker.clock(self.world.now));
        }
        if self.bounds.fault == TimeFault::ProofWithoutReading {
            self.pretend_reading(worker, entry);
        }
    }

    /// The fate of a publish is unknown.
    pub(super) fn publish_failed(&mut self, worker: &mut Worker, sent: &Sent) {
        let now = worker.clock(self.world.now);
        if let Some(key) = sent.entry.counted() {
            worker.core.handle_publish_failed(key, now);
        }
        if matches!(sent.entry, Entry::Tombstone(_)) {
            worker.core.handle_tombstoned(false, now);
        }
        if self.bounds.fault == TimeFault::OutageIgnored {
            self.pretend_reading(worker, &sent.entry);
        }
    }

    /// Treats an own heartbeat as read.
    fn pretend_reading(&self, worker: &mut Worker, entry: &Entry) {
        let Entry::Heartbeat(beat) = entry else { return };
        if !worker.core.machine().is_ready() {
            return;
        }
        // Directly after the last record read.
        let behind = Some(u32::try_from(beat.number).unwrap_or(u32::MAX));
        let place = longhaul::Position { batch_index: behind, ..position(worker.read) };
        let inbound = Inbound { position: place, publish_time_ms: 0, entry: entry.clone() };
        let now = self.world.now;
        worker.core.handle_entry(&inbound, worker.clock(now), wall_ms(now));
    }

    /// Checks that a claim may be published now, by the world's knowledge, not the worker's.
    fn judge_claim(&mut self, worker: &Worker, claim: &Claim) {
        let machine = worker.core.machine();
        let Some(known) = machine.task(TASK) else { return };
        let next = NextClaim { kind: claim.kind, attempt: claim.attempt };
        if !may_claim(&known.fold, known.held, worker.payload, next) {
            let what = "claimed without a delivery, a known state or the payload";
            self.violated(ADOPTION, what);
        }
        let fold = known.fold;
        if fold.phase == Phase::Running && !worker.is_silent(fold.owner) {
            self.violated(TAKEOVER, "taken over from an owner that was not silent for 2 H");
        }
        if fold.phase == Phase::Retry && claim.kind == ClaimKind::Run {
            let goes_first = known.held || machine.is_own(fold.owner);
            let patience = if goes_first { 0 } else { 2 * H_TICKS };
            let due = fold.next_attempt.at_ms + wall_ms(patience) - wall_ms(0);
            if fold.next_attempt.at_ms > 0 && wall_ms(self.world.now) < due {
                self.violated(DUE, "claimed before its next attempt was due");
            }
        }
    }

    fn violated(&mut self, id: &'static str, what: &'static str) {
        self.violations.push(Violation { id, what, task: Some(TASK) });
    }

    /// Records what a worker has read, and checks that it noticed what it had to.
    pub(super) fn take_account(&mut self, worker: &mut Worker, record: &Record) {
        let machine = worker.core.machine();
        let (ready, own_owner) = (machine.is_ready(), machine.owner());
        let Some(owner) = author(&record.sent.entry) else { return };
        let (now, sent) = (self.world.now, record.sent.at);
        let clock = now - worker.behind;
        let Entry::Heartbeat(_) = record.sent.entry else {
            worker.account.spoke.insert(owner, record.landed);
            return;
        };
        let account = &mut worker.account;
        if owner == own_owner {
            let gap = account.proof.is_none_or(|proof| 2 * (sent - proof) > 3 * H_TICKS);
            if gap {
                account.since = if account.proof.is_none() { now } else { sent };
            }
            account.proof = Some(sent);
            return;
        }
        account.spoke.insert(owner, record.landed);
        if !ready {
            return;
        }
        let before = account.beats.get(&owner).copied();
        if account.stood.is_some()
            && let Some((earlier, read)) = before
        {
            let ahead = TICK * u32::from(sent.saturating_sub(earlier).saturating_sub(clock - read));
            // A single heartbeat does not tell how far the uptime had run ahead when the comparison
            // began.
            if ahead > G + H {
                self.violated(FOLLOWERS, "a worker whose clock stood still goes on");
            }
        }
        // While the worker's clock stands still, the last heartbeat before that counts.
        if worker.account.stood.is_none() && self.bounds.only_notices() {
            worker.account.beats.insert(owner, (sent, clock));
        }
    }
}

impl Worker {
    /// Whether the owner was silent for more than 2 heartbeat intervals, by what the worker has
    /// read and when that landed. One of the worker's own heartbeats must have come back that was
    /// sent more than 2 heartbeat intervals after the owner's last entry and after the last gap
    /// between the worker's own heartbeats.
    fn is_silent(&self, owner: OwnerId) -> bool {
        let spoke = self.account.spoke.get(&owner).copied().unwrap_or(0);
        let since = spoke.max(self.account.since);
        self.account.proof.is_some_and(|proof| proof > since + 2 * H_TICKS)
    }
}

fn is_used(world: &TimedWorld, worker: &Worker, entry: &Entry) -> bool {
    let key @ (Key::Once(_) | Key::Seal(_)) = entry.key() else { return false };
    if matches!(entry, Entry::Tombstone(_)) {
        return false;
    }
    let same = |sent: &Sent| sent.entry.key() == key && !matches!(sent.entry, Entry::Tombstone(_));
    world.log.records.iter().any(|record| same(&record.sent))
        || worker.out.iter().any(same)
        || world.ghosts.iter().flatten().any(same)
}

/// The owner that published an entry.
fn author(entry: &Entry) -> Option<OwnerId> {
    match entry {
        Entry::Heartbeat(beat) => Some(beat.owner),
        Entry::Seal(seal) => Some(seal.key.owner),
        Entry::Claim(_) | Entry::Done(_) | Entry::Checkpoint(_) | Entry::Renewal(_) => {
            match entry.key() {
                Key::Once(key) => Some(key.owner),
                Key::Seal(_) | Key::Cancel(_) | Key::Heartbeat(_) | Key::Config(_) => None,
            }
        }
        Entry::Cancel(_) | Entry::Config(_) | Entry::Tombstone(_) => None,
    }
}

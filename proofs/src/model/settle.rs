//! Performs the actions of the machines: at once, or later if the scenario requires it.

use super::bounds::Bounds;
use super::check::tell_history;
use super::fingerprint::Part;
use super::step::{acknowledge, begin};
use super::tamper::Fault;
use super::world::{Body, Effect, Record, Worker, World, message_of, small, task_id, task_number};
use crate::judge::Judge;
use longhaul::TaskId;
use longhaul_core::machine::{Action, Stage, Stop};
use longhaul_core::protocol::claim::NextClaim;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Entry, Outcome};
use longhaul_core::protocol::fold::{Phase, TaskFold};
use longhaul_core::protocol::invariants::{ADOPTION, AFTER, KEYS, Violation, may_claim};
use longhaul_core::protocol::key::{Epoch, Key, OnceKey, OwnerId};

/// Values of `receipts` from which on these effects take time.
const ACK_TAKES_TIME: u8 = 1;
const ALL_TAKES_TIME: u8 = 2;

/// A world in the middle of a step.
#[derive(Debug)]
pub struct Settle<'a> {
    pub(super) bounds: &'a Bounds,
    pub(super) world: World,
    pub(super) violations: &'a mut Vec<Violation>,
}

impl Settle<'_> {
    /// Lets a worker step, and performs its machine's actions.
    pub(super) fn worker(&mut self, number: u8, act: impl FnOnce(&mut Self, &mut Worker)) {
        let index = usize::from(number);
        let mut worker = Worker::clone(&self.world.workers[index]);
        act(self, &mut worker);
        while let Some(action) = worker.machine.poll_action() {
            self.act(&mut worker, number, action);
        }
        self.world.workers[index] = Part::new(worker);
    }

    /// Tells the history an event, and takes its violations.
    pub(super) fn history(&mut self, tell: impl FnOnce(&mut Judge)) {
        tell_history(&mut self.world.history, self.violations, tell);
    }

    /// Appends an entry to the ledger.
    pub(super) fn append(&mut self, entry: Entry) {
        if let Entry::Tombstone(key) = entry
            && self.world.is_gone(key)
        {
            // It changes nothing: a worker that missed the first one may publish its own.
            return;
        }
        if let Entry::Seal(seal) = &entry {
            self.seal_lands(seal);
        }
        self.world.log.change(|log| log.push(Record { entry, removed: false }));
    }

    fn act(&mut self, worker: &mut Worker, number: u8, action: Action) {
        match action {
            Action::Publish(entry) => self.publish(worker, entry),
            Action::Start { task, epoch, attempt } | Action::Attend { task, epoch, attempt } => {
                self.start(worker, task, epoch, attempt);
            }
            Action::Stop { task, epoch, why } => stop(worker, task_number(task), epoch, why),
            Action::ReadPayload(id) => {
                self.begin(worker, Effect::Payload(task_number(id)), self.bounds.fetch);
            }
            Action::DropPayload(id) => worker.payloads &= !(1 << task_number(id)),
            Action::ShowRetry(id) if self.bounds.fault == Fault::RetryLeavesLine => {
                worker.machine.leave_line(id);
            }
            Action::ShowRetry(_) => {}
            Action::DeadLetter(id) if self.bounds.fault == Fault::DeadLetterAfterAck => {
                begin(worker, Effect::LateDeadLetter(task_number(id)));
                worker.machine.dead_letter_stored(id);
            }
            Action::DeadLetter(id) => {
                let slow = self.bounds.receipts >= ALL_TAKES_TIME;
                self.begin(worker, Effect::DeadLetter(task_number(id)), slow);
            }
            Action::ShowOutcome(id) if self.bounds.fault == Fault::ViewAfterAck => {
                begin(worker, Effect::LateView(task_number(id)));
                worker.machine.metadata_stored(id);
            }
            Action::ShowOutcome(id) => {
                let slow = self.bounds.receipts >= ALL_TAKES_TIME;
                self.begin(worker, Effect::View(task_number(id)), slow);
            }
            Action::Ack(entry) => {
                let slow = self.bounds.receipts >= ACK_TAKES_TIME;
                self.begin(worker, Effect::Ack(small(entry.entry)), slow);
            }
            Action::HandBack(entry) => {
                let message = &mut self.world.messages[usize::from(small(entry.entry))];
                if message.at == Some(number) {
                    message.at = None;
                }
            }
            Action::Tombstone(keys) => worker.out.extend(keys.into_iter().map(Entry::Tombstone)),
            Action::SetAside { violation, .. } => self.violations.push(violation),
        }
    }

    fn begin(&mut self, worker: &mut Worker, effect: Effect, slow: bool) {
        if slow {
            begin(worker, effect);
        } else {
            self.perform(worker, effect);
        }
    }

    /// Performs an action of the machine, and reports the result to it.
    pub(super) fn perform(&mut self, worker: &mut Worker, effect: Effect) {
        let bounds = self.bounds;
        if let Effect::DeadLetter(task) | Effect::View(task) = effect
            && worker.machine.is_sealed(task_id(bounds, task))
        {
            // Another worker has closed it meanwhile. The one in flight here is equal, and nothing
            // waits for it.
            return;
        }
        match effect {
            Effect::Payload(task) => {
                let message = &self.world.messages[usize::from(message_of(bounds, task))];
                let found = !message.trimmed;
                worker.payloads |= u8::from(found) << task;
                if found {
                    worker.machine.record_batch_size(task_id(bounds, task), bounds.batch_size());
                }
                worker.machine.payload_read(task_id(bounds, task), found);
                if found {
                    worker.machine.record_limits(task_id(bounds, task), bounds.limits());
                }
            }
            Effect::DeadLetter(task) => {
                let id = task_id(bounds, task);
                let message = message_of(bounds, task);
                let payload = worker.machine.task(id).is_some_and(|known| known.payload);
                let trimmed = self.world.messages[usize::from(message)].trimmed;
                // The payload is gone and the mark-delete position is behind it: it was
                // acknowledged, so it has its dead letter.
                let has_it = trimmed && !payload && message < self.world.stored;
                if !has_it {
                    self.history(|history| history.dead_letter_stored(id));
                }
                worker.machine.dead_letter_stored(id);
            }
            Effect::LateDeadLetter(task) => {
                self.history(|history| history.dead_letter_stored(task_id(bounds, task)));
            }
            Effect::View(task) | Effect::LateView(task) => {
                let id = task_id(bounds, task);
                let fold = worker.machine.fold(id);
                self.history(|history| history.view_shown(id, fold.phase, &fold));
                worker.machine.metadata_stored(id);
            }
            Effect::Ack(message) => acknowledge(self, worker, message),
        }
    }

    pub(super) fn publish(&mut self, worker: &mut Worker, entry: Entry) {
        let entry = self.tampered(worker, entry);
        if self.published(worker).any(|other| is_same_key(other, &entry)) {
            let what = "a write-once key was used again";
            self.violations.push(Violation { id: KEYS, what, task: entry.task() });
        }
        if let Entry::Claim(claim) = &entry {
            self.check_claim(worker, claim);
        }
        let early = self.superseded_early(worker, &entry);
        if !self.bounds.fault.swallows(&entry) {
            worker.out.push(entry);
        }
        worker.out.extend(early.into_iter().map(Entry::Tombstone));
    }

    /// The entries published so far that are or may be on the ledger.
    fn published<'a>(&'a self, worker: &'a Worker) -> impl Iterator<Item = &'a Entry> {
        let landed = self.world.log.iter().map(|record| &record.entry);
        landed.chain(&worker.out).chain(self.world.ghosts.iter().flatten())
    }

    /// Breaks the rule if it concerns a publish.
    fn tampered(&mut self, worker: &mut Worker, mut entry: Entry) -> Entry {
        match (self.bounds.fault, &mut entry) {
            (Fault::StartBeforeReadBack, Entry::Claim(claim)) if claim.kind == ClaimKind::Run => {
                self.start(worker, claim.key.task, claim.key.epoch, claim.attempt);
            }
            (Fault::AckBeforeAccepted, Entry::Done(done)) if done.outcome.is_terminal() => {
                let message = message_of(self.bounds, task_number(done.key.task));
                acknowledge(self, worker, message);
            }
            (Fault::ViewBeforeAccepted, Entry::Done(done))
                if done.outcome == Outcome::Completed =>
            {
                let (id, fold) = (done.key.task, worker.machine.fold(done.key.task));
                self.history(|history| history.view_shown(id, Phase::Completed, &fold));
            }
            (Fault::KeyUsedAgain, Entry::Done(done)) => {
                let of = |key: OnceKey| (key.task, key.epoch, key.owner);
                let before = self.published(worker).find_map(|other| match other {
                    Entry::Done(other) if of(other.key) == of(done.key) => Some(other.key),
                    _ => None,
                });
                done.key = before.unwrap_or(done.key);
            }
            _ => {}
        }
        self.bounds.fault.tampered(entry)
    }

    /// Checks a claim by the worker's real state, not by the state of its machine.
    fn check_claim(&mut self, worker: &Worker, claim: &Claim) {
        let id = claim.key.task;
        let Some(known) = worker.machine.task(id) else { return };
        let payload = worker.payloads >> task_number(id) & 1 == 1;
        let next = NextClaim { kind: claim.kind, attempt: claim.attempt };
        if !may_claim(&known.fold, known.held, payload, next) {
            let what = "claimed without a delivery, a known state or the payload";
            self.violations.push(Violation { id: ADOPTION, what, task: Some(id) });
        }
    }

    pub(super) fn start(&mut self, worker: &mut Worker, id: TaskId, epoch: Epoch, attempt: u32) {
        let fold = worker.machine.fold(id);
        let owner = match worker.machine.task(id).map(|known| known.stage) {
            Some(Stage::Running(run)) => run.owner,
            _ => worker.machine.owner(),
        };
        self.started(id, (epoch, owner), attempt, &fold);
        worker.bodies.push(Body { task: task_number(id), epoch, cancelled: false });
        worker.bodies.sort_by_key(|body| (body.task, body.epoch));
    }

    fn started(&mut self, id: TaskId, of: (Epoch, OwnerId), attempt: u32, fold: &TaskFold) {
        self.history(|history| history.started(id, of, attempt, fold));
        if self.bounds.park && task_number(id) == 1 {
            let first = self.world.fold(task_id(self.bounds, 0), false);
            if !first.phase.is_terminal() {
                let what = "a task starts before one that it waits for is over";
                self.violations.push(Violation { id: AFTER, what, task: Some(id) });
            }
        }
    }
}

/// A tombstone has the key that it removes.
fn is_same_key(one: &Entry, other: &Entry) -> bool {
    let tombstone = |entry: &Entry| matches!(entry, Entry::Tombstone(_));
    matches!(one.key(), Key::Once(_) | Key::Seal(_))
        && one.key() == other.key()
        && !tombstone(one)
        && !tombstone(other)
}

fn stop(worker: &mut Worker, task: u8, epoch: Epoch, why: Stop) {
    match why {
        Stop::Fenced | Stop::SetAside | Stop::LetGo => {
            worker.bodies.retain(|body| (body.task, body.epoch) != (task, epoch))
        }
        Stop::Cancelled => {
            let named =
                worker.bodies.iter_mut().filter(|body| (body.task, body.epoch) == (task, epoch));
            named.for_each(|body| body.cancelled = true);
        }
    }
}

//! What the machines ask for is done: at once, or, where the scenario is about it, later.

use super::bounds::Bounds;
use super::fingerprint::Part;
use super::step::{acknowledge, begin};
use super::tamper::Fault;
use super::world::{Body, Effect, Record, Worker, World, message_of, small, task_id, task_number};
use longhaul::TaskId;
use longhaul::protocol::entry::{ClaimKind, Entry};
use longhaul::protocol::invariants::{History, KEYS, Violation};
use longhaul::protocol::key::{Epoch, Key, OwnerId};
use longhaul::worker::machine::{Action, Stage, Stop};

/// Effects of the way to an ack take time from these settings of `receipts` on.
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
    /// Lets a worker step, and does what its machine asks for.
    pub(super) fn worker(&mut self, number: u8, act: impl FnOnce(&mut Self, &mut Worker)) {
        let index = usize::from(number);
        let mut worker = Worker::clone(&self.world.workers[index]);
        act(self, &mut worker);
        while let Some(action) = worker.machine.poll_action() {
            self.act(&mut worker, number, action);
        }
        self.world.workers[index] = Part::new(worker);
    }

    /// Tells the history something, and takes what it objects to.
    pub(super) fn history(&mut self, tell: impl FnOnce(&mut History)) {
        let mut history = History::clone(&self.world.history);
        tell(&mut history);
        self.violations.append(&mut history.take_violations());
        if history != *self.world.history {
            self.world.history = Part::new(history);
        }
    }

    /// An entry lands.
    pub(super) fn append(&mut self, entry: Entry) {
        if let Entry::Seal(seal) = &entry {
            self.seal_lands(seal);
        }
        self.world.log.change(|log| log.push(Record { entry, removed: false }));
    }

    fn act(&mut self, worker: &mut Worker, number: u8, action: Action) {
        match action {
            Action::Publish(entry) => self.publish(worker, entry),
            Action::Start { task, epoch, attempt } => {
                self.start(worker, task, epoch, attempt);
            }
            Action::Stop { task, epoch, why } => stop(worker, task_number(task), epoch, why),
            Action::ReadPayload(id) => {
                self.begin(worker, Effect::Payload(task_number(id)), self.bounds.fetch);
            }
            Action::DropPayload(id) => worker.payloads &= !(1 << task_number(id)),
            Action::ShowRetry(_) => {}
            Action::DeadLetter(id) if self.bounds.fault == Fault::DeadLetterAfterAck => {
                begin(worker, Effect::LateDeadLetter(task_number(id)));
                worker.machine.dead_letter_stored(id);
            }
            Action::DeadLetter(id) => {
                let slow = self.bounds.receipts >= ALL_TAKES_TIME;
                self.begin(worker, Effect::DeadLetter(task_number(id)), slow);
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

    /// Does work that the machine asked for, and tells it.
    pub(super) fn perform(&mut self, worker: &mut Worker, effect: Effect) {
        let bounds = self.bounds;
        if let Effect::DeadLetter(task) | Effect::View(task) = effect
            && worker.machine.is_sealed(task_id(bounds, task))
        {
            // Another worker has closed it meanwhile. What is on its way here says the same, and nobody waits for it.
            return;
        }
        match effect {
            Effect::Payload(task) => {
                let message = &self.world.messages[usize::from(message_of(bounds, task))];
                let found = !message.trimmed;
                worker.payloads |= u8::from(found) << task;
                worker.machine.payload_read(task_id(bounds, task), found);
            }
            Effect::DeadLetter(task) => {
                let id = task_id(bounds, task);
                let message = message_of(bounds, task);
                let payload = worker.machine.task(id).is_some_and(|known| known.payload);
                let trimmed = self.world.messages[usize::from(message)].trimmed;
                // Payload gone and the mark-delete position past it: it was acknowledged, so it has its dead letter.
                let has_it = trimmed && !payload && message < self.world.stored;
                if !has_it {
                    self.history(|history| history.dead_letter_stored(id));
                }
                worker.machine.dead_letter_stored(id);
            }
            Effect::LateDeadLetter(task) => {
                self.history(|history| history.dead_letter_stored(task_id(bounds, task)));
            }
            Effect::View(task) => {
                let id = task_id(bounds, task);
                let fold = worker.machine.fold(id);
                self.history(|history| history.view_shown(id, fold.phase, &fold));
                worker.machine.view_stored(id);
            }
            Effect::Ack(message) => acknowledge(self, worker, message),
        }
    }

    fn publish(&mut self, worker: &mut Worker, entry: Entry) {
        if self.is_key_used(worker, &entry) {
            let what = "a write-once key was used again";
            self.violations.push(Violation { id: KEYS, what, task: entry.task() });
        }
        match (self.bounds.fault, &entry) {
            (Fault::StartBeforeReadBack, Entry::Claim(claim)) if claim.kind == ClaimKind::Run => {
                self.start(worker, claim.key.task, claim.key.epoch, claim.attempt);
            }
            (Fault::AckBeforeAccepted, Entry::Done(done)) if done.outcome.is_terminal() => {
                let message = message_of(self.bounds, task_number(done.key.task));
                acknowledge(self, worker, message);
            }
            _ => {}
        }
        let early = self.superseded_early(worker, &entry);
        if !self.bounds.fault.swallows(&entry) {
            worker.out.push(self.bounds.fault.tampered(entry));
        }
        worker.out.extend(early.into_iter().map(Entry::Tombstone));
    }

    fn is_key_used(&self, worker: &Worker, entry: &Entry) -> bool {
        let key @ (Key::Once(_) | Key::Seal(_)) = entry.key() else { return false };
        let same = |other: &Entry| other.key() == key && !matches!(other, Entry::Tombstone(_));
        self.world.log.iter().any(|record| same(&record.entry))
            || worker.out.iter().any(same)
            || self.world.ghosts.iter().flatten().any(same)
    }

    fn start(&mut self, worker: &mut Worker, id: TaskId, epoch: Epoch, attempt: u32) {
        let fold = worker.machine.fold(id);
        let owner = match worker.machine.task(id).map(|known| known.stage) {
            Some(Stage::Running(run)) => run.owner,
            _ => worker.machine.owner(),
        };
        self.started(id, (epoch, owner), attempt, &fold);
        worker.bodies.push(Body { task: task_number(id), epoch, cancelled: false });
        worker.bodies.sort_by_key(|body| (body.task, body.epoch));
    }

    fn started(
        &mut self,
        id: TaskId,
        of: (Epoch, OwnerId),
        attempt: u32,
        fold: &longhaul::protocol::fold::TaskFold,
    ) {
        self.history(|history| history.started(id, of, attempt, fold));
    }
}

fn stop(worker: &mut Worker, task: u8, epoch: Epoch, why: Stop) {
    match why {
        Stop::Fenced | Stop::SetAside => {
            worker.bodies.retain(|body| (body.task, body.epoch) != (task, epoch))
        }
        Stop::Cancelled => {
            let named =
                worker.bodies.iter_mut().filter(|body| (body.task, body.epoch) == (task, epoch));
            named.for_each(|body| body.cancelled = true);
        }
    }
}

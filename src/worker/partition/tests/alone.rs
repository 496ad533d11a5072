//! One partition whose publishes a test lets land, fail or get lost one by one, and that is run whenever it wants to be.

use super::holding::{effects, live};
use super::*;
use crate::protocol::entry::{Done, Heartbeat};

/// Who has run what this worker did not. It stands behind this worker in line for what one does for all.
pub(super) const OTHER: OwnerId = OwnerId(10);

pub(super) struct Alone {
    pub(super) core: Partition,
    pub(super) now: Moment,
    pub(super) slots: Slots,
    /// These publish heartbeats, besides the worker itself.
    pub(super) alive: Vec<OwnerId>,
    /// Its own, which come back at once.
    pub(super) heartbeats: Vec<Heartbeat>,
    place: u64,
    serial: u64,
}

impl Alone {
    /// It has read an empty ledger, and has two slots.
    pub(super) fn new() -> Self {
        let (core, now) = live();
        let slots = Slots::new(2);
        Self { core, now, slots, alive: vec![], heartbeats: vec![], place: 0, serial: 1_000 }
    }

    /// The entry is read now. Returns what that leads to at once.
    pub(super) fn land(&mut self, entry: Entry) -> Vec<Effect> {
        self.place += 1;
        holding::land(&mut self.core, self.place, entry, self.now);
        effects(&mut self.core)
    }

    /// What the last call has led to.
    pub(super) fn effects(&mut self) -> Vec<Effect> {
        effects(&mut self.core)
    }

    /// Does what is due. Whoever has nothing left to do now says when it will: else its driver would not rest.
    pub(super) fn run(&mut self) -> Vec<Effect> {
        let mut all = Vec::new();
        loop {
            self.core.run(self.now, &mut self.slots);
            let some = self.effects();
            if some.is_empty() {
                break;
            }
            for effect in some {
                let Effect::Do(Action::Publish(Entry::Heartbeat(heartbeat))) = effect else {
                    all.push(effect);
                    continue;
                };
                self.heartbeats.push(heartbeat.clone());
                for owner in self.alive.clone() {
                    let other = Heartbeat { owner, number: 1, ..heartbeat.clone() };
                    let none = Heartbeat { receipted: 0, underway: Some(0), ..other };
                    all.extend(self.land(Entry::Heartbeat(none)));
                }
                all.extend(self.land(Entry::Heartbeat(heartbeat)));
            }
        }
        assert!(self.core.timeout() > self.now, "it would be run again at once");
        all
    }

    /// Lets so much time pass. Returns what was done, and when.
    pub(super) fn run_for(&mut self, time: Duration) -> Vec<(Moment, Effect)> {
        let until = self.now + time;
        let mut all = Vec::new();
        loop {
            let some = self.run();
            all.extend(some.into_iter().map(|effect| (self.now, effect)));
            if self.now == until {
                return all;
            }
            self.now = self.core.timeout().min(until);
        }
    }

    pub(super) fn deliver(&mut self, id: TaskId) {
        self.core.handle_delivery(id, None, self.now);
    }

    fn key(&mut self, task: TaskId, epoch: u32) -> OnceKey {
        self.serial += 1;
        OnceKey { task, epoch: Epoch(epoch), owner: OTHER, serial: self.serial }
    }

    /// Another worker claims the task.
    pub(super) fn claimed(&mut self, id: TaskId, batch_size: Option<u32>) {
        let (key, kind) = (self.key(id, 1), ClaimKind::Run);
        self.land(Entry::Claim(Claim { key, attempt: 1, kind, batch_size, base: None }));
    }

    /// Another worker, which has claimed it, ends it.
    pub(super) fn ended(&mut self, id: TaskId, outcome: Outcome) {
        let key = self.key(id, 1);
        self.land(Entry::Done(Done { key, attempt: 1, outcome }));
    }

    /// Another worker has completed the task, and this one does nothing about it.
    pub(super) fn completed(&mut self, id: TaskId) {
        self.claimed(id, None);
        self.ended(id, Outcome::Completed);
    }

    /// Another worker has completed the task, and this one has seen to its end.
    pub(super) fn closed(&mut self, id: TaskId) {
        self.completed(id);
        self.deliver(id);
        self.see_to(id);
    }

    /// The entry on the metadata topic is stored, and so is the ack.
    pub(super) fn see_to(&mut self, id: TaskId) {
        self.core.handle_view_stored(id);
        self.core.handle_acked(id.entry_id(), id.partition);
        self.effects();
    }
}

/// The only entry that was published.
#[track_caller]
pub(super) fn published(effects: &[Effect]) -> Entry {
    let entries = effects.iter().filter_map(|effect| {
        let Effect::Do(Action::Publish(entry)) = effect else { return None };
        Some(entry.clone())
    });
    match entries.collect::<Vec<_>>().as_slice() {
        [entry] => entry.clone(),
        other => panic!("not one entry: {other:?} of {effects:?}"),
    }
}

/// The claim or outcome that was published.
#[track_caller]
pub(super) fn key_of(entry: &Entry) -> OnceKey {
    let Key::Once(key) = entry.key() else { panic!("{entry:?} is not of a task") };
    key
}

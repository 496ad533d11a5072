//! What becomes of keys: a dedupe key is released when its holder is over, before that is shown;
//! the hold of a task that is not over is renewed in each period of the register. What has not been
//! renewed is forgotten and removed.
//!
//! See [`Keys`](longhaul_core::protocol::register::Keys) and
//! [`Expired`](longhaul_core::protocol::register::Expired).

use super::lane::Lane;
use super::lanes::LaneId;
use super::{Driver, Event, PublishResult, Showing};
use crate::transport::OnReceipt;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::protocol::register::{Entry, Key, KeyKind, QueueTask, Stamp};
use longhaul_core::task::TaskId;
use longhaul_core::task::terms::millis;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the keys are looked at, or more often where they are kept for a short time.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(60);

/// Holders that are looked at in one event, tombstones that are on their way, and half of the
/// releases and renewals after which a look pauses. Entries and heartbeats come in between.
const AT_ONCE_MAX: usize = 10_000;

/// What this worker does about the keys of a register.
#[derive(Debug, Default)]
pub(super) struct KeyKeeping {
    /// The releases and renewals on their way, and the ends that wait for them.
    underway: BTreeMap<QueueTask, Stamp>,
    showing: BTreeMap<QueueTask, (LaneId, Showing)>,
    /// They will be looked at.
    scheduled: bool,
    /// The look that is under way.
    pub(super) look: Option<Look>,
    /// When the current period began, in wall-clock ms of who began it.
    pub(super) began_ms: Option<u64>,
    /// When all holds of idempotency keys had been looked at last.
    pub(super) renewed_at: Option<Moment>,
    /// When the next period was begun last, whether or not that was read.
    begun_at: Option<Moment>,
    /// The last of the tombstones on their way, and when they were published.
    removing: Option<(Key, Moment)>,
}

impl KeyKeeping {
    /// The register is read anew, and what was known of its keys is not any more.
    pub(super) const fn forget(&mut self) {
        (self.began_ms, self.look) = (None, None);
    }
}

/// A look at all holders, in portions. Those of dedupe keys are looked at first, and first again
/// after a pause: others wait for their keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// The kind that is looked at, and the last holder of it that was.
    kind: KeyKind,
    last: Option<QueueTask>,
    /// Holders of idempotency keys are looked at, too. They may be many, and mostly of tasks that
    /// are over.
    all: bool,
    /// The last of those that was looked at before a pause.
    resume: Option<QueueTask>,
    /// A hold was found that had to be renewed.
    renews: bool,
    /// Releases and renewals since the last pause.
    kept: usize,
}

impl Look {
    fn pause(&mut self) {
        if self.kind == KeyKind::Idempotency {
            (self.kind, self.resume) = (KeyKind::Dedupe, self.last);
        }
        (self.last, self.kept) = (None, 0);
    }
}

impl Driver {
    /// Whether a task that is over has a key to be released before that is shown: whoever submits
    /// when it was shown is not to lose against it. Called again when it was released.
    pub(super) fn releases_first(&mut self, id: LaneId, task: TaskId, kind: Showing) -> bool {
        let Some(topic) = self.topics.get(usize::from(id.topic)) else { return false };
        let (number, held) = (topic.register, topic.queue_task(task));
        let over = |lane: &Lane| lane.core.machine().fold(task).phase.is_terminal();
        if !self.holds_dedupe_key(number, held) || !self.lanes.get(&id).is_some_and(over) {
            return false;
        }
        if let Some(register) = self.registers.get_mut(number) {
            register.keeping.showing.insert(held, (id, kind));
        }
        self.keep_key(number, held, true);
        true
    }

    fn holds_dedupe_key(&self, number: usize, task: QueueTask) -> bool {
        let register = self.registers.get(number);
        let name = register.and_then(|register| register.fold.keys().held_by(task));
        name.is_some_and(|name| name.kind() == KeyKind::Dedupe)
    }

    /// Publishes that a task holds its key no longer, or that it goes on holding it.
    pub(super) fn keep_key(&mut self, number: usize, task: QueueTask, is_over: bool) {
        let Self { registers, env, services, .. } = self;
        let Some(register) = registers.get_mut(number) else { return };
        if register.keeping.underway.contains_key(&task) {
            return;
        }
        let stamp = register.next_stamp();
        let keys = register.fold.keys();
        let entry = match keys.held_by(task) {
            Some(name) if is_over && name.kind() == KeyKind::Dedupe => keys.release_of(task, stamp),
            Some(name) => Some(keys.bind_of(name, task, None, stamp)),
            None => None,
        };
        let Some(entry) = entry else { return };
        register.keeping.underway.insert(task, stamp);
        let answers = env.answers.clone();
        let on_receipt = OnReceipt::new(move |published| {
            if PublishResult::from(published) != PublishResult::Stored {
                let event = Event::KeyNotKept { register: number, id: task };
                answers.put(Event::Later(Box::new(event)));
            }
        });
        register.publish(env, services, &entry, on_receipt);
    }

    /// A release or renewal may not be stored.
    pub(super) fn handle_key_not_kept(&mut self, number: usize, task: QueueTask) {
        let Some(register) = self.registers.get_mut(number) else { return };
        register.keeping.underway.remove(&task);
        self.go_on_showing(number, task);
    }

    fn go_on_showing(&mut self, number: usize, task: QueueTask) {
        let Some(register) = self.registers.get_mut(number) else { return };
        if let Some((lane, kind)) = register.keeping.showing.remove(&task) {
            self.show_end_unless_shown(lane, task.id, kind);
        }
    }

    /// The register was read to its end, perhaps another one than before: what waits for an entry
    /// looks again.
    pub(super) fn look_at_ends(&mut self, number: usize) {
        let Some(register) = self.registers.get_mut(number) else { return };
        register.keeping.underway.clear();
        for (task, (lane, kind)) in std::mem::take(&mut register.keeping.showing) {
            self.show_end_unless_shown(lane, task.id, kind);
        }
    }

    /// An entry was read: what waits for it goes on.
    pub(super) fn keep_keys(&mut self, number: usize, entry: &Entry) {
        self.look_at_keys_later(number);
        let key = match entry {
            Entry::Bind(hold) => &hold.key,
            Entry::Release(key) => key,
            Entry::Tombstone(key) => return self.go_on_removing(number, key),
            Entry::Start(_)
            | Entry::Period(..)
            | Entry::Document(_)
            | Entry::Ticket(..)
            | Entry::Moved(_) => return,
        };
        let Some(register) = self.registers.get_mut(number) else { return };
        let keeping = &mut register.keeping;
        if keeping.underway.get(&key.task) == Some(&key.stamp) {
            keeping.underway.remove(&key.task);
        }
        if keeping.showing.contains_key(&key.task) {
            // Written in a period that is over it has changed nothing, and is written again.
            self.go_on_showing(number, key.task);
        } else if matches!(entry, Entry::Bind(_))
            && self.holds_dedupe_key(number, key.task)
            && self.is_over_here(number, key.task) == Some(true)
        {
            // Bound by somebody who did not know that the task is over.
            self.keep_key(number, key.task, true);
        }
    }

    /// Has the keys looked at in a while, if any is known.
    pub(super) fn look_at_keys_later(&mut self, number: usize) {
        let Some(register) = self.registers.get_mut(number) else { return };
        let known = !register.fold.keys().is_empty();
        if !known || std::mem::replace(&mut register.keeping.scheduled, true) {
            return;
        }
        let clock = self.env.clock;
        let at = clock.now() + LOOKED_AT_EVERY.min(self.config.key_period() / 8);
        self.pending.push(Box::pin(async move {
            clock.sleep_until(at).await;
            Event::KeysDue(number)
        }));
    }

    /// Releases the keys of finishers that have died, renews holds, begins a period and removes
    /// what is over, each if this worker is the first to do so. Holders may be millions: the look
    /// goes on in an event of its own after so many.
    pub(super) fn handle_keys_due(&mut self, number: usize) {
        let over = self.look_at_holders(number);
        let Some(register) = self.registers.get_mut(number) else { return };
        if let Some(look) = &mut register.keeping.look
            && look.kept < AT_ONCE_MAX
        {
            self.pending.push(Box::pin(std::future::ready(Event::KeysDue(number))));
            return;
        }
        if let Some(look) = &mut register.keeping.look {
            look.pause();
        }
        register.keeping.scheduled = false;
        self.look_at_keys_later(number);
        let now = self.env.clock.now();
        let is_due = self.is_period_due(number);
        let Some(register) = self.registers.get_mut(number).filter(|register| register.is_read())
        else {
            return;
        };
        let all = over.filter(|look| look.all);
        if all.is_some() {
            register.keeping.renewed_at = Some(now);
        }
        if self.is_first(number) {
            // When a task ends its hold is one period old at most.
            if is_due && all.is_some_and(|look| !look.renews) {
                self.begin_period(number, now);
            }
            self.remove_expired(number, now);
        }
    }

    fn is_period_due(&self, number: usize) -> bool {
        let Some(register) = self.registers.get(number) else { return false };
        let now_ms = self.env.clock.wall_ms();
        let began_ms = register.keeping.began_ms.unwrap_or(now_ms);
        began_ms.saturating_add(millis(self.config.key_period())) <= now_ms
    }

    fn begin_look(&self, number: usize) -> Look {
        let (now, patience) = (self.env.clock.now(), self.config.key_period() / 8);
        let keeping = self.registers.get(number).map(|register| &register.keeping);
        let renewed_at = keeping.and_then(|keeping| keeping.renewed_at);
        let all = renewed_at.is_none_or(|at| now.since(at) >= patience);
        let all = all || self.is_period_due(number);
        Look { kind: KeyKind::Dedupe, last: None, all, resume: None, renews: false, kept: 0 }
    }

    /// Releases or renews the keys of those holders for which this worker is the first, so many of
    /// them as are looked at together. Returns the look when it is over.
    fn look_at_holders(&mut self, number: usize) -> Option<Look> {
        let under_way = self.registers.get_mut(number)?.keeping.look.take();
        let mut look = under_way.unwrap_or_else(|| self.begin_look(number));
        let register = self.registers.get(number).filter(|register| register.is_read());
        let Some(register) = register else { return Some(look) };
        let keys = register.fold.keys();
        let some: Vec<_> = keys.holders_behind(look.kind, look.last).take(AT_ONCE_MAX).collect();
        for task in &some {
            self.look_at_holder(number, *task, &mut look);
        }
        match (some.last(), look.kind) {
            (Some(last), _) => look.last = Some(*last),
            (None, KeyKind::Dedupe) if look.all => {
                (look.kind, look.last) = (KeyKind::Idempotency, look.resume.take());
            }
            (None, KeyKind::Dedupe | KeyKind::Idempotency) => return Some(look),
        }
        self.registers.get_mut(number)?.keeping.look = Some(look);
        None
    }

    fn look_at_holder(&mut self, number: usize, task: QueueTask, look: &mut Look) {
        let Some(register) = self.registers.get(number) else { return };
        let is_old = register.fold.keys().is_to_be_renewed(task);
        let is_dedupe = self.holds_dedupe_key(number, task);
        if !is_old && !is_dedupe {
            return;
        }
        let Some(is_over) = self.is_over_here(number, task) else { return };
        look.renews |= is_old && !is_over;
        if is_over && is_dedupe || !is_over && is_old {
            self.keep_key(number, task, is_over);
            look.kept += 1;
        }
    }

    /// Begins the next period. All holds of tasks that are not over were just found renewed.
    fn begin_period(&mut self, number: usize, now: Moment) {
        let Some(register) = self.registers.get(number) else { return };
        // To workers of older versions an entry of a later period is none.
        let topics = register.topics.values();
        let lanes = topics.flat_map(|topic| self.lanes.range(LaneId::all_of(*topic)));
        let ids: Vec<LaneId> = lanes.map(|(id, _)| *id).collect();
        let mut older = false;
        for id in ids {
            let lane = self.lanes.get_mut(&id);
            older |= lane.is_some_and(|lane| !lane.core.keeps_older_out(now));
        }
        if older {
            return;
        }
        let patience = self.config.key_period() / 8;
        let Self { registers, env, services, .. } = self;
        let Some(register) = registers.get_mut(number) else { return };
        // It may be long on its way, and each of them stays on the register.
        if register.keeping.begun_at.is_some_and(|at| now.since(at) < patience) {
            return;
        }
        register.keeping.begun_at = Some(now);
        let stamp = register.next_stamp();
        let entry = Entry::Period(register.fold.keys().period().next(), stamp);
        // Should it get lost a later look finds that it is due.
        register.publish(env, services, &entry, OnReceipt::ignored());
    }

    /// A tombstone was read: the next ones follow the last one of those on their way.
    fn go_on_removing(&mut self, number: usize, removed: &Key) {
        let Some(register) = self.registers.get(number).filter(|register| register.is_read())
        else {
            return;
        };
        let last = register.keeping.removing.as_ref().map(|(last, _)| last);
        if last == Some(removed) && self.is_first(number) {
            self.remove_expired(number, self.env.clock.now());
        }
    }

    /// Publishes the tombstones of what is over, so many at a time.
    fn remove_expired(&mut self, number: usize, now: Moment) {
        let Self { registers, env, services, config, .. } = self;
        let Some(register) = registers.get_mut(number) else { return };
        let expired = register.fold.keys().expired();
        let patience = config.key_period() / 8;
        let removing = register.keeping.removing.as_ref();
        if removing.is_some_and(|(last, at)| expired.contains(last) && now.since(*at) < patience) {
            return;
        }
        let keys: Vec<Key> = expired.next().take(AT_ONCE_MAX).cloned().collect();
        register.keeping.removing = keys.last().map(|last| (last.clone(), now));
        for key in keys {
            register.publish(env, services, &Entry::Tombstone(key), OnReceipt::ignored());
        }
    }

    /// The lane of a task, if it is one of this worker's.
    pub(super) fn lane_of(&self, number: usize, task: QueueTask) -> Option<&Lane> {
        let topic = *self.registers.get(number)?.topics.get(&task.level)?;
        self.lanes.get(&LaneId::new(topic, task.id.partition))
    }

    /// Whether the ledger says that the task is over.
    pub(super) fn is_over(&self, number: usize, task: QueueTask) -> bool {
        self.lane_of(number, task).is_some_and(|lane| {
            let machine = lane.core.machine();
            machine.is_ready() && machine.fold(task.id).phase.is_terminal()
        })
    }

    /// The same, asked by the worker that looks after the tasks of that lane. `None`: this worker
    /// cannot tell, or another one looks after them.
    pub(super) fn is_over_here(&self, number: usize, task: QueueTask) -> Option<bool> {
        let lane = self.lane_of(number, task)?;
        let mine = lane.core.machine().is_ready() && lane.core.keeps_metadata();
        mine.then(|| self.is_over(number, task))
    }

    /// Whether this worker is the first by rank of those that follow the register.
    fn is_first(&self, number: usize) -> bool {
        let first = self.lanes.range(..).find(|(id, _)| {
            let topic = self.topics.get(usize::from(id.topic));
            topic.is_some_and(|topic| topic.register == number)
        });
        first.is_some_and(|(_, lane)| lane.core.keeps_metadata())
    }
}

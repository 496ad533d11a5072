//! The holds of keys. A dedupe key is released when its holder is over, before the end is shown.
//! The hold of a task that is not over is renewed in each period of the register. A hold that was
//! not renewed is forgotten and removed.
//!
//! See [`Keys`](crate::protocol::register::Keys) and
//! [`Expired`](crate::protocol::register::Expired).

use super::{Intent, QueueContext, QueueCore, QueueEffect, Wake};
use crate::metadata::Showing;
use crate::protocol::moment::Moment;
use crate::protocol::register::{KeyKind, QueueTask, RegisterEntry, RegisterKey, Stamp};
use crate::task::terms::millis;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the holds are checked, or more often where keys are kept for a short time.
const CHECKED_EVERY: Duration = Duration::from_secs(60);

/// Limits one step of a check: the holders it looks at, the tombstones in flight, and half of the
/// releases and renewals before a pause. The worker handles its events in between.
const AT_ONCE_MAX: usize = 10_000;

/// This worker's work on the holds of a register.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// The releases and renewals in flight.
    underway: BTreeMap<QueueTask, Stamp>,
    /// The ends that are shown after a release.
    showing: BTreeMap<QueueTask, Showing>,
    /// The check in progress.
    check: Option<HoldsCheck>,
    /// When the current period began, in ms since the epoch by the clock of its worker.
    began_ms: Option<u64>,
    /// When all holds of idempotency keys had been checked last.
    renewed_at: Option<Moment>,
    /// When this worker published the last period, whether or not that was read.
    begun_at: Option<Moment>,
    /// The last tombstone in flight, and when it was published.
    removing: Option<(RegisterKey, Moment)>,
}

impl Holds {
    /// Forgets the register's state; it is read again.
    pub(super) fn forget(&mut self) {
        (self.began_ms, self.check) = (None, None);
    }

    /// Notes an entry that may begin a period.
    pub(super) fn period_began(&mut self, begins: bool, published_ms: u64, wall_ms: u64) {
        if begins || self.began_ms.is_none() {
            // The publisher's clock may be fast by a year.
            self.began_ms = Some(published_ms.min(wall_ms));
        }
    }
}

/// A check of all holders, in steps. The holders of dedupe keys come first, and first again after a
/// pause: other tasks wait for their keys.
#[derive(Clone, Copy, Debug)]
struct HoldsCheck {
    /// The kind being checked, and the last holder that was checked.
    kind: KeyKind,
    last: Option<QueueTask>,
    /// Whether holders of idempotency keys are checked, too. They may be many, and most of their
    /// tasks are over.
    all: bool,
    /// The last of those that was checked before a pause.
    resume: Option<QueueTask>,
    /// Whether a hold was found that had to be renewed.
    renews: bool,
    /// Releases and renewals since the last pause.
    kept: usize,
}

impl HoldsCheck {
    fn pause(&mut self) {
        if self.kind == KeyKind::Idempotency {
            (self.kind, self.resume) = (KeyKind::Dedupe, self.last);
        }
        (self.last, self.kept) = (None, 0);
    }
}

impl QueueCore {
    /// Whether a finished task must release its key before its end is shown; otherwise a task
    /// submitted after that could lose against it. [`QueueEffect::Show`] follows.
    pub fn releases_first(
        &mut self,
        task: QueueTask,
        kind: Showing,
        cx: &QueueContext<'_>,
    ) -> bool {
        let over = cx.phase(task).is_some_and(|phase| phase.is_terminal());
        if !over || !self.holds_dedupe_key(task) {
            return false;
        }
        self.holds.showing.insert(task, kind);
        self.keep_hold(task, true);
        true
    }

    fn holds_dedupe_key(&self, task: QueueTask) -> bool {
        let name = self.register.keys().held_by(task);
        name.is_some_and(|name| name.kind() == KeyKind::Dedupe)
    }

    /// Publishes that a task releases its key or keeps holding it.
    pub(super) fn keep_hold(&mut self, task: QueueTask, is_over: bool) {
        if self.holds.underway.contains_key(&task) {
            return;
        }
        let (stamp, keys) = (self.stamps.next(), self.register.keys());
        let entry = match keys.held_by(task) {
            Some(name) if is_over && name.kind() == KeyKind::Dedupe => keys.release_of(task, stamp),
            Some(name) => Some(keys.bind_of(name, task, None, stamp)),
            None => None,
        };
        let Some(entry) = entry else { return };
        self.holds.underway.insert(task, stamp);
        self.publish_for(Intent::Hold(task), entry);
    }

    /// Handles a release or a renewal that may not be stored.
    pub(super) fn hold_not_stored(&mut self, task: QueueTask) {
        self.holds.underway.remove(&task);
        self.go_on_showing(task);
    }

    fn go_on_showing(&mut self, task: QueueTask) {
        if let Some(kind) = self.holds.showing.remove(&task) {
            self.effects.push_back(QueueEffect::Show(task, kind));
        }
    }

    /// Stops waiting for published entries after the register was read to its end: it may be
    /// another register than before.
    pub(super) fn forget_unread_holds(&mut self) {
        self.holds.underway.clear();
        for (task, kind) in std::mem::take(&mut self.holds.showing) {
            self.effects.push_back(QueueEffect::Show(task, kind));
        }
    }

    /// Continues the work that waited for this entry.
    pub(super) fn hold_was_read(&mut self, entry: &RegisterEntry, cx: &mut QueueContext<'_>) {
        self.check_holds_later(cx.now);
        let key = match entry {
            RegisterEntry::Bind(hold) => &hold.key,
            RegisterEntry::Release(key) => key,
            RegisterEntry::Tombstone(key) => return self.go_on_removing(key, cx),
            RegisterEntry::Start(_)
            | RegisterEntry::Period(..)
            | RegisterEntry::Document(_)
            | RegisterEntry::Ticket(..) => return,
        };
        if self.holds.underway.get(&key.task) == Some(&key.stamp) {
            self.holds.underway.remove(&key.task);
        }
        if self.holds.showing.contains_key(&key.task) {
            // An entry of an earlier period has no effect. It is published again.
            self.go_on_showing(key.task);
        } else if matches!(entry, RegisterEntry::Bind(_))
            && self.holds_dedupe_key(key.task)
            && cx.is_over_here(key.task) == Some(true)
        {
            // A worker that did not know of the task's end has bound the key.
            self.keep_hold(key.task, true);
        }
    }

    /// Checks the holds after a while, if there are any keys.
    pub(super) fn check_holds_later(&mut self, now: Moment) {
        if !self.register.keys().is_empty() && !self.agenda.contains(&Wake::Holds) {
            let pause = CHECKED_EVERY.min(self.config.key_period / 8);
            self.agenda.set(Wake::Holds, now + pause);
        }
    }

    /// Releases the keys of tasks whose finishers have died, renews holds, begins a period, and
    /// removes expired entries; each only if this worker is the first one. There may be millions of
    /// holders, so the check continues in the next run after [`AT_ONCE_MAX`] of them.
    pub(super) fn check_holds(&mut self, cx: &mut QueueContext<'_>) {
        let now = cx.now;
        let over = self.check_some_holders(cx);
        if let Some(check) = &mut self.holds.check {
            if check.kept < AT_ONCE_MAX {
                self.agenda.set(Wake::Holds, now);
                return;
            }
            check.pause();
        }
        self.check_holds_later(now);
        if !self.read {
            return;
        }
        let is_due = self.is_period_due(cx.wall_ms);
        let all = over.filter(|check| check.all);
        if all.is_some() {
            self.holds.renewed_at = Some(now);
        }
        if self.is_first(cx) {
            // A hold is at most one period old when its task ends.
            if is_due && all.is_some_and(|check| !check.renews) {
                self.begin_period(cx);
            }
            self.remove_expired(now);
        }
    }

    fn is_period_due(&self, wall_ms: u64) -> bool {
        let began_ms = self.holds.began_ms.unwrap_or(wall_ms);
        began_ms.saturating_add(millis(self.config.key_period)) <= wall_ms
    }

    fn begin_check(&self, cx: &QueueContext<'_>) -> HoldsCheck {
        let patience = self.config.key_period / 8;
        let renewed_at = self.holds.renewed_at;
        let all = renewed_at.is_none_or(|at| cx.now.since(at) >= patience)
            || self.is_period_due(cx.wall_ms);
        HoldsCheck { kind: KeyKind::Dedupe, last: None, all, resume: None, renews: false, kept: 0 }
    }

    /// Releases or renews the keys of some holders for which this worker is the first one. Returns
    /// the check when it is over.
    fn check_some_holders(&mut self, cx: &QueueContext<'_>) -> Option<HoldsCheck> {
        let mut check = match self.holds.check.take() {
            Some(check) => check,
            None => self.begin_check(cx),
        };
        if !self.read {
            return Some(check);
        }
        let holders = self.register.keys().holders_behind(check.kind, check.last);
        let some: Vec<QueueTask> = holders.take(AT_ONCE_MAX).collect();
        for task in &some {
            self.check_holder(*task, &mut check, cx);
        }
        match (some.last(), check.kind) {
            (Some(last), _) => check.last = Some(*last),
            (None, KeyKind::Dedupe) if check.all => {
                (check.kind, check.last) = (KeyKind::Idempotency, check.resume.take());
            }
            (None, KeyKind::Dedupe | KeyKind::Idempotency) => return Some(check),
        }
        self.holds.check = Some(check);
        None
    }

    fn check_holder(&mut self, task: QueueTask, check: &mut HoldsCheck, cx: &QueueContext<'_>) {
        let is_old = self.register.keys().is_to_be_renewed(task);
        let is_dedupe = self.holds_dedupe_key(task);
        if !is_old && !is_dedupe {
            return;
        }
        let Some(is_over) = cx.is_over_here(task) else { return };
        check.renews |= is_old && !is_over;
        if is_over && is_dedupe || !is_over && is_old {
            self.keep_hold(task, is_over);
            check.kept += 1;
        }
    }

    /// Begins the next period. All holds of unfinished tasks were just found renewed.
    fn begin_period(&mut self, cx: &mut QueueContext<'_>) {
        let (now, patience) = (cx.now, self.config.key_period / 8);
        // The entry may take long to arrive, and each one stays on the register.
        if self.holds.begun_at.is_some_and(|at| now.since(at) < patience) {
            return;
        }
        self.holds.begun_at = Some(now);
        // If the entry is lost, a later check finds it due.
        let period = self.register.keys().period().next();
        let entry = RegisterEntry::Period(period, self.stamps.next());
        self.publish(entry);
    }

    /// Continues publishing tombstones when the last one in flight was read.
    fn go_on_removing(&mut self, removed: &RegisterKey, cx: &QueueContext<'_>) {
        let last = self.holds.removing.as_ref().map(|(last, _)| last);
        if last == Some(removed) && self.is_first(cx) {
            self.remove_expired(cx.now);
        }
    }

    /// Publishes the tombstones of expired entries, [`AT_ONCE_MAX`] at a time.
    fn remove_expired(&mut self, now: Moment) {
        let (expired, patience) = (self.register.keys().expired(), self.config.key_period / 8);
        let removing = self.holds.removing.as_ref();
        if removing.is_some_and(|(last, at)| expired.contains(last) && now.since(*at) < patience) {
            return;
        }
        let keys: Vec<RegisterKey> = expired.next().take(AT_ONCE_MAX).cloned().collect();
        self.holds.removing = keys.last().map(|last| (last.clone(), now));
        for key in keys {
            self.publish(RegisterEntry::Tombstone(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::QueueConfig;
    use super::*;
    use crate::partition::Partition;
    use crate::protocol::key::{Epoch, OwnerId};
    use crate::protocol::register::{Hold, HoldKey, KeyName, Period};
    use crate::queue::Partitions;
    use crate::task::{Position, Priority, TaskId};

    /// A worker without partitions.
    struct NoPartitions;

    impl Partitions for NoPartitions {
        fn get(&self, _: Priority, _: i32) -> Option<&Partition> {
            None
        }

        fn get_mut(&mut self, _: Priority, _: i32) -> Option<&mut Partition> {
            None
        }

        fn of_level(&self, _: Priority) -> Box<dyn Iterator<Item = (i32, &Partition)> + '_> {
            Box::new(std::iter::empty())
        }
    }

    /// Earlier, all holders were checked in one event, up to three times: with millions of keys,
    /// heartbeats went out too late.
    #[test]
    fn holders_are_checked_in_steps() {
        let (heartbeat, key_period) = (Duration::from_secs(10), Duration::from_secs(1_000));
        let config = QueueConfig { heartbeat, key_period };
        let mut queue = QueueCore::new(config, OwnerId(1));
        let mut at = |now, act: &mut dyn FnMut(&mut QueueCore, &mut QueueContext<'_>)| {
            let cx = &mut QueueContext { now, wall_ms: 1_000_000, partitions: &mut NoPartitions };
            act(&mut queue, cx);
            (queue.holds.check.is_some(), queue.timeout())
        };
        let start = Moment::default();
        at(start, &mut |queue, cx| {
            for number in 0..AT_ONCE_MAX as u64 * 5 / 2 {
                let name = KeyName::new(KeyKind::Idempotency, number.to_string()).unwrap();
                let id = TaskId { ledger: 1, entry: number, partition: -1, batch_index: None };
                let stamp = Stamp { writer: OwnerId(2), serial: number };
                let (period, task) = (Period(0), QueueTask::normal(id));
                let key = HoldKey { name, period, epoch: Epoch(1), task, stamp };
                let bind = RegisterEntry::Bind(Hold { key, digest: None, overwrites: false });
                let position = Position { ledger: 1, entry: number, batch_index: None };
                queue.handle_entry(&bind, position, 1_000_000, cx);
            }
            queue.handle_read(cx);
        });
        let due = start + CHECKED_EVERY;
        let run = &mut |queue: &mut QueueCore, cx: &mut QueueContext<'_>| queue.run(cx);
        // Dedupe keys, three steps of idempotency keys, and the end.
        for step in 0..4 {
            assert_eq!(at(due, run), (true, Some(due)), "step {step}");
        }
        assert_eq!(at(due, run), (false, Some(due + CHECKED_EVERY)));
    }
}

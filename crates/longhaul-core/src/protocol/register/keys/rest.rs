//! The entries of a key on the register, besides the one that bound it.

use super::KeyFold;
use crate::protocol::key::Epoch;
use crate::protocol::register::entry::{HoldKey, KeyName, Period, RegisterKey, Stamp};
use crate::protocol::register::queue_task::QueueTask;

/// An entry of a key, besides the one that bound it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LeftoverEntry {
    pub(super) kind: RestKind,
    pub(super) period: Period,
    pub(super) epoch: Epoch,
    pub(super) task: QueueTask,
    pub(super) stamp: Stamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RestKind {
    /// A bind that was accepted, and superseded.
    Bound,
    /// A release that was accepted.
    Released,
    /// A bind that was rejected because this other task held the key.
    Lost { to: QueueTask },
    /// A bind of an overwriter while the task that makes room for it held the key.
    Behind,
    /// A bind or release without effect.
    Void { release: bool },
}

impl LeftoverEntry {
    /// The task against which this bind has lost.
    pub(super) const fn lost_to(&self) -> Option<QueueTask> {
        if let RestKind::Lost { to } = self.kind { Some(to) } else { None }
    }

    pub(super) const fn is_rejected(&self) -> bool {
        matches!(self.kind, RestKind::Lost { .. } | RestKind::Behind | RestKind::Void { .. })
    }

    pub(super) fn key(&self, name: &KeyName) -> RegisterKey {
        let Self { kind, period, epoch, task, stamp } = *self;
        let key = HoldKey { name: name.clone(), period, epoch, task, stamp };
        match kind {
            RestKind::Released | RestKind::Void { release: true } => RegisterKey::Release(key),
            RestKind::Bound | RestKind::Lost { .. } | RestKind::Behind | RestKind::Void { .. } => {
                RegisterKey::Hold(key)
            }
        }
    }

    /// The order of a key's accepted entries in the log.
    fn place(&self) -> (Period, Epoch, bool) {
        (self.period, self.epoch, self.kind == RestKind::Released)
    }

    pub(super) const fn is_behind(&self) -> bool {
        matches!(self.kind, RestKind::Behind)
    }
}

impl KeyFold {
    /// Removes and returns the entries that were rejected before this period.
    pub(super) fn take_rejected(&mut self, before: Period) -> Vec<LeftoverEntry> {
        self.rest.extract_if(.., |rest| rest.is_rejected() && rest.period < before).collect()
    }

    /// Removes and returns the accepted entries that no decision depends on any more.
    ///
    /// A reader rejects a rejected entry if it knows the state of the key at that place of the log.
    /// It learns this state from the newest entry that was accepted before the period of the oldest
    /// rejected one, and from everything that was accepted since.
    pub(super) fn take_superseded(&mut self, is_over: bool) -> Vec<LeftoverEntry> {
        let current = (!is_over).then_some((self.epoch, true));
        let rejected = self.rest.iter().filter(|rest| rest.is_rejected());
        let oldest = rejected.map(|rest| rest.period).min();
        let accepted =
            self.rest.iter().filter(|rest| !rest.is_rejected()).map(LeftoverEntry::place);
        let accepted = accepted.chain([self.last_bound().place()]);
        let base = oldest.and_then(|oldest| accepted.filter(|(period, ..)| *period < oldest).max());
        let goes = |rest: &mut LeftoverEntry| {
            let (period, epoch, released) = rest.place();
            let is_needed = oldest.is_some_and(|oldest| period >= oldest)
                || base == Some((period, epoch, released))
                || current == Some((epoch, released));
            !rest.is_rejected() && !is_needed
        };
        self.rest.extract_if(.., goes).collect()
    }

    pub(super) fn has_rejected(&self) -> bool {
        self.rest.iter().any(LeftoverEntry::is_rejected)
    }
}

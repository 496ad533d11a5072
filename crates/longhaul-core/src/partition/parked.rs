//! Tasks that wait for others. The others may be in other partitions, so the core of the queue
//! tracks their state and reports it here.

use super::Partition;
use crate::protocol::entry::ClaimKind;
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::moment::Moment;
use crate::protocol::waits::DependencyState;
use crate::task::TaskId;
use std::time::Duration;

/// When a parked task is due while its dependencies are not over.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl Partition {
    /// Notes the state of a task's dependencies. Returns false if no further reports are needed:
    /// the task is over or unknown.
    pub fn record_standing(&mut self, id: TaskId, standing: DependencyState, now: Moment) -> bool {
        let Some(fold) = self.machine.task(id).map(|task| task.fold) else { return false };
        if fold.phase.is_terminal() {
            return false;
        }
        if let Some(open) = self.open.get_mut(&id).filter(|_| fold.is_parked()) {
            // For workers that do not hold the task, the adoption delay counts from now on. After
            // an attempt it does not begin before the retry pause is over.
            open.due = open.due.max(now);
        }
        let waits = standing == DependencyState::Waits;
        self.waits.insert(id, standing);
        self.agenda.set(id, now);
        if waits && fold.is_parked() {
            self.drop_payload_until_due(id, now);
            self.settle();
        }
        true
    }

    /// The time up to which the view of the ledger is known to be complete.
    #[must_use]
    pub const fn view_at(&self) -> Option<Moment> {
        self.silence.view_at()
    }

    /// The reason in the claim that closes the task, if the task's dependencies close it.
    #[must_use]
    pub fn closing_reason(&self, id: TaskId, kind: ClaimKind) -> Option<&str> {
        match self.waits.get(&id)? {
            DependencyState::Closes(closes, reason) if *closes == kind => {
                (!self.machine.fold(id).cancel).then_some(reason)
            }
            DependencyState::Closes(..) | DependencyState::Waits | DependencyState::Over => None,
        }
    }

    /// Whether the next claim of this task parks it.
    pub(super) fn parks(&self, id: TaskId) -> bool {
        let fold = self.machine.fold(id);
        // The worker that offered it has seen that its dependencies are over.
        self.waits.get(&id) == Some(&DependencyState::Waits)
            && !fold.is_parked()
            && !fold.is_offered()
    }

    /// When the next attempt is due, given the time for an unparked task.
    pub(super) fn due_unless_parked(&self, id: TaskId, due: Moment) -> Moment {
        let waits = matches!(self.waits.get(&id), None | Some(DependencyState::Waits));
        if waits && self.machine.fold(id).is_parked() { due + NEVER } else { due }
    }

    /// When and how its dependencies close a task that has not begun.
    pub(super) fn closed_by_others(
        &self,
        id: TaskId,
        fold: &TaskFold,
    ) -> Option<(Moment, ClaimKind)> {
        let DependencyState::Closes(kind, _) = self.waits.get(&id)? else { return None };
        let waits = fold.phase == Phase::New || fold.is_parked();
        let since = self.open.get(&id).map(|open| open.due).unwrap_or_default();
        waits.then_some((since, *kind))
    }
}

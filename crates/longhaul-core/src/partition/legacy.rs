//! Beside workers of the Java reference: checks the metadata topic before a claim, and again before
//! a start. The rules are in `legacy.rs`.

use super::{Mode, Partition, PartitionEffect};
use crate::legacy::{HeldStart, Legacy, LegacyClaimCheck, LegacyEntry};
use crate::machine::{Action, Stop};
use crate::protocol::claim::NextClaim;
use crate::protocol::entry::ClaimKind;
use crate::protocol::key::Epoch;
use crate::protocol::moment::Moment;
use crate::task::{Position, TaskId};
use std::time::Duration;

impl Partition {
    /// Enables the mode for a subscription shared with Java workers, with their keep-alive
    /// interval.
    #[must_use]
    pub fn beside_legacy(mut self, keep_alive: Duration) -> Self {
        self.legacy = Some(Legacy::new(keep_alive));
        self
    }

    /// Handles an entry of the metadata topic: for this task, if it names one; `entry` is set if a
    /// worker of the reference wrote it.
    pub fn handle_legacy_read(
        &mut self,
        at: Position,
        id: Option<TaskId>,
        entry: Option<LegacyEntry>,
        now: Moment,
    ) {
        if let Some(legacy) = &mut self.legacy {
            legacy.read(at, id, entry, now);
            self.recheck_answered(now);
        }
    }

    /// Handles the end of the metadata topic, as of the request at this time.
    pub fn handle_legacy_told(&mut self, asked: Moment, end: Option<Position>, now: Moment) {
        if let Some(legacy) = &mut self.legacy {
            legacy.told(asked, end);
            self.recheck_answered(now);
        }
    }

    /// Gives back an attempt that was to end as the metadata topic showed: that entry is gone.
    pub fn handle_shown_end_gone(&mut self, id: TaskId, epoch: Epoch, now: Moment) {
        self.handle_not_begun(id, epoch, now);
        self.handle_processor_gone(id, epoch, now);
    }

    fn recheck_answered(&mut self, now: Moment) {
        for id in self.legacy.as_ref().map(Legacy::answered).unwrap_or_default() {
            self.agenda.set(id, now);
        }
    }

    /// Has the metadata topic read for a claim of the task, or plans another look.
    pub(super) fn wait_for_legacy(&mut self, check: LegacyClaimCheck, id: TaskId, now: Moment) {
        if let Some(legacy) = &mut self.legacy {
            legacy.record(id, check, now);
        }
        match check {
            LegacyClaimCheck::RunsUntil(at) => self.agenda.set(id, at),
            // Looked at again when the metadata topic was read.
            LegacyClaimCheck::NotRead | LegacyClaimCheck::Free => {}
        }
    }

    /// Uses up what the metadata topic has said about the task: it is good for one claim.
    pub(super) fn use_legacy_answer(&mut self, id: TaskId) {
        if let Some(legacy) = &mut self.legacy {
            legacy.use_up(id);
        }
    }

    /// The claim, with the number of attempts from the metadata topic.
    pub(super) fn legacy_claim(&self, id: TaskId, claim: NextClaim) -> NextClaim {
        match &self.legacy {
            Some(legacy) if claim.kind == ClaimKind::Run => {
                let max_attempts = self.machine.max_attempts(id);
                NextClaim { attempt: legacy.attempt(id, claim.attempt, max_attempts), ..claim }
            }
            _ => claim,
        }
    }

    /// Holds back a start until the metadata topic was read once more, and a stop of an attempt
    /// that was held back. Returns true if the action goes no further now.
    pub(super) fn holds_back(&mut self, action: &Action) -> bool {
        let Some(legacy) = &mut self.legacy else { return false };
        if let Action::Start { task, epoch, attempt } = *action {
            legacy.held.insert(task, HeldStart { epoch, attempt });
            return true;
        }
        let Action::Stop { task, epoch, why } = *action else { return false };
        let held = legacy.held.get(&task).copied().filter(|held| held.epoch == epoch);
        let Some(HeldStart { attempt, .. }) = held else { return false };
        legacy.forget(task);
        if why == Stop::Cancelled {
            // It ends like any attempt that is cancelled before its body begins.
            self.effects.push_back(PartitionEffect::Do(Action::Start { task, epoch, attempt }));
        } else if self.processors.remove(&(task, epoch)).is_some() {
            self.freed += 1;
        }
        false
    }

    /// Starts the held-back attempts if the metadata topic allows it; otherwise ends them as it
    /// shows, or gives them back.
    pub(super) fn recheck_held_starts(&mut self, now: Moment) {
        let Some(legacy) = &self.legacy else { return };
        let held: Vec<(TaskId, HeldStart)> =
            legacy.held.iter().map(|(id, held)| (*id, *held)).collect();
        for (id, held) in held {
            self.recheck_held_start(id, held, now);
        }
    }

    fn recheck_held_start(
        &mut self,
        id: TaskId,
        HeldStart { epoch, attempt }: HeldStart,
        now: Moment,
    ) {
        let too_late = self.mode == Mode::Draining || now > self.begin_by(id, epoch);
        let max_attempts = self.machine.max_attempts(id);
        let Some(legacy) = &mut self.legacy else { return };
        let answer = legacy.answer(id, now);
        if answer == LegacyClaimCheck::NotRead && !too_late {
            return;
        }
        let end = legacy.end(id, max_attempts);
        legacy.forget(id);
        match (answer, end) {
            (LegacyClaimCheck::Free, Some(end)) if !too_late => {
                self.effects.push_back(PartitionEffect::EndAsShown(id, epoch, end));
            }
            (LegacyClaimCheck::Free, None) if !too_late => {
                self.effects.push_back(PartitionEffect::Do(Action::Start {
                    task: id,
                    epoch,
                    attempt,
                }));
            }
            _ => {
                self.handle_not_begun(id, epoch, now);
                self.handle_processor_gone(id, epoch, now);
            }
        }
    }

    /// Forgets the task; nothing here asks about it any more.
    pub(super) fn forget_legacy(&mut self, id: TaskId) {
        if let Some(legacy) = self.legacy.as_mut().filter(|legacy| !legacy.held.contains_key(&id)) {
            legacy.forget(id);
        }
    }

    /// Drops attempts that had not started, after a self-fence.
    pub(super) fn drop_held_starts(&mut self) {
        for (id, held) in self.legacy.as_mut().map(Legacy::fence).unwrap_or_default() {
            self.processors.remove(&(id, held.epoch));
            self.freed += 1;
            self.machine.not_started(id, held.epoch);
        }
    }

    pub(super) fn ask_for_legacy(&mut self, now: Moment) {
        if self.legacy.as_mut().is_some_and(|legacy| legacy.ask(now)) {
            self.effects.push_back(PartitionEffect::AskForLegacy);
        }
    }

    /// When to ask again, or to give back an attempt that may not begin any more.
    pub(super) fn legacy_timeout(&self) -> Option<Moment> {
        let legacy = self.legacy.as_ref()?;
        let late = Duration::from_millis(1);
        let held = legacy.held.iter().map(|(id, held)| self.begin_by(*id, held.epoch) + late).min();
        held.into_iter().chain(legacy.timeout()).min()
    }
}

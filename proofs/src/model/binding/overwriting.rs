//! Overwriters: a worker closes the tasks that an overwriter replaces, waits for the running one,
//! and binds the overwriter when the key is free.

use super::{Binding, BindingFault, Move, Phase, State, periods, violated};
use longhaul_core::protocol::invariants::{BINDING, Violation};
use longhaul_core::protocol::register::{Overwriting, QueueTask};

impl Binding {
    /// Whether this submitter submits an overwriter.
    pub(super) const fn overwrites(self, submitter: usize) -> bool {
        submitter < self.submitters as usize
            && submitter >= self.submitters.saturating_sub(self.overwriters) as usize
    }

    /// Whether a bind of this message says that it overwrites.
    pub(super) fn says_overwrites(self, state: &State, message: u8) -> bool {
        let overwrites = state.messages.get(usize::from(message)).is_some_and(|it| it.overwrites);
        overwrites && self.fault != BindingFault::Unsaid
    }

    pub(super) fn moves_of_overwriting(self, state: &State, index: usize, into: &mut Vec<Move>) {
        let party = &state.parties[index];
        match party.fold.keys().overwriting(&self.name()) {
            Some(Overwriting::Over { holder, .. }) => {
                let number = number(holder);
                let phase = state.messages.get(usize::from(number)).map(|it| it.phase);
                let freed = self.fault == BindingFault::FreedAtOnce;
                if phase == Some(Phase::New) {
                    into.push(Move::MakeRoom(index, number));
                } else if freed && phase == Some(Phase::Running) && party.waits.is_empty() {
                    into.push(Move::Release(index, number));
                }
            }
            Some(Overwriting::Bind(task, _)) => {
                let number = number(task);
                if !party.waits.iter().any(|(waits, _)| *waits == number) {
                    into.push(Move::BindOverwriter(index, number));
                }
            }
            None => {}
        }
    }

    /// The closing claim counts, because no worker has claimed the task.
    pub(super) fn make_room(state: &mut State, message: u8) {
        let ended = Some(periods::period(state));
        let it = &mut state.messages[usize::from(message)];
        (it.phase, it.ended) = (Phase::Ended, ended);
    }

    /// Checks the last overwriter: no task supersedes it, so it runs or has lost to a later task.
    pub(super) fn highest_counts(self, state: &State, violations: &mut Vec<Violation>) {
        let messages = || (0_u8..).zip(&state.messages);
        let Some((highest, last)) = messages().filter(|(_, it)| it.overwrites).last() else {
            return;
        };
        let over = matches!(last.phase, Phase::Ended | Phase::Shown);
        if over && state.ran >> highest & 1 == 0 {
            let what = "the last overwriter was closed, and nothing takes its place";
            violated(BINDING, what, violations);
        }
        let later_ran = state.ran >> highest > 1;
        let later_open = messages().any(|(number, it)| number > highest && it.phase == Phase::New);
        if last.phase == Phase::Closed && !later_ran && !later_open {
            violated(BINDING, "the last overwriter has lost, and no later task runs", violations);
        }
    }
}

fn number(task: QueueTask) -> u8 {
    super::small(task.id.entry)
}

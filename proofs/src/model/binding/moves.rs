//! The possible next steps of submitters and workers.

use super::{Binding, BindingFault, Move, Party, Phase, State, task};
use longhaul_core::protocol::register::{Admission, KeyKind, Submitting};

impl Binding {
    pub(super) fn moves_of_submitter(self, state: &State, index: usize, into: &mut Vec<Move>) {
        let party = &state.parties[index];
        if party.submitting {
            return;
        }
        let waits = !party.waits.is_empty();
        let lane = self.overwrites(index).then(|| task(0).lane());
        match party.fold.keys().submitting(&self.name(), party.own.map(task), lane) {
            Submitting::Answer(_) if party.answered => {}
            Submitting::Submit | Submitting::Bind(_) if waits || party.answered => {}
            Submitting::Submit | Submitting::Bind(_) | Submitting::Answer(_) => {
                into.push(Move::Submit(index));
            }
        }
    }

    pub(super) fn moves_of_worker(self, state: &State, index: usize, into: &mut Vec<Move>) {
        let (party, name) = (&state.parties[index], self.name());
        let keys = party.fold.keys();
        for (number, message) in (0..).zip(&state.messages) {
            let waits = party.waits.iter().any(|(waits, _)| *waits == number);
            let holds = keys.holder(&name).is_some_and(|it| it.task == task(number));
            let known = holds || keys.has_released(&name, task(number));
            let shown_first = self.fault == BindingFault::ShownFirst;
            match message.phase {
                Phase::New => {
                    let admission = keys.admission(&name, task(number));
                    let bind = admission == Admission::Bind;
                    let submitter =
                        |it: &&Party| it.own == Some(number) && !it.dead && !it.answered;
                    let leaves = !self.eager && state.parties.iter().any(|it| submitter(&it));
                    let behind = matches!(admission, Admission::Behind(_));
                    if !behind && !(bind && (waits || leaves)) {
                        into.push(Move::Look(index, number));
                    }
                }
                Phase::Ended | Phase::Shown | Phase::Closed
                    if self.kind == KeyKind::Dedupe && holds && !waits =>
                {
                    into.push(Move::Release(index, number));
                    if message.phase == Phase::Ended && shown_first {
                        into.push(Move::Show(index, number));
                    }
                }
                Phase::Ended => {
                    let forgotten = self.periods > 0 && party.cursor == state.register.len();
                    let may = self.kind == KeyKind::Idempotency || (known || forgotten) && !holds;
                    if may || shown_first {
                        into.push(Move::Show(index, number));
                    }
                }
                Phase::Running | Phase::Shown | Phase::Closed => {}
            }
        }
    }
}

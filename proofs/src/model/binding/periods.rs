//! Periods of the register: holds are renewed, forgotten and removed.
//!
//! A worker begins a period when every hold of an unfinished task that it sees is renewed.
//! Removable keys are tombstoned one at a time, while readers are in the middle of them.

use super::{Binding, BindingFault, Message, Move, Party, Phase, State, position, task, violated};
use longhaul_core::protocol::invariants::{BINDING, Violation};
use longhaul_core::protocol::register::{
    Hold, KeyKind, Keys, Period, QueueTask, Register, RegisterEntry, Stamp,
};

/// The number of periods that must begin after the end of a task before its key is free.
const REMEMBERED: u32 = 2;

impl Binding {
    /// The initial state: two messages are over; the parties have read nothing.
    pub(super) fn aged(self, mut state: State) -> State {
        let mut fold = Register::default();
        let mut writer = Party::default();
        let mut put =
            |state: &mut State, of: &dyn Fn(&Register, Stamp) -> Option<RegisterEntry>| {
                let Some(entry) = of(&fold, writer.next_stamp(9)) else { return };
                fold.apply(&entry, position(state.register.len()));
                state.register.push((entry, false));
            };
        let name = self.name();
        let bind = |number| {
            let name = &name;
            move |fold: &Register, stamp| Some(fold.keys().bind_of(name, task(number), None, stamp))
        };
        put(&mut state, &bind(0));
        put(&mut state, &bind(1));
        if self.kind == KeyKind::Dedupe {
            put(&mut state, &|fold, stamp| fold.keys().release_of(task(0), stamp));
        }
        let ended = Some(Period(0));
        state.messages.push(Message { phase: Phase::Shown, after: 0, overwrites: false, ended });
        state.messages.push(Message { phase: Phase::Closed, after: 0, overwrites: false, ended });
        state.ran = 1;
        state
    }

    pub(super) fn moves_of_keeper(self, state: &State, index: usize, into: &mut Vec<Move>) {
        let party = &state.parties[index];
        if self.periods == 0 || !party.out.is_empty() {
            return;
        }
        let keys = party.fold.keys();
        let is_open = |it: &Message| matches!(it.phase, Phase::New | Phase::Running);
        let old = |number: u8| {
            let message = &state.messages[usize::from(number)];
            is_open(message) && keys.is_to_be_renewed(task(number))
        };
        let numbers = 0..super::small(state.messages.len());
        into.extend(numbers.clone().filter(|it| old(*it)).map(|it| Move::Renew(index, it)));
        if state.periods > 0 && !numbers.into_iter().any(old) {
            into.push(Move::Period(index));
        }
        let removable = match self.fault {
            BindingFault::AnyOrder => keys.expired().all().count(),
            _ => keys.expired().next().count(),
        };
        into.extend((0..super::small(removable)).map(|nth| Move::Remove(index, nth)));
    }

    pub(super) fn renew(self, state: &mut State, index: usize, message: u8) {
        let party = &mut state.parties[index];
        let stamp = party.next_stamp(index);
        let entry = party.fold.keys().bind_of(&self.name(), task(message), None, stamp);
        party.out.push(entry);
    }

    pub(super) fn begin_period(state: &mut State, index: usize) {
        state.periods -= 1;
        let party = &mut state.parties[index];
        let stamp = party.next_stamp(index);
        party.out.push(RegisterEntry::Period(party.fold.keys().period().next(), stamp));
    }

    pub(super) fn remove(self, state: &mut State, index: usize, nth: u8) {
        let party = &mut state.parties[index];
        let expired = party.fold.keys().expired();
        let nth = usize::from(nth);
        let key = match self.fault {
            BindingFault::AnyOrder => expired.all().nth(nth).cloned(),
            _ => expired.next().nth(nth).cloned(),
        };
        party.out.extend(key.map(RegisterEntry::Tombstone));
    }

    /// `BindingFault::GuessedPeriod`: an entry names the period in which it lands, not the one that
    /// its writer has read.
    pub(super) fn tampered(self, state: &State, mut entry: RegisterEntry) -> RegisterEntry {
        if self.fault == BindingFault::GuessedPeriod
            && let RegisterEntry::Bind(Hold { key, .. }) | RegisterEntry::Release(key) = &mut entry
        {
            key.period = period(state);
        }
        entry
    }

    /// Checks that only one of the messages with an idempotency key runs, and that every answer
    /// names it.
    pub(super) fn agree(self, state: &State, violations: &mut Vec<Violation>) {
        // Scenarios in which keys are forgotten: see `runs_alone`.
        if self.kind != KeyKind::Idempotency || self.periods > 0 {
            return;
        }
        if state.ran.count_ones() > 1 {
            violated(BINDING, "two messages of one key were run", violations);
        }
        if state.answers.count_ones() > 1 {
            violated(BINDING, "two answers for one key", violations);
        }
        if state.ran != 0 && state.answers & !state.ran != 0 {
            violated(
                BINDING,
                "the answer names another message than the one that was run",
                violations,
            );
        }
    }

    /// Checks that no second task of a key runs while the key is remembered.
    pub(super) fn runs_alone(self, state: &State, starting: u8, violations: &mut Vec<Violation>) {
        if self.kind != KeyKind::Idempotency {
            return;
        }
        let now = period(state).0;
        let remembered = |(number, it): (u8, &Message)| {
            number != starting
                && state.ran >> number & 1 == 1
                && it.ended.is_none_or(|ended| now < ended.0 + REMEMBERED)
        };
        if (0..).zip(&state.messages).any(remembered) {
            violated(BINDING, "two messages of one key were run", violations);
        }
    }
}

/// The period at the end of the log.
pub(super) fn period(state: &State) -> Period {
    full(state).keys().period()
}

fn full(state: &State) -> Register {
    let mut full = Register::default();
    for (at, (entry, _)) in state.register.iter().enumerate() {
        full.apply(entry, position(at));
    }
    full
}

/// Checks that a party that has read to the end says the same about the key as the whole log.
pub(super) fn agrees(binding: Binding, state: &State, violations: &mut Vec<Violation>) {
    let (full, name) = (full(state), binding.name());
    for party in &state.parties {
        if party.cursor < state.register.len() || party.answered {
            continue;
        }
        let (keys, whole) = (party.fold.keys(), full.keys());
        let holder = |it: &Keys| it.holder(&name).map(|holding| (holding.task, holding.epoch));
        let open = (0..).zip(&state.messages).filter(|(_, it)| it.phase == Phase::New);
        let tasks: Vec<QueueTask> = open.map(|(number, _)| task(number)).collect();
        let admissions =
            |it: &Keys| -> Vec<_> { tasks.iter().map(|task| it.admission(&name, *task)).collect() };
        if holder(keys) != holder(whole) || admissions(keys) != admissions(whole) {
            violated(BINDING, "a reader says another thing of the key than the log", violations);
        }
        if keys.bind_of(&name, task(9), None, Stamp::default())
            != whole.bind_of(&name, task(9), None, Stamp::default())
        {
            violated(BINDING, "a reader has another epoch of the key than the log", violations);
        }
    }
}

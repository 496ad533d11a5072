//! Idempotency keys: two submitters with one key, workers, a register.

use super::fingerprint::Fingerprint;
use super::idempotency::{Bind, Bindings, SubmitterStep, WorkerStep};
use super::search::System;
use longhaul::TaskId;
use longhaul::internals::protocol::invariants::{BINDING, COMPACTION, Violation};

/// The rule that the harness breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BindingFault {
    /// None.
    #[default]
    None,
    /// All BINDs of one message share a compaction key.
    SharedKey,
}

/// The system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Binding {
    /// Workers, beside the two submitters.
    pub workers: u8,
    /// Crashes of submitters and workers.
    pub crash: u8,
    /// Compactions of the register.
    pub compact: u8,
    /// The broken rule.
    pub fault: BindingFault,
}

const KEY: &str = "key";

/// A state.
#[derive(Clone, Debug, Hash)]
pub struct State {
    register: Vec<(Bind, bool)>,
    parties: Vec<Party>,
    messages: Vec<Message>,
    crash: u8,
    compact: u8,
    nonce: u128,
    answers: Vec<u8>,
    ran: Vec<u8>,
}

#[derive(Clone, Debug, Default, Hash)]
struct Message {
    by: u8,
    acked: bool,
}

/// A submitter (the first [`SUBMITTERS`]) or a worker.
#[derive(Clone, Debug, Default, Hash)]
struct Party {
    fold: Bindings,
    cursor: usize,
    out: Vec<Bind>,
    /// Submitter: its task message is in flight.
    submitting: bool,
    /// Submitter: the message that it published. Worker: those that it has bound, as bits.
    own: Option<u8>,
    bound: u8,
    answered: bool,
    dead: bool,
}

const SUBMITTERS: usize = 2;

/// A step of the party with this number.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    /// The submitter does what it decides.
    Submit(usize),
    /// Its task message lands.
    MessageLands(usize),
    /// The worker does what it decides about a message.
    Look(usize, u8),
    /// The first BIND in flight lands.
    Land(usize),
    /// The party reads the next entry of the register.
    Read(usize),
    /// The process dies. A worker starts again.
    Crash(usize),
    /// The register is compacted up to here.
    Compact(usize),
}

impl Binding {
    fn compaction_key(self, bind: &Bind) -> String {
        match self.fault {
            BindingFault::None => bind.entry_key(),
            BindingFault::SharedKey => Bind { nonce: 0, ..bind.clone() }.entry_key(),
        }
    }

    /// Without the fault no key repeats: compaction removes nothing, and the fold ignores all but the first entry, so that
    /// later ones need not be kept apart.
    fn append(self, state: &mut State, bind: Bind) {
        if self.fault != BindingFault::None || state.register.is_empty() {
            state.register.push((bind, false));
        }
    }

    fn bind(self, state: &mut State, party: usize, message: u8) {
        if self.fault != BindingFault::None {
            state.nonce += 1;
        }
        let bind = Bind { key: KEY.to_owned(), task: task(message), nonce: state.nonce };
        let party = &mut state.parties[party];
        party.bound |= 1 << message;
        party.out.push(bind);
    }
}

impl System for Binding {
    type State = State;
    type Move = Move;

    fn initial(&self) -> State {
        State {
            register: Vec::new(),
            parties: vec![Party::default(); SUBMITTERS + usize::from(self.workers)],
            messages: Vec::new(),
            crash: self.crash,
            compact: self.compact,
            nonce: 0,
            answers: Vec::new(),
            ran: Vec::new(),
        }
    }

    fn moves(&self, state: &State, into: &mut Vec<Move>) {
        for (index, party) in state.parties.iter().enumerate() {
            if !party.out.is_empty() {
                into.push(Move::Land(index));
            }
            if party.submitting {
                into.push(Move::MessageLands(index));
            }
            if party.dead {
                continue;
            }
            if party.cursor < state.register.len() {
                into.push(Move::Read(index));
            }
            if state.crash > 0 {
                into.push(Move::Crash(index));
            }
            if index < SUBMITTERS {
                let waits = party.submitting || party.bound != 0;
                match party.fold.submitter_step(KEY, party.own.map(task)) {
                    SubmitterStep::Answer(_) if party.answered => {}
                    SubmitterStep::Submit | SubmitterStep::Bind(_) if waits => {}
                    SubmitterStep::Submit | SubmitterStep::Bind(_) | SubmitterStep::Answer(_) => {
                        into.push(Move::Submit(index));
                    }
                }
                continue;
            }
            for (number, message) in state.messages.iter().enumerate() {
                let waits = party.fold.get(KEY).is_none() && party.bound >> number & 1 == 1;
                if !message.acked && !waits {
                    into.push(Move::Look(index, small(number)));
                }
            }
        }
        if state.compact > 0 {
            let key = |index: usize| self.compaction_key(&state.register[index].0);
            let removes = |last: usize| {
                (0..last).any(|first| !state.register[first].1 && key(first) == key(last))
            };
            into.extend((0..state.register.len()).filter(|last| removes(*last)).map(Move::Compact));
        }
    }

    fn step(&self, before: &State, step: Move, violations: &mut Vec<Violation>) -> State {
        let mut state = before.clone();
        match step {
            Move::Submit(index) => self.submit(&mut state, index, violations),
            Move::MessageLands(index) => {
                let number = small(state.messages.len());
                state.messages.push(Message { by: small(index), acked: false });
                let party = &mut state.parties[index];
                party.submitting = false;
                party.own = Some(number);
            }
            Move::Look(index, message) => self.look(&mut state, index, message, violations),
            Move::Land(index) => {
                let bind = state.parties[index].out.remove(0);
                self.append(&mut state, bind);
            }
            Move::Read(index) => read(&mut state, index),
            Move::Crash(index) => {
                state.crash -= 1;
                let party = &mut state.parties[index];
                let fresh = Party { out: party.out.clone(), ..Party::default() };
                if index < SUBMITTERS {
                    party.dead = true;
                } else {
                    *party = fresh;
                }
            }
            Move::Compact(end) => {
                state.compact -= 1;
                let keys: Vec<_> = state.register[..=end]
                    .iter()
                    .map(|(bind, _)| self.compaction_key(bind))
                    .collect();
                for (index, key) in keys.iter().enumerate() {
                    state.register[index].1 |= keys[index + 1..].contains(key);
                }
            }
        }
        state
    }

    fn check(&self, state: &State, violations: &mut Vec<Violation>) {
        let (mut full, mut compacted) = (Bindings::default(), Bindings::default());
        for (bind, removed) in &state.register {
            full.apply(bind);
            if !removed {
                compacted.apply(bind);
            }
        }
        if full != compacted {
            violated(COMPACTION, "a follower of the compacted register folds another", violations);
        }
    }

    /// The key's task ran and all messages are gone; or every submitter died before its message was out.
    fn is_goal(&self, state: &State) -> bool {
        let pending = state.parties.iter().any(|party| party.submitting);
        let dead = state.parties.iter().take(SUBMITTERS).all(|party| party.dead);
        let gone = state.messages.iter().all(|message| message.acked);
        let nothing = state.messages.is_empty() && !pending && dead;
        nothing || (gone && !state.ran.is_empty())
    }

    fn fingerprint(&self, state: &State) -> u128 {
        Fingerprint::of(state)
    }

    fn show(&self, state: &State) -> String {
        format!("       {state:?}")
    }
}

impl Binding {
    fn submit(self, state: &mut State, index: usize, violations: &mut Vec<Violation>) {
        let party = &mut state.parties[index];
        match party.fold.submitter_step(KEY, party.own.map(task)) {
            SubmitterStep::Submit => party.submitting = true,
            SubmitterStep::Bind(own) => self.bind(state, index, small(own.entry)),
            SubmitterStep::Answer(winner) => {
                party.answered = true;
                note(&mut state.answers, small(winner.entry));
                agree(state, violations);
            }
        }
    }

    fn look(self, state: &mut State, index: usize, message: u8, violations: &mut Vec<Violation>) {
        match state.parties[index].fold.worker_step(KEY, task(message)) {
            WorkerStep::Bind => self.bind(state, index, message),
            WorkerStep::Run => {
                state.messages[usize::from(message)].acked = true;
                note(&mut state.ran, message);
                agree(state, violations);
            }
            WorkerStep::Drop(_) => state.messages[usize::from(message)].acked = true,
        }
    }
}

fn read(state: &mut State, index: usize) {
    let cursor = state.parties[index].cursor;
    let rest = state.register.iter().enumerate().skip(cursor);
    let next = rest.into_iter().find(|(_, (_, removed))| !removed);
    let next = next.map(|(at, (bind, _))| (at, bind.clone()));
    let party = &mut state.parties[index];
    party.cursor = next.as_ref().map_or(state.register.len(), |(at, _)| at + 1);
    if let Some((_, bind)) = next {
        party.fold.apply(&bind);
    }
}

/// One message runs, and every answer names it.
fn agree(state: &State, violations: &mut Vec<Violation>) {
    if state.ran.len() > 1 {
        violated(BINDING, "two messages of one key were run", violations);
    }
    if state.answers.len() > 1 {
        violated(BINDING, "two answers for one key", violations);
    }
    if state.answers.iter().any(|answer| state.ran.iter().any(|ran| ran != answer)) {
        violated(BINDING, "the answer names another message than the one that was run", violations);
    }
}

fn violated(id: &'static str, what: &'static str, violations: &mut Vec<Violation>) {
    violations.push(Violation { id, what, task: None });
}

fn note(list: &mut Vec<u8>, number: u8) {
    if !list.contains(&number) {
        list.push(number);
        list.sort_unstable();
    }
}

const fn task(message: u8) -> TaskId {
    TaskId { ledger: 0, entry: message as u64, partition: -1, batch_index: None }
}

fn small<T: TryInto<u8>>(number: T) -> u8 {
    super::world::small(number)
}

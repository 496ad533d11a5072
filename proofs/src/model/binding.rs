//! Keys: submitters and workers with one key, and a register. The fold and the decisions of
//! submitters and workers are the real ones; the state of tasks on the ledger is assumed to be
//! known to all at once.
//!
//! A submitter publishes its message first and binds it to the key afterwards. A worker binds
//! unbound messages, and closes those that have lost. A finished task releases a dedupe key before
//! its end is shown.

mod moves;
mod overwriting;
mod periods;

use super::fingerprint::Fingerprint;
use super::search::System;
use super::world::{position, small};
use longhaul::TaskId;
use longhaul_core::protocol::invariants::{BINDING, COMPACTION, Violation};
use longhaul_core::protocol::key::OwnerId;
use longhaul_core::protocol::register::{
    Admission, HoldKey, KeyKind, KeyName, Period, QueueTask, Register, RegisterEntry, RegisterKey,
    Stamp, Submitting,
};

/// The rule that the harness breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BindingFault {
    /// None.
    #[default]
    None,
    /// All BINDs of one message share a compaction key.
    SharedKey,
    /// The end of a task is shown before its key is released.
    ShownFirst,
    /// An entry carries the period in which it is stored, whatever its writer has read.
    GuessedPeriod,
    /// Accepted entries are removed before rejected ones, or in any order.
    AnyOrder,
    /// Binds of overwriters are not marked as such.
    Unsaid,
    /// A task makes room as soon as it is asked to, and its key is free although it runs.
    FreedAtOnce,
}

/// The modelled system.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// The kind of the key.
    pub kind: KeyKind,
    /// Number of submitters at the start.
    pub submitters: u8,
    /// Number of submitters of overwriters, the last ones.
    pub overwriters: u8,
    /// Number of workers.
    pub workers: u8,
    /// Whether workers do not wait for the submitter to bind its key.
    pub eager: bool,
    /// Maximum number of crashes of submitters and workers.
    pub crash: u8,
    /// Maximum number of compactions of the register.
    pub compact: u8,
    /// Maximum number of periods that begin.
    pub periods: u8,
    /// Whether two messages are over from the start: one has run, and the other has lost against
    /// it.
    pub aged: bool,
    /// The broken rule.
    pub fault: BindingFault,
}

impl Default for Binding {
    fn default() -> Self {
        Self {
            kind: KeyKind::Idempotency,
            submitters: 2,
            overwriters: 0,
            workers: 1,
            eager: false,
            crash: 0,
            compact: 0,
            periods: 0,
            aged: false,
            fault: BindingFault::None,
        }
    }
}

/// A state.
#[derive(Clone, Debug, Hash)]
pub struct State {
    register: Vec<(RegisterEntry, bool)>,
    parties: Vec<Party>,
    messages: Vec<Message>,
    crash: u8,
    compact: u8,
    periods: u8,
    answers: u8,
    ran: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    New,
    Running,
    Ended,
    Shown,
    /// Another message held the key.
    Closed,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Message {
    phase: Phase,
    /// The messages whose ends were shown when this one was submitted, as bits.
    after: u8,
    /// Whether it replaces an earlier one.
    overwrites: bool,
    /// The period in which it ended.
    ended: Option<Period>,
}

/// A submitter (the first ones) or a worker.
#[derive(Clone, Debug, Default, Hash)]
struct Party {
    fold: Register,
    cursor: usize,
    out: Vec<RegisterEntry>,
    serial: u64,
    /// Submitter: whether its task message is in flight.
    submitting: bool,
    /// Submitter: the message that it published; below, the period up to which it had read the
    /// register then.
    own: Option<u8>,
    since: Period,
    /// Binds and releases that were not read back, by message.
    waits: Vec<(u8, Stamp)>,
    answered: bool,
    dead: bool,
}

/// A step of the party with this number.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    /// The submitter takes its next step.
    Submit(usize),
    /// Its task message is stored.
    MessageLands(usize),
    /// The worker takes its next step for a new message.
    Look(usize, u8),
    /// The task of a message ends.
    End(u8),
    /// The worker closes a task that makes room for another one.
    MakeRoom(usize, u8),
    /// The worker binds an overwriter whose delivery it may not have.
    BindOverwriter(usize, u8),
    /// The worker releases the key of a task that is over.
    Release(usize, u8),
    /// The worker shows the end of a task.
    Show(usize, u8),
    /// The first entry in flight is stored.
    Land(usize),
    /// The party reads the next entry of the register.
    Read(usize),
    /// The process dies. A worker starts again.
    Crash(usize),
    /// The worker renews the hold of a task that is not over.
    Renew(usize, u8),
    /// The worker begins a period.
    Period(usize),
    /// The worker removes one of the removable entries.
    Remove(usize, u8),
    /// The register is compacted up to here.
    Compact(usize),
}

impl Binding {
    #[expect(clippy::expect_used, reason = "a constant that is a name")]
    fn name(self) -> KeyName {
        KeyName::new(self.kind, "k").expect("the name is fine")
    }

    fn compaction_key(self, entry: &RegisterEntry) -> RegisterKey {
        match (self.fault, entry.key()) {
            (BindingFault::SharedKey, RegisterKey::Hold(key)) => {
                RegisterKey::Hold(HoldKey { stamp: Stamp::default(), ..key })
            }
            (_, key) => key,
        }
    }

    /// For an idempotency key, only the first entry of each message matters; the others need not be
    /// distinguished.
    fn append(self, state: &mut State, entry: RegisterEntry) {
        let plain = self.fault == BindingFault::None && self.periods == 0;
        let stays = self.kind == KeyKind::Idempotency && plain;
        let named = |entry: &RegisterEntry| entry.key().hold().map(|key| key.task);
        let is_repeated = |(before, _): &(RegisterEntry, bool)| named(before) == named(&entry);
        if !(stays && state.register.iter().any(is_repeated)) {
            state.register.push((entry, false));
        }
    }

    fn put_hold(self, state: &mut State, party: usize, message: u8, release: bool) {
        let overwrites = self.says_overwrites(state, message);
        let party_number = party;
        let party = &mut state.parties[party];
        let stamp = party.next_stamp(party_number);
        let (keys, task) = (party.fold.keys(), task(message));
        let entry = if release {
            keys.release_of(task, stamp)
        } else {
            Some(keys.bind_of(&self.name(), task, None, stamp).overwriting(overwrites))
        };
        party.waits.push((message, stamp));
        party.out.extend(entry);
    }
}

impl System for Binding {
    type State = State;
    type Move = Move;

    fn initial(&self) -> State {
        let state = State {
            register: Vec::new(),
            parties: vec![
                Party::default();
                usize::from(self.submitters) + usize::from(self.workers)
            ],
            messages: Vec::new(),
            crash: self.crash,
            compact: self.compact,
            periods: self.periods,
            answers: 0,
            ran: 0,
        };
        if self.aged { self.aged(state) } else { state }
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
            // Entries after the answer change nothing.
            if party.cursor < state.register.len() && !party.answered {
                into.push(Move::Read(index));
            }
            let fresh = party.cursor == 0 && party.out.is_empty() && party.own.is_none();
            if state.crash > 0 && !fresh && !party.answered {
                into.push(Move::Crash(index));
            }
            if index < usize::from(self.submitters) {
                self.moves_of_submitter(state, index, into);
            } else {
                self.moves_of_worker(state, index, into);
                self.moves_of_keeper(state, index, into);
                self.moves_of_overwriting(state, index, into);
            }
        }
        let running = |message: &Message| message.phase == Phase::Running;
        let running = (0..).zip(&state.messages).filter(|(_, message)| running(message));
        into.extend(running.map(|(number, _)| Move::End(number)));
        if state.compact > 0 {
            let key = |index: usize| self.compaction_key(&state.register[index].0);
            let removes = |last: usize| {
                !state.register[last].1
                    && (0..last).any(|first| !state.register[first].1 && key(first) == key(last))
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
                let shown = |it: &Message| it.phase == Phase::Shown;
                let after = (0..).zip(&state.messages).filter(|(_, it)| shown(it));
                let after = after.map(|(number, _)| 1 << number).sum();
                let overwrites = self.overwrites(index);
                let phase = Phase::New;
                state.messages.push(Message { phase, after, overwrites, ended: None });
                let party = &mut state.parties[index];
                party.submitting = false;
                party.own = Some(number);
            }
            Move::Look(index, message) => self.look(&mut state, index, message, violations),
            Move::End(message) => {
                let ended = Some(periods::period(&state));
                let it = &mut state.messages[usize::from(message)];
                (it.phase, it.ended) = (Phase::Ended, ended);
            }
            Move::MakeRoom(_, message) => Self::make_room(&mut state, message),
            Move::BindOverwriter(index, message) => {
                self.put_hold(&mut state, index, message, false);
            }
            Move::Release(index, message) => self.put_hold(&mut state, index, message, true),
            Move::Show(_, message) => state.messages[usize::from(message)].phase = Phase::Shown,
            Move::Land(index) => {
                let party = &mut state.parties[index];
                let entry = party.out.remove(0);
                let entry = self.tampered(&state, entry);
                self.append(&mut state, entry);
            }
            Move::Read(index) => self.read(&mut state, index),
            Move::Crash(index) => {
                state.crash -= 1;
                let party = &mut state.parties[index];
                if index < usize::from(self.submitters) {
                    party.dead = true;
                } else {
                    let (out, serial) = (party.out.clone(), party.serial);
                    *party = Party { out, serial, ..Party::default() };
                }
            }
            Move::Renew(index, message) => self.renew(&mut state, index, message),
            Move::Period(index) => Self::begin_period(&mut state, index),
            Move::Remove(index, nth) => self.remove(&mut state, index, nth),
            Move::Compact(end) => {
                state.compact -= 1;
                let keys: Vec<_> = state.register[..=end]
                    .iter()
                    .map(|(entry, _)| self.compaction_key(entry))
                    .collect();
                for (index, key) in keys.iter().enumerate() {
                    let is_tombstone =
                        matches!(state.register[index].0, RegisterEntry::Tombstone(_));
                    state.register[index].1 |= is_tombstone || keys[index + 1..].contains(key);
                }
            }
        }
        state
    }

    /// Checks that the compacted register and the whole one agree about the messages that are not
    /// over.
    fn check(&self, state: &State, violations: &mut Vec<Violation>) {
        let (mut full, mut compacted) = (Register::default(), Register::default());
        for (at, (entry, removed)) in state.register.iter().enumerate() {
            full.apply(entry, position(at));
            if !removed {
                compacted.apply(entry, position(at));
            }
        }
        self.highest_counts(state, violations);
        let name = self.name();
        let open = (0..).zip(&state.messages).filter(|(_, message)| message.phase == Phase::New);
        if self.periods > 0 {
            periods::agrees(*self, state, violations);
        }
        let mut differ = full.keys().holder(&name) != compacted.keys().holder(&name);
        for (number, _) in open {
            let admission = |register: &Register| register.keys().admission(&name, task(number));
            differ |= admission(&full) != admission(&compacted);
        }
        if differ {
            violated(COMPACTION, "a follower of the compacted register folds another", violations);
        }
    }

    /// Whether every task is over and none waits, or every submitter died before its message was
    /// published.
    fn is_goal(&self, state: &State) -> bool {
        let over = |it: &Message| matches!(it.phase, Phase::Shown | Phase::Closed);
        let submitters = state.parties.iter().take(usize::from(self.submitters));
        let answered = |it: &Party| it.answered || it.dead;
        state.messages.iter().all(over)
            && submitters.clone().all(|party| !party.submitting)
            && submitters.clone().all(answered)
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
        let lane = self.overwrites(index).then(|| task(0).lane());
        match party.fold.keys().submitting(&self.name(), party.own.map(task), lane) {
            Submitting::Submit => {
                party.submitting = true;
                party.since = party.fold.keys().period();
            }
            // It reports an unknown result to its caller.
            Submitting::Bind(_) if !party.fold.keys().remembers(party.since) => party.dead = true,
            Submitting::Bind(own) => self.put_hold(state, index, small(own.id.entry), false),
            Submitting::Answer(winner) => {
                party.answered = true;
                state.answers |= 1 << winner.id.entry;
                // An overwriter may have been superseded by then.
                let closed = |it: &Message| it.phase == Phase::Closed && !it.overwrites;
                let winner = usize::try_from(winner.id.entry).ok();
                if winner.and_then(|at| state.messages.get(at)).is_some_and(closed) {
                    violated(BINDING, "the answer names a message that was never run", violations);
                }
                self.agree(state, violations);
            }
        }
    }

    fn look(self, state: &mut State, index: usize, message: u8, violations: &mut Vec<Violation>) {
        let keys = state.parties[index].fold.keys();
        match keys.admission(&self.name(), task(message)) {
            // The worker that keeps the keys goes on.
            Admission::Behind(_) => {}
            Admission::Bind => self.put_hold(state, index, message, false),
            Admission::Holds => {
                if state.messages.iter().any(|it| it.phase == Phase::Running) {
                    violated(BINDING, "two tasks of one key run at once", violations);
                }
                state.messages[usize::from(message)].phase = Phase::Running;
                self.runs_alone(state, message, violations);
                state.ran |= 1 << message;
                self.agree(state, violations);
            }
            Admission::Lost(to) => {
                let overwrites = state.messages[usize::from(message)].overwrites;
                if self.periods > 0 && state.answers >> message & 1 == 1 && !overwrites {
                    let what = "the answer names a message that is closed unseen";
                    violated(BINDING, what, violations);
                }
                let it = &mut state.messages[usize::from(message)];
                it.phase = Phase::Closed;
                if it.overwrites && task(message) > to {
                    let what = "an overwriter was lost to an earlier task of its lane";
                    violated(BINDING, what, violations);
                }
                if self.kind == KeyKind::Dedupe && it.after >> to.id.entry & 1 == 1 {
                    let what = "a task was lost to one that was over when it was submitted";
                    violated(BINDING, what, violations);
                }
            }
        }
    }

    fn read(self, state: &mut State, index: usize) {
        let cursor = state.parties[index].cursor;
        let rest = state.register.iter().enumerate().skip(cursor);
        let next = rest.into_iter().find(|(_, (_, removed))| !removed);
        let next = next.map(|(at, (entry, _))| (at, entry.clone()));
        let party = &mut state.parties[index];
        party.cursor = next.as_ref().map_or(state.register.len(), |(at, _)| at + 1);
        if party.cursor == state.register.len() {
            // Its entry may have been removed before it got there.
            let on_its_way = |stamp: &Stamp| {
                party.out.iter().any(|it| it.key().hold().is_some_and(|key| key.stamp == *stamp))
            };
            party.waits.retain(|(_, stamp)| self.periods == 0 || on_its_way(stamp));
        }
        let Some((at, entry)) = next else { return };
        party.fold.apply(&entry, position(at));
        if let Some(key) = entry.key().hold() {
            // Without repeated entries, the first one of the message decides.
            let one_tells = self.kind == KeyKind::Idempotency;
            let told = |message, stamp| {
                if one_tells { task(message) == key.task } else { stamp == key.stamp }
            };
            party.waits.retain(|(message, stamp)| !told(*message, *stamp));
        }
    }
}

impl Party {
    fn next_stamp(&mut self, number: usize) -> Stamp {
        self.serial += 1;
        Stamp { writer: OwnerId(number as u128), serial: self.serial }
    }
}

fn violated(id: &'static str, what: &'static str, violations: &mut Vec<Violation>) {
    violations.push(Violation { id, what, task: None });
}

const fn task(message: u8) -> QueueTask {
    QueueTask::normal(TaskId { ledger: 0, entry: message as u64, partition: -1, batch_index: None })
}

//! Limits over all workers: workers take tickets at one gate of slots, begin their tasks when the
//! tickets are granted, and die. The fold is the real one. Two facts are assumed: a dead worker is
//! known to be silent, and claims decide which worker runs a task; here each worker has its own
//! task.
//!
//! A worker that dies restarts under another id, and reads the register from its start, as it is
//! compacted by then. Its tickets are given back by the first worker that sees it.

use super::fingerprint::Fingerprint;
use super::search::System;
use super::world::{position, small};
use longhaul::TaskId;
use longhaul::ops::QueueSettings;
use longhaul_core::protocol::invariants::{LIMIT, Violation};
use longhaul_core::protocol::key::OwnerId;
use longhaul_core::protocol::register::{
    Document, DocumentKey, DocumentName, Gate, GateKind, Register, RegisterEntry, RegisterKey,
    Stamp, Ticket, TicketGrant,
};

/// The rule that the harness breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LimitFault {
    /// None.
    #[default]
    None,
    /// A worker begins when it has published its ticket, if there are few enough by what it has
    /// read.
    LocalCount,
    /// A returned ticket still counts.
    ReturnedCounts,
    /// The ticket of a live worker is given back while its task runs.
    ReturnedEarly,
}

/// The modelled system.
#[derive(Clone, Copy, Debug)]
pub struct Limited {
    /// Number of workers, each with one task.
    pub workers: u8,
    /// Maximum number of concurrent tasks; the settings begin with one less if they change.
    pub limit: u32,
    /// Whether the limit is raised to that from one less.
    pub raised: bool,
    /// Maximum number of crashes of workers.
    pub crash: u8,
    /// Maximum number of compactions of the register.
    pub compact: u8,
    /// The broken rule.
    pub fault: LimitFault,
}

impl Default for Limited {
    fn default() -> Self {
        Self { workers: 2, limit: 1, raised: false, crash: 0, compact: 0, fault: LimitFault::None }
    }
}

/// A state.
#[derive(Clone, Debug, Hash)]
pub struct State {
    register: Vec<(RegisterEntry, bool)>,
    workers: Vec<Worker>,
    raise: bool,
    crash: u8,
    compact: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Task {
    #[default]
    Waits,
    Runs,
    Over,
}

#[derive(Clone, Debug, Default, Hash)]
struct Worker {
    fold: Register,
    cursor: usize,
    /// It takes part once it has read the register up to here.
    ready_at: usize,
    /// How often it has died.
    lives: u8,
    out: Vec<RegisterEntry>,
    serial: u64,
    task: Task,
    ticket: Option<Ticket>,
    /// The tickets that it has given back.
    returned: Vec<Ticket>,
}

/// A step of the worker with this number.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    /// It publishes a ticket for its task.
    Take(usize),
    /// It begins its task.
    Begin(usize),
    /// Its task ends.
    End(usize),
    /// It gives back the first unneeded ticket of this worker's task.
    GiveBack(usize, u8),
    /// Its first entry in flight is stored.
    Land(usize),
    /// It reads the next entry of the register.
    Read(usize),
    /// It dies and restarts.
    Crash(usize),
    /// The limit is raised.
    Raise,
    /// The register is compacted up to here.
    Compact(usize),
}

impl Limited {
    fn first_limit(self) -> u32 {
        if self.raised { self.limit - 1 } else { self.limit }
    }

    /// The limit at the end of the log.
    fn stands(self, state: &State) -> u32 {
        let is_document =
            |(entry, _): &&(RegisterEntry, bool)| matches!(entry, RegisterEntry::Document(_));
        let changes = state.register.iter().filter(is_document).count();
        if changes > 1 { self.limit } else { self.first_limit() }
    }

    fn may_begin(self, worker: &Worker) -> bool {
        let Some(ticket) = &worker.ticket else { return false };
        let gates = worker.fold.gates();
        if self.fault == LimitFault::LocalCount && gates.standing(ticket) == TicketGrant::Unknown {
            let (granted, waiting) = gates.counts(&ticket.gate);
            return granted + waiting < usize::try_from(self.limit).unwrap_or(usize::MAX);
        }
        matches!(gates.standing(ticket), TicketGrant::From(_))
    }

    /// The tickets that a worker gives back because they are not needed: those of dead workers if
    /// it is the first by rank, and others that it still sees after they were given back, because
    /// it missed the tombstone. At most twice each.
    fn useless(self, state: &State, index: usize) -> impl Iterator<Item = &Ticket> {
        let seer = &state.workers[index];
        let to_end = seer.cursor == state.register.len();
        let was_given_back = |ticket: &Ticket| {
            let tombstone = RegisterEntry::Tombstone(RegisterKey::Ticket(ticket.clone()));
            state.register.iter().any(|(entry, _)| *entry == tombstone)
        };
        let standing = seer.fold.gates().standing_tickets().map(|(ticket, _)| ticket);
        standing.filter(move |ticket| {
            let owner = &state.workers[number(ticket.task)];
            let gone = ticket.owner != owner_id(number(ticket.task), owner.lives);
            let missed = to_end && owner.task != Task::Runs && was_given_back(ticket);
            let early = self.fault == LimitFault::ReturnedEarly && owner.task == Task::Runs;
            let before = seer.returned.iter().filter(|it| it == ticket).count();
            let first = index == 0 && before == 0;
            (gone && first || missed && before < 2 || early && before == 0)
                && !seer.out.iter().any(|it| it.key() == RegisterKey::Ticket((*ticket).clone()))
        })
    }
}

impl System for Limited {
    type State = State;
    type Move = Move;

    fn initial(&self) -> State {
        let workers = vec![Worker::default(); usize::from(self.workers)];
        let register = vec![(settings(1, self.first_limit()), false)];
        let (raise, crash, compact) = (self.raised, self.crash, self.compact);
        let mut state = State { register, workers, raise, crash, compact };
        for worker in &mut state.workers {
            worker.ready_at = 1;
        }
        state
    }

    fn moves(&self, state: &State, into: &mut Vec<Move>) {
        for (index, worker) in state.workers.iter().enumerate() {
            if !worker.out.is_empty() {
                into.push(Move::Land(index));
            }
            if worker.cursor < state.register.len() {
                into.push(Move::Read(index));
            }
            let fresh = worker.cursor == 0 && worker.out.is_empty();
            if state.crash > 0 && !fresh && worker.task != Task::Over {
                into.push(Move::Crash(index));
            }
            if worker.cursor < worker.ready_at {
                continue;
            }
            match worker.task {
                Task::Waits if worker.ticket.is_none() => into.push(Move::Take(index)),
                Task::Waits if self.may_begin(worker) => into.push(Move::Begin(index)),
                Task::Runs => into.push(Move::End(index)),
                Task::Waits | Task::Over => {}
            }
            let mut tasks: Vec<u8> =
                self.useless(state, index).map(|it| small(number(it.task))).collect();
            tasks.dedup();
            into.extend(tasks.into_iter().map(|task| Move::GiveBack(index, task)));
        }
        if state.raise {
            into.push(Move::Raise);
        }
        if state.compact > 0 {
            let key = |index: usize| state.register[index].0.key();
            let removes = |last: usize| {
                let earlier = |first: usize| !state.register[first].1 && key(first) == key(last);
                matches!(state.register[last].0, RegisterEntry::Tombstone(_))
                    && (0..last).any(earlier)
            };
            into.extend((0..state.register.len()).filter(|last| removes(*last)).map(Move::Compact));
        }
    }

    fn step(&self, before: &State, step: Move, violations: &mut Vec<Violation>) -> State {
        let mut state = before.clone();
        match step {
            Move::Take(index) => {
                let worker = &mut state.workers[index];
                worker.serial += 1;
                let owner = owner_id(index, worker.lives);
                let stamp = Stamp { writer: owner, serial: worker.serial };
                let gate = Gate { kind: GateKind::Slots, key: None };
                let ticket = Ticket { gate, task: task(index), owner, stamp };
                worker.out.push(RegisterEntry::Ticket(ticket.clone(), "tasks".into()));
                worker.ticket = Some(ticket);
            }
            Move::Begin(index) => {
                state.workers[index].task = Task::Runs;
                let running = state.workers.iter().filter(|it| it.task == Task::Runs).count();
                let stands = self.stands(&state);
                if running > usize::try_from(stands).unwrap_or(usize::MAX) {
                    let what = "more tasks run at once than the limit allows";
                    violations.push(Violation { id: LIMIT, what, task: None });
                }
            }
            Move::End(index) => {
                let worker = &mut state.workers[index];
                worker.task = Task::Over;
                if let Some(ticket) = worker.ticket.take() {
                    worker.out.push(RegisterEntry::Tombstone(RegisterKey::Ticket(ticket)));
                }
            }
            Move::GiveBack(index, of) => {
                let useless: Vec<Ticket> = self.useless(before, index).cloned().collect();
                let ticket = useless.into_iter().find(|it| small(number(it.task)) == of);
                if let Some(ticket) = ticket {
                    let worker = &mut state.workers[index];
                    worker.out.push(RegisterEntry::Tombstone(RegisterKey::Ticket(ticket.clone())));
                    worker.returned.push(ticket);
                }
            }
            Move::Land(index) => {
                let entry = state.workers[index].out.remove(0);
                state.register.push((entry, false));
            }
            Move::Read(index) => self.read(&mut state, index),
            Move::Crash(index) => {
                state.crash -= 1;
                let length = state.register.len();
                let worker = &mut state.workers[index];
                let (out, lives) = (std::mem::take(&mut worker.out), worker.lives + 1);
                *worker = Worker { out, lives, ready_at: length, ..Worker::default() };
            }
            Move::Raise => {
                state.raise = false;
                state.register.push((settings(2, self.limit), false));
            }
            Move::Compact(end) => {
                state.compact -= 1;
                let keys: Vec<RegisterKey> =
                    state.register[..=end].iter().map(|(entry, _)| entry.key()).collect();
                for (index, key) in keys.iter().enumerate() {
                    let (entry, removed) = &mut state.register[index];
                    *removed |= keys[index + 1..].contains(key);
                    *removed |= matches!(entry, RegisterEntry::Tombstone(_));
                }
            }
        }
        state
    }

    fn check(&self, _: &State, _: &mut Vec<Violation>) {}

    /// Every task is over, and no ticket counts any more.
    fn is_goal(&self, state: &State) -> bool {
        let over = |it: &Worker| it.task == Task::Over && it.fold.gates().is_empty();
        state.workers.iter().all(over)
    }

    fn fingerprint(&self, state: &State) -> u128 {
        Fingerprint::of(state)
    }

    fn show(&self, state: &State) -> String {
        format!("       {state:?}")
    }
}

impl Limited {
    fn read(self, state: &mut State, index: usize) {
        let cursor = state.workers[index].cursor;
        let rest = state.register.iter().enumerate().skip(cursor);
        let next = rest.into_iter().find(|(_, (_, removed))| !removed);
        let next = next.map(|(at, (entry, _))| (at, entry.clone()));
        let worker = &mut state.workers[index];
        worker.cursor = next.as_ref().map_or(state.register.len(), |(at, _)| at + 1);
        let Some((at, entry)) = next else { return };
        let is_tombstone = matches!(entry, RegisterEntry::Tombstone(_));
        if is_tombstone && self.fault == LimitFault::ReturnedCounts {
            return;
        }
        worker.fold.apply(&entry, position(at));
    }
}

#[expect(clippy::expect_used, reason = "constants that are settings")]
fn settings(version: u64, limit: u32) -> RegisterEntry {
    let mut settings = QueueSettings::default();
    settings.limit.max_in_flight = Some(limit);
    let content = serde_json::to_vec(&settings).expect("settings are JSON").into();
    let stamp = Stamp { writer: OwnerId(99), serial: version };
    let key = DocumentKey { name: DocumentName::queue_settings(), version, stamp };
    RegisterEntry::Document(Document { key, content })
}

fn owner_id(index: usize, lives: u8) -> OwnerId {
    OwnerId(index as u128 * 16 + u128::from(lives))
}

const fn task(index: usize) -> TaskId {
    TaskId { ledger: 0, entry: index as u64, partition: -1, batch_index: None }
}

fn number(task: TaskId) -> usize {
    usize::try_from(task.entry).unwrap_or_default()
}

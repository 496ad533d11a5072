//! Breadth-first search of a system's states. The first violation of each kind has a shortest
//! trace. After a complete search, backward reachability determines whether the goal can be reached
//! from every state.

use longhaul_core::protocol::invariants::{PROGRESS, Violation};
use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::hash::{BuildHasherDefault, Hasher};

/// A system that can be searched.
pub trait System {
    /// A state.
    type State: Clone;
    /// A step.
    type Move: Copy + Debug;

    /// The initial state.
    fn initial(&self) -> Self::State;
    /// The possible steps.
    fn moves(&self, state: &Self::State, moves: &mut Vec<Self::Move>);
    /// The state after a step. Adds the violations of the step itself.
    fn step(
        &self,
        state: &Self::State,
        step: Self::Move,
        violations: &mut Vec<Violation>,
    ) -> Self::State;
    /// Adds the violations of a state.
    fn check(&self, state: &Self::State, violations: &mut Vec<Violation>);
    /// Whether everything is done.
    fn is_goal(&self, state: &Self::State) -> bool;
    /// Equal for equal states.
    fn fingerprint(&self, state: &Self::State) -> u128;
    /// A description for people.
    fn show(&self, state: &Self::State) -> String;
}

/// The result of a search.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// States visited.
    pub states: usize,
    /// Steps tried.
    pub transitions: u64,
    /// Length of the longest shortest path.
    pub depth: usize,
    /// Whether no state was left out.
    pub complete: bool,
    /// States in which everything is done.
    pub goals: usize,
    /// One for each kind of violation.
    pub found: Vec<Found>,
}

/// A kind of violation.
#[derive(Clone, Debug)]
pub struct Found {
    /// The first one.
    pub violation: Violation,
    /// Number of steps, or states, that violate it.
    pub count: u64,
    /// The shortest way to it.
    pub trace: Vec<String>,
    /// The states along that way, if they were requested.
    pub states: Vec<String>,
}

impl Report {
    /// The numbers of the violated invariants, sorted.
    #[must_use]
    pub fn violated(&self) -> Vec<&'static str> {
        let mut ids: Vec<_> = self.found.iter().map(|found| found.violation.id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The length of the shortest trace to a violation of this invariant.
    #[must_use]
    pub fn steps_to(&self, id: &str) -> Option<usize> {
        let of_id = self.found.iter().filter(|found| found.violation.id == id);
        of_id.map(|found| found.trace.len()).min()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extent = if self.complete { "complete" } else { "CAPPED: C-08 is unchecked" };
        let Self { states, transitions, depth, goals, .. } = self;
        write!(
            f,
            "{states} states, {transitions} transitions, depth {depth}, {goals} goals, {extent}"
        )?;
        for found in &self.found {
            let Violation { id, what, .. } = found.violation;
            write!(
                f,
                "\n  {id} VIOLATED: {what} ({} times), {} steps:",
                found.count,
                found.trace.len()
            )?;
            for (number, step) in found.trace.iter().enumerate() {
                write!(f, "\n    {:2} {step}", number + 1)?;
                if let Some(state) = found.states.get(number) {
                    write!(f, "\n{state}")?;
                }
            }
        }
        Ok(())
    }
}

/// The limits and outputs of a search.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Maximum number of visited states.
    pub cap: usize,
    /// Numbers of invariants: the search ends when each of them was violated.
    pub until: &'a [&'a str],
    /// Whether to describe the states of each trace.
    pub states: bool,
}

impl Options<'_> {
    /// A search of at most this many states, for any violations.
    #[must_use]
    pub const fn up_to(cap: usize) -> Self {
        Self { cap, until: &[], states: false }
    }
}

/// Visits the states of a system.
pub fn explore<S: System>(system: &S, options: Options<'_>) -> Report {
    let mut search = Search::new(system, options);
    search.run();
    search.look_for_dead_ends();
    search.report()
}

type Seen = HashMap<u128, u32, BuildHasherDefault<Prehashed>>;

const NO_PARENT: u32 = u32::MAX;

struct Search<'a, S: System> {
    system: &'a S,
    options: Options<'a>,
    seen: Seen,
    /// The state from which each state was first reached.
    parents: Vec<u32>,
    edges: Vec<(u32, u32)>,
    goals: Vec<u32>,
    violations: Vec<Raw<S::Move>>,
    depth: usize,
    complete: bool,
}

/// A violation by its last step or by its state.
struct Raw<M> {
    violation: Violation,
    from: u32,
    last: Option<M>,
    count: u64,
}

impl<'a, S: System> Search<'a, S> {
    fn new(system: &'a S, options: Options<'a>) -> Self {
        Self {
            system,
            options,
            seen: Seen::default(),
            parents: Vec::new(),
            edges: Vec::new(),
            goals: Vec::new(),
            violations: Vec::new(),
            depth: 0,
            complete: true,
        }
    }

    fn run(&mut self) {
        let first = self.system.initial();
        self.seen.insert(self.system.fingerprint(&first), 0);
        self.parents.push(NO_PARENT);
        let mut frontier = vec![(0, first)];
        while !frontier.is_empty() {
            let mut next = Vec::new();
            for (id, state) in frontier {
                self.expand(id, &state, &mut next);
                if self.is_found() {
                    self.complete = false;
                    return;
                }
            }
            frontier = next;
            self.depth += 1;
        }
    }

    fn expand(&mut self, id: u32, state: &S::State, next: &mut Vec<(u32, S::State)>) {
        if self.system.is_goal(state) {
            self.goals.push(id);
        }
        let mut moves = Vec::new();
        self.system.moves(state, &mut moves);
        let mut violations = Vec::new();
        for step in moves {
            let after = self.system.step(state, step, &mut violations);
            let number = u32::try_from(self.parents.len()).unwrap_or(NO_PARENT);
            let full = self.parents.len() >= self.options.cap;
            let fingerprint = self.system.fingerprint(&after);
            match self.seen.get(&fingerprint) {
                Some(known) => self.edges.push((id, *known)),
                None => {
                    self.system.check(&after, &mut violations);
                    if full {
                        self.complete = false;
                    } else {
                        self.edges.push((id, number));
                        self.seen.insert(fingerprint, number);
                        self.parents.push(id);
                        next.push((number, after));
                    }
                }
            }
            for violation in violations.drain(..) {
                self.note(violation, id, Some(step));
            }
        }
    }

    /// Whether all violations looked for were found.
    fn is_found(&self) -> bool {
        let is_violated = |id: &&str| self.violations.iter().any(|raw| raw.violation.id == *id);
        !self.options.until.is_empty() && self.options.until.iter().all(is_violated)
    }

    fn note(&mut self, violation: Violation, from: u32, last: Option<S::Move>) {
        let same = |raw: &&mut Raw<S::Move>| {
            (raw.violation.id, raw.violation.what) == (violation.id, violation.what)
        };
        match self.violations.iter_mut().find(same) {
            Some(raw) => raw.count += 1,
            None => self.violations.push(Raw { violation, from, last, count: 1 }),
        }
    }

    /// Walks the edges backwards from the goals.
    fn look_for_dead_ends(&mut self) {
        if !self.complete {
            return;
        }
        self.edges.sort_unstable_by_key(|(_, to)| *to);
        let mut reached = vec![false; self.parents.len()];
        let mut stack = self.goals.clone();
        for goal in &self.goals {
            set(&mut reached, *goal);
        }
        while let Some(state) = stack.pop() {
            let start = self.edges.partition_point(|(_, to)| *to < state);
            let into = self.edges.iter().skip(start).take_while(|(_, to)| *to == state);
            for (from, _) in into {
                if set(&mut reached, *from) {
                    stack.push(*from);
                }
            }
        }
        let stuck = reached.iter().filter(|reached| !**reached).count();
        if let Some(first) = reached.iter().position(|reached| !*reached) {
            let what = "the goal cannot be reached any more";
            let violation = Violation { id: PROGRESS, what, task: None };
            self.note(violation, u32::try_from(first).unwrap_or(NO_PARENT), None);
            if let Some(raw) = self.violations.last_mut() {
                raw.count = stuck as u64;
            }
        }
    }

    fn report(self) -> Report {
        let found = self.violations.iter().map(|raw| self.retrace(raw)).collect();
        Report {
            states: self.parents.len(),
            transitions: self.edges.len() as u64,
            depth: self.depth,
            complete: self.complete,
            goals: self.goals.len(),
            found,
        }
    }

    /// Replays the way to a violation, because only parents are stored, not steps.
    fn retrace(&self, raw: &Raw<S::Move>) -> Found {
        let mut path = vec![raw.from];
        while let Some(parent) = path.last().and_then(|id| self.parents.get(*id as usize)) {
            if *parent == NO_PARENT {
                break;
            }
            path.push(*parent);
        }
        path.reverse();
        let (mut trace, mut states) = (Vec::new(), Vec::new());
        let mut state = self.system.initial();
        for target in path.iter().skip(1) {
            let Some((step, after)) = self.step_to(&state, *target) else { break };
            trace.push(format!("{step:?}"));
            if self.options.states {
                states.push(self.system.show(&after));
            }
            state = after;
        }
        if let Some(step) = raw.last {
            trace.push(format!("{step:?}"));
            if self.options.states {
                let after = self.system.step(&state, step, &mut Vec::new());
                states.push(self.system.show(&after));
            }
        }
        Found { violation: raw.violation, count: raw.count, trace, states }
    }

    fn step_to(&self, state: &S::State, target: u32) -> Option<(S::Move, S::State)> {
        let mut moves = Vec::new();
        self.system.moves(state, &mut moves);
        moves.into_iter().find_map(|step| {
            let after = self.system.step(state, step, &mut Vec::new());
            let known = self.seen.get(&self.system.fingerprint(&after));
            (known == Some(&target)).then_some((step, after))
        })
    }
}

fn set(flags: &mut [bool], index: u32) -> bool {
    match flags.get_mut(index as usize) {
        Some(flag) => !std::mem::replace(flag, true),
        None => false,
    }
}

/// The keys of the map of states are fingerprints: their low half is as good as any hash.
#[derive(Default)]
struct Prehashed(u64);

impl Hasher for Prehashed {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.0 ^= u64::from_le_bytes(word);
        }
    }

    fn write_u128(&mut self, value: u128) {
        self.0 = (value & 0xffff_ffff_ffff_ffff) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

//! Random walks, which reach states deeper than a breadth-first search of a large scenario. Seeded,
//! so that a finding can be repeated.

use super::search::{Found, System};
use longhaul_core::protocol::invariants::{PROGRESS, Violation};

/// The parameters of walks.
#[derive(Clone, Copy, Debug)]
pub struct Walks {
    /// The same seed gives the same walks.
    pub seed: u64,
    /// Number of walks.
    pub count: u32,
    /// Maximum number of steps of each.
    pub length: usize,
}

/// The result of walks.
#[derive(Clone, Debug, Default)]
pub struct Walked {
    /// Steps taken.
    pub steps: u64,
    /// Number of walks that reached a state in which everything is done.
    pub goals: u32,
    /// The first violation, with the way to it.
    pub found: Option<Found>,
}

/// Walks until there is a violation.
pub fn walk<S: System>(system: &S, walks: Walks) -> Walked {
    let mut walked = Walked::default();
    let mut random = Random(walks.seed);
    for _ in 0..walks.count {
        let mut state = system.initial();
        let mut trace = Vec::new();
        let mut done = false;
        for _ in 0..walks.length {
            let mut moves = Vec::new();
            system.moves(&state, &mut moves);
            let Some(step) = random.choose(&moves) else {
                if !done {
                    let what = "nothing can happen any more, and not everything is done";
                    let violation = Violation { id: PROGRESS, what, task: None };
                    walked.found = Some(found(violation, trace, system.show(&state)));
                    return walked;
                }
                break;
            };
            let mut violations = Vec::new();
            trace.push(format!("{step:?}"));
            state = system.step(&state, step, &mut violations);
            system.check(&state, &mut violations);
            walked.steps += 1;
            done |= system.is_goal(&state);
            if let Some(violation) = violations.first() {
                walked.found = Some(found(*violation, trace, system.show(&state)));
                return walked;
            }
        }
        walked.goals += u32::from(done);
    }
    walked
}

fn found(violation: Violation, trace: Vec<String>, state: String) -> Found {
    Found { violation, count: 1, trace, states: vec![state] }
}

/// Steele and Vigna's SplitMix64.
struct Random(u64);

impl Random {
    fn choose<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let count = u64::try_from(from.len()).ok().filter(|count| *count > 0)?;
        from.get(usize::try_from(mixed % count).ok()?).copied()
    }
}

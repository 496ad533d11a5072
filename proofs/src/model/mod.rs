//! An explicit-state model of the task protocol around the production machine.
//!
//! Each state holds the ledger, the broker's side of the task topic and some workers; each worker
//! is the same [`Machine`](longhaul_core::machine::Machine) that production drives. Time is
//! replaced by choice: every possible judgement of stale, late or due is made in some branch. A
//! breadth-first search visits every state that the bounds of a scenario allow and checks the
//! invariants of `longhaul_core::protocol::invariants`; the first trace to a violation is a
//! shortest one.
//!
//! Choice is more general than clocks wherever the judgement of dead owners must not matter, which
//! is nearly everywhere. Where clocks do matter a scenario assumes their effect: with `timely`, no
//! worker takes over a claim whose live owner still waits for it. The judgement itself, and that
//! assumption, are covered by the [`timed`] family: its workers are whole partitions, including
//! production's clocks.
//!
//! After a task was sealed and its first key was removed, most further states of a search would
//! differ only in irrelevant details. The bound [`Bounds::after`] limits the faults and repeated
//! seals after that point; everything else still happens, including compactions and lagging
//! readers.
//!
//! The model is useful only if it finds defects; so [`Fault`] breaks one rule at a time, by
//! tampering around the machine, and `tests/pure/model.rs` requires that each is found.

#![expect(
    clippy::indexing_slicing,
    reason = "an index out of bounds is a mistake of the model, and must stop it"
)]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a part of the model handles the moves, stages and faults that it is about"
)]

pub mod binding;
pub mod bounds;
pub mod check;
pub mod fingerprint;
pub mod leased;
pub mod moves;
pub mod operating;
pub mod scenario;
pub mod sealing;
pub mod search;
pub mod settle;
pub mod show;
pub mod step;
pub mod tamper;
pub mod tickets;
pub mod timed;
pub mod walk;
pub mod world;

pub use binding::{Binding, BindingFault};
pub use bounds::{Bounds, UnknownField};
pub use leased::{LEASED, LeaseFault, LeasedBounds};
pub use moves::{End, Move};
pub use scenario::{SCENARIOS, Scenario, find};
pub use search::{Found, Options, Report, System, explore};
pub use tamper::Fault;
pub use tickets::{LimitFault, Limited};
pub use timed::{TIMED, TimeFault, TimedBounds};
pub use walk::{Walked, Walks, walk};

use fingerprint::Fingerprint;
use longhaul_core::protocol::invariants::Violation;
use world::World;

/// The world of a scenario, as a system to search.
impl System for Bounds {
    type State = World;
    type Move = Move;

    fn initial(&self) -> World {
        World::new(self)
    }

    fn moves(&self, world: &World, into: &mut Vec<Move>) {
        moves::moves(self, world, into);
    }

    fn step(&self, world: &World, step: Move, violations: &mut Vec<Violation>) -> World {
        step::step(self, world, step, violations)
    }

    fn check(&self, world: &World, violations: &mut Vec<Violation>) {
        check::check(self, world, violations);
    }

    fn is_goal(&self, world: &World) -> bool {
        check::is_goal(self, world)
    }

    fn fingerprint(&self, world: &World) -> u128 {
        Fingerprint::of(world)
    }

    fn show(&self, world: &World) -> String {
        show::show(self, world)
    }
}

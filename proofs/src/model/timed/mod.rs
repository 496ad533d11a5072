//! The model with time: each worker is a whole [`Partition`](longhaul_core::partition::Partition),
//! the machine with its clock.
//!
//! The other scenarios do not model the decisions that production takes by its clocks: there, any
//! owner may be stale, late or due. That covers more than can happen and does not test the decision
//! itself. Here production's own code decides, without a copy of it:
//!
//! - whether silence makes an owner stale,
//! - whether a retry is due,
//! - whether a claim came back too late,
//! - how fresh a view must be,
//! - when a worker fences itself,
//! - when it seals and sweeps.
//!
//! All clocks advance together, by ticks of half a heartbeat interval. Between two ticks every
//! possible step happens, in every order.
//!
//! Two things keep the number of states small:
//!
//! - Publishes that have not landed, and entries that are not read, at a tick cost from a budget
//!   (`lag`). So slow brokers and slow readers are explored, but not everything slow at all times.
//! - Trouble occurs in the first ticks only (`troubled`). The ticks after that must suffice for the
//!   end, so C-08 bounds its duration here.
//!
//! Time is part of the state as it is, not relative to now, because the remaining ticks are part of
//! the state anyway. Heartbeats that every worker has read are kept as the set of their owners: a
//! bootstrap uses nothing else of them.

mod bounds;
mod check;
mod moves;
mod perform;
mod scenario;
mod step;
mod tamper;
mod world;

pub use bounds::TimedBounds;
pub use moves::TimedMove;
pub use scenario::TIMED;
pub use tamper::TimeFault;
pub use world::TimedWorld;

use super::fingerprint::Fingerprint;
use super::search::System;
use longhaul_core::protocol::invariants::Violation;

/// The world of a timed scenario, as a system to search.
impl System for TimedBounds {
    type State = TimedWorld;
    type Move = TimedMove;

    fn initial(&self) -> TimedWorld {
        TimedWorld::new(self)
    }

    fn moves(&self, world: &TimedWorld, into: &mut Vec<TimedMove>) {
        let over = self.is_goal(world);
        if !(over && world.is_quiet()) {
            moves::moves(self, world, into);
        }
        if over {
            // Steps under way come to their end; steps that take time no longer matter.
            into.retain(|step| step.ends_something());
        }
    }

    fn step(
        &self,
        world: &TimedWorld,
        step: TimedMove,
        violations: &mut Vec<Violation>,
    ) -> TimedWorld {
        step::step(self, world, step, violations)
    }

    fn check(&self, world: &TimedWorld, violations: &mut Vec<Violation>) {
        check::check(self, world, violations);
    }

    fn is_goal(&self, world: &TimedWorld) -> bool {
        check::is_goal(self, world)
    }

    fn fingerprint(&self, world: &TimedWorld) -> u128 {
        Fingerprint::of(world)
    }

    fn show(&self, world: &TimedWorld) -> String {
        world.show()
    }
}

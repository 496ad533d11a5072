//! The model with time: each worker is a whole [`Partition`](longhaul_core::partition::Partition),
//! the machine with its clock.
//!
//! The other scenarios leave to choice what production decides by its clocks: whoever might be
//! stale, late or due is, in some branch. That is more than can happen, and says nothing about the
//! judgement itself. Here the very code that judges is driven, so there is no copy of it: whose
//! silence makes an owner stale, which retry is due, which claim came back too late, how fresh a
//! view must be, when a worker fences itself, and when it seals and sweeps. All clocks advance
//! together, by ticks of H/2; between two ticks whatever can happen does, in every order.
//!
//! Two things keep the states few. What is not landed or not read when the clock ticks costs of a
//! budget (`lag`): slow brokers and slow readers are explored, but not everything slow at all
//! times. And trouble comes in the first ticks only (`troubled`); those that follow must be enough
//! for the end, so that C-08 bounds here how long it takes. Time is part of the state as it is, not
//! relative to now: the ticks that are left are part of it anyway. Heartbeats that every worker has
//! read are kept as the set of their owners, which is all that a bootstrap makes of them.

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
pub use scenario::{TIMED, find_timed};
pub use tamper::TimeFault;
pub use world::TimedWorld;

use super::fingerprint::Fingerprint;
use super::search::System;
use longhaul_core::protocol::invariants::Violation;

/// The world of a timed scenario, as a system to search.
#[derive(Clone, Copy, Debug)]
pub struct Timed(pub TimedBounds);

impl System for Timed {
    type State = TimedWorld;
    type Move = TimedMove;

    fn initial(&self) -> TimedWorld {
        TimedWorld::new(&self.0)
    }

    fn moves(&self, world: &TimedWorld, into: &mut Vec<TimedMove>) {
        let over = self.is_goal(world);
        if !(over && world.is_quiet()) {
            moves::moves(&self.0, world, into);
        }
        if over {
            // What is on its way comes to its end; nothing that takes time matters any more.
            into.retain(|step| step.ends_something());
        }
    }

    fn step(
        &self,
        world: &TimedWorld,
        step: TimedMove,
        violations: &mut Vec<Violation>,
    ) -> TimedWorld {
        step::step(&self.0, world, step, violations)
    }

    fn check(&self, world: &TimedWorld, violations: &mut Vec<Violation>) {
        check::check(&self.0, world, violations);
    }

    fn is_goal(&self, world: &TimedWorld) -> bool {
        check::is_goal(&self.0, world)
    }

    fn fingerprint(&self, world: &TimedWorld) -> u128 {
        Fingerprint::of(world)
    }

    fn show(&self, world: &TimedWorld) -> String {
        world.show()
    }
}

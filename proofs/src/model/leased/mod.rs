//! Leases: gateways beside each other that grant them, holders outside that may ask any of them,
//! and fall silent and come back for as long as they like.
//!
//! Gateways are machines, as in the scenarios without clocks, and what holders are told is what
//! production answers (`worker::leasing::answers`). Whether a lease has been silent for too long is
//! left to choice, for whoever has read it: so a lease may be ended at any time, but not while its
//! gateway still waits for its claim, for a claim that comes back later than the lease time is not
//! granted. That silence is judged by what was read, and when, is the partition's:
//! `partition/leases.rs` and its tests.
//!
//! A holder never forgets its lease. Each that was ever granted may be reported on and renewed at
//! any gateway, as often as the budgets say.

mod bounds;
mod check;
mod moves;
mod settle;
mod step;
mod tamper;
mod world;

pub use bounds::{LEASED, LeasedBounds};
pub use moves::LeasedMove;
pub use tamper::LeaseFault;
pub use world::LeasedWorld;

use super::fingerprint::Fingerprint;
use super::search::System;
use longhaul_core::protocol::invariants::Violation;

/// The world of gateways, as a system to search.
#[derive(Clone, Copy, Debug)]
pub struct Leased(pub LeasedBounds);

impl System for Leased {
    type State = LeasedWorld;
    type Move = LeasedMove;

    fn initial(&self) -> LeasedWorld {
        LeasedWorld::new(&self.0)
    }

    fn moves(&self, world: &LeasedWorld, into: &mut Vec<LeasedMove>) {
        moves::moves(&self.0, world, into);
    }

    fn step(
        &self,
        world: &LeasedWorld,
        step: LeasedMove,
        violations: &mut Vec<Violation>,
    ) -> LeasedWorld {
        step::step(&self.0, world, step, violations)
    }

    fn check(&self, world: &LeasedWorld, violations: &mut Vec<Violation>) {
        check::check(world, violations);
    }

    fn is_goal(&self, world: &LeasedWorld) -> bool {
        world.acked
    }

    fn fingerprint(&self, world: &LeasedWorld) -> u128 {
        Fingerprint::of(world)
    }

    fn show(&self, world: &LeasedWorld) -> String {
        world.show()
    }
}

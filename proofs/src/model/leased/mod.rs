//! Leases: several gateways grant them. Holders outside may ask any gateway, fall silent, and come
//! back at any time.
//!
//! Gateways are machines, as in the scenarios without clocks, and holders get production's answers
//! (`longhaul_core::lease`). The model does not compute whether a lease has been silent for too
//! long: a gateway that has read the lease may end it at any time. The exception is a lease whose
//! claim its gateway still waits for, because a claim that comes back later than the lease time is
//! not granted. The partition judges silence by what was read and when:
//! `longhaul_core::partition::leases` and its tests.
//!
//! A holder never forgets its lease. Every lease that was ever granted may be reported on and
//! renewed at any gateway, as often as the budgets allow.

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
impl System for LeasedBounds {
    type State = LeasedWorld;
    type Move = LeasedMove;

    fn initial(&self) -> LeasedWorld {
        LeasedWorld::new(self)
    }

    fn moves(&self, world: &LeasedWorld, into: &mut Vec<LeasedMove>) {
        moves::moves(self, world, into);
    }

    fn step(
        &self,
        world: &LeasedWorld,
        step: LeasedMove,
        violations: &mut Vec<Violation>,
    ) -> LeasedWorld {
        step::step(self, world, step, violations)
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

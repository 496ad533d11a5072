//! Conditions of every state of the timed world, and of the final one.

use super::super::check::{has_orphan, is_body};
use super::bounds::TimedBounds;
use super::world::{TASK, TimedWorld};
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::invariants::{COMPACTION, FOLLOWERS, ORPHAN, START, Violation};

/// Adds what a state violates.
pub(super) fn check(bounds: &TimedBounds, world: &TimedWorld, violations: &mut Vec<Violation>) {
    if bounds.only_notices() {
        return;
    }
    let mut add = |id, what| violations.push(Violation { id, what, task: Some(TASK) });
    let (full, fresh) = (world.fold(false), world.fold(true));
    if full != fresh {
        add(COMPACTION, "a follower of the compacted ledger folds another state");
    }
    for worker in &world.workers {
        let machine = worker.core.machine();
        if !is_body(machine, TASK, worker.bodies.keys().copied()) {
            add(START, "a body runs that the machine does not know, or the other way round");
        }
        let landed = world.log.records.iter().map(|record| &record.sent.entry);
        let sent = worker.out.iter().map(|sent| &sent.entry);
        if has_orphan(machine, TASK, landed.chain(sent)) {
            add(ORPHAN, "an accepted own claim is neither run nor released");
        }
        if worker.read == world.log.end && machine.fold(TASK) != full {
            add(FOLLOWERS, "a follower at the end of the ledger folds another state");
        }
    }
    if world.acked {
        violations.extend(world.history.bootstrap_shows(TASK, &fresh));
    }
}

/// Whether the task is acknowledged and, where the scenario seals, sealed and swept, and no worker
/// has lost an entry without noticing.
pub(super) fn is_goal(bounds: &TimedBounds, world: &TimedWorld) -> bool {
    let over = !bounds.seal || (world.fold(false).phase == Phase::Sealed && world.is_swept());
    world.acked && over && world.workers.iter().all(|worker| !worker.account.lost)
}

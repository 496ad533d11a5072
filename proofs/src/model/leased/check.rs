//! Conditions of every state.

use super::world::{Gateway, LeasedWorld, TASK};
use longhaul_core::lease::{LeaseState, ReportedOutcome};
use longhaul_core::machine::Stage;
use longhaul_core::protocol::entry::Outcome;
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::invariants::{COMPACTION, FOLLOWERS, LEASE_END, ORPHAN, Violation};
use longhaul_core::protocol::key::{Epoch, Key, OnceKey};

/// Adds what a state violates.
pub(super) fn check(world: &LeasedWorld, violations: &mut Vec<Violation>) {
    let mut add = |id, what| violations.push(Violation { id, what, task: Some(TASK) });
    let (full, fresh) = (world.fold(false), world.fold(true));
    if full != fresh {
        add(COMPACTION, "a follower of the compacted ledger folds another state");
    }
    for gateway in &world.gateways {
        let machine = &gateway.machine;
        if gateway.cursor == world.end() && machine.fold(TASK) != full {
            add(FOLLOWERS, "a follower at the end of the ledger folds another state");
        }
        let runs = machine.fold(TASK).phase == Phase::Running;
        if runs && machine.lease(TASK).is_none() {
            add(FOLLOWERS, "a follower does not know that a lease is one");
        }
        if is_orphan(world, gateway) {
            add(ORPHAN, "an accepted claim of a lease that was not granted is not given back");
        }
        for token in &world.tokens {
            let confirms = LeaseState::of(machine, TASK, *token) == LeaseState::Succeeded;
            if confirms && !is_told_rightly(world, token.0, ReportedOutcome::Success) {
                add(LEASE_END, "a success is confirmed that does not count");
            }
        }
    }
    if world.tokens.iter().any(|(epoch, _)| world.ends(*epoch).len() > 1) {
        add(LEASE_END, "a lease has two ends");
    }
    if world.acked {
        violations.extend(world.history.bootstrap_shows(TASK, &fresh));
    }
}

/// Whether the end that counts is the reported one. Computed anew, independently of the code under
/// test.
pub(super) fn is_told_rightly(
    world: &LeasedWorld,
    epoch: Epoch,
    reported: ReportedOutcome,
) -> bool {
    world.ends(epoch).first().is_some_and(|end| match end {
        Outcome::Completed => reported == ReportedOutcome::Success,
        Outcome::Failed(_) | Outcome::Final => matches!(reported, ReportedOutcome::Failure { .. }),
        Outcome::Released(_) => reported == ReportedOutcome::Release,
        Outcome::Cancelled => false,
    })
}

/// Whether the ledger shows a lease of this incarnation that was granted to no holder and is not
/// being given back.
fn is_orphan(world: &LeasedWorld, gateway: &Gateway) -> bool {
    let (machine, fold) = (&gateway.machine, gateway.machine.fold(TASK));
    let token = (fold.epoch, fold.owner);
    machine.is_ready()
        && fold.phase == Phase::Running
        && machine.has_granted(fold.owner)
        && !world.tokens.contains(&token)
        && match gateway.stage() {
            Stage::Finishing { epoch, owner, serial, .. } => {
                let key = Key::Once(OnceKey { task: TASK, epoch, owner, serial });
                !world.published(u8::MAX, &[]).any(|entry| entry.key() == key)
            }
            stage => stage.is_free(),
        }
}

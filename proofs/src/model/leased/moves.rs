//! The possible steps.

use super::super::world::small;
use super::bounds::LeasedBounds;
use super::world::{Gateway, LeasedWorld, TASK, Token};
use longhaul_core::lease::{LeaseState, ReportedOutcome};
use longhaul_core::protocol::claim::Decision;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::fold::Phase;

/// The reports of holders.
const REPORTS: [ReportedOutcome; 3] =
    [ReportedOutcome::Success, ReportedOutcome::Failure { fatal: false }, ReportedOutcome::Release];

/// A step. Its numbers are those of gateways and leases, and indexes of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named by what they number")]
pub enum LeasedMove {
    /// The broker delivers the message.
    Deliver { to: u8 },
    /// The broker takes the delivery back without the gateway's knowledge.
    Redeliver,
    /// A gateway claims the task for a request.
    Take { gateway: u8 },
    /// The first publish in flight lands.
    Land { gateway: u8 },
    /// A gateway reads the next entry. `late`: too late for its own claim.
    Read { gateway: u8, late: bool },
    /// A holder reports to a gateway that sees its lease run.
    Report { gateway: u8, token: u8, said: ReportedOutcome },
    /// A holder keeps its lease alive.
    Keep { gateway: u8, token: u8 },
    /// A gateway decides that the lease was silent for too long.
    Over { gateway: u8 },
    /// The gateway ends the silent lease.
    End { gateway: u8 },
    /// The first publish in flight is reported as failed; it may still land.
    GiveUp { gateway: u8 },
    /// A process dies and another one starts. `landing` publishes in flight may still land.
    Crash { gateway: u8, landing: u8 },
    /// The gateway fences itself because its view is too old, and starts a new incarnation.
    Fence { gateway: u8, landing: u8 },
    /// A publish of a dead incarnation, or one that was reported as failed, lands.
    GhostLand { ghost: u8 },
    /// The same publish is lost for good.
    GhostLost { ghost: u8 },
    /// The ledger is compacted.
    Compact,
}

pub(super) fn moves(bounds: &LeasedBounds, world: &LeasedWorld, into: &mut Vec<LeasedMove>) {
    if world.acked {
        // Entries in flight still land and are read; nothing new begins.
        for (index, gateway) in world.gateways.iter().enumerate() {
            flowing(world, small(index), gateway, into);
        }
        return;
    }
    for ghost in 0..world.ghosts.len() {
        let ghost = small(ghost);
        into.extend([LeasedMove::GhostLand { ghost }, LeasedMove::GhostLost { ghost }]);
    }
    if world.budget.redeliver > 0 && world.at.is_some() {
        into.push(LeasedMove::Redeliver);
    }
    if world.budget.compact > 0 && removes(world) {
        into.push(LeasedMove::Compact);
    }
    for (index, gateway) in world.gateways.iter().enumerate() {
        let number = small(index);
        if world.at.is_none() && gateway.machine.is_ready() {
            into.push(LeasedMove::Deliver { to: number });
        }
        flowing(world, number, gateway, into);
        working(world, number, gateway, into);
        troubles(bounds, world, number, gateway, into);
    }
}

fn flowing(world: &LeasedWorld, number: u8, gateway: &Gateway, into: &mut Vec<LeasedMove>) {
    if !gateway.out.is_empty() {
        into.push(LeasedMove::Land { gateway: number });
    }
    if gateway.cursor < world.end() {
        into.push(LeasedMove::Read { gateway: number, late: false });
    }
}

fn working(world: &LeasedWorld, number: u8, gateway: &Gateway, into: &mut Vec<LeasedMove>) {
    let machine = &gateway.machine;
    // A lease is ended, not taken over.
    let leased = machine.fold(TASK).phase == Phase::Running;
    if !leased && machine.decide(TASK, true, None) != Decision::Wait {
        into.push(LeasedMove::Take { gateway: number });
    }
    for (index, token) in world.tokens.iter().enumerate() {
        let token_number = small(index);
        if !hears_of(gateway, *token) {
            continue;
        }
        if world.budget.reports > 0 {
            into.extend(REPORTS.map(|said| LeasedMove::Report {
                gateway: number,
                token: token_number,
                said,
            }));
        }
        if world.budget.keeps > 0 {
            into.push(LeasedMove::Keep { gateway: number, token: token_number });
        }
    }
    if gateway.over.is_some() {
        into.push(LeasedMove::End { gateway: number });
    } else if let Some((epoch, owner, _)) = machine.lease(TASK).filter(|_| machine.is_ready()) {
        let free = gateway.stage().is_free() || gateway.attends() == Some((epoch, owner));
        let awaited = world.gateways.iter().any(|other| other.awaits_claim((epoch, owner)));
        if free && !awaited {
            into.push(LeasedMove::Over { gateway: number });
        }
    }
}

/// Whether the gateway accepts a report or keep-alive for this lease: production's answer allows
/// it, and no other action on the lease is under way.
fn hears_of(gateway: &Gateway, token: Token) -> bool {
    let free = gateway.stage().is_free() || gateway.attends() == Some(token);
    free && gateway.over != Some(token.0)
        && LeaseState::of(&gateway.machine, TASK, token) == LeaseState::Runs
}

fn troubles(
    bounds: &LeasedBounds,
    world: &LeasedWorld,
    number: u8,
    gateway: &Gateway,
    into: &mut Vec<LeasedMove>,
) {
    let budget = &world.budget;
    let flying = small::<usize>(gateway.out.len());
    if budget.giveup > 0 && flying > 0 {
        into.push(LeasedMove::GiveUp { gateway: number });
    }
    if budget.crash > 0 {
        into.extend((0..=flying).map(|landing| LeasedMove::Crash { gateway: number, landing }));
    }
    if budget.fences > 0 && gateway.machine.is_ready() {
        into.extend((0..=flying).map(|landing| LeasedMove::Fence { gateway: number, landing }));
    }
    let next = world.next_record(gateway.cursor).map(|index| &world.log[index].entry);
    if bounds.late > 0
        && budget.late > 0
        && let Some(Entry::Claim(claim)) = next
        && gateway.awaits_claim((claim.key.epoch, claim.key.owner))
    {
        into.push(LeasedMove::Read { gateway: number, late: true });
    }
}

/// Whether a compaction would remove anything.
fn removes(world: &LeasedWorld) -> bool {
    let stays = |index: usize, key| {
        world.log.iter().skip(index + 1).all(|later| later.removed || later.entry.key() != key)
    };
    world.log.iter().enumerate().any(|(index, record)| {
        let tombstone = matches!(record.entry, Entry::Tombstone(_));
        !record.removed && (tombstone || !stays(index, record.entry.key()))
    })
}

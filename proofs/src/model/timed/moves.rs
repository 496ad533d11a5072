//! The possible steps in a state of the timed world.

use super::super::world::small;
use super::bounds::TimedBounds;
use super::world::{H_TICKS, TASK, TimedWorld, Worker};
use longhaul_core::protocol::entry::Entry;

/// A step. Its numbers are those of workers and epochs, and indexes of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named by what they number")]
pub enum TimedMove {
    /// All clocks advance by half a heartbeat interval, and workers do what is due.
    Tick,
    /// The broker delivers the message.
    Deliver { to: u8 },
    /// The broker takes the delivery back without the worker's knowledge.
    Redeliver,
    /// The broker ends the session of the stopped worker.
    BrokerTimeout,
    /// A worker reads the next entry of the ledger (`coarse`: all entries).
    Read { worker: u8 },
    /// A worker does not see the next entry of the ledger.
    Lose { worker: u8 },
    /// The first publish in flight lands (`coarse`: all of them).
    Land { worker: u8 },
    /// The first publish in flight has expired unsent.
    Expire { worker: u8 },
    /// A publish of a dead incarnation or connection lands.
    GhostLand { ghost: u8 },
    /// The remaining publishes of this ghost are lost.
    GhostLost { ghost: u8 },
    /// The body completes.
    Complete { worker: u8 },
    /// The body fails.
    Fail { worker: u8 },
    /// The body ends because it was told to.
    Obey { worker: u8 },
    /// The connection breaks: the fate of the publishes in flight is unknown.
    ConnectionLost { worker: u8 },
    /// The process dies and another one starts.
    Crash { worker: u8 },
    /// The process stops, with or without its clock.
    Stop { worker: u8, clock: bool },
    /// The stopped process goes on.
    GoOn,
    /// An outage begins or ends: during it no publish lands.
    Outage { begins: bool },
    /// A client cancels the task.
    Cancel,
    /// The ledger is compacted.
    Compact,
}

impl TimedMove {
    /// Whether the step continues something that has begun.
    pub(super) const fn ends_something(self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::Land { .. }
                | Self::GhostLand { .. }
                | Self::GhostLost { .. }
                | Self::GoOn
                | Self::Complete { .. }
                | Self::Outage { begins: false }
        )
    }
}

/// All steps that are possible.
pub(super) fn moves(bounds: &TimedBounds, world: &TimedWorld, into: &mut Vec<TimedMove>) {
    let troubled = world.now < bounds.troubled;
    let (cost, only_laggard) = lag(bounds, world);
    if world.now < bounds.ticks
        && cost <= if troubled { world.budget.lag } else { 0 }
        && only_laggard
        && (troubled || world.is_sound())
    {
        into.push(TimedMove::Tick);
    }
    if world.outage {
        into.push(TimedMove::Outage { begins: false });
    } else if world.budget.outage > 0 && troubled {
        into.push(TimedMove::Outage { begins: true });
    }
    for ghost in 0..world.ghosts.len() {
        let ghost = small(ghost);
        into.extend([TimedMove::GhostLand { ghost }, TimedMove::GhostLost { ghost }]);
    }
    if world.stopped.is_some() {
        into.push(TimedMove::GoOn);
    }
    if world.stopped.is_some_and(|(stopped, _)| world.at == Some(stopped)) {
        into.push(TimedMove::BrokerTimeout);
    }
    if world.budget.redeliver > 0 && troubled && world.at.is_some() {
        into.push(TimedMove::Redeliver);
    }
    if world.budget.cancel > 0 && troubled {
        into.push(TimedMove::Cancel);
    }
    let tombstone = |entry: &Entry| matches!(entry, Entry::Tombstone(_));
    let removable =
        world.log.records.iter().any(|record| tombstone(&record.sent.entry) && !record.removed);
    if world.budget.compact > 0 && removable {
        into.push(TimedMove::Compact);
    }
    for (index, worker) in world.workers.iter().enumerate() {
        let number = small(index);
        if let Some(first) = worker.out.first() {
            if !world.outage {
                into.push(TimedMove::Land { worker: number });
            }
            let brief = matches!(
                first.entry,
                Entry::Claim(_) | Entry::Heartbeat(_) | Entry::Seal(_) | Entry::Tombstone(_)
            );
            if brief && world.now - first.at > H_TICKS {
                into.push(TimedMove::Expire { worker: number });
            }
        }
        if world.steps(index) {
            worker_moves(world, number, worker, into);
            if troubled {
                troubles(bounds, world, number, worker, into);
            }
        }
    }
}

fn worker_moves(world: &TimedWorld, number: u8, worker: &Worker, into: &mut Vec<TimedMove>) {
    if world.may_deliver(worker) {
        into.push(TimedMove::Deliver { to: number });
    }
    if worker.read < world.log.end {
        into.push(TimedMove::Read { worker: number });
    }
    if let Some((_, cancelled)) = worker.bodies.first_key_value() {
        into.push(TimedMove::Complete { worker: number });
        if *cancelled {
            into.push(TimedMove::Obey { worker: number });
        }
    }
}

fn troubles(
    bounds: &TimedBounds,
    world: &TimedWorld,
    worker: u8,
    state: &Worker,
    into: &mut Vec<TimedMove>,
) {
    let calm = bounds.calm;
    let budget = &world.budget;
    if budget.fail > 0 && !state.bodies.is_empty() {
        into.push(TimedMove::Fail { worker });
    }
    if budget.giveup > 0 && !state.out.is_empty() {
        into.push(TimedMove::ConnectionLost { worker });
    }
    if budget.crash > 0 {
        into.push(TimedMove::Crash { worker });
    }
    if world.stopped.is_none() {
        if budget.freeze > 0 {
            into.push(TimedMove::Stop { worker, clock: false });
        }
        if budget.stand > 0 && world.now >= calm && state.account.stood.is_none() {
            into.push(TimedMove::Stop { worker, clock: true });
        }
    }
    if budget.lose > 0 && may_lose(world, state) {
        into.push(TimedMove::Lose { worker });
    }
}

/// Whether the next entry may be lost: a claim or an outcome of an owner whose heartbeat was read
/// before. Without a heartbeat, no reader can detect the loss.
fn may_lose(world: &TimedWorld, state: &Worker) -> bool {
    let next = world.next_record(state.read);
    let key = next.and_then(|record| record.sent.entry.counted());
    key.is_some_and(|key| key.task == TASK && state.account.beats.contains_key(&key.owner))
}

/// The cost of a tick now, and whether the `laggard` alone is slow.
pub(super) fn lag(bounds: &TimedBounds, world: &TimedWorld) -> (u8, bool) {
    let (mut cost, mut only_laggard) = (0, true);
    let stepping = world.workers.iter().enumerate().filter(|(index, _)| world.steps(*index));
    let mut undelivered = false;
    for (index, worker) in stepping {
        let [unsent, unread] = worker.lags(&world.log);
        let slow = u8::from(unsent && !world.outage) + u8::from(unread);
        let others = usize::from(bounds.laggard) < world.workers.len();
        only_laggard &= slow == 0 || !others || index == usize::from(bounds.laggard);
        cost += slow;
        undelivered |= world.may_deliver(worker);
    }
    (cost + u8::from(undelivered), only_laggard)
}

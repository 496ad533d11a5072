//! The possible steps in a state of the world.

use super::bounds::Bounds;
use super::tamper::Fault;
use super::world::{Worker, World, message_of, small, task_id, task_number};
use super::{operating, sealing};
use longhaul_core::machine::{Stage, Task, TerminalStep};
use longhaul_core::protocol::claim::{Decision, NextClaim, next_claim};
use longhaul_core::protocol::entry::{ClaimKind, Entry};
use longhaul_core::protocol::fold::{Phase, TaskFold};
use longhaul_core::protocol::offer::{Offer, TaskType};
use longhaul_core::protocol::operator::OperatorAction;

/// A step. Numbers are those of workers, tasks and messages, and indexes of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named by what they number")]
pub enum Move {
    /// The broker delivers a message.
    Deliver { message: u8, to: u8 },
    /// The worker takes a delivery from its client's queue.
    Receive { worker: u8, message: u8 },
    /// The broker takes a delivery back, and the worker does not know.
    Redeliver { message: u8 },
    /// The consumer session of a worker ends.
    SessionLost { worker: u8 },
    /// A worker reads the next entry of the ledger.
    Read { worker: u8 },
    /// A worker claims the task, or asks for its payload first.
    Take { worker: u8, task: u8, live_owner: bool },
    /// A worker closes the task because its wall clock says that it has expired.
    Expire { worker: u8, task: u8 },
    /// A worker that holds the task offers it to all workers.
    Offer { worker: u8, task: u8 },
    /// A body ends.
    Finish { worker: u8, body: u8, end: End },
    /// The first publish in flight is stored.
    Land { worker: u8 },
    /// It is stored, followed by its copy.
    LandTwice { worker: u8 },
    /// A publish of a dead incarnation is stored.
    GhostLand { ghost: u8 },
    /// All publishes in flight are lost, and the worker knows.
    ConnectionLost { worker: u8 },
    /// The last publish of this task is reported as failed, whatever its real result.
    GiveUp { worker: u8, task: u8 },
    /// The process dies; this many of its publishes in flight may still be stored.
    Crash { worker: u8, landing: u8 },
    /// The ledger is compacted up to here.
    Compact { end: u8 },
    /// The process stops.
    Freeze { worker: u8 },
    /// The process continues.
    Thaw,
    /// The broker ends the session of the frozen worker.
    BrokerTimeout { message: u8 },
    /// An acknowledged message is trimmed.
    Trim { message: u8 },
    /// The view is too old: a new incarnation.
    Fence { worker: u8, landing: u8 },
    /// The broker stores its mark-delete position.
    Persist,
    /// The broker restarts and has forgotten the acks above it.
    BrokerRestart,
    /// Work in flight is done.
    Effect { worker: u8, index: u8 },
    /// A worker closes a terminal task that it did not end.
    Close { worker: u8, task: u8 },
    /// A worker seals these messages.
    Seal { worker: u8, messages: u8 },
    /// A worker publishes the union of the seals.
    Merge { worker: u8 },
    /// A worker publishes the tombstones of all removable keys, or only of the one with this
    /// number.
    Sweep { worker: u8, only: Option<u8> },
    /// A client cancels a task.
    Cancel { task: u8 },
    /// An operator acts on a task.
    Operate { task: u8, action: OperatorAction },
    /// A worker is told to drain.
    Drain { worker: u8 },
    /// It has drained and leaves.
    Leave { worker: u8 },
}

/// The end of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With a result.
    Completed,
    /// Without one; the last attempt fails for good.
    Failed,
    /// Cancelled.
    Cancelled,
    /// By a drain.
    Released,
}

/// All possible steps.
pub fn moves(bounds: &Bounds, world: &World, into: &mut Vec<Move>) {
    all_moves(bounds, world, into);
    if world.budget.after == 0 && world.is_swept() {
        into.retain(|step| !step.counts_after(bounds, world));
    }
}

impl Move {
    /// Whether this step is optional after the first key of a sealed task was removed: a fault, a
    /// request, or closing or sealing again something sealed. [`Bounds::after`] counts these steps.
    #[must_use]
    pub fn counts_after(self, bounds: &Bounds, world: &World) -> bool {
        let sealed = |task| world.fold(task_id(bounds, task), false).phase == Phase::Sealed;
        match self {
            Self::Close { task, .. } => sealed(task),
            Self::Seal { messages, .. } => (0..bounds.tasks)
                .filter(|task| messages >> message_of(bounds, *task) & 1 == 1)
                .all(sealed),
            Self::Redeliver { .. }
            | Self::SessionLost { .. }
            | Self::LandTwice { .. }
            | Self::ConnectionLost { .. }
            | Self::GiveUp { .. }
            | Self::Crash { .. }
            | Self::Freeze { .. }
            | Self::Fence { .. }
            | Self::BrokerRestart
            | Self::Cancel { .. }
            | Self::Operate { .. }
            | Self::Offer { .. }
            | Self::Drain { .. }
            | Self::Take { live_owner: true, .. } => true,
            Self::Deliver { .. }
            | Self::Receive { .. }
            | Self::Read { .. }
            | Self::Take { live_owner: false, .. }
            | Self::Expire { .. }
            | Self::Finish { .. }
            | Self::Land { .. }
            | Self::GhostLand { .. }
            | Self::Thaw
            | Self::BrokerTimeout { .. }
            | Self::Trim { .. }
            | Self::Persist
            | Self::Effect { .. }
            | Self::Merge { .. }
            | Self::Sweep { .. }
            | Self::Compact { .. }
            | Self::Leave { .. } => false,
        }
    }
}

fn all_moves(bounds: &Bounds, world: &World, into: &mut Vec<Move>) {
    broker_moves(bounds, world, into);
    for (ghost, entries) in world.ghosts.iter().enumerate() {
        // An operator does not have the timing of a takeover: see `operate-untimely`.
        if bounds.timely && entries.first().is_some_and(|it| is_early(bounds, world, it)) {
            continue;
        }
        into.push(Move::GhostLand { ghost: small(ghost) });
    }
    operating::moves(bounds, world, into);
    if world.budget.compact > 0 {
        into.extend(compactions(bounds, world));
    }
    for (index, worker) in world.workers.iter().enumerate() {
        let number = small(index);
        if !(worker.out.is_empty() || worker.left) {
            into.push(Move::Land { worker: number });
            if bounds.fault == Fault::Resend && world.budget.giveup > 0 {
                into.push(Move::LandTwice { worker: number });
            }
        }
        if !world.steps(index) {
            continue;
        }
        if bounds.seal || bounds.keys > 0 {
            sealing::moves(bounds, world, (number, worker), into);
        }
        worker_moves(bounds, world, number, worker, into);
        for task in 0..bounds.tasks {
            task_moves(bounds, world, (number, worker), task, into);
        }
    }
}

/// A Key_Shared subscription delivers the messages of a key in order, and to a worker only while no
/// other holds any of them.
fn may_deal(bounds: &Bounds, world: &World, index: usize, to: u8) -> bool {
    if bounds.fault == Fault::KeyDealtTwice {
        return true;
    }
    world.messages.iter().enumerate().all(|(other, message)| {
        let is_free = message.at.is_none() && other >= index;
        message.acked || is_free || message.at == Some(to)
    })
}

fn broker_moves(bounds: &Bounds, world: &World, into: &mut Vec<Move>) {
    let budget = &world.budget;
    if world.frozen.is_some() && budget.thaw > 0 {
        into.push(Move::Thaw);
    }
    for (index, message) in world.messages.iter().enumerate() {
        let number = small(index);
        if message.acked {
            if bounds.fetch && !message.trimmed && (!bounds.marked || number < world.stored) {
                into.push(Move::Trim { message: number });
            }
            continue;
        }
        match message.at {
            None if bounds.unasked => {}
            None => {
                for (to, worker) in world.workers.iter().enumerate() {
                    let takes = world.steps(to) && worker.machine.is_ready();
                    let may = !bounds.ordered || may_deal(bounds, world, index, small(to));
                    if takes && !worker.draining && may {
                        into.push(Move::Deliver { message: number, to: small(to) });
                    }
                }
            }
            Some(_) if budget.redeliver > 0 => into.push(Move::Redeliver { message: number }),
            Some(_) => {}
        }
        if bounds.brokerto && message.at.is_some() && message.at == world.frozen {
            into.push(Move::BrokerTimeout { message: number });
        }
    }
    if bounds.marked {
        if world.mark_delete() > usize::from(world.stored) {
            into.push(Move::Persist);
        }
        let above = world.messages.iter().skip(usize::from(world.stored));
        if budget.forgets > 0 && above.into_iter().any(|message| message.acked) {
            into.push(Move::BrokerRestart);
        }
    }
    for task in 0..bounds.tasks {
        if budget.cancel > 0 {
            into.push(Move::Cancel { task });
        }
    }
}

/// Compactions that remove something new.
fn compactions<'a>(bounds: &'a Bounds, world: &'a World) -> impl Iterator<Item = Move> + 'a {
    let key = |index: usize| bounds.fault.compaction_key(&world.log[index].entry);
    let removes = move |last: usize| {
        (0..last).any(|earlier| !world.log[earlier].removed && key(earlier) == key(last))
    };
    (0..world.log.len()).filter(move |last| removes(*last)).map(|last| {
        let end = small(last + 1);
        Move::Compact { end }
    })
}

fn worker_moves(bounds: &Bounds, world: &World, number: u8, worker: &Worker, into: &mut Vec<Move>) {
    let budget = &world.budget;
    if usize::from(worker.cursor) < world.log.len() {
        into.push(Move::Read { worker: number });
    }
    for index in 0..worker.effects.len() {
        into.push(Move::Effect { worker: number, index: small(index) });
    }
    for (index, body) in worker.bodies.iter().enumerate() {
        if !(bounds.hang && body.task == 0) {
            let body = small(index);
            let ends = ends(bounds, world, worker, index);
            into.extend(ends.into_iter().map(|end| Move::Finish { worker: number, body, end }));
        }
    }
    if budget.giveup > 0 && !worker.out.is_empty() {
        into.push(Move::ConnectionLost { worker: number });
    }
    if budget.freeze > 0 && world.frozen.is_none() {
        into.push(Move::Freeze { worker: number });
    }
    let landings = 0..=small(worker.out.len());
    if budget.crash > 0 {
        into.extend(landings.clone().map(|landing| Move::Crash { worker: number, landing }));
    }
    let at_work = worker.machine.open_tasks().any(|(_, task)| in_flight(task));
    if budget.fences > 0 && worker.machine.is_ready() && at_work {
        into.extend(landings.map(|landing| Move::Fence { worker: number, landing }));
    }
    if budget.session > 0 && worker.machine.open_tasks().any(|(_, task)| task.held) {
        into.push(Move::SessionLost { worker: number });
    }
    let messages = 0..small(world.messages.len());
    for message in messages.filter(|message| worker.queue >> message & 1 == 1) {
        into.push(Move::Receive { worker: number, message });
    }
    if worker.draining {
        let idle = worker.out.is_empty() && worker.effects.is_empty() && worker.bodies.is_empty();
        if idle && !at_work {
            into.push(Move::Leave { worker: number });
        }
    } else if budget.drain > 0 && worker.machine.is_ready() {
        into.push(Move::Drain { worker: number });
    }
}

fn ends(bounds: &Bounds, world: &World, worker: &Worker, index: usize) -> Vec<End> {
    let body = worker.bodies[index];
    let mut ends = Vec::new();
    if body.cancelled {
        ends.push(End::Cancelled);
    }
    if worker.draining {
        ends.push(End::Released);
        return ends;
    }
    ends.push(End::Completed);
    // With lease semantics an owner that might look stale has ended its body with a failure.
    if bounds.fail || (bounds.lease == 2 && world.budget.spurious > 0) {
        ends.push(End::Failed);
    }
    ends
}

/// Whether the task has unfinished work here. Waiting for the other tasks of a batch does not
/// count: a draining worker need not stay for it.
fn in_flight(task: &Task) -> bool {
    match task.stage {
        Stage::Idle
        | Stage::Closing(TerminalStep::Written | TerminalStep::Closed)
        | Stage::Aside { release: None } => false,
        Stage::Reading
        | Stage::Claiming { .. }
        | Stage::Running(_)
        | Stage::Finishing { .. }
        | Stage::Closing(_)
        | Stage::Aside { .. } => true,
    }
}

fn task_moves(
    bounds: &Bounds,
    world: &World,
    (number, worker): (u8, &Worker),
    task: u8,
    into: &mut Vec<Move>,
) {
    let id = task_id(bounds, task);
    let Some(known) = worker.machine.task(id) else { return };
    if !worker.draining {
        match judge(bounds, world, worker, task) {
            (Decision::Claim(_), live_owner) => {
                into.push(Move::Take { worker: number, task, live_owner });
            }
            (Decision::ReadPayload, live_owner) => {
                let message = &world.messages[usize::from(message_of(bounds, task))];
                if !(bounds.fetch && message.trimmed) {
                    into.push(Move::Take { worker: number, task, live_owner });
                }
            }
            (Decision::Wait, _) => {}
        }
        if expires(bounds, worker, task).is_some() {
            into.push(Move::Expire { worker: number, task });
        }
        if world.budget.offers > 0 && offers(bounds, worker, task).is_some() {
            into.push(Move::Offer { worker: number, task });
        }
    }
    let publishing = matches!(known.stage, Stage::Claiming { .. } | Stage::Finishing { .. });
    if world.budget.giveup > 0 && publishing {
        into.push(Move::GiveUp { worker: number, task });
    }
    let message = &world.messages[usize::from(message_of(bounds, task))];
    let closable = known.fold.phase.is_terminal() && known.stage == Stage::Idle;
    let useful = bounds.seal || !message.acked;
    if closable && useful && bounds.adopt && worker.machine.is_ready() {
        into.push(Move::Close { worker: number, task });
    }
}

/// The machine's decision, and whether it requires a live owner to be treated as stale.
#[must_use]
pub fn judge(bounds: &Bounds, world: &World, worker: &Worker, task: u8) -> (Decision, bool) {
    let id = task_id(bounds, task);
    let Some(known) = worker.machine.task(id) else { return (Decision::Wait, false) };
    if !(known.held || bounds.adopt) {
        return (Decision::Wait, false);
    }
    let live_owner = known.fold.phase == Phase::Running && world.is_alive(known.fold.owner);
    let waits = bounds.park && task == 1 && !is_over(bounds, worker);
    if known.fold.is_parked() {
        return (worker.machine.decide(id, !waits, None), false);
    }
    let closes = waits.then_some(ClaimKind::Park);
    let due = !live_owner
        || (world.budget.spurious > 0
            && !(bounds.timely && unstarted(bounds, world, &known.fold, task)));
    if bounds.fault == Fault::NewWithoutDelivery && is_seen_only(&known) {
        return (
            Decision::Claim(next_claim(&known.fold, u32::from(bounds.attempts), None)),
            live_owner,
        );
    }
    (worker.machine.decide(id, due, closes), live_owner)
}

/// The claim by which a worker closes an expired task, if the task's limits allow it; the time is
/// arbitrary.
pub(super) fn expires(bounds: &Bounds, worker: &Worker, task: u8) -> Option<NextClaim> {
    let id = task_id(bounds, task);
    let known = worker.machine.task(id).filter(|known| known.held || bounds.adopt)?;
    let (_, kind) = known.limits.as_deref()?.closes_at(&known.fold, 0)?;
    match worker.machine.decide(id, true, Some(kind)) {
        Decision::Claim(claim) if claim.kind == ClaimKind::Expired => Some(claim),
        Decision::Claim(_) | Decision::ReadPayload | Decision::Wait => None,
    }
}

/// The claim by which a worker offers a held task that may begin; whether it wants the task is
/// arbitrary.
pub(super) fn offers(bounds: &Bounds, worker: &Worker, task: u8) -> Option<NextClaim> {
    let id = task_id(bounds, task);
    let known = worker.machine.task(id).filter(|known| known.held)?;
    let waits = bounds.park && task == 1 && !is_over(bounds, worker);
    let open = matches!(known.fold.phase, Phase::New | Phase::Retry) && !known.fold.is_offered();
    if waits || !open {
        return None;
    }
    let kind = ClaimKind::Offer(Offer { task_type: TaskType::of(None), ready_ms: 0 });
    match worker.machine.decide(id, true, Some(kind)) {
        Decision::Claim(claim) if claim.kind == kind => Some(claim),
        Decision::Claim(_) | Decision::ReadPayload | Decision::Wait => None,
    }
}

/// Whether the task that the other one waits for is over, as far as the worker knows.
#[must_use]
pub fn is_over(bounds: &Bounds, worker: &Worker) -> bool {
    let phase = worker.machine.fold(task_id(bounds, 0)).phase;
    match bounds.fault {
        Fault::ParkedUntilClaimed => phase != Phase::New,
        Fault::SealNotOver => phase.is_terminal() && phase != Phase::Sealed,
        _ => phase.is_terminal(),
    }
}

/// Whether the task is unclaimed, and this worker has no delivery of it.
pub(super) fn is_seen_only(task: &Task) -> bool {
    task.fold.phase == Phase::New && !task.held && task.stage == Stage::Idle
}

/// Whether an operator's claim would be stored before a live owner has read its own.
fn is_early(bounds: &Bounds, world: &World, entry: &Entry) -> bool {
    let Some(task) = operating::acts_on(entry) else { return false };
    let fold = world.fold(task, true);
    fold.phase == Phase::Running && unstarted(bounds, world, &fold, task_number(task))
}

/// Whether the live owner has published this claim and waits for it; with lease semantics, also
/// whether it would have ended its body by now.
fn unstarted(bounds: &Bounds, world: &World, fold: &TaskFold, task: u8) -> bool {
    let id = task_id(bounds, task);
    world.workers.iter().enumerate().any(|(index, worker)| {
        let stage = worker.machine.task(id).map(|task| task.stage);
        world.steps(index)
            && match stage {
                Some(Stage::Claiming { epoch, .. }) => {
                    epoch == fold.epoch && worker.machine.owner() == fold.owner
                }
                Some(Stage::Running(run)) => {
                    bounds.lease == 2 && run.epoch == fold.epoch && run.owner == fold.owner
                }
                _ => false,
            }
    })
}

#[cfg(test)]
mod tests {
    use super::super::scenario::{SCENARIOS, find};
    use super::super::step::step;
    use super::*;

    /// A search without any offers would find nothing, either.
    #[test]
    fn who_has_no_delivery_claims_what_was_offered() {
        let bounds = find(SCENARIOS, "offer:crash=0").unwrap().0;
        let mut world = World::new(&bounds);
        let takes = |world: &World| {
            let mut all = Vec::new();
            moves(&bounds, world, &mut all);
            all.contains(&Move::Take { worker: 1, task: 0, live_owner: false })
        };
        let offers = [
            Move::Deliver { message: 0, to: 0 },
            Move::Offer { worker: 0, task: 0 },
            Move::Land { worker: 0 },
            Move::Read { worker: 1 },
        ];
        for next in offers {
            assert!(!takes(&world), "before {next:?}");
            let (mut all, mut violations) = (Vec::new(), Vec::new());
            moves(&bounds, &world, &mut all);
            assert!(all.contains(&next), "{next:?} is none of {all:?}");
            world = step(&bounds, &world, next, &mut violations);
            assert_eq!(violations, []);
        }
        assert!(takes(&world));
    }
}

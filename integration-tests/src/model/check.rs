//! What must hold in every state of the world, and when everything is done.

use super::bounds::Bounds;
use super::world::{Worker, World, message_of, task_id};
use longhaul::TaskId;
use longhaul::protocol::entry::Entry;
use longhaul::protocol::fold::Phase;
use longhaul::protocol::invariants::{
    COMPACTION, FOLLOWERS, ORPHAN, OVERLAP, PROGRESS, START, Violation,
};
use longhaul::worker::machine::{Stage, Task};

/// Adds what a state violates.
pub fn check(bounds: &Bounds, world: &World, violations: &mut Vec<Violation>) {
    for task in 0..bounds.tasks {
        let id = task_id(bounds, task);
        let mut add = |id: &'static str, what: &'static str, task: TaskId| {
            violations.push(Violation { id, what, task: Some(task) });
        };
        for worker in &world.workers {
            if !bodies_match(worker, id, task) {
                add(
                    START,
                    "a body runs that the machine does not know, or the other way round",
                    id,
                );
            }
            if (worker.payloads >> task & 1 == 1)
                != worker.machine.task(id).is_some_and(|known| known.payload)
            {
                add(
                    PROGRESS,
                    "a payload is kept that the machine does not know, or the other way round",
                    id,
                );
            }
            if rests(worker, id) {
                add(PROGRESS, "a held delivery of a finished task rests", id);
            }
            if has_orphan(worker, id) {
                add(ORPHAN, "an accepted own claim is neither run nor released", id);
            }
        }
        if bounds.lease > 0 && bodies_running(world, task) > 1 {
            add(OVERLAP, "two bodies of a task run at once", id);
        }
        let (full, fresh) = (world.fold(id, false), world.fold(id, true));
        if full != fresh {
            add(COMPACTION, "a follower of the compacted ledger folds another state", id);
        }
        for worker in world.workers.iter().filter(|worker| !worker.left) {
            let at_end = usize::from(worker.cursor) == world.log.len();
            if at_end && worker.machine.fold(id) != full {
                add(FOLLOWERS, "a follower at the end of the ledger folds another state", id);
            }
        }
        if world.messages[usize::from(message_of(bounds, task))].acked {
            violations.extend(world.history.bootstrap_shows(id, &fresh));
        }
    }
}

/// Everything is done: acknowledged and, where tasks are sealed, sealed and swept.
pub fn is_goal(bounds: &Bounds, world: &World) -> bool {
    (0..bounds.tasks).all(|task| {
        if bounds.hang && task == 0 {
            return true;
        }
        let id = task_id(bounds, task);
        let message = &world.messages[usize::from(message_of(bounds, task))];
        if message.acked {
            return !bounds.seal || is_swept(world, id);
        }
        // A new task in a frozen worker's hands waits for the broker; where the broker never looks, it waits for ever.
        let waits = !bounds.brokerto && world.frozen.is_some() && message.at == world.frozen;
        waits && world.fold(id, false).phase == Phase::New
    })
}

/// The task is sealed, and every key of it has its tombstone.
fn is_swept(world: &World, id: TaskId) -> bool {
    let gone = |index: usize| {
        let key = world.log[index].entry.key();
        let mut later = world.log.iter().skip(index + 1);
        world.log[index].removed || later.any(|record| record.entry == Entry::Tombstone(key))
    };
    let of_task = |index: &usize| {
        let entry = &world.log[*index].entry;
        entry.task() == Some(id) && !matches!(entry, Entry::Tombstone(_))
    };
    world.fold(id, false).phase == Phase::Sealed && (0..world.log.len()).filter(of_task).all(gone)
}

/// Bodies run exactly where the machine says so.
fn bodies_match(worker: &Worker, id: TaskId, task: u8) -> bool {
    let mut bodies = worker.bodies.iter().filter(|body| body.task == task);
    match worker.machine.task(id).map(|known| known.stage) {
        Some(Stage::Running(run)) if run.ended.is_none() => {
            bodies.next().is_some_and(|body| body.epoch == run.epoch) && bodies.next().is_none()
        }
        _ => bodies.next().is_none(),
    }
}

/// The ledger was seen to show a claim of this process as running, and nothing here runs, ends or awaits it.
fn has_orphan(worker: &Worker, id: TaskId) -> bool {
    let Some(known) = worker.machine.task(id) else { return false };
    let Task { fold, stage, .. } = known;
    let awaited = matches!(stage, Stage::Claiming { epoch, .. } if *epoch == fold.epoch);
    worker.machine.is_ready()
        && fold.phase == Phase::Running
        && worker.machine.is_own(fold.owner)
        && !known.is_at_work()
        && !awaited
}

/// Nobody sees to a delivery that can be acknowledged, so that the mark-delete position never passes it.
fn rests(worker: &Worker, id: TaskId) -> bool {
    let Some(known) = worker.machine.task(id) else { return false };
    worker.machine.is_ready()
        && known.held
        && known.fold.phase.is_terminal()
        && known.stage == Stage::Idle
}

fn bodies_running(world: &World, task: u8) -> usize {
    let running = world.workers.iter().enumerate().filter(|(index, worker)| {
        world.steps(*index) && worker.bodies.iter().any(|body| body.task == task)
    });
    running.count()
}

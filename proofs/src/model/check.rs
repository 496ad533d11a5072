//! The conditions for every state of the world, and the goal.

use super::bounds::Bounds;
use super::fingerprint::Part;
use super::world::{Worker, World, message_of, task_id};
use crate::judge::Judge;
use longhaul::TaskId;
use longhaul_core::machine::{Machine, Stage, Task};
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::invariants::{
    COMPACTION, FOLLOWERS, ORPHAN, OVERLAP, OrderJudge, PROGRESS, START, Violation,
};
use longhaul_core::protocol::key::{Epoch, Key, OnceKey};

/// Tells a history an event, and takes its violations. An unchanged part keeps its place in memory.
pub(super) fn tell_history(
    history: &mut Part<Judge>,
    violations: &mut Vec<Violation>,
    tell: impl FnOnce(&mut Judge),
) {
    let mut told = Judge::clone(history);
    tell(&mut told);
    violations.append(&mut told.take_violations());
    if told != **history {
        *history = Part::new(told);
    }
}

/// Checks that the tasks of one key begin in order, from the entries that the ledger accepted.
fn check_order(bounds: &Bounds, world: &World, violations: &mut Vec<Violation>) {
    let mut judge = OrderJudge::default();
    (0..bounds.tasks).for_each(|task| judge.add(task_id(bounds, task), b"key"));
    violations.extend(world.log.iter().filter_map(|record| judge.read(&record.entry)));
}

/// Adds the violations of a state.
pub fn check(bounds: &Bounds, world: &World, violations: &mut Vec<Violation>) {
    if bounds.ordered {
        check_order(bounds, world, violations);
    }
    for worker in world.workers.iter().filter(|worker| !worker.left) {
        if worker.machine.digest() != worker.machine.digest_anew() {
            let what = "a worker tells others another digest than that of its tasks";
            violations.push(Violation { id: FOLLOWERS, what, task: None });
        }
    }
    for task in 0..bounds.tasks {
        let id = task_id(bounds, task);
        let mut add = |id: &'static str, what: &'static str, task: TaskId| {
            violations.push(Violation { id, what, task: Some(task) });
        };
        for worker in &world.workers {
            let bodies = worker.bodies.iter().filter(|body| body.task == task);
            if !is_body(&worker.machine, id, bodies.map(|body| body.epoch)) {
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
            let landed = world.log.iter().map(|record| &record.entry);
            if has_orphan(&worker.machine, id, landed.chain(&worker.out)) {
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

/// Whether everything is done: acknowledged and, where tasks are sealed, sealed and swept.
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
        // A new task held by a frozen worker waits for the broker; if the broker never notices, it
        // waits for ever.
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

/// Whether a body of the task runs exactly if the machine's stage requires it.
pub(super) fn is_body(machine: &Machine, id: TaskId, epochs: impl Iterator<Item = Epoch>) -> bool {
    let due = match machine.task(id).map(|known| known.stage) {
        Some(Stage::Running(run)) if run.ended.is_none() => Some(run.epoch),
        _ => None,
    };
    epochs.eq(due)
}

/// Whether the ledger shows a claim of this process as running while nothing here runs or awaits
/// it, and its outcome was not published.
pub(super) fn has_orphan<'a>(
    machine: &Machine,
    id: TaskId,
    mut published: impl Iterator<Item = &'a Entry>,
) -> bool {
    let Some(known) = machine.task(id) else { return false };
    let Task { fold, stage, .. } = known.as_ref();
    if fold.phase != Phase::Running || !machine.is_own(fold.owner) || !machine.is_ready() {
        return false;
    }
    match *stage {
        Stage::Claiming { epoch, .. } => epoch != fold.epoch,
        Stage::Finishing { epoch, owner, serial, .. } if known.is_at_work() => {
            let key = Key::Once(OnceKey { task: id, epoch, owner, serial });
            !published.any(|entry| entry.key() == key)
        }
        _ => !known.is_at_work(),
    }
}

/// Whether a worker leaves a delivery alone that can be acknowledged, so that the mark-delete
/// position never passes it.
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

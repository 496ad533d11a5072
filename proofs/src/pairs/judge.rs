//! Checks the promises to users against the real runs of processors and holders, the entries of the
//! metadata topic, and the broker's state.

use super::Feature;
use super::notes::{Act, Done, Run};
use super::script::{ATTEMPTS, KEYS, LIMITS, Placed, Script};
use super::world::{H, MEMBERS, NARROW, SOON, World};
use crate::checkers::fold::{End, State};
use longhaul::{TaskId, TaskMetadata, TaskOutcome, TaskState};
use longhaul_core::ledger;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most time between a request and its effect. A worker starts a task within a heartbeat
/// interval of its claim, and meanwhile may be unable to read later requests.
fn soon(world: &World<'_>) -> Duration {
    if world.is_unsound() { SOON + H } else { SOON }
}

/// The longest time between two messages whose writers could not have read each other's.
const AT_ONCE_MS: u64 = 50;

/// The entries of the metadata topics on each task, with their time stamps.
type Shown = BTreeMap<TaskId, Vec<(u64, TaskMetadata)>>;

pub(super) fn judge(world: &World<'_>, found: &mut Vec<String>) {
    let (done, shown) = (world.notes.lock(), world.shown());
    check_ends(world, &done, &shown, found);
    check_limits(world, &done, found);
    check_pauses(world, &done, found);
    check_one_at_a_time(&done, found);
    check_order(world, &done, found);
    check_overwriters(world, &done, &shown, found);
    check_waits(world, &done, &shown, found);
    check_expiry(world, &done, found);
}

/// The end of the time for which an attempt holds its task. An operator's act ends it at once,
/// although the holder may learn of it later; a lease ends in time.
fn until(done: &Done, run: &Run) -> Duration {
    let end = run.end.into_iter().chain(run.lease_ends).min().unwrap_or(Duration::MAX);
    let Some(placed) = done.placed.get(&run.number) else { return end };
    let taken = done.acts.iter().filter(|(task, act, at)| {
        *task == placed.id() && *act != Act::Cancel && (run.begin..end).contains(at)
    });
    // The operator is answered after the entry is stored.
    taken.map(|(.., at)| at.saturating_sub(SOON)).min().unwrap_or(end).max(run.begin)
}

/// Checks that each task ends once, on the ledger as on the metadata topic, and is acknowledged. It
/// ends as its script says, unless a client or an operator intervened.
fn check_ends(world: &World<'_>, done: &Done, shown: &Shown, found: &mut Vec<String>) {
    let states = states(world);
    for placed in done.placed.values() {
        let (id, script) = (placed.id(), &done.scripts[placed.number]);
        let ends: Vec<_> =
            shown.get(&id).into_iter().flatten().filter(|(_, it)| it.is_terminal()).collect();
        let (Some((at_ms, _)), Some((_, last))) = (ends.first(), ends.last()) else {
            found.push(format!("task {id} has not ended: {script:?}"));
            continue;
        };
        if ends.iter().any(|(_, it)| (it.state, it.outcome) != (last.state, last.outcome)) {
            found.push(format!("task {id} ended in more than one way: {ends:?}"));
        }
        // If one task of a batch ended before its delivery, the batch is delivered later.
        let comes_again =
            world.has(Feature::Batch) || world.is_unsound() || done.disturbed.len() > MEMBERS;
        // Two workers that show an end at the same time cannot know of each other.
        let again = ends.iter().any(|(later_ms, _)| *later_ms > at_ms + AT_ONCE_MS);
        if again && !comes_again {
            found.push(format!("the end of task {id} was shown {} times", ends.len()));
        }
        if !world.is_acked(placed) {
            found.push(format!("task {id} was not acknowledged"));
        }
        let end = match (last.state, last.outcome) {
            (TaskState::Completed, _) => Some(End::Completed),
            (_, Some(TaskOutcome::Final)) => Some(End::Final),
            (_, Some(TaskOutcome::Cancelled)) => Some(End::Cancelled),
            (_, Some(TaskOutcome::Expired)) => Some(End::Expired),
            _ => None,
        };
        if end.is_none() || states.get(&id).map(State::end) != Some(end) {
            found.push(format!(
                "task {id} is shown as {last:?}, and the ledger says {:?}",
                states.get(&id)
            ));
        }
        let expired = end == Some(End::Expired) && script.expires_ms.is_some_and(|it| it <= *at_ms);
        if script.duplicate {
            check_duplicate(done, placed, last, expired, found);
            continue;
        }
        if done.unsure.contains(&id) {
            continue;
        }
        let acts: Vec<_> = done.acts.iter().filter(|(task, ..)| *task == id).collect();
        let expected = if script.fails >= ATTEMPTS { End::Final } else { End::Completed };
        // A release costs an attempt, and so does the death of a worker, or a report that no
        // gateway takes for half a minute.
        let costly = [Feature::Release, Feature::Kill, Feature::Fence];
        let loses = costly.into_iter().any(|feature| world.has(feature));
        let succeeds = |run: &Run| run.number == placed.number && run.returned && script.fails == 0;
        // A result within the grace of a drain is given back all the same.
        let ran = !loses && !world.has(Feature::Drain) && done.runs.iter().any(succeeds);
        let superseded = script.dedupe.is_some() && end == Some(End::Cancelled) && !ran;
        let as_told = end == Some(expected)
            || loses && end == Some(End::Final)
            || superseded
            || expired && !ran;
        if acts.is_empty() && !as_told {
            found.push(format!("task {id} ended as {end:?}, not as {expected:?}: {last:?}"));
        }
        if end == Some(End::Completed)
            && last.result.as_deref() != Some(placed.number.to_string().as_bytes())
        {
            found.push(format!("task {id} has another result: {last:?}"));
        }
        for (_, act, at) in acts {
            check_act(world, done, placed, (*act, *at), (end, *at_ms), found);
        }
    }
}

/// Checks that a task under the idempotency key of another one does not run, and names that one.
fn check_duplicate(
    done: &Done,
    placed: &Placed,
    last: &TaskMetadata,
    expired: bool,
    found: &mut Vec<String>,
) {
    let id = placed.id();
    if done.has_begun(placed.number) {
        found.push(format!("task {id}, the same once more, was run"));
    }
    let first = first_of(done, &done.scripts[placed.number]);
    if last.duplicate_of != first && !expired {
        found.push(format!("task {id}, the same once more, is shown as {last:?}"));
    }
}

/// The task that was submitted first under the idempotency key of another one.
fn first_of(done: &Done, script: &Script) -> Option<String> {
    let is_first = |placed: &&Placed| {
        let other = &done.scripts[placed.number];
        other.idempotency == script.idempotency && !other.duplicate
    };
    done.placed.values().find(is_first).map(|placed| placed.id().to_string())
}

fn check_act(
    world: &World<'_>,
    done: &Done,
    placed: &Placed,
    (act, at): (Act, Duration),
    (end, shown_ms): (Option<End>, u64),
    found: &mut Vec<String>,
) {
    let id = placed.id();
    let runs = || done.runs.iter().filter(|run| run.number == placed.number);
    if act != Act::Release && runs().any(|run| run.begin > at + soon(world)) {
        found.push(format!("task {id} began after {act:?} at {at:?}"));
    }
    let returned = runs().filter(|run| run.returned).filter_map(|run| run.end).min();
    // A worker that cannot read its ledger does not learn of the request.
    let unheard = |returned| act == Act::Cancel && done.may_not_hear(at + soon(world), returned);
    let was_done = returned.is_some_and(|it| it < at + soon(world) || unheard(it));
    let wanted = match act {
        Act::Cancel => matches!(end, Some(End::Cancelled | End::Expired)) || was_done,
        Act::Delete => end == Some(End::Cancelled),
        Act::Fail => end == Some(End::Final),
        Act::Release => true,
    };
    if !wanted {
        found.push(format!("task {id} ended as {end:?} after {act:?} at {at:?}"));
    }
    let time = at..at + 3 * H;
    let disturbed = done.disturbed.iter().any(|it| time.contains(it)) || done.is_troubled(&time);
    let shown = world.since_start(shown_ms);
    if act != Act::Release && !was_done && shown > at + 3 * H && !disturbed {
        found.push(format!("task {id}: {act:?} at {at:?} was shown at {shown:?}"));
    }
}

/// Whether the run held its task at this time.
fn is_at_work(done: &Done, run: &Run, at: Duration) -> bool {
    run.begin <= at && at < until(done, run)
}

/// Checks the limits: those of the limit keys and that of the queue.
fn check_limits(world: &World<'_>, done: &Done, found: &mut Vec<String>) {
    for (limit, (key, max)) in LIMITS.into_iter().enumerate() {
        let of_key = |run: &&Run| done.scripts[run.number].limit == Some(limit);
        let runs: Vec<&Run> = done.runs.iter().filter(of_key).collect();
        check_limit(done, (&format!("limit {key}"), max), &runs, found);
    }
    if world.has(Feature::Narrow) {
        let runs: Vec<&Run> = done.runs.iter().collect();
        check_limit(done, ("limit of the queue", NARROW), &runs, found);
    }
}

fn check_limit(done: &Done, (of, max): (&str, u32), runs: &[&Run], found: &mut Vec<String>) {
    for run in runs {
        let count = runs.iter().filter(|it| is_at_work(done, it, run.begin)).count();
        if count > max as usize {
            found.push(format!("{of}: {count} run at {:?}, not {max}", run.begin));
        }
    }
}

/// Checks that nothing begins while the queue is paused.
fn check_pauses(world: &World<'_>, done: &Done, found: &mut Vec<String>) {
    for (begin, end) in &done.pauses {
        let paused = *begin + soon(world)..end.unwrap_or(Duration::MAX);
        for run in done.runs.iter().filter(|run| paused.contains(&run.begin)) {
            found.push(format!("paused at {begin:?}, and {} began at {:?}", run.number, run.begin));
        }
    }
}

/// Checks that no task runs twice at a time, nor two tasks of one order key or dedupe key.
fn check_one_at_a_time(done: &Done, found: &mut Vec<String>) {
    for (index, run) in done.runs.iter().enumerate() {
        let script = &done.scripts[run.number];
        let others = done.runs[..index].iter().filter(|it| is_at_work(done, it, run.begin));
        for other in others {
            let theirs = &done.scripts[other.number];
            let same_level = script.high == theirs.high;
            let why = match () {
                () if other.number == run.number => "of one task",
                () if same_level && script.order.is_some() && script.order == theirs.order => {
                    "of one order key"
                }
                () if script.dedupe.is_some() && script.dedupe == theirs.dedupe => {
                    "of one dedupe key"
                }
                () => continue,
            };
            found.push(format!(
                "two attempts {why} ran at {:?}: {:?} and {:?}",
                run.begin,
                done.placed.get(&other.number).map(|it| it.id()),
                done.placed.get(&run.number).map(|it| it.id())
            ));
        }
    }
}

/// Checks that tasks of one order key begin in the order of their submits, unless they were to
/// begin later.
fn check_order(world: &World<'_>, done: &Done, found: &mut Vec<String>) {
    if !world.has(Feature::Order) {
        return;
    }
    for (key, high) in KEYS.into_iter().flat_map(|key| [(key, false), (key, true)]) {
        let of_line = |placed: &&Placed| {
            let script = &done.scripts[placed.number];
            (script.order, script.high) == (Some(key), high) && script.delay.is_none()
        };
        let mut line: Vec<TaskId> = done.placed.values().filter(of_line).map(Placed::id).collect();
        line.sort_unstable();
        let number =
            |id: &TaskId| done.placed.values().find(|it| it.id() == *id).map(|it| it.number);
        let numbers: Vec<usize> = line.iter().filter_map(number).collect();
        let mut latest = Duration::ZERO;
        for number in numbers {
            let begins = done.runs.iter().filter(|run| run.number == number).map(|run| run.begin);
            let Some(first) = begins.min() else { continue };
            if first < latest {
                found.push(format!(
                    "order key {key}: {:?} began at {first:?}, after a later one",
                    done.placed[&number].id()
                ));
            }
            latest = latest.max(first);
        }
    }
}

/// Checks that the last overwriter of a key runs.
fn check_overwriters(world: &World<'_>, done: &Done, shown: &Shown, found: &mut Vec<String>) {
    for key in KEYS {
        let of_key = |placed: &&Placed| done.scripts[placed.number].dedupe == Some(key);
        let Some(last) = done.placed.values().filter(of_key).max_by_key(|it| it.id()) else {
            continue;
        };
        let acted = done.acts.iter().any(|(task, ..)| *task == last.id());
        let ended = shown.get(&last.id()).and_then(|all| all.last());
        let superseded = ended.is_some_and(|(_, it)| it.outcome == Some(TaskOutcome::Cancelled));
        // A task replaces only earlier tasks of its own level and partition. Elsewhere it loses.
        let same_partition = |it: &Placed| it.id().partition == last.id().partition;
        let of_one_lane =
            !world.has(Feature::Level) && done.placed.values().filter(of_key).all(same_partition);
        if superseded && !acted && of_one_lane {
            found.push(format!("the last overwriter of {key} was not run: {ended:?}"));
        }
    }
}

/// Checks that a task begins only when those that it waits for are over. Either the metadata topic
/// shows their end soon after, or their last run had ended by then. The second case occurs when the
/// worker that was to show the end has died.
fn check_waits(world: &World<'_>, done: &Done, shown: &Shown, found: &mut Vec<String>) {
    let end_of = |task: TaskId| {
        let all = shown.get(&task)?;
        let (at_ms, _) = all.iter().find(|(_, entry)| entry.is_terminal())?;
        Some(world.since_start(*at_ms))
    };
    let has_run_by = |task: TaskId, at: Duration| {
        let is_one = |number: usize| done.placed.get(&number).is_some_and(|it| it.id() == task);
        let runs: Vec<&Run> = done.runs.iter().filter(|it| is_one(it.number)).collect();
        runs.iter().any(|it| it.end.is_some_and(|end| end <= at))
            && runs.iter().all(|it| it.begin <= at && until(done, it) <= at)
    };
    for run in &done.runs {
        for before in &done.scripts[run.number].after {
            let shown_late = end_of(before.id).is_none_or(|end| end > run.begin + SOON);
            if shown_late && !has_run_by(before.id, run.begin) {
                let task = done.placed.get(&run.number).map(Placed::id);
                found.push(format!("{task:?} began before {} was over", before.id));
            }
        }
    }
}

/// Checks that no task begins after it has expired. Tasks that an earlier attempt began are exempt.
fn check_expiry(world: &World<'_>, done: &Done, found: &mut Vec<String>) {
    let goes_on = [Feature::Kill, Feature::Drain, Feature::Release];
    if goes_on.into_iter().any(|feature| world.has(feature)) {
        return;
    }
    for run in &done.runs {
        let Some(expires_ms) = done.scripts[run.number].expires_ms else { continue };
        let expires = world.since_start(expires_ms);
        if run.begin > expires + soon(world) {
            let task = done.placed.get(&run.number).map(Placed::id);
            found.push(format!("{task:?} expired at {expires:?}, and began at {:?}", run.begin));
        }
    }
}

/// The tasks' states on the ledgers, by the checkers' own fold.
fn states(world: &World<'_>) -> BTreeMap<TaskId, State> {
    let mut states: BTreeMap<TaskId, State> = BTreeMap::new();
    for topic in world.topics() {
        for message in world.log(&format!("{topic}-ledger")) {
            let entry = ledger::read(&message).expect("every entry can be read");
            if let Some(task) = entry.task() {
                states.entry(task).or_default().take(&entry);
            }
        }
    }
    states
}

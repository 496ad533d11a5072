//! Earliest and latest times: takeovers, self-fences, and the end of tasks in runs without faults.
//! Retries: `retries.rs`.

use super::checks::{Book, Evidence, at};
use super::fences::Readings;
use super::fleet::{DRIFT_PPM_MAX, Trouble};
use super::ledger::{Claimed, Owners, Story, longest_silence};
use super::report::Heartbeats;
use super::retries::{self, Deliveries, check_adopters, deliveries, is_blind};
use super::setting::{Course, Forgetting};
use crate::checkers::fold::Stand;
use longhaul::TaskId;
use longhaul_core::protocol::invariants as ids;
use longhaul_core::protocol::rank::SLOT;
use longhaul_memory::{Happening, SimulationEvent};
use longhaul_transport::moment::Moment;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any operation takes while the broker is sound.
pub(super) const SOON: Duration = Duration::from_secs(1);
/// The longest delay of a claim in flight while the broker is not sound.
const ON_THE_WAY: Duration = Duration::from_secs(130);

/// Returns the number of measured takeovers and the longest of them.
pub(super) fn check(
    evidence: &Evidence<'_>,
    book: &Book,
    readings: &Readings,
    found: &mut Vec<String>,
) -> (usize, Heartbeats) {
    let delivered = deliveries(evidence);
    for (id, story) in &book.stories {
        let blind = story.claims.iter().filter(|claim| is_blind(readings, *id, claim));
        for claim in story.takeovers().chain(blind) {
            if let Some(what) = unfounded(evidence, book, *id, claim) {
                let (epoch, by) = (claim.epoch, &claim.by);
                found.push(format!(
                    "{}: {by} took task {id} over in epoch {epoch}: {what}",
                    ids::TAKEOVER
                ));
            }
        }
        retries::check(evidence, readings, *id, story, found);
        if evidence.setting.course != Course::Rough {
            check_adopters(evidence, (&delivered, readings), *id, story, found);
            check_delivered(evidence, &delivered, *id, story, found);
        }
    }
    check_fences(evidence, found);
    match evidence.setting.course {
        Course::Calm => {
            check_ends(evidence, book, found);
            check_useless(evidence, book, found);
        }
        Course::Crashes => {
            check_goodbyes(evidence, book, found);
            return measure(evidence, book, found);
        }
        Course::Cuts | Course::Rough => {}
    }
    (0, Heartbeats::default())
}

/// A duration counted on the slowest clock, as the fastest clock sees it.
pub(super) fn shrunk(time: Duration) -> Duration {
    time.mul_f64(1.0 - 2.0 * f64::from(DRIFT_PPM_MAX) / 1e6)
}

pub(super) fn stretched(time: Duration) -> Duration {
    time.mul_f64(1.0 + 2.0 * f64::from(DRIFT_PPM_MAX) / 1e6)
}

/// The reason why a takeover was wrong, if it was. The owner must have been silent on the ledger
/// for 2 heartbeat intervals; in courses with known troubles, one of them must be the cause. For an
/// owner that left there is no wait, but a claim of it may have been in flight.
fn unfounded(evidence: &Evidence<'_>, book: &Book, id: TaskId, claim: &Claimed) -> Option<String> {
    let owner = claim.before.owner;
    if book.left.get(&owner).is_some_and(|at| *at <= claim.at) {
        return None;
    }
    let published = book.owners.get(&id.partition).and_then(|owners| owners.get(&owner));
    let Some((name, published)) = published else { return Some("of nobody".to_owned()) };
    let patience = shrunk(2 * evidence.setting.heartbeat);
    let recent = claim.at - ON_THE_WAY..=claim.at;
    let recent: Vec<Moment> = published.iter().copied().filter(|at| recent.contains(at)).collect();
    let silence = if recent.is_empty() { ON_THE_WAY } else { longest_silence(&recent, claim.at) };
    if silence < patience {
        return Some(format!("{name} was silent for {silence:?} only"));
    }
    let harmed = |trouble: &Trouble| {
        let until = trouble.until.unwrap_or(claim.at).min(claim.at);
        // The owner's last heartbeat may have been sent up to one heartbeat interval before.
        let silence = until.since(trouble.at) + stretched(evidence.setting.heartbeat) + SOON;
        *trouble.worker == **name && trouble.at <= claim.at && silence >= patience
    };
    let known = evidence.setting.course != Course::Rough;
    let founded = !known || evidence.fleet.troubles.iter().any(harmed);
    (!founded).then(|| format!("nothing was done to {name}"))
}

/// The number of claims that failed because another worker had just taken the task over. Workers
/// without a delivery try a takeover one at a time, each waiting for those before it. Workers that
/// last read of the owner at different times may occasionally try at the same moment.
pub(super) fn at_once(story: &Story) -> usize {
    let rivals = |claim: &Claimed| {
        let near = |at: Moment| at.since(claim.at) < SLOT / 2 && at >= claim.at;
        let lost = story.lost_claims.iter();
        lost.filter(|(epoch, at)| *epoch == claim.epoch && near(*at)).count()
    };
    story.takeovers().map(rivals).sum()
}

/// Checks that a worker claims a new task only if it was delivered to it. Closing a cancelled task
/// is exempt: an empty fold proves nothing.
fn check_delivered(
    evidence: &Evidence<'_>,
    delivered: &Deliveries,
    id: TaskId,
    story: &Story,
    found: &mut Vec<String>,
) {
    let Some(claim) = story.claims.first() else { return };
    if claim.before.cancel && claim.attempt.is_none() {
        return;
    }
    let name: Arc<str> = Arc::from(at(&evidence.names.task, id.partition).to_string());
    let deliveries = delivered.get(&(name, id.entry_id()));
    let own = |(at, by): &(Moment, Arc<str>)| *at <= claim.at && *by == claim.by;
    if !deliveries.into_iter().flatten().any(own) {
        let by = &claim.by;
        found.push(format!("{}: {by} claimed new task {id} without a delivery", ids::ADOPTION));
    }
}

/// Checks that a worker fences itself only if it was cut off for the self-fence time.
fn check_fences(evidence: &Evidence<'_>, found: &mut Vec<String>) {
    let fences = evidence.fleet.totals().self_fences;
    let long = |trouble: &&Trouble| {
        let time = trouble.until.map_or(Duration::ZERO, |until| until.since(trouble.at));
        // The view was up to one heartbeat interval old before.
        time + stretched(evidence.setting.heartbeat) + SOON >= shrunk(evidence.setting.self_fence)
    };
    // Each partition of the ledger fences itself, and once more if the first heartbeat that comes
    // back had waited for the thaw.
    let long = evidence.fleet.troubles.iter().filter(long).count();
    let missed = evidence.broker.with_history(|history| {
        let missed = |event: &&SimulationEvent| matches!(event.what, Happening::Missed { .. });
        history.events().iter().filter(missed).count()
    });
    let causes = (2 * long + missed) * evidence.partitions.len();
    let known = evidence.setting.course != Course::Rough;
    if known && fences > causes {
        found.push(format!("{fences} self-fences, and {causes} could be"));
    }
}

/// Checks that, without faults, a task takes as long as its script and its waits for others.
fn check_ends(evidence: &Evidence<'_>, book: &Book, found: &mut Vec<String>) {
    let max = evidence.setting.max_attempts;
    let longest = |task: &TaskId| evidence.script(*task).unwrap_or_default().longest(max);
    // With one slot for all tasks, they run one after the other. A new partition is found within a
    // minute.
    let work: Duration = evidence.submitted.keys().map(longest).sum();
    let bound = stretched(work) + Duration::from_secs(90);
    for (id, (_, submitted)) in evidence.submitted {
        let Some((ended, ..)) = book.stories.get(id).and_then(|it| it.ended.as_ref()) else {
            continue;
        };
        let took = ended.since(*submitted);
        if took > bound {
            found.push(format!("{}: task {id} took {took:?}, at most {bound:?}", ids::PROGRESS));
        }
    }
}

/// Checks that the key of a checkpoint is removed soon after a later one is stored: a task that
/// runs for days must not collect them.
fn check_useless(evidence: &Evidence<'_>, book: &Book, found: &mut Vec<String>) {
    let soon = stretched(evidence.setting.ledger_retention / 4) + SOON;
    for (id, story) in book.stories.iter().filter(|(_, it)| it.useless_for > soon) {
        let time = story.useless_for;
        found.push(format!(
            "{}: a useless checkpoint of task {id} stayed for {time:?}",
            ids::SEALED
        ));
    }
}

/// Checks that a drained worker has tombstoned its heartbeat keys.
fn check_goodbyes(evidence: &Evidence<'_>, book: &Book, found: &mut Vec<String>) {
    for (worker, _) in &evidence.fleet.left {
        let troubles = evidence.fleet.troubles.iter().filter(|it| it.worker == *worker);
        let only_drained =
            troubles.clone().all(|trouble| trouble.drained && trouble.until.is_none());
        // One that has read the log in place of the view has left the key of its first id to others.
        let one_id = evidence.setting.forgetting == Forgetting::Never;
        if only_drained && one_id && book.heartbeats.contains(worker.as_str()) {
            found.push(format!("{worker} has drained, and its heartbeat key is still there"));
        }
    }
}

/// C-17: when a worker dies or falls silent, its running tasks are taken over within 2 heartbeat
/// intervals and a few slots. The first worker, which has no trouble, has read of them and has a
/// free slot.
fn measure(evidence: &Evidence<'_>, book: &Book, found: &mut Vec<String>) -> (usize, Heartbeats) {
    let heartbeat = evidence.setting.heartbeat;
    let slots = SLOT * (u32::try_from(evidence.setting.workers).unwrap_or(u32::MAX) + 1);
    let bound = stretched(2 * heartbeat) + slots + SOON;
    let (mut measured, mut longest) = (0, Duration::ZERO);
    for trouble in evidence.fleet.troubles.iter().filter(|trouble| !trouble.drained) {
        if trouble.until.is_some_and(|until| until.since(trouble.at) < bound + SOON) {
            continue;
        }
        for (id, story) in &book.stories {
            let Some((claim, next)) = running_at(story, trouble.at) else { continue };
            let knows = |owners: &Owners| {
                let first = owners.values().find(|(name, _)| **name == *"worker-1");
                first.and_then(|(_, published)| published.first().copied())
            };
            let witness = book.owners.get(&id.partition).and_then(knows);
            if *claim.by != *trouble.worker || witness.is_none_or(|since| since + SOON > claim.at) {
                continue;
            }
            let took = next.map(|next| next.since(trouble.at));
            measured += 1;
            match took.filter(|took| *took <= bound) {
                Some(took) => longest = longest.max(took),
                None => {
                    let worker = &trouble.worker;
                    let what = format!("{worker} fell silent, task {id} waited for {took:?}");
                    found.push(format!("{}: {what}, at most {bound:?}", ids::TAKEOVER));
                }
            }
        }
    }
    (measured, Heartbeats::of(longest, heartbeat))
}

/// The claim by which a task runs at a moment, and when its state changed next.
fn running_at(story: &Story, at: Moment) -> Option<(&Claimed, Option<Moment>)> {
    let index = story.claims.iter().rposition(|claim| claim.at <= at)?;
    let claim = story.claims.get(index).filter(|claim| claim.attempt.is_some())?;
    let epoch_ended = match story.claims.get(index + 1) {
        Some(next) if next.before.stand == Stand::Running => Some(next.at),
        Some(next) => Some(next.since),
        None => story.ended.as_ref().map(|(at, ..)| *at),
    };
    epoch_ended.is_none_or(|ended| ended > at).then_some((claim, epoch_ended))
}

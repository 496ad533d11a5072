//! When things may happen, and when they must: takeovers, self-fences, and the end of tasks where
//! nothing goes wrong. Retries: `retries.rs`.

use super::checks::{Book, Evidence, at};
use super::fences::Readings;
use super::fleet::{DRIFT_PPM_MAX, Trouble};
use super::ledger::{Claimed, Owners, Story, longest_silence};
use super::report::Heartbeats;
use super::retries::{self, Deliveries, check_adopters, deliveries, is_blind};
use super::setting::Course;
use crate::checkers::fold::Stand;
use longhaul::TaskId;
use longhaul_core::protocol::invariants as ids;
use longhaul_core::protocol::rank::SLOT;
use longhaul_memory::{Happening, SimulationEvent};
use longhaul_transport::moment::Moment;
use std::sync::Arc;
use std::time::Duration;

/// More than anything takes where the broker is sound.
pub(super) const SOON: Duration = Duration::from_secs(1);
/// A claim that was on its way may be stored so much later, where the broker is not sound.
const ON_THE_WAY: Duration = Duration::from_secs(130);

/// Says how many takeovers were measured, and the longest of them.
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

/// A duration as the fastest clock sees it, counted on the slowest.
pub(super) fn shrunk(time: Duration) -> Duration {
    time.mul_f64(1.0 - 2.0 * f64::from(DRIFT_PPM_MAX) / 1e6)
}

pub(super) fn stretched(time: Duration) -> Duration {
    time.mul_f64(1.0 + 2.0 * f64::from(DRIFT_PPM_MAX) / 1e6)
}

/// Why a takeover should not have been. The owner must have been silent on the ledger for 2 H, and
/// where it is known what was done to the workers, that must be the reason. An owner that left is
/// not waited for: a claim of it may still have been on its way.
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
        // Its last word may have been a heartbeat that was sent up to H before.
        let silence = until.since(trouble.at) + stretched(evidence.setting.heartbeat) + SOON;
        *trouble.worker == **name && trouble.at <= claim.at && silence >= patience
    };
    let known = evidence.setting.course != Course::Rough;
    let founded = !known || evidence.fleet.troubles.iter().any(harmed);
    (!founded).then(|| format!("nothing was done to {name}"))
}

/// How many claims came to nothing since another worker took the task over just before. Of the
/// workers without a delivery one at a time tries that, and each waits for those before it; but who
/// has heard of the owner at other times may come to the same moment once in a while.
pub(super) fn at_once(story: &Story) -> usize {
    let rivals = |claim: &Claimed| {
        let near = |at: Moment| at.since(claim.at) < SLOT / 2 && at >= claim.at;
        let lost = story.lost_claims.iter();
        lost.filter(|(epoch, at)| *epoch == claim.epoch && near(*at)).count()
    };
    story.takeovers().map(rivals).sum()
}

/// Nobody claims a new task that was not delivered to it, unless to close it because it was
/// cancelled: an empty fold proves nothing.
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

/// Nobody fences itself who was not cut off for G.
fn check_fences(evidence: &Evidence<'_>, found: &mut Vec<String>) {
    let fences = evidence.fleet.totals().self_fences;
    let long = |trouble: &&Trouble| {
        let time = trouble.until.map_or(Duration::ZERO, |until| until.since(trouble.at));
        // The view was up to H old before.
        time + stretched(evidence.setting.heartbeat) + SOON >= shrunk(evidence.setting.self_fence)
    };
    // Each partition of the ledger fences itself, and once more when the first heartbeat that comes
    // back had waited for the thaw.
    let long = evidence.fleet.troubles.iter().filter(long).count();
    let missed = evidence.broker.look_at_history(|history| {
        let missed = |event: &&SimulationEvent| matches!(event.what, Happening::Missed { .. });
        history.events().iter().filter(missed).count()
    });
    let causes = (2 * long + missed) * evidence.partitions.len();
    let known = evidence.setting.course != Course::Rough;
    if known && fences > causes {
        found.push(format!("{fences} self-fences, and {causes} could be"));
    }
}

/// Where nothing goes wrong a task takes as long as its script, and as long as it waits for others.
fn check_ends(evidence: &Evidence<'_>, book: &Book, found: &mut Vec<String>) {
    let max = evidence.setting.max_attempts;
    let longest = |task: &TaskId| evidence.script(*task).unwrap_or_default().longest(max);
    // With one slot for all of them, they run one after the other; a partition that was added is
    // seen within a minute.
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

/// The key of a checkpoint goes soon after there is a later one: a task that runs for days leaves
/// no pile of them.
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

/// Whoever has drained has said goodbye.
fn check_goodbyes(evidence: &Evidence<'_>, book: &Book, found: &mut Vec<String>) {
    for (worker, _) in &evidence.fleet.left {
        let troubles = evidence.fleet.troubles.iter().filter(|it| it.worker == *worker);
        let only_drained =
            troubles.clone().all(|trouble| trouble.drained && trouble.until.is_none());
        if only_drained && book.heartbeats.contains(worker.as_str()) {
            found.push(format!("{worker} has drained, and its heartbeat key is still there"));
        }
    }
}

/// C-17: when a worker dies or falls silent, what it runs is taken over within 2 H and a few slots:
/// the first worker, to which nothing happens, has read of it and has a slot.
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

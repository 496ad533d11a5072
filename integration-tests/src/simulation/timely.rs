//! When things may happen, and when they must: takeovers, self-fences, retries, and the end of tasks where nothing goes wrong.

use super::checks::{Book, Evidence, at};
use super::fleet::{DRIFT_PPM_MAX, Trouble};
use super::ledger::{Claimed, Owners, Story, longest_silence};
use super::report::Heartbeats;
use super::setting::Course;
use crate::checkers::fold::Stand;
use longhaul::protocol::invariants as ids;
use longhaul::protocol::moment::Moment;
use longhaul::protocol::rank::SLOT;
use longhaul::protocol::retry::RetryPolicy;
use longhaul::transport::memory::Happening;
use longhaul::{EntryId, TaskId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// More than anything takes where the broker is sound.
const SOON: Duration = Duration::from_secs(1);
/// A claim that was on its way may be stored so much later, where the broker is not sound.
const ON_THE_WAY: Duration = Duration::from_secs(130);

/// Says how many takeovers were measured, and the longest of them.
pub(super) fn check(
    evidence: &Evidence<'_>,
    book: &Book,
    found: &mut Vec<String>,
) -> (usize, Heartbeats) {
    let delivered = deliveries(evidence);
    for (id, story) in &book.stories {
        for claim in story.takeovers() {
            if let Some(what) = unfounded(evidence, book, *id, claim) {
                let (epoch, by) = (claim.epoch, &claim.by);
                found.push(format!(
                    "{}: {by} took task {id} over in epoch {epoch}: {what}",
                    ids::TAKEOVER
                ));
            }
        }
        check_backoff(evidence, *id, story, found);
        if evidence.setting.course != Course::Rough {
            check_turns(*id, story, found);
            check_delivered(evidence, &delivered, *id, story, found);
        }
    }
    check_fences(evidence, found);
    match evidence.setting.course {
        Course::Calm => check_ends(evidence, book, found),
        Course::Crashes => {
            check_goodbyes(evidence, book, found);
            return measure(evidence, book, found);
        }
        Course::Rough => {}
    }
    (0, Heartbeats::default())
}

/// A duration as the fastest clock sees it, counted on the slowest.
fn shrunk(time: Duration) -> Duration {
    time.mul_f64(1.0 - 2.0 * f64::from(DRIFT_PPM_MAX) / 1e6)
}

fn stretched(time: Duration) -> Duration {
    time.mul_f64(1.0 + 2.0 * f64::from(DRIFT_PPM_MAX) / 1e6)
}

/// Why a takeover should not have been. The owner must have been silent on the ledger for 2 H, and where it is known what was done to
/// the workers, that must be the reason.
fn unfounded(evidence: &Evidence<'_>, book: &Book, id: TaskId, claim: &Claimed) -> Option<String> {
    let owner = claim.before.owner;
    let published = book.owners.get(&id.partition).and_then(|owners| owners.get(&owner));
    let Some((name, published)) = published else { return Some("of nobody".to_owned()) };
    let patience = shrunk(2 * evidence.setting.heartbeat);
    let from = claim.at - ON_THE_WAY;
    let recent: Vec<Moment> = published.iter().copied().filter(|at| *at >= from).collect();
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

/// Of the workers without a delivery one at a time tries to take a task over: each waits for those before it.
fn check_turns(id: TaskId, story: &Story, found: &mut Vec<String>) {
    for claim in story.takeovers() {
        let near = |at: Moment| at.since(claim.at) < SLOT / 2 && at >= claim.at;
        let rivals = story.lost_claims.iter();
        let rivals = rivals.filter(|(epoch, at)| *epoch == claim.epoch && near(*at)).count();
        if rivals > 0 {
            let what =
                format!("{rivals} others claimed epoch {} of task {id} at once", claim.epoch);
            found.push(format!("{}: {what}", ids::TAKEOVER));
        }
    }
}

/// When each entry of the task topic came to whom.
type Deliveries = BTreeMap<(Arc<str>, EntryId), Vec<(Moment, Arc<str>)>>;

fn deliveries(evidence: &Evidence<'_>) -> Deliveries {
    let mut deliveries = Deliveries::new();
    evidence.broker.look_at_history(|history| {
        for event in history.events() {
            if let Happening::Received { by, partition, position, subscription: Some(_), .. } =
                &event.what
            {
                let key = (Arc::clone(partition), position.entry_id());
                deliveries.entry(key).or_default().push((event.at, Arc::clone(by)));
            }
        }
    });
    deliveries
}

/// Nobody claims a new task that was not delivered to it: an empty fold proves nothing.
fn check_delivered(
    evidence: &Evidence<'_>,
    delivered: &Deliveries,
    id: TaskId,
    story: &Story,
    found: &mut Vec<String>,
) {
    let Some(claim) = story.claims.first() else { return };
    let name: Arc<str> = Arc::from(at(&evidence.names.task, id.partition).to_string());
    let deliveries = delivered.get(&(name, id.entry_id()));
    let own = |(at, by): &(Moment, Arc<str>)| *at <= claim.at && *by == claim.by;
    if !deliveries.into_iter().flatten().any(own) {
        let by = &claim.by;
        found.push(format!("{}: {by} claimed new task {id} without a delivery", ids::ADOPTION));
    }
}

/// A retry waits as long as was drawn for it, and no longer than its ceiling.
fn check_backoff(evidence: &Evidence<'_>, id: TaskId, story: &Story, found: &mut Vec<String>) {
    for (epoch, failed, delay) in &story.failures {
        let delay = Duration::from_millis(*delay);
        let attempt = attempt_of(story, *epoch);
        let told = evidence.script(id).is_some_and(|script| script.chooses_delay(attempt));
        if !told && delay > RetryPolicy::default().ceiling(attempt) {
            found.push(format!("task {id} waits for {delay:?} after attempt {attempt}"));
        }
        let next = story.claims.iter().find(|claim| claim.epoch == epoch + 1);
        let early = |claim: &&Claimed| {
            claim.attempt.is_some() && claim.at.since(*failed) + SLOT < shrunk(delay)
        };
        if evidence.setting.course == Course::Calm && next.is_some_and(|it| early(&it)) {
            found.push(format!("task {id} did not wait for its attempt after epoch {epoch}"));
        }
    }
}

fn attempt_of(story: &Story, epoch: u32) -> u32 {
    let claim = story.claims.iter().find(|claim| claim.epoch == epoch);
    claim.and_then(|claim| claim.attempt).unwrap_or_default()
}

/// Waits after a later attempt that are longer than any after the first may be.
pub(super) fn long_backoffs(evidence: &Evidence<'_>, id: TaskId, story: &Story) -> usize {
    let first = RetryPolicy::default().ceiling(1);
    let long = |(epoch, _, delay): &&(u32, Moment, u64)| {
        let attempt = attempt_of(story, *epoch);
        let told = evidence.script(id).is_some_and(|script| script.chooses_delay(attempt));
        Duration::from_millis(*delay) > first && !told
    };
    story.failures.iter().filter(long).count()
}

/// Nobody fences itself who was not cut off for G.
fn check_fences(evidence: &Evidence<'_>, found: &mut Vec<String>) {
    let fences = evidence.fleet.totals().self_fences;
    let long = |trouble: &&Trouble| {
        let time = trouble.until.map_or(Duration::ZERO, |until| until.since(trouble.at));
        // The view was up to H old before.
        time + stretched(evidence.setting.heartbeat) + SOON >= shrunk(evidence.setting.self_fence)
    };
    // Each partition of the ledger fences itself, and once more when the first heartbeat that comes back had waited for the thaw.
    let long = evidence.fleet.troubles.iter().filter(long).count();
    let causes = 2 * long * evidence.partitions.len();
    let known = evidence.setting.course != Course::Rough;
    if known && fences > causes {
        found.push(format!("{fences} self-fences, and {causes} could be"));
    }
}

/// Where nothing goes wrong a task takes as long as its script, and as long as it waits for others.
fn check_ends(evidence: &Evidence<'_>, book: &Book, found: &mut Vec<String>) {
    let policy = RetryPolicy::default();
    let max = evidence.setting.attempts_max;
    let longest = |task: &TaskId| {
        let script = evidence.script(*task).unwrap_or_default();
        script.longest(max, |attempt| policy.ceiling(attempt))
    };
    // With one slot for all of them, they run one after the other; a partition that was added is seen within a minute.
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

/// C-17: when a worker dies or falls silent, what it runs is taken over within 2 H and a few slots: the first worker, to which nothing
/// happens, has read of it and has a slot.
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

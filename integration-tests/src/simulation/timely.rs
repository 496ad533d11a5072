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
use longhaul::transport::memory::{Event, Happening};
use longhaul::{EntryId, TaskId};
use std::collections::BTreeMap;
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
        check_due(evidence, *id, story, found);
        if evidence.setting.course == Course::Cuts {
            check_prompt(evidence, *id, story, found);
        }
        if evidence.setting.course != Course::Rough {
            check_adopters(evidence, &delivered, *id, story, found);
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

/// Why a takeover should not have been. The owner must have been silent on the ledger for 2 H, and where it is known what was done to
/// the workers, that must be the reason.
fn unfounded(evidence: &Evidence<'_>, book: &Book, id: TaskId, claim: &Claimed) -> Option<String> {
    let owner = claim.before.owner;
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

/// How many claims came to nothing since another worker took the task over just before. Of the workers without a delivery one at a time tries
/// that, and each waits for those before it; but who has heard of the owner at other times may come to the same moment once in a while.
pub(super) fn at_once(story: &Story) -> usize {
    let rivals = |claim: &Claimed| {
        let near = |at: Moment| at.since(claim.at) < SLOT / 2 && at >= claim.at;
        let lost = story.lost_claims.iter();
        lost.filter(|(epoch, at)| *epoch == claim.epoch && near(*at)).count()
    };
    story.takeovers().map(rivals).sum()
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

/// A retry is claimed when it is due, and not before, also by whoever has just read the ledger from its start. Where wall clocks are
/// wrong that one cannot know better.
fn check_due(evidence: &Evidence<'_>, id: TaskId, story: &Story, found: &mut Vec<String>) {
    if evidence.setting.skewed {
        return;
    }
    for claim in story.claims.iter().filter(|it| it.attempt.is_some() && !it.before.cancel) {
        let due = due(evidence, claim);
        if claim.sent + SLOT / 10 < due {
            let Claimed { by, epoch, .. } = claim;
            let early = due.since(claim.sent);
            found.push(format!("{by} claimed epoch {epoch} of task {id} {early:?} too early"));
        }
    }
}

/// A retry is claimed soon after it is due, unless something was away just then; also when its payload could not be read at first.
fn check_prompt(evidence: &Evidence<'_>, id: TaskId, story: &Story, found: &mut Vec<String>) {
    // Reads that fail four times in a row wait half a second, and each time twice as long.
    const READ_WITHIN: Duration = Duration::from_secs(8);
    let setting = evidence.setting;
    if setting.skewed {
        return;
    }
    let slots = SLOT * (u32::try_from(setting.workers).unwrap_or(u32::MAX) + 1);
    let soon = READ_WITHIN + stretched(4 * setting.heartbeat) + slots + SOON;
    for claim in story.claims.iter().filter(|it| matches!(it.before.stand, Stand::Waiting(_))) {
        let due = due(evidence, claim).max(claim.since);
        let near = |(from, until): &&(Moment, Moment)| *from <= due + soon && *until + soon >= due;
        let disturbed = evidence.fleet.disturbed.iter().any(|it| near(&it));
        if !disturbed && claim.sent > due + soon {
            let (epoch, late) = (claim.epoch, claim.sent.since(due));
            let what = format!("epoch {epoch} of task {id} was claimed {late:?} after it was due");
            found.push(format!("{}: {what}", ids::PROGRESS));
        }
    }
}

/// When the state that a claim met was due, by right wall clocks.
fn due(evidence: &Evidence<'_>, claim: &Claimed) -> Moment {
    let Stand::Waiting(next) = claim.before.stand else { return Moment::default() };
    let clock = evidence.broker.clock();
    let began_ms = clock.wall_ms() - longhaul::clock::as_millis(clock.now().0);
    let asked = Moment(Duration::from_millis(next.at_ms.saturating_sub(began_ms)));
    (claim.since + Duration::from_millis(next.delay_ms)).min(asked)
}

/// Whoever takes a retry without a delivery waits longer than all who have one, and then for its turn.
fn check_adopters(
    evidence: &Evidence<'_>,
    delivered: &Deliveries,
    id: TaskId,
    story: &Story,
    found: &mut Vec<String>,
) {
    for claim in story.claims.iter().filter(|it| is_adopted(evidence, delivered, id, story, it)) {
        let due = if evidence.setting.skewed { claim.since } else { due(evidence, claim) };
        let waits = shrunk(2 * evidence.setting.heartbeat + SLOT);
        if claim.sent.since(due) + SLOT / 10 < waits {
            let Claimed { by, epoch, .. } = claim;
            let waited = claim.sent.since(due);
            let what = format!("{by} waited {waited:?} to adopt epoch {epoch} of task {id}");
            found.push(format!("{}: {what}, at least {waits:?}", ids::TAKEOVER));
        }
    }
}

/// Whether a claim took a retry that its worker had neither run nor been given.
fn is_adopted(
    evidence: &Evidence<'_>,
    delivered: &Deliveries,
    id: TaskId,
    story: &Story,
    claim: &Claimed,
) -> bool {
    let name: Arc<str> = Arc::from(at(&evidence.names.task, id.partition).to_string());
    let deliveries = delivered.get(&(name, id.entry_id())).into_iter().flatten();
    let held = deliveries.into_iter().any(|(at, by)| *at <= claim.at && *by == claim.by);
    let last = story.claims.iter().find(|it| it.epoch == claim.before.epoch);
    let waits = matches!(claim.before.stand, Stand::Waiting(_));
    claim.attempt.is_some() && waits && !held && last.is_none_or(|last| last.by != claim.by)
}

/// How many retries were adopted.
pub(super) fn adopted(evidence: &Evidence<'_>, book: &Book) -> usize {
    let delivered = deliveries(evidence);
    let count = |(id, story): (&TaskId, &Story)| {
        story.claims.iter().filter(|it| is_adopted(evidence, &delivered, *id, story, it)).count()
    };
    book.stories.iter().map(count).sum()
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
    let missed = evidence.broker.look_at_history(|history| {
        let missed = |event: &&Event| matches!(event.what, Happening::Missed { .. });
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

/// The key of a checkpoint goes soon after there is a later one: a task that runs for days leaves no pile of them.
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

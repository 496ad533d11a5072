//! Retries: the earliest and latest claim of the next attempt of a task.

use super::checks::{Book, Evidence, at};
use super::fences::Readings;
use super::fleet::Trouble;
use super::ledger::{Claimed, Story};
use super::setting::Course;
use super::timely::{SOON, shrunk, stretched};
use crate::checkers::fold::Stand;
use longhaul::{EntryId, Position, TaskId};
use longhaul_core::protocol::entry::AttemptCause;
use longhaul_core::protocol::invariants as ids;
use longhaul_core::protocol::rank::SLOT;
use longhaul_core::protocol::retry::RetryPolicy;
use longhaul_memory::Happening;
use longhaul_transport::moment::Moment;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn check(
    evidence: &Evidence<'_>,
    readings: &Readings,
    id: TaskId,
    story: &Story,
    found: &mut Vec<String>,
) {
    check_backoff(evidence, id, story, found);
    check_due(evidence, readings, id, story, found);
    if evidence.setting.course == Course::Cuts {
        check_prompt(evidence, id, story, found);
    }
}

/// The deliveries of each entry of the task topic: time and worker.
pub(super) type Deliveries = BTreeMap<(Arc<str>, EntryId), Vec<(Moment, Arc<str>)>>;

pub(super) fn deliveries(evidence: &Evidence<'_>) -> Deliveries {
    let mut deliveries = Deliveries::new();
    evidence.broker.with_history(|history| {
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

/// Checks that a retry is not claimed before it is due, also not by a worker that has just read the
/// ledger from its start. Does not apply with wrong wall clocks, by which such a worker goes.
fn check_due(
    evidence: &Evidence<'_>,
    readings: &Readings,
    id: TaskId,
    story: &Story,
    found: &mut Vec<String>,
) {
    if evidence.setting.skewed {
        return;
    }
    let knew = |it: &&Claimed| !is_blind(readings, id, it);
    let runs = story.claims.iter().filter(|it| it.attempt.is_some() && !it.before.cancel);
    for claim in runs.filter(knew) {
        let due = due(evidence, claim);
        if claim.sent + SLOT / 10 < due {
            let Claimed { by, epoch, .. } = claim;
            let early = due.since(claim.sent);
            found.push(format!("{by} claimed epoch {epoch} of task {id} {early:?} too early"));
        }
    }
}

/// Checks that a retry is claimed soon after it is due, also if its payload could not be read at
/// first. Does not apply if something was away just then.
fn check_prompt(evidence: &Evidence<'_>, id: TaskId, story: &Story, found: &mut Vec<String>) {
    let setting = evidence.setting;
    if setting.skewed {
        return;
    }
    let slots = SLOT * (u32::try_from(setting.workers).unwrap_or(u32::MAX) + 1);
    for claim in &story.claims {
        // Each worker counts the delay from reading the outcome, which may have been in flight for
        // as long as the ledger was away.
        let Stand::Waiting(next) = claim.before.stand else { continue };
        if next.after == AttemptCause::Others {
            // `waits.rs` checks these.
            continue;
        }
        let due = claim.since + Duration::from_millis(next.delay_ms) + stood_still(evidence, claim);
        let reads = reads_that_failed(evidence, id, claim, due);
        let soon = reads + stretched(4 * setting.heartbeat) + slots + SOON;
        let near = |(from, until): &&(Moment, Moment)| *from <= due + soon && *until + soon >= due;
        let disturbed = evidence.fleet.disturbed.iter().any(|it| near(&it));
        if !disturbed && claim.sent > due + soon {
            let (epoch, late) = (claim.epoch, claim.sent.since(due));
            let what = format!("epoch {epoch} of task {id} was claimed {late:?} after it was due");
            found.push(format!("{}: {what}", ids::PROGRESS));
        }
    }
}

/// The time for which the claiming worker's clock stood still during its wait.
fn stood_still(evidence: &Evidence<'_>, claim: &Claimed) -> Duration {
    let still = evidence.fleet.troubles.iter().filter(|it| it.stood_still);
    let meanwhile =
        |it: &&Trouble| *it.worker == *claim.by && it.at >= claim.since && it.at <= claim.sent;
    still.filter(meanwhile).map(|it| it.until.map_or(Duration::ZERO, |end| end.since(it.at))).sum()
}

/// The wait of a claim, after its task was due, because of failed reads of the payload: each time
/// twice as long as before, until one succeeds. The number of failures in a row is unlimited: the
/// next cut adds to what the last one left over.
fn reads_that_failed(
    evidence: &Evidence<'_>,
    id: TaskId,
    claim: &Claimed,
    due: Moment,
) -> Duration {
    const FIRST_WAIT: Duration = Duration::from_millis(500);
    const DOUBLINGS_MAX: u32 = 6;
    let name = at(&evidence.names.task, id.partition).to_string();
    let own = |who: &str, partition: &str, position: &Position| {
        *who == *claim.by && *partition == *name && *position == id.position()
    };
    evidence.broker.with_history(|history| {
        let (mut waits, mut in_a_row, mut reads) = (Duration::ZERO, 0_u32, false);
        for event in history.events().iter().take_while(|event| event.at <= claim.sent) {
            if let Happening::Fetched { by, partition, position } = &event.what
                && own(by, partition, position)
                && std::mem::replace(&mut reads, true)
            {
                in_a_row = 0;
            }
            if let Happening::Unread { by, partition, position } = &event.what
                && own(by, partition, position)
            {
                reads = false;
                let wait = FIRST_WAIT * (1 << in_a_row.min(DOUBLINGS_MAX));
                in_a_row += 1;
                waits += if event.at + wait > due { wait } else { Duration::ZERO };
            }
        }
        waits
    })
}

/// Whether a claim was sent before its worker had read the outcome that led to the state before the
/// claim. The worker then took over a running task of a silent owner, by its knowledge. No clock
/// decides which of the two entries the ledger accepts first.
pub(super) fn is_blind(readings: &Readings, id: TaskId, claim: &Claimed) -> bool {
    let Some(met) = claim.met.filter(|_| matches!(claim.before.stand, Stand::Waiting(_))) else {
        return false;
    };
    let reading = readings.get(&(Arc::clone(&claim.by), id.partition));
    let had_read = |(at, position): &(Moment, Position)| *position == met && *at <= claim.sent;
    !reading.is_some_and(|reading| reading.read.iter().any(had_read))
}

/// The due time of the state before a claim, by right wall clocks.
fn due(evidence: &Evidence<'_>, claim: &Claimed) -> Moment {
    let Stand::Waiting(next) = claim.before.stand else { return Moment::default() };
    (claim.since + Duration::from_millis(next.delay_ms)).min(evidence.at_ms(next.at_ms))
}

/// Checks that a worker that adopts a retry without a delivery waits longer than workers with one,
/// and then for its slot. An offered task is taken at once.
pub(super) fn check_adopters(
    evidence: &Evidence<'_>,
    (delivered, readings): (&Deliveries, &Readings),
    id: TaskId,
    story: &Story,
    found: &mut Vec<String>,
) {
    let adopted = |it: &&Claimed| {
        let offered = matches!(&it.before.stand, Stand::Waiting(next) if next.is_offered());
        !offered && is_adopted(evidence, delivered, id, story, it) && !is_blind(readings, id, it)
    };
    for claim in story.claims.iter().filter(adopted) {
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

/// The number of adopted retries.
pub(super) fn adopted(evidence: &Evidence<'_>, book: &Book) -> usize {
    let delivered = deliveries(evidence);
    let count = |(id, story): (&TaskId, &Story)| {
        story.claims.iter().filter(|it| is_adopted(evidence, &delivered, *id, story, it)).count()
    };
    book.stories.iter().map(count).sum()
}

/// Checks that a retry waits for its drawn delay, up to the ceiling. A retry of an unreadable
/// payload waits long.
fn check_backoff(evidence: &Evidence<'_>, id: TaskId, story: &Story, found: &mut Vec<String>) {
    for (epoch, failed, delay) in &story.failures {
        let delay = Duration::from_millis(*delay);
        let attempt = attempt_of(story, *epoch);
        let script = evidence.script(id).unwrap_or_default();
        let (least, most) = script.backoff(attempt);
        if !script.chooses_delay(attempt) && !(least..=most).contains(&delay) {
            found.push(format!("task {id} waits for {delay:?} after attempt {attempt}"));
        }
        let next = story.claims.iter().find(|claim| claim.epoch == epoch + 1);
        // A worker that has just taken up a partition goes by the wall clock.
        let known = !(evidence.setting.skewed && evidence.setting.grows);
        let early = |claim: &&Claimed| {
            known && claim.attempt.is_some() && claim.at.since(*failed) + SLOT < shrunk(delay)
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

/// The number of waits after a later attempt that exceed the ceiling after the first one.
pub(super) fn long_backoffs(evidence: &Evidence<'_>, id: TaskId, story: &Story) -> usize {
    let first = RetryPolicy::default().ceiling(1);
    let long = |(epoch, _, delay): &&(u32, Moment, u64)| {
        let attempt = attempt_of(story, *epoch);
        let script = evidence.script(id).unwrap_or_default();
        let told = script.broken || script.chooses_delay(attempt);
        Duration::from_millis(*delay) > first && !told
    };
    story.failures.iter().filter(long).count()
}

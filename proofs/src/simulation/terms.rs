//! Start times and expiry in tasks' messages: no task starts before its time, none is claimed after
//! it has expired, and none that had begun expires.

use super::checks::{Book, Evidence};
use super::fleet::SKEW_MAX;
use super::ledger::{Claimed, Story};
use super::setting::Course;
use super::timely::stretched;
use crate::checkers::fold::{End, Stand};
use longhaul::TaskId;
use longhaul_core::protocol::entry::AttemptCause;
use longhaul_core::protocol::invariants as ids;
use longhaul_transport::moment::Moment;
use std::time::Duration;

/// The most time between a look at the clock and an entry.
const SOON: Duration = Duration::from_secs(1);

pub(super) fn check(evidence: &Evidence<'_>, book: &Book, found: &mut Vec<String>) {
    // A machine that stood still, and a process that was frozen, do late what was right when they
    // looked.
    let timely = matches!(evidence.setting.course, Course::Calm | Course::Crashes);
    let skew = if evidence.setting.skewed { SKEW_MAX } else { Duration::ZERO };
    for (id, (_, submitted)) in evidence.submitted {
        let Some(story) = book.stories.get(id) else { continue };
        let script = evidence.script(*id).unwrap_or_default();
        let first = story.claims.first();
        let mut wrong = |what: String| found.push(format!("{}: task {id} {what}", ids::START));
        if let (Some(delay), Some(claim)) = (script.delay, first.filter(|it| it.attempt.is_some()))
        {
            let waited = claim.at.since(*submitted);
            if stretched(waited) + SOON / 10 < delay {
                wrong(format!("was claimed after {waited:?}, before its time after {delay:?}"));
            }
        }
        let expired = story.state.end() == Some(End::Expired);
        let Some(expires) = script.expires else {
            if expired {
                wrong("expired, and never does".to_owned());
            }
            continue;
        };
        let (from, to) = window(*submitted + expires, skew);
        if expired && story.ended.as_ref().is_some_and(|(at, ..)| *at < from) {
            wrong(format!("expired before its time after {expires:?}"));
        }
        if expired && story.claims.last().is_some_and(|last| !may_expire(last)) {
            wrong("expired although it had begun".to_owned());
        }
        let late =
            |claim: &&Claimed| claim.attempt.is_some() && may_expire(claim) && claim.sent > to;
        if let Some(late) = story.claims.iter().find(late).filter(|_| timely) {
            let (epoch, after) = (late.epoch, late.sent.since(*submitted));
            wrong(format!(
                "was claimed in epoch {epoch} after {after:?}, and expired after {expires:?}"
            ));
        }
    }
}

/// The earliest and latest time at which a worker may see a moment as past.
fn window(at: Moment, skew: Duration) -> (Moment, Moment) {
    (Moment(at.0.saturating_sub(skew + SOON)), at + skew + SOON)
}

/// Whether the task had not begun when the claim was made, or waited for another attempt.
fn may_expire(claim: &Claimed) -> bool {
    match claim.before.stand {
        Stand::New => true,
        Stand::Waiting(next) => next.after != AttemptCause::Drain,
        Stand::Running | Stand::Ended(_) => false,
    }
}

/// Whether the task waited only for its start time.
pub(super) fn was_delayed(evidence: &Evidence<'_>, id: TaskId, story: &Story) -> bool {
    let script = evidence.script(id).unwrap_or_default();
    let submitted = evidence.submitted.get(&id).map(|(_, at)| *at).unwrap_or_default();
    let waited = story.claims.first().map(|claim| claim.at.since(submitted));
    script.delay.is_some_and(|delay| {
        delay > 2 * SOON
            && waited.is_some_and(|waited| waited < delay + 2 * SOON && waited + SOON > delay)
    })
}

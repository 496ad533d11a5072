//! Tracks refusals by the ledger, entry by entry, in sessions that go on. A refused claim is
//! retried every second, and without a log line the reason would stay hidden; refused seals and
//! tombstones let the ledger grow. A refusal is logged when it begins and when its cause changes.

use super::lanes::LaneId;
use super::{PublishResult, WorkerDriver};
use longhaul_core::protocol::moment::Moment;
use std::time::Duration;

/// After this time without a refusal, the next one is logged again, whatever its cause.
const QUIET: Duration = Duration::from_secs(60);

/// The last refusal and its time.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    last: Option<(String, Moment)>,
}

impl Refusals {
    /// Notes a refusal. Returns whether to log it.
    pub(super) fn is_news(&mut self, cause: &str, now: Moment) -> bool {
        let known = |(last, at): &(String, Moment)| last == cause && now.since(*at) < QUIET;
        let news = !self.last.as_ref().is_some_and(known);
        self.last = Some((cause.to_owned(), now));
        news
    }
}

impl WorkerDriver {
    /// Notes whether a ledger entry was stored.
    pub(super) fn record_fate(&mut self, id: LaneId, fate: &PublishResult, now: Moment) {
        let (Some(lane), PublishResult::Refused(cause)) = (self.lanes.get_mut(&id), fate) else {
            return;
        };
        if lane.refusals.is_news(cause, now) {
            let topic = &lane.topics.ledger;
            tracing::error!(%topic, cause, "the ledger refuses entries until a permission or a setting is changed; still trying");
            self.stats.counted().refusals += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_when_it_begins_when_it_changes_and_after_a_pause() {
        let mut refusals = Refusals::default();
        let mut news = |cause, second| refusals.is_news(cause, Moment(Duration::from_secs(second)));
        assert!(news("too large", 0));
        for second in 1..200 {
            assert!(!news("too large", second));
        }
        assert!(news("no schema", 200));
        assert!(news("too large", 201));
        assert!(!news("too large", 260));
        assert!(news("too large", 320));
    }
}

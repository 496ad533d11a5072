//! Remembers where topics have moved. A reopened topic is looked for there first.

use super::machine::call::TopicRedirect;
use super::options::Endpoint;
use longhaul_types::moment::Moment;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Topics that are remembered. A forgotten topic costs a lookup.
const DETOURS_MAX: usize = 10_000;
/// How long a broker's redirect to another broker is valid; after that, a lookup finds the new
/// broker too.
const ASSIGNED_TIME_MAX: Duration = Duration::from_secs(60);

/// The new place of a topic, and the broker that reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Detour {
    pub(super) moved: TopicRedirect,
    /// The other end of the connection that reported it.
    pub(super) by: Endpoint,
    /// Whether `by` is a proxy.
    pub(super) proxied: bool,
}

/// By topic, with the time of the report.
#[derive(Debug, Default)]
pub(super) struct Detours(Mutex<HashMap<String, (Detour, Moment)>>);

impl Detours {
    pub(super) fn note(&self, detour: Detour, now: Moment) {
        let mut detours = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if detours.len() < DETOURS_MAX || detours.contains_key(&detour.moved.topic) {
            detours.insert(detour.moved.topic.clone(), (detour, now));
        }
    }

    /// Removes and returns where a topic has moved. A caller that reaches the topic there notes it
    /// again.
    pub(super) fn take(&self, topic: &str, now: Moment) -> Option<Detour> {
        let mut detours = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (detour, at) = detours.remove(topic)?;
        let is_fresh = detour.moved.migrated || now < at + ASSIGNED_TIME_MAX;
        is_fresh.then_some(detour)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::endpoints;

    fn detour(topic: &str, migrated: bool) -> Detour {
        let (url, url_tls) = ("pulsar://there:1".to_owned(), String::new());
        let moved = TopicRedirect { topic: topic.to_owned(), url, url_tls, migrated };
        let by = endpoints("pulsar://here:1").unwrap().swap_remove(0);
        Detour { moved, by, proxied: false }
    }

    /// The next broker may move the topic again, and a report that is a minute old would lead back.
    /// A topic that migrated to another cluster stays there.
    #[test]
    fn a_broker_is_believed_for_a_minute_and_another_cluster_for_good() {
        let at = |seconds| Moment(Duration::from_secs(seconds));
        let almost = Moment(Duration::from_millis(159_999));
        for (migrated, asked, believed) in [
            (false, at(100), true),
            (false, almost, true),
            (false, at(160), false),
            (true, at(160), true),
            (true, at(100_000), true),
        ] {
            let detours = Detours::default();
            detours.note(detour("t", migrated), at(100));
            let expected = believed.then(|| detour("t", migrated));
            assert_eq!(detours.take("t", asked), expected, "{migrated}, {asked:?}");
            assert_eq!(detours.take("t", asked), None, "it is said once");
        }
    }

    /// A cluster with very many topics must not fill the client's memory.
    #[test]
    fn no_more_than_so_many_are_remembered() {
        let detours = Detours::default();
        let now = Moment::default();
        let name = |number: usize| format!("t{number}");
        for number in 0..=DETOURS_MAX {
            detours.note(detour(&name(number), false), now);
        }
        assert_eq!(detours.take(&name(DETOURS_MAX), now), None, "one too many");
        // The newest report about a topic is kept even if there is no room for another topic.
        detours.note(detour("t1", false), now);
        detours.note(detour("t2", false), now);
        detours.note(detour("t1", true), now);
        assert_eq!(detours.take("t1", now), Some(detour("t1", true)));
        assert_eq!(
            detours.take(&name(DETOURS_MAX - 1), now).map(|detour| detour.moved.migrated),
            Some(false)
        );
    }
}

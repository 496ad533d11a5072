//! Topics by ranges of their names.

use super::{BrokerState, BrokerTopic, ResourceSettings};
use std::ops::Bound;

/// Some topics, and the name of the next one if there are more.
pub type TopicSlice = (Vec<u32>, Option<String>);

/// Takes at most `most` of these topics.
fn slice<'a>(mut names: impl Iterator<Item = (&'a String, &'a u32)>, most: usize) -> TopicSlice {
    let topics = names.by_ref().take(most).map(|(_, &id)| id).collect();
    (topics, names.next().map(|(name, _)| name.clone()))
}

impl BrokerState {
    /// The topics whose full name begins with this text, with their ids, by name.
    pub fn topics_named<'a>(
        &'a self,
        start: &'a str,
    ) -> impl Iterator<Item = (u32, &'a BrokerTopic)> {
        self.topics_named_after(start, "")
    }

    /// Those of them whose name comes after this one.
    pub fn topics_named_after<'a>(
        &'a self,
        start: &'a str,
        after: &'a str,
    ) -> impl Iterator<Item = (u32, &'a BrokerTopic)> {
        let from = if after < start { Bound::Included(start) } else { Bound::Excluded(after) };
        let names = self
            .names
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(move |named| named.0.starts_with(start));
        names.filter_map(|(_, id)| Some((*id, self.topics.get(id)?)))
    }

    /// The settings of the topics whose full names begin with this text.
    pub fn settings_of_topics(&self, start: &str) -> impl Iterator<Item = &ResourceSettings> {
        self.settings
            .iter()
            .filter(move |setting| setting.0.starts_with(start))
            .map(|setting| setting.1)
    }

    /// At most this many topics from this name on, by name.
    #[must_use]
    pub fn topics_from(&self, from: &str, most: usize) -> TopicSlice {
        slice(self.names.range::<str, _>((Bound::Included(from), Bound::Unbounded)), most)
    }

    /// Like [`topics_from`](Self::topics_from), and goes on with the first topic after the last one.
    #[must_use]
    pub fn topics_around(&self, from: &str, most: usize) -> TopicSlice {
        let behind = self.names.range::<str, _>((Bound::Included(from), Bound::Unbounded));
        let before = self.names.range::<str, _>((Bound::Unbounded, Bound::Excluded(from)));
        let all = behind.chain(before);
        slice(all, most)
    }
}

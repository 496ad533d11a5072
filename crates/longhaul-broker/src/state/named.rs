//! Topics by ranges of their names.

use super::{BrokerState, BrokerTopic};
use std::ops::Bound;

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
}

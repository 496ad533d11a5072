//! Questions that wait for their answer.

use longhaul_types::moment::Moment;
use std::collections::BTreeMap;

/// Questions that may wait at once; callers are few.
const REQUESTS_MAX: usize = 10_000;

/// Purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Partitions,
    Lookup,
    /// Opens the producer with this id.
    Producer(u64),
    /// Opens the consumer with this id.
    Consumer(u64),
    /// Asks for the end of this consumer's topic.
    Last(u64),
    /// Asks for the broker's statistics of this consumer.
    Stats(u64),
    /// Acks of this consumer.
    Ack(u64),
    /// Closes something.
    Done,
}

impl RequestKind {
    /// Whether the request concerns this consumer.
    pub(super) fn is_of_consumer(self, id: u64) -> bool {
        [Self::Consumer(id), Self::Last(id), Self::Stats(id), Self::Ack(id)].contains(&self)
    }
}

/// A pending request and its receivers: several for acks in one frame, none for a close.
#[derive(Debug)]
pub(super) struct PendingRequest<A> {
    pub(super) kind: RequestKind,
    pub(super) tokens: Vec<A>,
    deadline: Moment,
}

/// Requests by id, in the order in which they were sent. All have the same time limit, so the first
/// one is the first to be late.
#[derive(Debug)]
pub(super) struct Requests<A>(BTreeMap<u64, PendingRequest<A>>);

impl<A> Default for Requests<A> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<A> Requests<A> {
    pub(super) fn insert(&mut self, id: u64, kind: RequestKind, tokens: Vec<A>, deadline: Moment) {
        self.0.insert(id, PendingRequest { kind, tokens, deadline });
    }

    pub(super) fn take(&mut self, id: u64) -> Option<PendingRequest<A>> {
        self.0.remove(&id)
    }

    pub(super) fn take_due(&mut self, now: Moment) -> Option<PendingRequest<A>> {
        let first = self.0.first_entry()?;
        (first.get().deadline <= now).then(|| first.remove())
    }

    /// Removes the requests of some kinds.
    pub(super) fn take_of(
        &mut self,
        wanted: impl Fn(RequestKind) -> bool,
    ) -> Vec<PendingRequest<A>> {
        let ids = self.0.iter().filter(|(_, request)| wanted(request.kind)).map(|(id, _)| *id);
        let ids: Vec<u64> = ids.collect();
        ids.into_iter().filter_map(|id| self.0.remove(&id)).collect()
    }

    /// Removes all requests and returns their receivers.
    pub(super) fn drain(&mut self) -> Vec<A> {
        std::mem::take(&mut self.0).into_values().flat_map(|request| request.tokens).collect()
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        self.0.first_key_value().map(|(_, request)| request.deadline)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= REQUESTS_MAX
    }
}

//! Questions that wait for their answer.

use longhaul_types::moment::Moment;
use std::collections::BTreeMap;

/// Questions that may wait at once; their callers are few.
const REQUESTS_MAX: usize = 10_000;

/// What an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Partitions,
    Lookup,
    /// A new producer of this number.
    Producer(u64),
    /// A new consumer of this number.
    Consumer(u64),
    /// Where the topic of this consumer ends.
    Last(u64),
    /// What the broker thinks of this consumer.
    Stats(u64),
    /// Acks of this consumer.
    Ack(u64),
    /// The end of something.
    Done,
}

impl RequestKind {
    /// Whether it is about this consumer.
    pub(super) fn is_of_consumer(self, id: u64) -> bool {
        [Self::Consumer(id), Self::Last(id), Self::Stats(id), Self::Ack(id)].contains(&self)
    }
}

/// A question under way, and who waits: several for acks that went together, nobody for the end of
/// something.
#[derive(Debug)]
pub(super) struct PendingRequest<A> {
    pub(super) kind: RequestKind,
    pub(super) tokens: Vec<A>,
    deadline: Moment,
}

/// By number, which is the order in which they were asked; all have as long, so the first is the
/// first that is late.
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

    /// Those of some kinds.
    pub(super) fn take_of(
        &mut self,
        wanted: impl Fn(RequestKind) -> bool,
    ) -> Vec<PendingRequest<A>> {
        let ids = self.0.iter().filter(|(_, request)| wanted(request.kind)).map(|(id, _)| *id);
        let ids: Vec<u64> = ids.collect();
        ids.into_iter().filter_map(|id| self.0.remove(&id)).collect()
    }

    /// All who wait.
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

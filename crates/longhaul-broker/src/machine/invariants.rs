//! Checks for contradictions in the machine's own state.
//!
//! A contradiction is *fatal* if going on would write wrong data or send a client a wrong answer:
//! from then on nothing is written or sent, and the broker ends with the reason. The data on disk
//! is correct, and the next start rebuilds the state from it. Other contradictions are counted by
//! name and reported to the operator at intervals. The connection concerned is closed, and its
//! client reconnects to a clean one.

use super::BrokerMachine;
use super::effect::RequestRefusal;
use crate::state::change::{Ack, StateChange};
use crate::state::{BrokerState, BrokerTopic};
use longhaul_wire::messages::ServerError;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Minimum interval of reports about a contradiction that is not fatal.
const TELL_PAUSE_MS: u64 = 60_000;

/// A condition that always holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// Groups are confirmed one at a time, in the order in which they were taken.
    GroupOrder,
    /// An entry is in the group that confirms it.
    EntryInGroup,
    /// The entries of a topic are confirmed in order, without a gap.
    EntryOrder,
    /// Every applied change is recorded, and every recorded change is applied.
    Recorded,
    /// Ids and names of topics, ledgers and subscriptions are assigned once.
    NumberFree,
    /// Acknowledgements, cursors, trims and compactions never go beyond the entries on disk.
    WithinEntries,
    /// The needed bytes of each log segment are counted correctly.
    SegmentBytes,
    /// A topic in use exists.
    TopicKept,
    /// An existing topic is served, and a served topic exists.
    TopicServed,
    /// A subscription with consumers exists.
    SubscriptionKept,
    /// A consumer of a connection is one of its subscription.
    ConsumerAttached,
    /// A producer of a connection is one of its topic.
    ProducerEntered,
    /// A connection with a request exists.
    SessionOpen,
    /// An assigned entry has a location.
    EntryKept,
}

impl Invariant {
    /// All invariants, in order.
    pub const ALL: [Self; 14] = [
        Self::GroupOrder,
        Self::EntryInGroup,
        Self::EntryOrder,
        Self::Recorded,
        Self::NumberFree,
        Self::WithinEntries,
        Self::SegmentBytes,
        Self::TopicKept,
        Self::TopicServed,
        Self::SubscriptionKept,
        Self::ConsumerAttached,
        Self::ProducerEntered,
        Self::SessionOpen,
        Self::EntryKept,
    ];

    /// Its name, in metrics and in reports to the operator.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GroupOrder => "group_order",
            Self::EntryInGroup => "entry_in_group",
            Self::EntryOrder => "entry_order",
            Self::Recorded => "recorded",
            Self::NumberFree => "number_free",
            Self::WithinEntries => "within_entries",
            Self::SegmentBytes => "segment_bytes",
            Self::TopicKept => "topic_kept",
            Self::TopicServed => "topic_served",
            Self::SubscriptionKept => "subscription_kept",
            Self::ConsumerAttached => "consumer_attached",
            Self::ProducerEntered => "producer_entered",
            Self::SessionOpen => "session_open",
            Self::EntryKept => "entry_kept",
        }
    }
}

/// A contradiction after which the broker must stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// The violated invariant.
    pub invariant: Invariant,
    /// The observation.
    pub found: String,
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant.name(), self.found)
    }
}

/// The contradictions found so far.
#[derive(Debug, Default)]
pub(super) struct Invariants {
    broken: BTreeMap<Invariant, ViolationCount>,
    /// Connections to be closed because of them.
    ending: BTreeSet<u64>,
    /// Whether there is something to report, or a connection to close.
    has_news: bool,
    fatal: Option<Fatal>,
    /// Whether a test has planted a defect.
    #[cfg(test)]
    is_expected: bool,
}

#[derive(Debug, Default)]
struct ViolationCount {
    count: u64,
    /// Number of reported ones, and the time of the next report.
    told: u64,
    tell_at: u64,
}

impl Invariants {
    /// Notes a contradiction, and the connection concerned.
    pub(super) fn broken(&mut self, invariant: Invariant, conn: Option<u64>) {
        self.broken.entry(invariant).or_default().count += 1;
        self.ending.extend(conn);
        self.has_news = true;
    }

    /// Passes on a value that must exist, and notes a contradiction if it does not.
    pub(super) fn need<T>(
        &mut self,
        found: Option<T>,
        invariant: Invariant,
        conn: Option<u64>,
    ) -> Option<T> {
        if found.is_none() {
            self.broken(invariant, conn);
        }
        found
    }

    /// Passes on a part of a topic that is served.
    pub(super) fn served<T>(&mut self, found: Option<T>) -> Option<T> {
        self.need(found, Invariant::TopicServed, None)
    }

    /// Passes on a topic that is in use.
    pub(super) fn kept<T>(&mut self, found: Option<T>) -> Option<T> {
        self.need(found, Invariant::TopicKept, None)
    }

    /// Notes a fatal contradiction. The first one is kept as the reason.
    pub(super) fn fail(&mut self, invariant: Invariant, found: impl FnOnce() -> String) {
        self.broken.entry(invariant).or_default().count += 1;
        self.fatal.get_or_insert_with(|| Fatal { invariant, found: found() });
    }

    /// Number of violations by name.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        let count = |invariant| self.broken.get(&invariant).map_or(0, |broken| broken.count);
        Invariant::ALL.map(|invariant| (invariant.name(), count(invariant))).into()
    }

    /// Forgets a connection that has ended: further contradictions during its end have the same
    /// cause.
    pub(super) fn forget_connection(&mut self, conn: u64) {
        self.ending.remove(&conn);
    }

    /// The reports for the operator, and the connections to close, if there is something new.
    pub(super) fn take_news(&mut self, up: u64) -> Option<(Vec<String>, BTreeSet<u64>)> {
        if !self.has_news {
            return None;
        }
        let mut news = Vec::new();
        for (invariant, broken) in &mut self.broken {
            if broken.count > broken.told && up >= broken.tell_at {
                news.push(format!(
                    "a bug of the broker: its state is inconsistent ({}), {} times so far; the affected connections are closed, and data on disk is not affected: please report it",
                    invariant.name(),
                    broken.count
                ));
                (broken.told, broken.tell_at) = (broken.count, up + TELL_PAUSE_MS);
            }
        }
        // The remaining reports follow later.
        self.has_news = self.broken.values().any(|broken| broken.count > broken.told);
        Some((news, std::mem::take(&mut self.ending)))
    }

    /// Returns the contradictions that a test has planted; unexpected ones fail the test.
    #[cfg(test)]
    pub(super) fn take_all(&mut self) -> Vec<(Invariant, u64)> {
        self.fatal = None;
        std::mem::take(&mut self.broken)
            .into_iter()
            .map(|(which, broken)| (which, broken.count))
            .collect()
    }
}

/// A test fails if the machine has found a contradiction that the test did not plant.
#[cfg(test)]
impl Drop for Invariants {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.is_expected {
            assert!(self.broken.is_empty(), "broken invariants: {:?}", self.broken);
        }
    }
}

impl BrokerMachine {
    /// The reason why the broker cannot go on, if there is one. Then the machine returns no more
    /// output.
    pub fn fatal(&mut self) -> Option<&Fatal> {
        if let Some(segment) = self.state.miscounted() {
            let found = || format!("more is given back of segment {segment} than it has");
            if self.invariants.fatal.is_none() {
                self.invariants.fail(Invariant::SegmentBytes, found);
            }
        }
        self.invariants.fatal.as_ref()
    }

    /// Names of the violated invariants, for simulations.
    #[cfg(test)]
    pub(crate) fn broken_invariants(&mut self) -> BTreeSet<&'static str> {
        let fatal = self.fatal().map(|fatal| fatal.invariant.name());
        let broken = self.invariants.broken.keys().map(|invariant| invariant.name());
        broken.chain(fatal).collect()
    }

    /// Refuses a change that would write a contradiction to the log: it is not recorded, and the
    /// broker ends.
    pub(super) fn check_change(&mut self, change: &StateChange) -> Result<(), RequestRefusal> {
        let live = &self.live;
        let readable = |topic: u32| live.get(&topic).map(|live| live.readable);
        let Some((invariant, found)) = contradiction(change, &self.state, readable) else {
            return Ok(());
        };
        self.invariants.fail(invariant, || found.clone());
        Err(RequestRefusal::new(ServerError::UnknownError, found))
    }
}

/// Returns what is wrong with a change, given the readable part of each topic. Changes of missing
/// topics are refused elsewhere.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the others say what to set, whatever there was"
)]
fn contradiction(
    change: &StateChange,
    state: &BrokerState,
    readable: impl Fn(u32) -> Option<u64>,
) -> Option<(Invariant, String)> {
    let (next_topic, next_ledger) = state.next_numbers();
    let taken = |what: String| Some((Invariant::NumberFree, what));
    let beyond = |topic: u32, end: u64| {
        let readable = readable(topic).filter(|readable| end > *readable)?;
        let found = format!("{end} entries of topic {topic}, of which {readable} are on disk");
        Some((Invariant::WithinEntries, found))
    };
    match change {
        StateChange::CreateTopic(new) => {
            let is_free = new.topic >= next_topic && state.topic_id(&new.name).is_none();
            if is_free { None } else { taken(format!("topic {} {} exists", new.topic, new.name)) }
        }
        StateChange::OpenLedger(new) => {
            let end = state.topic(new.topic)?.entries.end();
            let is_free = new.ledger >= next_ledger && new.first == end;
            let found = || format!("ledger {} of topic {} at {}", new.ledger, new.topic, new.first);
            if is_free { None } else { taken(found()) }
        }
        StateChange::CreateSubscription(new) => {
            let topic = state.topic(new.topic)?;
            if is_taken(topic, new.subscription, &new.name) {
                return taken(format!("subscription {} of topic {}", new.subscription, new.topic));
            }
            beyond(new.topic, new.mark)
        }
        StateChange::Ack(details) => beyond(details.topic, end_of(details)),
        StateChange::ResetCursor(details) => beyond(details.topic, details.mark),
        StateChange::Trim(details) => beyond(details.topic, details.first),
        StateChange::Compacted(details) => beyond(details.topic, details.horizon),
        _ => None,
    }
}

fn is_taken(topic: &BrokerTopic, subscription: u32, name: &str) -> bool {
    topic.subscriptions.contains_key(&subscription) || topic.subscription_id(name).is_some()
}

/// The first entry after all those that an acknowledgement concerns.
fn end_of(ack: &Ack) -> u64 {
    let entries = ack.entries.iter().map(|ordinal| ordinal.saturating_add(1));
    let batches = ack.batches.iter().map(|batch| batch.ordinal.saturating_add(1));
    let ends = entries.chain(batches).chain(ack.ranges.iter().copied());
    ends.chain(ack.before).max().unwrap_or_default()
}

/// Defects that simulations must detect.
#[cfg(test)]
impl BrokerMachine {
    /// Counts one more entry of each topic as on disk.
    pub(crate) fn plant_readable(&mut self) -> bool {
        self.invariants.is_expected = true;
        self.live.values_mut().for_each(|live| live.readable += 1);
        !self.live.is_empty()
    }

    /// Stops serving a topic with consumers.
    pub(crate) fn plant_unserved(&mut self) -> bool {
        self.invariants.is_expected = true;
        let busy = self.live.iter().find(|(_, live)| !live.dispatchers.is_empty());
        let Some(topic) = busy.map(|(&topic, _)| topic) else { return false };
        self.live.remove(&topic).is_some()
    }

    /// Detaches the consumers of a topic from their subscriptions.
    pub(crate) fn plant_detached(&mut self) -> bool {
        self.invariants.is_expected = true;
        let busy = self.live.values_mut().find(|live| !live.dispatchers.is_empty());
        busy.map(|live| live.dispatchers.clear()).is_some()
    }

    /// Drops the byte counts of segments.
    pub(crate) fn plant_uncounted(&mut self) -> bool {
        self.invariants.is_expected = true;
        let counts = !self.state.live().is_empty();
        self.state.lose_counts();
        counts
    }
}

//! Decides which topic of a worker with several task topics gets the next free slot, and how many
//! deliveries each has in stock for that. Pure.
//!
//! Among the topics that want a slot those of the highest precedence come first. Among these come
//! first those that hold less than their share of the slots: the ratio of their weight to the
//! weights of all that want or hold one. Then comes the topic that has started the fewest tasks for
//! its weight; a topic that had nothing to start gains nothing by that.
//!
//! So a topic without a running task is passed over only a limited number of times, however long
//! the tasks of the others take, and a topic that is alone has all slots.

use crate::config::ConfigError;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::Priority;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Number of deliveries of a topic, per partition, that wait for a slot or are in flight while all
/// slots are taken: without one there the topic would miss its turn, and two show that more may
/// come. Topics that share by weight have as many as they may start at once, up to a limit, because
/// those that wait in vain are handed back after a second.
const AT_HAND_MIN: usize = 2;
const AT_HAND_MAX: usize = 16;
/// The same for a topic that goes before others and shares with none: a task that arrives while the
/// broker delivers must not be overtaken.
const AT_HAND_ABOVE: usize = 4;

/// With more partitions than this in all topics of a precedence, only some have deliveries in
/// stock: each would be handed back after a second.
const AT_HAND_LANES_MAX: usize = 64;

/// How long the broker may take to deliver available messages. After all credit of a topic was
/// used, lower topics wait this long.
const SETTLES_WITHIN: Duration = Duration::from_millis(20);

/// One start of a topic with weight 1.
const STRIDE: u128 = 1 << 32;

/// Maximum weight.
const WEIGHT_MAX: u32 = 10_000;

/// The part of a worker's slots that a task topic gets while others want them, too; see
/// [`WorkerBuilder::also_with`](crate::WorkerBuilder::also_with). Slots that one topic does not
/// need go to the others.
///
/// ```
/// use longhaul::Share;
///
/// // Three of four slots while another topic with weight 1 wants some.
/// let large = Share::weight(3);
/// // Before all topics of a lower precedence: these get what is left.
/// let urgent = Share::default().precedence(1);
/// # assert_ne!(large, urgent);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub(super) precedence: i32,
    pub(super) weight: u32,
}

impl Default for Share {
    /// Weight 1, precedence 0.
    fn default() -> Self {
        Self { precedence: 0, weight: 1 }
    }
}

impl Share {
    /// A weighted share of the slots: the weight is compared with those of the other topics of the
    /// same precedence. From 1 to 10,000.
    #[must_use]
    pub const fn weight(weight: u32) -> Self {
        Self { precedence: 0, weight }
    }

    /// Sets the precedence. Topics of a higher precedence always come first; lower ones get the
    /// remaining slots, however long they wait.
    #[must_use]
    pub const fn precedence(self, precedence: i32) -> Self {
        Self { precedence, ..self }
    }

    pub(super) fn validate(self) -> Result<(), ConfigError> {
        if (1..=WEIGHT_MAX).contains(&self.weight) {
            return Ok(());
        }
        let problem = format!("must be between 1 and {WEIGHT_MAX}, is {}", self.weight);
        Err(ConfigError { field: "weight", problem })
    }
}

/// How a worker shares its slots among the levels of a queue; see
/// [`WorkerBuilder::levels`](crate::WorkerBuilder::levels).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    pub(super) high: Share,
    pub(super) normal: Share,
    pub(super) low: Share,
}

impl Levels {
    /// High before normal before low: tasks of a lower level wait until no task of a higher one
    /// waits.
    #[must_use]
    pub const fn strict() -> Self {
        let share = Share::weight(1);
        Self { high: share.precedence(1), normal: share, low: share.precedence(-1) }
    }

    /// By weight: while all three have waiting tasks, each gets its part of the slots, and none
    /// waits for ever. From 1 to 10,000.
    #[must_use]
    pub const fn weighted(high: u32, normal: u32, low: u32) -> Self {
        let (high, normal, low) = (Share::weight(high), Share::weight(normal), Share::weight(low));
        Self { high, normal, low }
    }

    pub(super) const fn of(self, priority: Priority) -> Share {
        match priority {
            Priority::High => self.high,
            Priority::Normal => self.normal,
            Priority::Low => self.low,
        }
    }
}

/// The slots and waiting tasks of a topic or partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Use {
    /// Number of slots that it holds.
    pub(super) held: usize,
    /// Number of tasks that wait for a slot.
    pub(super) waiting: usize,
}

impl Use {
    /// Replaces the count of one part.
    fn replace(&mut self, before: Self, now: Self) {
        self.held = (self.held + now.held).saturating_sub(before.held);
        self.waiting = (self.waiting + now.waiting).saturating_sub(before.waiting);
    }
}

#[derive(Clone, Debug)]
struct TopicShare {
    share: Share,
    uses: Use,
    lanes: usize,
    /// Its starts so far, divided by its weight.
    turn: u128,
}

/// The topics of one precedence.
#[derive(Clone, Debug, Default)]
struct ShareGroup {
    topics: usize,
    weights: u64,
    lanes: usize,
    uses: Use,
    /// The topics that hold slots.
    holding: BTreeSet<u16>,
    /// The turn of the topic that was served last.
    clock: u128,
    /// When the broker is assumed to have delivered all available messages.
    settles_at: Moment,
}

/// The shares of all topics. Topics are numbered in the order of adding, from 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    slots: usize,
    topics: Vec<TopicShare>,
    groups: BTreeMap<i32, ShareGroup>,
    /// Whether no topic has deliveries in stock without a free slot.
    on_demand: bool,
}

impl Shares {
    pub(super) const fn new(slots: usize) -> Self {
        Self { slots, topics: Vec::new(), groups: BTreeMap::new(), on_demand: false }
    }

    /// Keeps no deliveries in stock without a free slot: a worker that leases tasks holds none
    /// without a request.
    pub(super) const fn on_demand(mut self) -> Self {
        self.on_demand = true;
        self
    }

    pub(super) fn add(&mut self, share: Share) {
        self.topics.push(TopicShare { share, uses: Use::default(), lanes: 0, turn: 0 });
        let group = self.groups.entry(share.precedence).or_default();
        group.topics += 1;
        group.weights += u64::from(share.weight);
    }

    /// Whether there is only one topic.
    pub(super) const fn is_single(&self) -> bool {
        self.topics.len() <= 1
    }

    /// Adds a partition to a topic.
    pub(super) fn add_lane(&mut self, topic: u16) {
        if let Some(served) = self.topics.get_mut(usize::from(topic)) {
            served.lanes += 1;
        }
        if let Some(group) = self.group_mut(topic) {
            group.lanes += 1;
        }
    }

    /// Updates the use of a topic when one of its partitions changes from `before` to `now`.
    pub(super) fn note(&mut self, topic: u16, before: Use, now: Use) {
        let Some(served) = self.topics.get_mut(usize::from(topic)) else { return };
        served.uses.replace(before, now);
        let (holds, precedence) = (served.uses.held > 0, served.share.precedence);
        let group = self.groups.entry(precedence).or_default();
        group.uses.replace(before, now);
        if holds {
            group.holding.insert(topic);
        } else {
            group.holding.remove(&topic);
        }
    }

    /// The topic that gets the next slot, among those that want one.
    pub(super) fn next(&self, wanting: &BTreeSet<u16>) -> Option<u16> {
        let of = |topic: &u16| self.topics.get(usize::from(*topic)).map(|served| (*topic, served));
        let precedence =
            wanting.iter().filter_map(of).map(|(_, served)| served.share.precedence).max()?;
        let group = self.groups.get(&precedence)?;
        let wanting = || {
            wanting
                .iter()
                .filter_map(of)
                .filter(move |(_, served)| served.share.precedence == precedence)
        };
        let idle = group.holding.iter().filter_map(of);
        let idle = idle.filter(|(topic, _)| !wanting().any(|(wants, _)| wants == *topic));
        let weights: u64 =
            wanting().chain(idle).map(|(_, served)| u64::from(served.share.weight)).sum();
        let elsewhere: usize = self
            .groups
            .iter()
            .filter(|(of, _)| **of != precedence)
            .map(|(_, served)| served.uses.held)
            .sum();
        let slots = self.slots.saturating_sub(elsewhere);
        let order = |(topic, served): &(u16, &TopicShare)| {
            let held = served.uses.held as u128 * u128::from(weights);
            let has_its_share = held >= slots as u128 * u128::from(served.share.weight);
            (has_its_share, served.turn.max(group.clock), *topic)
        };
        wanting().min_by_key(order).map(|(topic, _)| topic)
    }

    /// Notes that a topic has taken this many slots.
    pub(super) fn took(&mut self, topic: u16, count: usize) {
        let Some(served) = self.topics.get_mut(usize::from(topic)) else { return };
        let Some(group) = self.groups.get_mut(&served.share.precedence).filter(|_| count > 0)
        else {
            return;
        };
        group.clock = group.clock.max(served.turn);
        served.turn = group.clock + STRIDE * count as u128 / u128::from(served.share.weight.max(1));
    }

    /// Notes that the broker may have more for a topic than its credit.
    pub(super) fn may_have_more(&mut self, topic: u16, now: Moment) {
        if let Some(group) = self.group_mut(topic) {
            group.settles_at = now + SETTLES_WITHIN;
        }
    }

    /// Whether the higher topics allow the topic to take slots now.
    pub(super) fn is_open(&self, topic: u16, now: Moment) -> bool {
        let Some(served) = self.topics.get(usize::from(topic)) else { return false };
        self.above(served.share.precedence).all(|group| group.settles_at <= now)
    }

    /// When the next topic that may not take slots now may do so.
    pub(super) fn opens_at(&self, now: Moment) -> Option<Moment> {
        let lowest = *self.groups.keys().next()?;
        self.above(lowest).map(|group| group.settles_at).filter(|at| *at > now).min()
    }

    /// Whether partitions of the topic have deliveries in stock while all slots are taken.
    pub(super) fn has_at_hand(&self, topic: u16) -> bool {
        self.at_hand(topic) > 0
    }

    /// Number of deliveries in stock per partition: topics that go before others have them, and
    /// topics that share if they are not too many.
    fn at_hand(&self, topic: u16) -> usize {
        let Some(served) = self.topics.get(usize::from(topic)) else { return 0 };
        let Some(group) = self.groups.get(&served.share.precedence) else { return 0 };
        if self.on_demand {
            return 0;
        }
        if group.topics > 1 && group.lanes <= AT_HAND_LANES_MAX {
            let part = self.slots as u64 * u64::from(served.share.weight);
            let part = part.div_ceil(group.weights.max(1)).div_ceil(served.lanes.max(1) as u64);
            return usize::try_from(part).unwrap_or(usize::MAX).clamp(AT_HAND_MIN, AT_HAND_MAX);
        }
        let is_lowest = self.groups.keys().next() == Some(&served.share.precedence);
        if is_lowest { 0 } else { AT_HAND_ABOVE }
    }

    /// Number of deliveries that a partition of the topic may have in flight, given how many wait
    /// here already.
    pub(super) fn credit(
        &self,
        topic: u16,
        waiting: usize,
        free: usize,
        room: usize,
        probe: bool,
        now: Moment,
    ) -> usize {
        let Some(served) = self.topics.get(usize::from(topic)) else { return 0 };
        let Some(group) = self.groups.get(&served.share.precedence) else { return 0 };
        let before: usize =
            self.above(served.share.precedence).map(|above| above.uses.waiting).sum();
        let free = free.saturating_sub(before + group.uses.waiting).min(room);
        let mut wanted = 0;
        if self.is_open(topic, now) {
            wanted = free.div_ceil(group.lanes.max(1));
        }
        if wanted == 0 && probe {
            wanted = 1;
        }
        wanted.max(self.at_hand(topic).saturating_sub(waiting)).min(room)
    }

    fn group_mut(&mut self, topic: u16) -> Option<&mut ShareGroup> {
        let precedence = self.topics.get(usize::from(topic))?.share.precedence;
        self.groups.get_mut(&precedence)
    }

    fn above(&self, precedence: i32) -> impl Iterator<Item = &ShareGroup> {
        self.groups.range(precedence..).skip(1).map(|(_, group)| group)
    }
}

#[cfg(test)]
mod tests;

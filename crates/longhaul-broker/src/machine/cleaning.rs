//! One consumer that never acknowledges must not keep the disk.
//!
//! What is acknowledged behind an entry that is still open is forgotten: it takes no memory, and
//! its segment of the log does not count it. A segment can go when nothing in it is needed any
//! more. One task that takes a week would keep its whole segment, and with it, in a log that all
//! topics share, whatever lies there. So when the log has grown and only little of old segments is
//! still needed, that little is copied to the end of the log, and the segments go.

use super::BrokerMachine;
use super::effect::{MachineEffect, PendingCommit, Survivor};
use super::figures::is_compacted;
use super::invariants::Invariant;
use crate::log::{ReadError, RecordHead, RecordKind, RecordLocation};
use crate::state::Forgotten;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Segments that the log may have before any is cleaned, while there is room.
const SEGMENTS_MIN: usize = 4;
/// A segment is cleaned when less than one part in so many is needed: the copies then cost less
/// than what they free.
const NEEDED_SHARE: u64 = 4;
/// So much is copied at once, unless a single segment has more: it lies in memory meanwhile.
const COPIED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// So many pages of 1,024 entries are looked at in one go for what can be forgotten, of all topics
/// together. A page takes up to a quarter of a millisecond, where every second entry is
/// acknowledged.
const PAGES_MAX: usize = 64;
/// So many of them are of one topic before the next one has its turn.
const PAGES_SHARE: usize = PAGES_MAX / 4;
/// Entries of a page.
const PAGE_ENTRIES: usize = 1024;
/// How long it is until the next go. It is less where at least half of the entries on the pages of
/// the last one could be forgotten, and pages were left: so 650,000 entries a second are forgotten
/// behind those that stay open, if need be all of one topic.
const GO_MS: u64 = 1000;
/// How long it is until the next look where one had to leave work that pays.
pub(super) const HURRY_MS: u64 = 100;
/// How long a segment is left alone of which something could not be read, at first and at most.
const UNREADABLE_PAUSE_MS: (u64, u64) = (10_000, 600_000);
/// A subscription that keeps more than this on disk is worth a warning.
const WARN_BYTES: u64 = 1024 * 1024 * 1024;
/// How often it is given.
const WARN_PAUSE_MS: u64 = 600_000;

/// What was done when.
#[derive(Debug, Default)]
pub(super) struct Cleaner {
    /// Copies are being read.
    is_busy: bool,
    /// The topic that the next go begins with.
    first_topic: u32,
    /// When the next go is, by the clock that never goes back.
    pub(super) next_go: u64,
    /// Copies on their way to the disk.
    pub(super) copying: usize,
    next_warning: u64,
    /// Segments of which something could not be read: until when they are left alone, and how long
    /// that is.
    unreadable: BTreeMap<u32, (u64, u64)>,
}

impl BrokerMachine {
    /// Forgets what every subscription has acknowledged behind entries that are open, and no policy
    /// keeps. The same rules as for trimming: what lies in the segment that is being written takes
    /// no room that could be had back.
    pub(super) fn forget_acked_entries(&mut self) {
        let first = self.cleaner.first_topic;
        let mut topics: Vec<u32> = self.live.keys().copied().collect();
        topics.sort_unstable_by_key(|&topic| (topic < first, topic));
        let mut forgotten = 0;
        let (looked_at, next) = deal(topics, PAGES_MAX, |topic, pages_max| {
            let found = self.forget_acked(topic, pages_max);
            forgotten += found.entries;
            (found.pages, found.next.is_some())
        });
        let pays = next.is_some() && forgotten >= looked_at * PAGE_ENTRIES / 2;
        self.cleaner.first_topic = next.unwrap_or(first);
        self.cleaner.next_go = self.up + if pays { HURRY_MS } else { GO_MS };
    }

    fn forget_acked(&mut self, topic: u32, pages_max: usize) -> Forgotten {
        let none = Forgotten::default();
        let both = self.state.topic(topic).zip(self.live.get_mut(&topic));
        let both = self.invariants.need(both, Invariant::TopicServed, None);
        let Some((kept, live)) = both else { return none };
        let policies = &live.policies;
        let oldest = policies.retention.unwrap_or_default().oldest_ms(self.now);
        let Some(oldest) = oldest.filter(|_| !is_compacted(kept, policies)) else { return none };
        // What lies before the lowest mark is trimmed.
        let lowest = kept
            .durable()
            .map(|subscription| &subscription.cursor)
            .min_by_key(|cursor| cursor.mark());
        let lowest = lowest.filter(|cursor| cursor.acked().pieces() > 0);
        let Some(lowest) = lowest.filter(|_| !live.compaction.is_running) else { return none };
        let from = live.forgotten_to.max(lowest.mark());
        let segment = self.composer.end().segment;
        let forgotten = self.state.forget_acked(topic, from, pages_max, segment, oldest);
        live.forgotten_to = forgotten.next.unwrap_or_default();
        forgotten
    }

    /// Looks for old segments of which little is needed.
    pub(super) fn clean(&mut self) {
        // What is on its way already would be copied again: on a full disk once in each round.
        if self.cleaner.is_busy || self.cleaner.copying > 0 || self.log.is_stuck {
            return;
        }
        let segments = self.segments_to_clean();
        if segments.is_empty() {
            return;
        }
        let mut survivors = Vec::new();
        for (topic, kept) in self.state.topics() {
            survivors.extend(kept.entries.in_segments(&segments).filter_map(|(ordinal, slot)| {
                let position = kept.entries.position_of(ordinal)?;
                Some(Survivor { topic, position, place: slot.place })
            }));
        }
        if !survivors.is_empty() {
            self.cleaner.is_busy = true;
            self.effects.push(MachineEffect::Copy(survivors));
        }
    }

    /// The oldest segments of which so little is needed that copying it pays, as many as there is
    /// room for. Only when all that is needed of a segment is copied it can go.
    fn segments_to_clean(&self) -> BTreeSet<u32> {
        let segments: Vec<_> = self.log.before(self.composer.end().segment).collect();
        if segments.len() < SEGMENTS_MIN && self.composer.has_room() {
            return BTreeSet::new();
        }
        let (failed, live) = (&self.cleaner.unreadable, self.state.live());
        let is_due = |segment: u32| failed.get(&segment).is_none_or(|&(until, _)| self.up >= until);
        let needed = segments.into_iter().filter_map(|(segment, bytes)| {
            let needed = live.get(&segment).copied()?;
            (needed * NEEDED_SHARE <= bytes && is_due(segment)).then_some((segment, needed))
        });
        let (mut chosen, mut sum) = (BTreeSet::new(), 0);
        for (segment, needed) in needed {
            let fits = chosen.is_empty() || sum + needed <= COPIED_BYTES_MAX;
            if fits && self.composer.has_room_to_copy(sum + needed) {
                chosen.insert(segment);
                sum += needed;
            }
        }
        chosen
    }

    /// Copies entries to the end of the log: their records, with the ids that they have.
    pub fn copy(&mut self, read: Vec<(Survivor, Bytes)>) {
        self.cleaner.is_busy = false;
        // The room may have gone while they were read.
        if !self
            .composer
            .has_room_to_copy(read.iter().map(|read| u64::from(read.0.place.size)).sum())
        {
            return;
        }
        for (survivor, body) in read {
            let Some(ordinal) = self.state.topic(survivor.topic).and_then(|topic| {
                let ordinal = topic.entries.ordinal_of(survivor.position)?;
                // It may have been trimmed while it was read.
                topic
                    .entries
                    .get(ordinal)
                    .filter(|slot| slot.place == survivor.place)
                    .map(|_| ordinal)
            }) else {
                continue;
            };
            let head = RecordHead {
                kind: RecordKind::Entry,
                topic: survivor.topic,
                ledger: survivor.position.ledger,
                entry: survivor.position.entry,
            };
            // One that is above a limit that was lowered since stays where it is.
            let Ok(place) = self.composer.append(head, &[&body]) else { continue };
            self.cleaner.copying += 1;
            self.totals.records += 1;
            // Until the copy is on disk the entry is read where it was.
            self.waiting
                .push_back((self.composing, PendingCommit::Copied { survivor, ordinal, place }));
        }
    }

    /// What could not be read stays where it is. Its segment is left alone for a while, longer each
    /// time.
    pub fn not_copied(&mut self, failed: &[(Survivor, ReadError)]) {
        let mut segments = BTreeMap::new();
        for (survivor, cause) in failed {
            // One that was removed is needed by nobody.
            if !matches!(cause, ReadError::Gone { .. }) {
                segments.entry(survivor.place.segment).or_insert(cause);
            }
        }
        let live = self.state.live();
        self.cleaner.unreadable.retain(|segment, _| live.contains_key(segment));
        for (segment, cause) in segments {
            let (least, most) = UNREADABLE_PAUSE_MS;
            let (until, pause) = self.cleaner.unreadable.entry(segment).or_default();
            *pause = (2 * *pause).clamp(least, most);
            *until = self.up + *pause;
            let text = format!(
                "a segment of the log that holds little is kept, and is looked at again after {} s, as it cannot be read: {cause}: check the disk",
                *pause / 1000
            );
            self.effects.push(MachineEffect::Warn(text));
        }
    }

    /// A copy is on disk.
    pub(super) fn copied(&mut self, survivor: Survivor, ordinal: u64, place: RecordLocation) {
        self.cleaner.copying = self.cleaner.copying.saturating_sub(1);
        let slot = self.state.topic(survivor.topic).and_then(|topic| topic.entries.get(ordinal));
        if slot.is_some_and(|slot| slot.place == survivor.place) {
            self.state.relocate(survivor.topic, ordinal, place);
            self.is_readable_again(survivor.topic, ordinal);
        }
    }

    /// Warns about subscriptions that keep much.
    pub(super) fn warn_of_backlogs(&mut self) {
        if self.up < self.cleaner.next_warning || self.log.bytes() < WARN_BYTES {
            return;
        }
        self.cleaner.next_warning = self.up + WARN_PAUSE_MS;
        for (_, topic) in self.state.topics() {
            let share = |mark: u64| {
                let (first, end) = (topic.entries.first(), topic.entries.end());
                let open = u128::from(end.saturating_sub(mark.max(first)));
                let bytes = u128::from(topic.bytes) * open;
                bytes.checked_div(u128::from(end.saturating_sub(first))).unwrap_or_default()
            };
            for subscription in topic.durable() {
                let bytes = share(subscription.cursor.mark());
                if bytes >= u128::from(WARN_BYTES) {
                    let text = format!(
                        "subscription {} keeps about {} MiB of {}: consume, skip or delete it, or set a quota or a time to live",
                        subscription.name,
                        bytes / (1024 * 1024),
                        topic.name
                    );
                    self.effects.push(MachineEffect::Warn(text));
                }
            }
        }
    }
}

/// Deals so many pages to the topics, a share to each in turn until there are none left: what some
/// do not need is there for the others. `look` looks at so many of a topic at most, and says at how
/// many it did and whether there are more. Returns at how many it looked in all, and whose turn it
/// is next, if there are more.
fn deal(
    topics: Vec<u32>,
    pages_max: usize,
    mut look: impl FnMut(u32, usize) -> (usize, bool),
) -> (usize, Option<u32>) {
    let (mut turns, mut looked_at) = (VecDeque::from(topics), 0);
    while let Some(topic) = turns.pop_front() {
        let left = pages_max.saturating_sub(looked_at);
        if left == 0 {
            return (looked_at, Some(topic));
        }
        let (pages, has_more) = look(topic, left.min(PAGES_SHARE));
        looked_at += pages;
        if has_more && pages > 0 {
            turns.push_back(topic);
        }
    }
    (looked_at, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes over topics that have so many pages each. Says at how many pages of each it has looked
    /// after every go.
    fn goes(mut pages: BTreeMap<u32, usize>, count: usize) -> Vec<BTreeMap<u32, usize>> {
        let (mut done, mut first, mut seen) = (BTreeMap::new(), 0, Vec::new());
        for _ in 0..count {
            let mut topics: Vec<u32> = pages.keys().copied().collect();
            topics.sort_unstable_by_key(|&topic| (topic < first, topic));
            let before: usize = done.values().sum();
            let (looked_at, next) = deal(topics, PAGES_MAX, |topic, most| {
                let left = pages.get_mut(&topic).unwrap();
                let some = most.min(*left);
                *left -= some;
                *done.entry(topic).or_default() += some;
                (some, *left > 0)
            });
            assert!(looked_at <= PAGES_MAX, "a go is bounded");
            assert_eq!(done.values().sum::<usize>() - before, looked_at);
            first = next.unwrap_or(first);
            seen.push(done.clone());
        }
        seen
    }

    /// A topic had a quarter of the pages of a go, and the rest stayed unused: at 500,000 messages
    /// a second beside one that stayed open the log grew without end.
    #[test]
    fn what_others_leave_is_used() {
        let seen = goes([(1, 1), (2, 1000), (3, 0), (4, 2)].into(), 1);
        assert_eq!(seen[0], [(1, 1), (2, PAGES_MAX - 3), (3, 0), (4, 2)].into());
    }

    #[test]
    fn no_topic_starves_beside_busy_ones() {
        for topics in 1..20 {
            let busy = (0..topics).map(|topic| (topic, usize::MAX)).collect();
            let count = 1 + topics as usize * PAGES_SHARE / PAGES_MAX;
            for seen in &goes(busy, 10 * count)[count - 1..] {
                assert_eq!(seen.len(), topics as usize, "all had a turn within {count} goes");
                let (least, most) = (seen.values().min().unwrap(), seen.values().max().unwrap());
                assert!(most - least <= PAGES_SHARE, "{topics} topics: {seen:?}");
            }
        }
    }
}

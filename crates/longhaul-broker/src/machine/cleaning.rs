//! Frees disk space although some entries stay unacknowledged for long.
//!
//! Acknowledged entries after an unacknowledged one are forgotten: they take no memory, and their
//! log segment no longer counts them. A segment can be removed when nothing in it is needed. One
//! task that takes a week would keep its whole segment, with the data of all topics in it. So when
//! the log has grown and little of the old segments is still needed, that little is copied to the
//! end of the log, and the segments are removed.

use super::BrokerMachine;
use super::backoff::RetryBackoff;
use super::effect::{MachineEffect, PendingCommit, Survivor};
use super::figures::is_compacted;
use crate::log::{LogReadError, RecordHead, RecordKind, RecordLocation};
use crate::state::Forgotten;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Segments that the log may have before any is cleaned, while there is room.
const SEGMENTS_MIN: usize = 4;
/// A segment is cleaned when less than 1/4 of it is needed: the copies then cost less than they
/// free.
const NEEDED_SHARE: u64 = 4;
/// Bytes that are copied at once, unless a single segment has more: they are kept in memory
/// meanwhile.
const COPIED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Pages of 1,024 entries that one run checks for forgettable entries, over all topics. A page
/// takes up to a quarter of a millisecond, if every second entry is acknowledged.
const PAGES_MAX: usize = 64;
/// Pages of one topic before the next topic has its turn.
const PAGES_SHARE: usize = PAGES_MAX / 4;
/// Entries of a page.
const PAGE_ENTRIES: usize = 1024;
/// Interval of the runs. It is shorter if there are more topics than a run looks at, or if at least
/// half of the entries on the pages of the last run could be forgotten and pages were left: so up
/// to 650,000 entries per second are forgotten behind unacknowledged ones, even if all are of one
/// topic.
const GO_MS: u64 = 1000;
/// Interval of the runs while more worthwhile work is left.
pub(super) const HURRY_MS: u64 = 100;
/// Topics that one tick looks at, because clients wait meanwhile.
pub(super) const VISITED_MAX: usize = 2000;
/// How long a segment with unreadable entries is left alone, at first and at most.
const UNREADABLE_PAUSE_MS: (u64, u64) = (10_000, 600_000);
/// Bytes that a subscription may keep on disk without a warning.
const WARN_BYTES: u64 = 1024 * 1024 * 1024;
/// Interval of the warnings.
const WARN_PAUSE_MS: u64 = 600_000;

/// State of the cleaner.
#[derive(Debug, Default)]
pub(super) struct Cleaner {
    /// Whether entries are being read for copies.
    is_busy: bool,
    /// Name of the topic that the next run begins with.
    from: String,
    /// The topics that the last run looked at.
    #[cfg(test)]
    pub(super) looked_at: Vec<u32>,
    /// Time of the next run, by the monotonic clock.
    pub(super) next_go: u64,
    /// Number of copies that are not yet on disk.
    pub(super) copying: usize,
    next_warning: u64,
    /// Segments with unreadable entries, which are left alone for a while.
    unreadable: BTreeMap<u32, RetryBackoff>,
}

impl BrokerMachine {
    /// Forgets entries that every subscription has acknowledged, that are after unacknowledged
    /// ones, and that no policy keeps. As for trimming, entries in the segment that is being
    /// written are kept: they do not occupy reclaimable space.
    pub(super) fn forget_acked_entries(&mut self) {
        let (topics, behind) = self.state.topics_around(&self.cleaner.from, VISITED_MAX);
        #[cfg(test)]
        {
            self.cleaner.looked_at.clone_from(&topics);
        }
        let mut forgotten = 0;
        let (looked_at, next) = deal(topics, PAGES_MAX, |topic, pages_max| {
            let found = self.forget_acked(topic, pages_max);
            forgotten += found.entries;
            (found.pages, found.next.is_some())
        });
        let pays = next.is_some() && forgotten >= looked_at * PAGE_ENTRIES / 2;
        let hurries = pays || behind.is_some();
        self.cleaner.next_go = self.up + if hurries { HURRY_MS } else { GO_MS };
        let next = next.and_then(|topic| Some(self.state.topic(topic)?.name.as_str().to_owned()));
        if let Some(name) = next.or(behind) {
            self.cleaner.from = name;
        }
    }

    fn forget_acked(&mut self, topic: u32, pages_max: usize) -> Forgotten {
        let none = Forgotten::default();
        let both = self.state.topic(topic).zip(self.live.get_mut(&topic));
        let Some((kept, live)) = self.invariants.served(both) else { return none };
        let policies = &live.policies;
        let oldest = policies.retention.unwrap_or_default().oldest_ms(self.now);
        let Some(oldest) = oldest.filter(|_| !is_compacted(kept, policies)) else { return none };
        // Entries before the lowest mark are trimmed.
        let lowest = kept
            .durable()
            .map(|subscription| &subscription.cursor)
            .min_by_key(|cursor| cursor.mark());
        let lowest = lowest.filter(|cursor| cursor.acked().pieces() > 0);
        let Some(lowest) = lowest.filter(|_| !live.compaction.is_pending) else { return none };
        let from = live.forgotten_to.max(lowest.mark());
        let segment = self.composer.end().segment;
        let forgotten = self.state.forget_acked(topic, from, pages_max, segment, oldest);
        live.forgotten_to = forgotten.next.unwrap_or_default();
        forgotten
    }

    /// Looks for old segments of which little is needed.
    pub(super) fn clean(&mut self) {
        // Copies in progress would be made again: on a full disk once in each round.
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
                Some(Survivor { topic, position, location: slot.location })
            }));
        }
        if !survivors.is_empty() {
            self.cleaner.is_busy = true;
            self.effects.push(MachineEffect::Copy(survivors));
        }
    }

    /// The oldest segments that are worth copying, as many as there is room for. A segment can only
    /// be removed after everything needed in it was copied.
    fn segments_to_clean(&self) -> BTreeSet<u32> {
        let segments: Vec<_> = self.log.before(self.composer.end().segment).collect();
        if segments.len() < SEGMENTS_MIN && self.composer.has_room() {
            return BTreeSet::new();
        }
        let (failed, live) = (&self.cleaner.unreadable, self.state.live());
        let is_due = |segment: u32| failed.get(&segment).is_none_or(|pause| pause.is_due(self.up));
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

    /// Copies entries to the end of the log: their records, with unchanged ids.
    pub fn copy(&mut self, read: Vec<(Survivor, Bytes)>) {
        self.cleaner.is_busy = false;
        // The room may have been used up while they were read.
        if !self
            .composer
            .has_room_to_copy(read.iter().map(|read| u64::from(read.0.location.size)).sum())
        {
            return;
        }
        for (survivor, body) in read {
            let Some(ordinal) = self.state.topic(survivor.topic).and_then(|topic| {
                let ordinal = topic.entries.ordinal_of(survivor.position)?;
                // The entry may have been trimmed while it was read.
                topic
                    .entries
                    .get(ordinal)
                    .filter(|slot| slot.location == survivor.location)
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
            // An entry above a limit that was lowered since stays in its segment.
            let Ok(location) = self.composer.append(head, &[&body]) else { continue };
            self.cleaner.copying += 1;
            self.totals.records += 1;
            // Until the copy is on disk, the entry is read from its old location.
            self.waiting
                .push_back((self.composing, PendingCommit::Copied { survivor, ordinal, location }));
        }
    }

    /// Leaves unreadable entries in their segment. The segment is left alone for a while, longer
    /// each time.
    pub fn not_copied(&mut self, failed: &[(Survivor, LogReadError)]) {
        let mut segments = BTreeMap::new();
        for (survivor, cause) in failed {
            // Entries of a removed segment are not needed.
            if !matches!(cause, LogReadError::Gone { .. }) {
                segments.entry(survivor.location.segment).or_insert(cause);
            }
        }
        let live = self.state.live();
        self.cleaner.unreadable.retain(|segment, _| live.contains_key(segment));
        for (segment, cause) in segments {
            let backoff = self.cleaner.unreadable.entry(segment).or_default();
            backoff.fail(self.up, UNREADABLE_PAUSE_MS);
            let text = format!(
                "a segment of the log cannot be read to free its space; the broker tries again after {} s: {cause}: check the disk",
                backoff.pause_ms / 1000
            );
            self.effects.push(MachineEffect::Warn(text));
        }
    }

    /// Notes that a copy is on disk.
    pub(super) fn copied(&mut self, survivor: Survivor, ordinal: u64, location: RecordLocation) {
        self.cleaner.copying = self.cleaner.copying.saturating_sub(1);
        let slot = self.state.topic(survivor.topic).and_then(|topic| topic.entries.get(ordinal));
        if slot.is_some_and(|slot| slot.location == survivor.location) {
            self.state.relocate(survivor.topic, ordinal, location);
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

/// Distributes pages to the topics, a share to each in turn until none are left; pages that a topic
/// does not need go to the others. `look` checks a number of pages of a topic at most, and returns
/// how many it checked and whether there are more. Returns the total number of checked pages, and
/// the next topic, if there are more.
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

    /// Runs over topics with these numbers of pages. Returns the number of checked pages of each
    /// topic after every run.
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

    /// A topic had a quarter of the pages of a run, and the rest stayed unused: at 500,000 messages
    /// per second after an unacknowledged one, the log grew without limit.
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

//! One consumer that never acknowledges must not keep the disk.
//!
//! What is acknowledged behind an entry that is still open is forgotten: it takes no memory, and its segment of the log does not count it.
//! A segment can go when nothing in it is needed any more. One task that takes a week would keep its whole segment,
//! and with it, in a log that all topics share, whatever lies there. So when the log has grown and only little of old segments
//! is still needed, that little is copied to the end of the log, and the segments go.

use super::Machine;
use super::effect::{Effect, Survivor, Waiting};
use super::figures::is_compacted;
use super::invariants::Invariant;
use crate::log::{Head, Kind, Place, ReadError};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Segments that the log may have before any is cleaned, while there is room.
const SEGMENTS_MIN: usize = 4;
/// A segment is cleaned when less than one part in so many is needed: the copies then cost less than what they free.
const NEEDED_SHARE: u64 = 4;
/// So much is copied at once, unless a single segment has more: it lies in memory meanwhile.
const COPIED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// So many pages of 1,024 entries are looked at in one go for what can be forgotten, of all topics together; of one topic at most a quarter, so
/// that those behind it have their turn. A page takes up to a quarter of a millisecond, where every second entry is acknowledged.
const PAGES_MAX: usize = 64;
/// Entries of a page.
const PAGE_ENTRIES: usize = 1024;
/// How long it is until the next go. It is less where at least half of the entries on the pages of the last one could be forgotten, and pages were left: so
/// 160,000 entries a second of one topic are forgotten behind one that stays open.
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
    /// Pages that may still be looked at in this round, and the topic that the next one begins with.
    pages_left: usize,
    first_topic: u32,
    /// Entries that were forgotten in this go.
    forgotten: usize,
    /// Pages were left in the last go.
    has_more: bool,
    /// When the next go is, by the clock that never goes back.
    pub(super) next_go: u64,
    /// Copies on their way to the disk.
    pub(super) copying: usize,
    next_warning: u64,
    /// Segments of which something could not be read: until when they are left alone, and how long that is.
    unreadable: BTreeMap<u32, (u64, u64)>,
}

impl Machine {
    /// Forgets what every subscription has acknowledged behind entries that are open, and no policy keeps. The same rules as for trimming: what lies in
    /// the segment that is being written takes no room that could be had back.
    pub(super) fn forget_acked_entries(&mut self) {
        let first = self.cleaner.first_topic;
        let mut topics: Vec<u32> = self.live.keys().copied().collect();
        topics.sort_unstable_by_key(|&topic| (topic < first, topic));
        let cleaner = &mut self.cleaner;
        (cleaner.pages_left, cleaner.forgotten, cleaner.has_more) = (PAGES_MAX, 0, false);
        for topic in topics {
            if self.cleaner.pages_left == 0 {
                (self.cleaner.first_topic, self.cleaner.has_more) = (topic, true);
                break;
            }
            self.forget_acked(topic);
        }
        let cleaner = &mut self.cleaner;
        let pages = PAGES_MAX - cleaner.pages_left;
        let pays = cleaner.has_more && cleaner.forgotten >= pages * PAGE_ENTRIES / 2;
        cleaner.next_go = self.up + if pays { HURRY_MS } else { GO_MS };
    }

    fn forget_acked(&mut self, topic: u32) {
        let both = self.state.topic(topic).zip(self.live.get_mut(&topic));
        let both = self.invariants.need(both, Invariant::TopicServed, None);
        let Some((kept, live)) = both else { return };
        let policies = &live.policies;
        let oldest = policies.retention.unwrap_or_default().oldest_ms(self.now);
        let Some(oldest) = oldest.filter(|_| !is_compacted(kept, policies)) else { return };
        // What lies before the lowest mark is trimmed.
        let lowest = kept
            .durable()
            .map(|subscription| &subscription.cursor)
            .min_by_key(|cursor| cursor.mark());
        let Some(lowest) = lowest.filter(|cursor| cursor.acked().pieces() > 0) else { return };
        if live.compaction.is_running {
            return;
        }
        let from = live.forgotten_to.max(lowest.mark());
        let segment = self.composer.end().segment;
        let pages = self.cleaner.pages_left.min(PAGES_MAX / 4);
        let forgotten = self.state.forget_acked(topic, from, pages, segment, oldest);
        self.cleaner.pages_left -= forgotten.pages;
        self.cleaner.forgotten += forgotten.entries;
        self.cleaner.has_more |= forgotten.next.is_some();
        live.forgotten_to = forgotten.next.unwrap_or_default();
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
            self.effects.push(Effect::Copy(survivors));
        }
    }

    /// The oldest segments of which so little is needed that copying it pays, as many as there is room for. Only when all that is needed of a segment is
    /// copied it can go.
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
            let head = Head {
                kind: Kind::Entry,
                topic: survivor.topic,
                ledger: survivor.position.ledger,
                entry: survivor.position.entry,
            };
            // One that is above a limit that was lowered since stays where it is.
            let Ok(place) = self.composer.append(head, &[&body]) else { continue };
            self.cleaner.copying += 1;
            self.totals.records += 1;
            // Until the copy is on disk the entry is read where it was.
            self.waiting.push_back((self.composing, Waiting::Copied { survivor, ordinal, place }));
        }
    }

    /// What could not be read stays where it is. Its segment is left alone for a while, longer each time.
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
            self.effects.push(Effect::Warn(text));
        }
    }

    /// A copy is on disk.
    pub(super) fn copied(&mut self, survivor: Survivor, ordinal: u64, place: Place) {
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
                    self.effects.push(Effect::Warn(text));
                }
            }
        }
    }
}

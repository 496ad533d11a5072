//! One consumer that never acknowledges must not keep the disk.
//!
//! A segment of the log can go when nothing in it is needed any more. One task that takes a week would keep its whole segment,
//! and with it, in a log that all topics share, whatever lies there. So when the log has grown and only little of an old segment
//! is still needed, that little is copied to the end of the log, and the segment goes.

use super::Machine;
use super::effect::{Effect, Survivor, Waiting};
use super::figures::is_compacted;
use crate::log::{Head, Kind, Place, ReadError};
use crate::state::Topic;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Segments that the log may have before any is cleaned, while there is room.
const SEGMENTS_MIN: usize = 4;
/// A segment is cleaned when less than one part in so many is needed: the copies then cost less than what they free.
const NEEDED_SHARE: u64 = 4;
/// How often a segment is looked for.
const PAUSE_MS: u64 = 5000;
/// How long a segment is left alone of which something could not be read, at first and at most.
const UNREADABLE_PAUSE_MS: (u64, u64) = (10_000, 600_000);
/// A subscription that keeps more than this on disk is worth a warning.
const WARN_BYTES: u64 = 1024 * 1024 * 1024;
/// How often it is given.
const WARN_PAUSE_MS: u64 = 600_000;

/// What was done when.
#[derive(Debug, Default)]
pub(super) struct Cleaner {
    next: u64,
    /// The segment that was looked at last.
    last: u32,
    /// Copies are being read.
    is_busy: bool,
    /// Copies on their way to the disk.
    pub(super) copying: usize,
    next_warning: u64,
    /// Segments of which something could not be read: until when they are left alone, and how long that is.
    unreadable: BTreeMap<u32, (u64, u64)>,
}

impl Machine {
    /// Looks for an old segment of which little is needed.
    pub(super) fn clean(&mut self) {
        // What is on its way already would be copied again: on a full disk once in each pause.
        let is_busy = self.cleaner.is_busy || self.cleaner.copying > 0 || self.keeper.is_full();
        if is_busy || self.up < self.cleaner.next {
            return;
        }
        self.cleaner.next = self.up + PAUSE_MS;
        let current = self.composer.end().segment;
        let segments = self.keeper.sealed(current);
        if segments.len() < SEGMENTS_MIN && self.composer.has_room() {
            return;
        }
        // One at a time: to look at a segment is to look at every entry there is.
        let failed = &self.cleaner.unreadable;
        let is_due = |it: u32| failed.get(&it).is_none_or(|&(until, _)| self.up >= until);
        let has_entries = |it: &&(u32, u64)| self.state.live().contains_key(&it.0) && is_due(it.0);
        let next = segments.iter().filter(has_entries).find(|it| it.0 > self.cleaner.last);
        let Some(&(segment, bytes)) = next.or_else(|| segments.iter().find(has_entries)) else {
            return;
        };
        self.cleaner.last = segment;
        let (survivors, dead) = self.survivors(segment);
        let needed: u64 = survivors.iter().map(|it| u64::from(it.place.size)).sum();
        // Only when all of it is copied the segment can go.
        if needed * NEEDED_SHARE > bytes || !self.composer.has_room_to_copy(needed) {
            return;
        }
        for (topic, ordinal) in dead {
            self.state.relocate(topic, ordinal, None);
        }
        if !survivors.is_empty() {
            self.cleaner.is_busy = true;
            self.effects.push(Effect::Copy(survivors));
        }
    }

    /// The entries of a segment that are needed, and those that are not.
    fn survivors(&self, segment: u32) -> (Vec<Survivor>, Vec<(u32, u64)>) {
        let (mut survivors, mut dead) = (Vec::new(), Vec::new());
        for (id, topic) in self.state.topics() {
            let inside = topic
                .entries
                .iter()
                .filter(|(_, slot)| slot.is_here() && slot.place.segment == segment);
            for (ordinal, slot) in inside {
                if self.is_dead(id, topic, ordinal, slot.publish_time) {
                    dead.push((id, ordinal));
                } else if let Some(position) = topic.entries.position_of(ordinal) {
                    survivors.push(Survivor { topic: id, position, place: slot.place });
                }
            }
        }
        (survivors, dead)
    }

    /// Whether every subscription has acknowledged the entry and no policy keeps it. The same rules as for trimming, but for what
    /// lies behind an entry that is still open. What is not on disk yet was shown to nobody, so that nobody has acknowledged it.
    fn is_dead(&self, id: u32, topic: &Topic, ordinal: u64, publish_time: u64) -> bool {
        let Some(live) = self.live.get(&id) else { return false };
        let policies = &live.policies;
        let retention = policies.retention.unwrap_or_default();
        let oldest = retention.oldest_ms(self.now);
        let mut subscriptions = topic.durable().peekable();
        !is_compacted(topic, policies)
            && !live.compaction.is_running
            && subscriptions.peek().is_some()
            && oldest.is_some_and(|oldest| publish_time < oldest)
            && subscriptions.all(|it| it.cursor.is_acked(ordinal))
    }

    /// Copies entries to the end of the log: their records, with the ids that they have.
    pub fn copy(&mut self, read: Vec<(Survivor, Bytes)>) {
        self.cleaner.is_busy = false;
        // The room may have gone while they were read.
        if !self.composer.has_room_to_copy(read.iter().map(|it| u64::from(it.0.place.size)).sum()) {
            return;
        }
        for (it, body) in read {
            let Some(ordinal) = self.state.topic(it.topic).and_then(|topic| {
                let ordinal = topic.entries.ordinal_of(it.position)?;
                // It may have been trimmed while it was read.
                topic.entries.get(ordinal).filter(|slot| slot.place == it.place).map(|_| ordinal)
            }) else {
                continue;
            };
            let head = Head {
                kind: Kind::Entry,
                topic: it.topic,
                ledger: it.position.ledger,
                entry: it.position.entry,
            };
            let Ok(place) = self.composer.append(head, &[&body]) else { continue };
            self.cleaner.copying += 1;
            self.totals.records += 1;
            // Until the copy is on disk the entry is read where it was.
            self.waiting
                .push_back((self.composing, Waiting::Copied { survivor: it, ordinal, place }));
        }
    }

    /// What could not be read stays where it is. Its segment is left alone for a while, longer each time.
    pub fn not_copied(&mut self, failed: &[(Survivor, ReadError)]) {
        let mut segments = BTreeMap::new();
        for (it, cause) in failed {
            // One that was removed is needed by nobody.
            if !matches!(cause, ReadError::Gone { .. }) {
                segments.entry(it.place.segment).or_insert(cause);
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
    pub(super) fn copied(&mut self, it: Survivor, ordinal: u64, place: Place) {
        self.cleaner.copying = self.cleaner.copying.saturating_sub(1);
        let slot = self.state.topic(it.topic).and_then(|topic| topic.entries.get(ordinal));
        if slot.is_some_and(|slot| slot.place == it.place) {
            self.state.relocate(it.topic, ordinal, Some(place));
            self.is_readable_again(it.topic, ordinal);
        }
    }

    /// Warns about subscriptions that keep much.
    pub(super) fn warn_of_backlogs(&mut self) {
        if self.up < self.cleaner.next_warning || self.keeper.disk_bytes() < WARN_BYTES {
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

//! Keeps the most recent entries in memory, so that consumers that keep up need no reads.

use crate::ids::IdMap;
use bytes::Bytes;
use std::collections::VecDeque;

/// The driver copies smaller messages into the output, in bytes.
pub const COPIED_BYTES_MAX: usize = 16 * 1024;
/// Larger ones are sent from memory only if their group has at most this many times their bytes: it
/// stays in memory until they are sent, and the window of a slow connection counts only messages.
const PINNED_SHARE: usize = 2;

/// The last entries of all topics, up to a number of bytes.
///
/// Entries are slices of their group's bytes and keep the whole group in memory. So the limit
/// counts groups: a group is dropped with its last entry. The newest group is always kept, whatever
/// its size, because it is about to be delivered.
#[derive(Debug, Default)]
pub struct Recent {
    topics: IdMap<u32, RecentEntries>,
    /// Topic and group number of each entry, in order of arrival.
    order: VecDeque<(u32, u64)>,
    /// Groups with consecutive numbers. The last one is being filled.
    groups: VecDeque<RecentEntryGroup>,
    /// Number of the first group.
    first_group: u64,
    bytes: usize,
    bytes_max: usize,
}

/// The last entries of a topic, without holes.
#[derive(Debug)]
struct RecentEntries {
    first: u64,
    /// With the numbers of their groups.
    bodies: VecDeque<(Bytes, u64)>,
}

/// Entries that share their memory.
#[derive(Debug, Default)]
struct RecentEntryGroup {
    bytes: usize,
    /// Number of kept entries.
    entries: usize,
}

impl Recent {
    /// Keeps up to this many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, groups: VecDeque::from([RecentEntryGroup::default()]), ..Self::default() }
    }

    /// Adds an entry of the group that is being filled.
    pub fn push(&mut self, topic: u32, ordinal: u64, body: Bytes) {
        let next = self.topics.get(&topic).map(|tail| tail.first + tail.bodies.len() as u64);
        if next.is_some_and(|next| next != ordinal) {
            // Entries come in order, so this cannot happen; a tail with a hole would return wrong
            // entries.
            self.forget(topic);
        }
        let fresh = || RecentEntries { first: ordinal, bodies: VecDeque::new() };
        let number = self.first_group + self.groups.len() as u64 - 1;
        self.topics.entry(topic).or_insert_with(fresh).bodies.push_back((body, number));
        let Some(group) = self.groups.back_mut() else { return };
        group.entries += 1;
        self.order.push_back((topic, number));
    }

    /// Completes the current group, whose size is `bytes`. Old groups are dropped.
    pub fn end_group(&mut self, bytes: usize) {
        let Some(group) = self.groups.back_mut().filter(|group| group.entries > 0) else { return };
        group.bytes = bytes;
        self.bytes += bytes;
        let newest = self.first_group + self.groups.len() as u64 - 1;
        while self.bytes > self.bytes_max
            && let Some(&(topic, number)) = self.order.front().filter(|oldest| oldest.1 < newest)
        {
            self.order.pop_front();
            self.leave(number);
            let Some(tail) = self.topics.get_mut(&topic) else { continue };
            tail.bodies.pop_front();
            tail.first += 1;
        }
        self.groups.push_back(RecentEntryGroup::default());
        self.drop_empty();
    }

    /// Notes that an entry of this group was dropped.
    fn leave(&mut self, number: u64) {
        let at = usize::try_from(number - self.first_group).ok();
        let Some(group) = at.and_then(|at| self.groups.get_mut(at)) else { return };
        group.entries -= 1;
        if group.entries == 0 {
            self.bytes -= std::mem::take(&mut group.bytes);
        }
    }

    fn drop_empty(&mut self) {
        while self.groups.len() > 1 && self.groups.front().is_some_and(|group| group.entries == 0) {
            self.groups.pop_front();
            self.first_group += 1;
        }
    }

    fn find(&self, topic: u32, ordinal: u64) -> Option<&(Bytes, u64)> {
        let tail = self.topics.get(&topic)?;
        tail.bodies.get(usize::try_from(ordinal.checked_sub(tail.first)?).ok()?)
    }

    /// An entry, if it is kept.
    #[cfg(test)]
    pub fn get(&self, topic: u32, ordinal: u64) -> Option<&Bytes> {
        self.find(topic, ordinal).map(|(body, _)| body)
    }

    /// An entry that may wait to be sent: see [`PINNED_SHARE`].
    #[must_use]
    pub fn to_send(&self, topic: u32, ordinal: u64) -> Option<&Bytes> {
        let (body, number) = self.find(topic, ordinal)?;
        let group = usize::try_from(number - self.first_group).ok();
        let group = group.and_then(|at| self.groups.get(at)).map_or(0, |group| group.bytes);
        let is_sent = body.len() <= COPIED_BYTES_MAX || group <= body.len() * PINNED_SHARE;
        is_sent.then_some(body)
    }

    /// Forgets the entries of a topic.
    pub fn forget(&mut self, topic: u32) {
        if self.topics.remove(&topic).is_none() {
            return;
        }
        let mut order = std::mem::take(&mut self.order);
        order.retain(|&(of, number)| {
            if of == topic {
                self.leave(number);
            }
            of != topic
        });
        self.order = order;
        self.drop_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Recent {
        /// An entry in a group of its own.
        fn keep(&mut self, topic: u32, ordinal: u64, size: usize) {
            self.push(topic, ordinal, body(size));
            self.end_group(size);
        }
    }

    fn body(size: usize) -> Bytes {
        Bytes::from(vec![0; size])
    }

    #[test]
    fn the_oldest_entries_go_first_whatever_their_topic() {
        let mut recent = Recent::new(100);
        for ordinal in 0..3 {
            recent.keep(1, ordinal, 30);
        }
        recent.keep(2, 7, 45);
        assert!(recent.get(1, 0).is_none() && recent.get(1, 1).is_none());
        assert!(recent.get(1, 2).is_some() && recent.get(2, 7).is_some());
        assert!(recent.get(2, 6).is_none() && recent.get(2, 8).is_none());
        recent.keep(1, 3, 101);
        assert!(recent.get(1, 2).is_none() && recent.get(1, 3).is_some(), "the newest stays");
        assert_eq!((recent.bytes, recent.order.len()), (101, 1));
        recent.keep(1, 4, 10);
        assert_eq!((recent.bytes, recent.order.len()), (10, 1));
    }

    #[test]
    fn a_deleted_topic_takes_its_entries_with_it() {
        let mut recent = Recent::new(100);
        recent.keep(1, 0, 30);
        recent.keep(2, 0, 30);
        recent.forget(1);
        assert_eq!((recent.bytes, recent.get(1, 0)), (30, None));
        recent.keep(2, 5, 10);
        assert!(recent.get(2, 0).is_none(), "a hole would hand out wrong entries");
        assert_eq!((recent.bytes, recent.order.len(), recent.groups.len()), (10, 1, 2));
    }

    #[test]
    fn as_much_is_kept_as_there_is_room_for() {
        let mut recent = Recent::new(100);
        recent.keep(1, 0, 60);
        recent.keep(1, 1, 40);
        assert!(recent.get(1, 0).is_some(), "it fits exactly");
        recent.keep(1, 2, 1);
        assert!(recent.get(1, 0).is_none());
        assert_eq!((recent.bytes, recent.get(1, 1)), (41, Some(&body(40))));
        recent.keep(1, 3, 59);
        let kept: Vec<_> = (0..5).map(|ordinal| recent.get(1, ordinal).map(Bytes::len)).collect();
        assert_eq!(kept, [None, Some(40), Some(1), Some(59), None]);
    }

    /// Each entry was copied out of its group, because one small entry keeps the whole group's
    /// memory. Now the group counts until its last entry is dropped, so no copy is needed.
    #[test]
    fn a_group_counts_as_a_whole_until_its_last_entry_goes() {
        let mut recent = Recent::new(100);
        recent.push(1, 0, body(1));
        recent.push(2, 0, body(2));
        recent.end_group(70);
        recent.forget(1);
        assert_eq!((recent.bytes, recent.get(2, 0).is_some()), (70, true), "of no use, but there");
        recent.end_group(1000);
        assert_eq!(recent.bytes, 70, "a group without entries is not kept");
        recent.push(2, 1, body(3));
        assert!(recent.get(2, 1).is_some());
        recent.end_group(31);
        assert_eq!((recent.bytes, recent.get(2, 0).is_some()), (31, false));
        recent.forget(2);
        assert_eq!((recent.bytes, recent.order.len(), recent.groups.len()), (0, 0, 1));
    }

    /// A consumer that read slowly kept the group of each large message in memory: 240 messages of 17
    /// KiB, within its window of 4 MiB, kept 240 MB.
    #[test]
    fn a_message_that_waits_does_not_keep_a_much_larger_group() {
        let mut recent = Recent::new(10_000_000);
        let sizes = [COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1, 200_000];
        for (ordinal, size) in (0..).zip(sizes) {
            recent.push(1, ordinal, body(size));
        }
        recent.end_group(400_000);
        recent.keep(1, 3, COPIED_BYTES_MAX + 1);
        let sent = (0..5).map(|ordinal| recent.to_send(1, ordinal).is_some());
        assert_eq!(sent.collect::<Vec<_>>(), [true, false, true, true, false]);
        assert!(recent.get(1, 1).is_some(), "it is read from the log");
    }

    /// The entries that a topic had before a hole are removed from the order too, and those of
    /// other topics stay.
    #[test]
    fn a_hole_forgets_the_entries_before_it_alone() {
        let mut recent = Recent::new(100);
        recent.keep(1, 0, 10);
        recent.keep(2, 0, 20);
        recent.keep(1, 1, 30);
        recent.keep(1, 5, 15);
        let topics = |recent: &Recent| recent.order.iter().map(|entry| entry.0).collect::<Vec<_>>();
        assert_eq!((recent.bytes, topics(&recent)), (35, vec![2, 1]));
        assert!(recent.get(1, 1).is_none() && recent.get(1, 4).is_none());
        assert!(recent.get(2, 0).is_some() && recent.get(1, 5).is_some());
        recent.keep(1, 6, 60);
        assert_eq!((recent.bytes, recent.get(2, 0).is_some()), (95, true));
        recent.keep(1, 7, 10);
        assert_eq!((recent.bytes, recent.get(2, 0).is_some()), (85, false), "the oldest");
        recent.forget(1);
        assert_eq!((recent.bytes, recent.order.len()), (0, 0));
    }
}

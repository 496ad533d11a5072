//! The ends that the metadata topic shows, and the time when their retention is over. Compact,
//! because there are as many as tasks that ended within the retention.
//!
//! Ends are read in the order in which they were written, and leave in that order, in groups: ends
//! that were read at the same time and written within a short time leave together. So times and
//! stamps are kept per group and not per end.

use crate::protocol::moment::Moment;
use crate::task::{Position, TaskId};
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// If only the own wall clock shows the retention of an entry as over, it is checked again after
/// this part of the retention.
const RECHECKS: u32 = 16;
/// Minimum interval of these checks.
const RECHECK_MIN: Duration = Duration::from_secs(1);

/// Stamps within this part of the retention count as equal.
const STAMPS: u32 = 64;

/// The entry that shows the end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MetadataEnd {
    /// Position of the entry.
    pub at: Position,
    /// The epoch in the entry; `None` for entries of other implementations.
    pub epoch: Option<u32>,
}

/// The shown ends of a partition. See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct MetadataEnds {
    retention: Duration,
    partition: i32,
    ends: BTreeMap<Id, PackedEnd>,
    /// In reading order; below, the number of the first one.
    order: VecDeque<Id>,
    first: u32,
    groups: VecDeque<RetentionGroup>,
    /// The newest stamp read, in ms by its writer's wall clock.
    newest_ms: u64,
}

/// A position in a log, as words: less than half the size of the separate parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PackedPosition([u32; 5]);

/// Compares like the words, with two comparisons instead of five: a large map compares its ids all
/// the time.
impl Ord for PackedPosition {
    fn cmp(&self, other: &Self) -> Ordering {
        let entry = |Self([a, b, c, d, _]): &Self| {
            let whole = |high: u32, low: u32| u128::from(high) << 32 | u128::from(low);
            whole(*a, *b) << 64 | whole(*c, *d)
        };
        let index = |Self([.., index]): &Self| *index;
        entry(self).cmp(&entry(other)).then_with(|| index(self).cmp(&index(other)))
    }
}

impl PartialOrd for PackedPosition {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A task of the partition.
type Id = PackedPosition;

#[derive(Clone, Copy, Debug)]
struct PackedEnd {
    at: PackedPosition,
    /// Zero for none; epochs begin at one.
    epoch: u32,
    /// Its number in reading order.
    number: u32,
}

/// Ends that leave together.
#[derive(Clone, Copy, Debug)]
struct RetentionGroup {
    count: u32,
    /// The first and the last stamp.
    stamps_ms: (u64, u64),
    live: bool,
    read: Moment,
    /// When to check whether the retention is over.
    look_at: Moment,
}

impl PackedPosition {
    fn of(position: Position) -> Self {
        let Position { ledger, entry, batch_index } = position;
        let [a, b] = halves(ledger);
        let [c, d] = halves(entry);
        Self([a, b, c, d, batch_index.map_or(0, |index| index.saturating_add(1))])
    }

    fn position(self) -> Position {
        let Self([a, b, c, d, index]) = self;
        let whole = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        Position { ledger: whole(a, b), entry: whole(c, d), batch_index: index.checked_sub(1) }
    }
}

impl PackedEnd {
    fn end(self) -> MetadataEnd {
        MetadataEnd { at: self.at.position(), epoch: Some(self.epoch).filter(|epoch| *epoch > 0) }
    }
}

/// The high and the low half.
fn halves(number: u64) -> [u32; 2] {
    [number >> 32, number & u64::from(u32::MAX)].map(|half| u32::try_from(half).unwrap_or(u32::MAX))
}

impl MetadataEnds {
    pub(super) const fn new(retention: Duration) -> Self {
        Self {
            retention,
            partition: -1,
            ends: BTreeMap::new(),
            order: VecDeque::new(),
            first: 0,
            groups: VecDeque::new(),
            newest_ms: 0,
        }
    }

    pub(super) const fn retention(&self) -> Duration {
        self.retention
    }

    /// Notes the stamp of an entry. No entry is older than those before it, whatever its writer's
    /// clock.
    pub(super) fn stamped(&mut self, last_updated_ms: u64) {
        self.newest_ms = self.newest_ms.max(last_updated_ms);
    }

    pub(super) fn get(&self, id: TaskId) -> Option<MetadataEnd> {
        self.ends.get(&PackedPosition::of(id.position())).map(|kept| kept.end())
    }

    /// Notes that the metadata topic shows the end of a task, as of the last stamp. All tasks are
    /// of one partition.
    pub(super) fn insert(
        &mut self,
        id: TaskId,
        end: MetadataEnd,
        live: bool,
        now: Moment,
        wall_ms: u64,
    ) {
        self.partition = id.partition;
        let id = PackedPosition::of(id.position());
        let number = self.first.wrapping_add(u32::try_from(self.order.len()).unwrap_or(u32::MAX));
        let (at, epoch) = (PackedPosition::of(end.at), end.epoch.unwrap_or_default());
        self.ends.insert(id, PackedEnd { at, epoch, number });
        self.order.push_back(id);
        let (stamp, span) = (self.newest_ms, self.retention / STAMPS);
        let near = |(first, _): (u64, u64)| Duration::from_millis(stamp - first) <= span;
        let age = Duration::from_millis(wall_ms.saturating_sub(stamp));
        let look_at = now + if live { self.retention } else { self.retention.saturating_sub(age) };
        match self.groups.back_mut() {
            Some(group) if group.read == now && group.live == live && near(group.stamps_ms) => {
                group.count += 1;
                group.stamps_ms.1 = stamp;
                group.look_at = look_at;
            }
            _ => {
                let stamps_ms = (stamp, stamp);
                self.groups.push_back(RetentionGroup {
                    count: 1,
                    stamps_ms,
                    live,
                    read: now,
                    look_at,
                });
            }
        }
    }

    /// Notes that the metadata topic no longer shows the end of the task. Returns the end that it
    /// showed.
    pub(super) fn remove(&mut self, id: TaskId) -> Option<MetadataEnd> {
        self.ends.remove(&PackedPosition::of(id.position())).map(PackedEnd::end)
    }

    /// Takes the next task whose retention is over, confirmed by more than the own wall clock.
    pub(super) fn pop_over(&mut self, now: Moment) -> Option<TaskId> {
        loop {
            let group = self.groups.front_mut()?;
            if group.look_at > now {
                return None;
            }
            let until = group.read + self.retention;
            let behind = Duration::from_millis(self.newest_ms.saturating_sub(group.stamps_ms.1));
            if now < until && behind < self.retention {
                let again = now + (self.retention / RECHECKS).max(RECHECK_MIN);
                group.look_at = again.min(until);
                return None;
            }
            group.count -= 1;
            if group.count == 0 {
                self.groups.pop_front();
            }
            let (id, number) = (self.order.pop_front()?, self.first);
            self.first = self.first.wrapping_add(1);
            // Its end may have been shown again since, or may no longer be shown.
            if self.ends.get(&id).is_some_and(|kept| kept.number == number) {
                self.ends.remove(&id);
                return Some(TaskId::new(id.position(), self.partition));
            }
        }
    }

    /// When to look for the next one.
    pub(super) fn next(&self) -> Option<Moment> {
        self.groups.front().map(|group| group.look_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Earlier, each known task took 320 bytes.
    #[test]
    fn an_end_takes_little() {
        assert_eq!(size_of::<(Id, PackedEnd)>(), 48);
    }

    #[test]
    fn a_place_is_what_it_was_and_stands_where_it_stood() {
        let at = |ledger, entry, batch_index| Position { ledger, entry, batch_index };
        let all = [
            at(0, 0, None),
            at(0, 0, Some(0)),
            at(0, 1, None),
            at(0, 1 << 40, Some(9)),
            at(1 << 33, 7, None),
            at(u64::MAX, u64::MAX, Some(77)),
        ];
        assert_eq!(all.map(|position| PackedPosition::of(position).position()), all);
        assert!(all.map(PackedPosition::of).is_sorted());
    }

    /// Stamps within 10 s of each other count as equal with this retention.
    const RETENTION: Duration = Duration::from_secs(640);
    const RETENTION_MS: u64 = 640_000;

    fn task(entry: u64) -> TaskId {
        TaskId { ledger: 1, entry, partition: 3, batch_index: None }
    }

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    /// Inserts the end of this task, from an entry with this stamp.
    fn insert(
        ends: &mut MetadataEnds,
        entry: u64,
        stamp_ms: u64,
        live: bool,
        now: Moment,
        wall_ms: u64,
    ) {
        ends.stamped(stamp_ms);
        let shown_at = Position { ledger: 2, entry, batch_index: None };
        ends.insert(task(entry), MetadataEnd { at: shown_at, epoch: Some(1) }, live, now, wall_ms);
    }

    /// Earlier, no test failed when all ends were one group, which left together when the retention
    /// of the last one was over: on a topic where tasks end all the time that never happens.
    #[test]
    fn each_end_leaves_when_its_own_retention_is_over() {
        let mut ends = MetadataEnds::new(RETENTION);
        for entry in 0..3 {
            insert(&mut ends, entry, 0, true, at(entry), 0);
        }
        for entry in 0..3 {
            let over = at(entry) + RETENTION;
            assert_eq!(ends.next(), Some(over));
            assert_eq!(ends.pop_over(Moment(over.0 - Duration::from_millis(1))), None);
            assert_eq!(ends.pop_over(over), Some(task(entry)));
            assert_eq!((ends.pop_over(over), ends.get(task(entry))), (None, None));
        }
        assert_eq!(ends.next(), None);
    }

    /// Earlier, no test failed when each end kept its own times and stamps, at 56 bytes, nor when
    /// ends of different times or stamps shared them.
    #[test]
    fn ends_are_one_group_that_were_read_at_a_time_and_written_within_a_moment() {
        const SPAN_MS: u64 = RETENTION_MS / 64;
        let last = (SPAN_MS, true, at(7));
        for (stamp_ms, live, now, groups) in [
            (last.0, last.1, last.2, 1),
            (SPAN_MS + 1, last.1, last.2, 2),
            (last.0, false, last.2, 2),
            (last.0, last.1, at(8), 2),
        ] {
            let mut ends = MetadataEnds::new(RETENTION);
            for entry in 0..=100 {
                insert(&mut ends, entry, entry * SPAN_MS / 100, true, at(7), 0);
            }
            assert_eq!(ends.groups.len(), 1);
            insert(&mut ends, 101, stamp_ms, live, now, 0);
            assert_eq!(ends.groups.len(), groups, "{stamp_ms} {live} {now:?}");
        }
    }

    /// Earlier, no test failed when the last end of a group left as early as its first one.
    #[test]
    fn a_group_leaves_when_the_retention_of_its_last_end_is_over() {
        let mut ends = MetadataEnds::new(RETENTION);
        insert(&mut ends, 1, 1_000, false, at(0), 401_000);
        insert(&mut ends, 2, 11_000, false, at(0), 401_000);
        assert_eq!((ends.groups.len(), ends.next()), (1, Some(at(250))));
        // By this stamp the retention of the first one is over, and that of the other is not.
        ends.stamped(RETENTION_MS + 10_999);
        assert_eq!(ends.pop_over(at(250)), None);
        ends.stamped(RETENTION_MS + 11_000);
        assert_eq!([(); 3].map(|()| ends.pop_over(at(290))), [Some(task(1)), Some(task(2)), None]);
    }

    /// Earlier, no test failed when the age of an end that was read live was taken from stamps: two
    /// wrong clocks then deleted it at once.
    #[test]
    fn of_a_live_end_no_clock_of_others_counts() {
        let mut ends = MetadataEnds::new(RETENTION);
        insert(&mut ends, 1, 1_000, true, at(0), 10 * RETENTION_MS);
        ends.stamped(10 * RETENTION_MS);
        assert_eq!(ends.next(), Some(at(640)));
        assert_eq!(ends.pop_over(at(639)), None);
    }

    /// Earlier, no test failed when an end that was over only by the own clock was checked without
    /// a pause, or only after its retention.
    #[test]
    fn what_the_own_clock_calls_over_is_looked_at_again_now_and_then() {
        for (retention, first, last) in [(RETENTION, 40, 640), (Duration::from_secs(8), 1, 8)] {
            let mut ends = MetadataEnds::new(retention);
            insert(&mut ends, 1, 0, false, at(0), 10 * RETENTION_MS);
            assert_eq!((ends.next(), ends.pop_over(at(0))), (Some(at(0)), None));
            assert_eq!((ends.next(), ends.pop_over(at(last - 1))), (Some(at(first)), None));
            assert_eq!((ends.next(), ends.pop_over(at(last))), (Some(at(last)), Some(task(1))));
        }
    }
}

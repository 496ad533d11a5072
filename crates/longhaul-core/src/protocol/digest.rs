//! The digest of a ledger's fold, by which a worker that starts compares itself with those that
//! run.
//!
//! Compaction does not change what a ledger folds to (C-01), and two readers at one position have
//! the same state (C-07). So two digests at one position differ only if one of the readers was not
//! given some entry. Who runs counts the entries of the others (`gap.rs`); who starts reads a
//! compacted view, and a view that has lost entries looks like any other one.

use super::entry_set::{EntrySet, Range};
use super::fold::{Phase, TaskFold};
use super::hash::{mix, mix_all};
use super::key::OwnerId;
use crate::task::TaskId;
use std::fmt;

/// The digest of a ledger's fold at a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FoldDigest {
    /// Number of tasks with keys on the ledger that no seal names, plus the entries of the task
    /// topic that seals name.
    known: u64,
    /// A hash of what is known of each of them.
    hash: u64,
}

/// What a heartbeat says about digests. Both digests are those at the position of the heartbeat
/// that asks, so an answer is right however late it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// Nobody has confirmed what its sender has read: the others are asked for their digest.
    Question,
    /// The answer to the question in this heartbeat of this owner.
    Answer {
        /// The owner that has asked.
        to: OwnerId,
        /// The number of its heartbeat.
        number: u64,
        /// The digest of the worker that answers.
        digest: FoldDigest,
    },
}

/// The part of the tasks in a digest. It is kept up to date, because a worker may know a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TasksDigest {
    known: u64,
    sum: u64,
}

impl TasksDigest {
    /// Adds a task with keys on the ledger.
    pub fn add(&mut self, id: TaskId, fold: &TaskFold) {
        self.known += 1;
        self.sum = self.sum.wrapping_add(hash_of_task(id, fold));
    }

    /// Removes a task as it was added.
    pub fn remove(&mut self, id: TaskId, fold: &TaskFold) {
        self.known = self.known.saturating_sub(1);
        self.sum = self.sum.wrapping_sub(hash_of_task(id, fold));
    }
}

impl FoldDigest {
    /// The digest of these tasks and of the sealed entries. Takes time for each range of those.
    #[must_use]
    pub fn of(tasks: TasksDigest, sealed: &EntrySet) -> Self {
        let mut known = tasks.known;
        let mut hash = mix(tasks.sum);
        let mut add = |number: u64| hash = mix(hash ^ number);
        // Where two ranges meet depends only on how their tasks have ended, which decides nothing
        // here: the next range goes on with the one before.
        let mut end = None;
        for Range { ledger, first, last, .. } in sealed.ranges() {
            known = known.saturating_add((last - first).saturating_add(1));
            if end != Some((ledger, first)) {
                [end.map_or(0, |(_, end)| end), ledger, first].into_iter().for_each(&mut add);
            }
            end = Some((ledger, last.saturating_add(1)));
        }
        end.into_iter().for_each(|(_, end)| add(end));
        Self { known, hash }
    }

    /// How many more tasks the other one knows, in a broad sense: a difference of two counts.
    #[must_use]
    pub const fn lacks(self, other: Self) -> u64 {
        other.known.saturating_sub(self.known)
    }
}

/// Every part of the fold that decides what may follow.
fn hash_of_task(id: TaskId, fold: &TaskFold) -> u64 {
    let TaskFold { epoch, attempt, owner, phase, cancel, next_attempt: _ } = *fold;
    let phase = match phase {
        Phase::New => 0,
        Phase::Running => 1,
        Phase::Retry => 2,
        Phase::Completed => 3,
        Phase::Final => 4,
        Phase::Cancelled => 5,
        Phase::Expired => 6,
        Phase::Sealed => 7,
    };
    mix_all(id, owner, [u64::from(epoch.0), u64::from(attempt), phase, u64::from(cancel)])
}

/// `?` for a question; for an answer owner, number of the heartbeat, and the two numbers of the
/// digest, the hash in hexadecimal digits: `<owner>/7/1200/00c0ffee00c0ffee`.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Question => f.write_str("?"),
            Self::Answer { to, number, digest: FoldDigest { known, hash } } => {
                write!(f, "{to}/{number}/{known}/{hash:016x}")
            }
        }
    }
}

impl Comparison {
    /// Parses the text form. `None` for any other: another version may have another one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == "?" {
            return Some(Self::Question);
        }
        let parts: Vec<&str> = text.split('/').collect();
        let [to, number, known, hash] = parts[..] else { return None };
        let to = super::key::parse_owner(to)?;
        let hash = u64::from_str_radix(hash, 16).ok()?;
        let digest = FoldDigest { known: known.parse().ok()?, hash };
        Some(Self::Answer { to, number: number.parse().ok()?, digest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::entry_set::BatchOutcome;
    use crate::protocol::key::Epoch;
    use crate::task::EntryId;

    const ID: TaskId = TaskId { ledger: 1, entry: 2, partition: -1, batch_index: None };

    fn running() -> TaskFold {
        let (owner, phase) = (OwnerId(7), Phase::Running);
        TaskFold { epoch: Epoch(1), attempt: 1, owner, phase, ..TaskFold::default() }
    }

    fn sealed(entries: &[u64]) -> EntrySet {
        let mut set = EntrySet::default();
        for entry in entries {
            set.push_entry(EntryId { ledger: 1, entry: *entry }, BatchOutcome::Completed);
        }
        set
    }

    #[test]
    fn every_part_of_a_fold_counts_and_the_order_of_tasks_does_not() {
        let other = TaskId { entry: 3, ..ID };
        let of = |tasks: &[(TaskId, TaskFold)], entries: &[u64]| {
            let mut sum = TasksDigest::default();
            tasks.iter().for_each(|(id, fold)| sum.add(*id, fold));
            FoldDigest::of(sum, &sealed(entries))
        };
        let one = of(&[(ID, running()), (other, running())], &[8, 9]);
        assert_eq!(one, of(&[(other, running()), (ID, running())], &[8, 9]));
        let changed = [
            TaskFold { epoch: Epoch(2), ..running() },
            TaskFold { attempt: 2, ..running() },
            TaskFold { owner: OwnerId(7 << 64), ..running() },
            TaskFold { phase: Phase::Completed, ..running() },
            TaskFold { cancel: true, ..running() },
        ];
        for fold in changed {
            assert_ne!(one, of(&[(ID, fold), (other, running())], &[8, 9]), "{fold:?}");
        }
        for index in [Some(0), Some(1)] {
            let batched = TaskId { batch_index: index, ..ID };
            assert_ne!(one, of(&[(batched, running()), (other, running())], &[8, 9]));
        }
        let without = of(&[(ID, running())], &[8, 9]);
        assert_eq!((without.lacks(one), one.lacks(without)), (1, 0));
        for entries in [&[8][..], &[9], &[8, 10], &[8, 9, 10]] {
            assert_ne!(one, of(&[(ID, running()), (other, running())], entries), "{entries:?}");
        }
        assert_eq!(of(&[], &[]).lacks(one), 4);
    }

    /// Workers of two builds compare themselves: with different digests none would ever be ready.
    #[test]
    fn the_digest_is_the_same_in_every_build() {
        let mut tasks = TasksDigest::default();
        tasks.add(ID, &running());
        let digest = FoldDigest::of(tasks, &sealed(&[8, 9]));
        let told = Comparison::Answer { to: OwnerId(5), number: 3, digest }.to_string();
        assert_eq!(told, format!("{}/3/3/bdbb51c234551df3", OwnerId(5)));
        let answer = Comparison::Answer { to: OwnerId(5), number: 3, digest };
        assert_eq!(Comparison::parse(&told), Some(answer));
    }

    #[test]
    fn what_is_no_comparison_says_nothing() {
        let owner = OwnerId(5).to_string();
        for rest in ["", "/3/1", "/3/1/0/0", "/-3/1/0", "/3/x/0", "/3/1/g"] {
            let text = format!("{owner}{rest}");
            assert_eq!(Comparison::parse(&text), None, "{text}");
        }
        for text in ["", "!", "5/3/1/0"] {
            assert_eq!(Comparison::parse(text), None, "{text}");
        }
    }
}

//! When the keys of a finished task may leave the ledger.
//!
//! An ack's receipt proves nothing: the broker may answer before the cursor is stored, and forget the ack when it restarts. So
//! eviction waits until the subscription's mark-delete position has passed the task and *stayed* there for R: it was read at
//! least twice, first and last R apart, never lower in between, and first after this worker saw the terminal.

use super::moment::Moment;
use crate::task::EntryId;
use std::collections::VecDeque;
use std::time::Duration;

/// Samples kept; with one every R/8, a little over R.
const SAMPLES_MAX: usize = 16;

/// What was read of a subscription's mark-delete position.
#[derive(Clone, Debug, Default)]
pub struct MarkDelete {
    samples: VecDeque<(Moment, EntryId)>,
}

/// A position that has stayed for R.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stayed {
    /// Every entry at or below it is acknowledged, and was when it was first read.
    pub position: EntryId,
    /// When it was first read.
    pub since: Moment,
}

impl MarkDelete {
    /// The position was read. An answer that goes back makes R start afresh.
    pub fn read(&mut self, now: Moment, position: EntryId) {
        if self.samples.back().is_some_and(|(_, last)| position < *last) {
            self.samples.clear();
        }
        self.samples.push_back((now, position));
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
    }

    /// The newest position that has stayed for `retention`.
    #[must_use]
    pub fn stayed(&self, retention: Duration) -> Option<Stayed> {
        let (newest, _) = self.samples.back()?;
        let old = |(at, _): &&(Moment, EntryId)| newest.since(*at) >= retention;
        let (since, position) = self.samples.iter().rev().find(old)?;
        Some(Stayed { position: *position, since: *since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: Duration = Duration::from_secs(3600);

    fn read(samples: &[(u64, u64)]) -> Option<(u64, u64)> {
        let mut mark_delete = MarkDelete::default();
        for (minute, entry) in samples {
            let at = Moment(Duration::from_secs(minute * 60));
            mark_delete.read(at, EntryId { ledger: 1, entry: *entry });
        }
        mark_delete.stayed(R).map(|stayed| (stayed.position.entry, stayed.since.0.as_secs() / 60))
    }

    #[test]
    fn a_position_counts_when_it_was_read_twice_r_apart() {
        assert_eq!(read(&[(0, 5)]), None);
        assert_eq!(read(&[(0, 5), (59, 9)]), None);
        assert_eq!(read(&[(0, 5), (30, 7), (60, 9)]), Some((5, 0)));
        assert_eq!(read(&[(0, 5), (30, 7), (90, 9)]), Some((7, 30)));
    }

    #[test]
    fn an_answer_that_goes_back_starts_afresh() {
        assert_eq!(read(&[(0, 5), (30, 4), (60, 9)]), None);
        assert_eq!(read(&[(0, 5), (30, 4), (60, 9), (90, 9)]), Some((4, 30)));
    }
}

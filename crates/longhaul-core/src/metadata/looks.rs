//! Whether M was read to its end: who repairs it must not take for missing what stands there
//! unread. Pure.
//!
//! A follower that has just begun, one whose session was lost and one that the broker has forgotten
//! all look the same from here. So before anything is repaired the follower is asked where M ends,
//! and M is read up to there: whatever is due since before that question is missing indeed.

use crate::protocol::moment::Moment;
use crate::task::Position;
use std::time::Duration;

/// An end that is not reached after this long is asked for again: compaction may have removed what
/// stood there, or the question was lost.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Repairs that may follow from one answer, and how often an answer is asked for: a repair reads
/// and writes several topics, and live tasks come first.
const REPAIRS_MAX: usize = 64;
const ASK_EVERY: Duration = Duration::from_millis(250);

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looks {
    /// When the last question was asked.
    asked: Option<Moment>,
    /// The end that is being read up to, and when it was asked for.
    told: Option<(Moment, Option<Position>)>,
    /// All that stood on M at this time was read.
    seen: Option<Moment>,
    /// Repairs that may still follow from that.
    repairs: usize,
}

impl Looks {
    /// All that stood on M at this time was read, and something may be repaired now.
    pub(super) fn seen(&self) -> Option<Moment> {
        self.seen.filter(|_| self.repairs > 0)
    }

    /// Something was repaired.
    pub(super) const fn repaired(&mut self) {
        self.repairs = self.repairs.saturating_sub(1);
    }

    /// Something is to be repaired: whether to ask now where M ends.
    pub(super) fn ask(&mut self, now: Moment) -> bool {
        let is_time = self.ask_from().is_none_or(|at| at <= now);
        if is_time {
            self.asked = Some(now);
        }
        is_time
    }

    /// The answer to the question of this time. An end that is not reached yet stays the one to
    /// reach, or a keeper that is always some seconds behind would reach none; except where the new
    /// one lies before it, because compaction has removed what stood there.
    pub(super) fn told(&mut self, asked: Moment, end: Option<Position>, read_to: Option<Position>) {
        if self.told.is_none_or(|(_, before)| end < before) {
            self.told = Some((asked, end));
        }
        self.read(read_to);
    }

    /// M was read up to here.
    pub(super) fn read(&mut self, read_to: Option<Position>) {
        if let Some((asked, _)) = self.told.take_if(|(_, end)| *end <= read_to) {
            self.seen = Some(asked);
            self.repairs = REPAIRS_MAX;
        }
    }

    /// When to look at what has been due for a repair since this time.
    pub(super) fn next(&self, due: Moment) -> Moment {
        let may_repair = self.seen().is_some_and(|seen| due <= seen);
        self.ask_from().filter(|_| !may_repair).map_or(due, |at| at.max(due))
    }

    fn ask_from(&self) -> Option<Moment> {
        let wait = if self.asked > self.seen { ASK_AGAIN_AFTER } else { ASK_EVERY };
        self.asked.map(|asked| asked + wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }

    fn at(entry: u64) -> Option<Position> {
        Some(Position { ledger: 1, entry, batch_index: None })
    }

    /// It has asked where M ends after a millisecond.
    fn asked() -> Looks {
        let mut looks = Looks::default();
        assert!(looks.ask(ms(1)));
        looks
    }

    #[test]
    fn what_stood_there_is_seen_when_it_was_read() {
        let mut looks = Looks::default();
        assert_eq!(looks.next(ms(1)), ms(1));
        assert!(looks.ask(ms(1)) && !looks.ask(ms(2)), "one question at a time");
        assert_eq!((looks.seen(), looks.next(ms(1))), (None, ms(5_001)));
        looks.told(ms(1), at(9), at(7));
        looks.read(at(8));
        assert_eq!(looks.seen(), None);
        looks.read(at(9));
        assert_eq!((looks.seen(), looks.next(ms(1))), (Some(ms(1)), ms(1)));
        assert_eq!(looks.next(ms(2)), ms(251), "what is due since is another question");
    }

    #[test]
    fn an_empty_topic_was_read() {
        let mut looks = asked();
        looks.told(ms(1), None, None);
        assert_eq!(looks.seen(), Some(ms(1)));
    }

    #[test]
    fn an_end_that_does_not_come_is_asked_for_again() {
        let mut looks = asked();
        looks.told(ms(1), at(9), at(7));
        assert!(!looks.ask(ms(5_000)) && looks.ask(ms(5_001)));
        looks.told(ms(5_001), at(7), at(7));
        assert_eq!(looks.seen(), Some(ms(5_001)));
    }

    /// Each answer took the place of the one before: a keeper that was always more than five
    /// seconds behind repaired nothing.
    #[test]
    fn who_is_always_behind_reaches_an_end_all_the_same() {
        let mut looks = asked();
        looks.told(ms(1), at(9), at(1));
        assert!(looks.ask(ms(5_001)));
        looks.told(ms(5_001), at(20), at(5));
        looks.read(at(9));
        assert_eq!(looks.seen(), Some(ms(1)));
    }

    /// A keeper that had missed much published all of it at once.
    #[test]
    fn few_repairs_follow_from_one_answer() {
        let mut looks = Looks::default();
        let mut repaired = 0;
        for now in (0..1_000).map(ms) {
            if looks.seen().is_some() {
                looks.repaired();
                repaired += 1;
            } else if looks.ask(now) {
                looks.told(now, None, None);
            }
        }
        assert_eq!(repaired, 4 * REPAIRS_MAX);
    }
}

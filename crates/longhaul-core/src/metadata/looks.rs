//! Decides whether the metadata topic was read to its end, so that unread entries are not treated
//! as missing. Pure.
//!
//! A follower that has just begun, one whose session was lost and one that the broker has forgotten
//! all look the same from here. So before a repair the follower is asked for the end of the topic,
//! and the topic is read up to it: an entry that has been due since before that question is really
//! missing.

use crate::protocol::moment::Moment;
use crate::task::Position;
use std::time::Duration;

/// Time after which an end that was not reached is requested again: compaction may have removed the
/// last entry, or the question was lost.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Maximum number of repairs per answer, and the minimum interval between questions: a repair reads
/// and writes several topics, and running tasks come first.
const REPAIRS_MAX: usize = 64;
const ASK_EVERY: Duration = Duration::from_millis(250);

/// The questions for the end of the topic, and their answers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looks {
    /// When the last question was asked.
    asked: Option<Moment>,
    /// The end up to which the topic is being read, and when it was requested.
    told: Option<(Moment, Option<Position>)>,
    /// Everything on the topic at this time was read.
    seen: Option<Moment>,
    /// Number of repairs still allowed by that answer.
    repairs: usize,
}

impl Looks {
    /// The time up to which everything was read, if repairs are allowed now.
    pub(super) fn seen(&self) -> Option<Moment> {
        self.seen.filter(|_| self.repairs > 0)
    }

    /// Counts a repair.
    pub(super) const fn repaired(&mut self) {
        self.repairs = self.repairs.saturating_sub(1);
    }

    /// Whether to ask for the end of the topic now, because a repair is due.
    pub(super) fn ask(&mut self, now: Moment) -> bool {
        let is_time = self.ask_from().is_none_or(|at| at <= now);
        if is_time {
            self.asked = Some(now);
        }
        is_time
    }

    /// Handles the answer to the question of this time. An end that is not reached yet remains the
    /// target, because a keeper that is always some seconds behind would never reach a new one;
    /// except if the new end lies before it, because compaction has removed the last entry.
    pub(super) fn told(&mut self, asked: Moment, end: Option<Position>, read_to: Option<Position>) {
        if self.told.is_none_or(|(_, before)| end < before) {
            self.told = Some((asked, end));
        }
        self.read(read_to);
    }

    /// Notes the position up to which the topic was read.
    pub(super) fn read(&mut self, read_to: Option<Position>) {
        if let Some((asked, _)) = self.told.take_if(|(_, end)| *end <= read_to) {
            self.seen = Some(asked);
            self.repairs = REPAIRS_MAX;
        }
    }

    /// When to look at a repair that has been due since this time.
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

    /// A question was asked after 1 ms.
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

    /// Earlier, each answer replaced the one before: a keeper that was always more than 5 s behind
    /// repaired nothing.
    #[test]
    fn who_is_always_behind_reaches_an_end_all_the_same() {
        let mut looks = asked();
        looks.told(ms(1), at(9), at(1));
        assert!(looks.ask(ms(5_001)));
        looks.told(ms(5_001), at(20), at(5));
        looks.read(at(9));
        assert_eq!(looks.seen(), Some(ms(1)));
    }

    /// Earlier, a keeper that had missed much published all of it at once.
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

//! Decides which slots of a schedule are due, and the keys of its firings. A pure function of the
//! schedule, the bound slots on the register, the unfinished tasks, and the time.
//!
//! | policy | tasks that are not over | a slot is due |
//! |---|---|---|
//! | `allowAll` | any | it is fired |
//! | all others | none | it is fired |
//! | `skip` | one or more | it is left out |
//! | `bufferOne` | one | it is fired, and the task waits for that one (`AFTER`) |
//! | | two or more | it is left out |
//! | `cancelOther` | one or more | they are cancelled; then it is fired, and the task waits for them |
//!
//! Slots are settled in order: a slot is fired or left out when all before it are settled, so the
//! last bound slot tells where to continue. Of several consecutive slots that are left out only the
//! last one is bound.

use super::when::{EARLIEST_MS, FiringTimes, LATEST_MS};
use super::{Overlap, Schedule, ScheduleError};
use crate::protocol::register::{KeyName, QueueTask};
use std::fmt;

/// Separates the name of a schedule from the instant of a firing by hand.
const BY_HAND: &str = "trigger/";

/// A firing: of a slot, or by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FiringSlot {
    /// The instant, in ms since the epoch.
    pub ms: u64,
    /// Whether it was requested by hand.
    pub by_hand: bool,
}

/// The idempotency key of a firing.
#[derive(Clone, Copy, Debug)]
pub struct FiringKey<'a>(pub &'a str, pub FiringSlot);

impl fmt::Display for FiringKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, FiringSlot { ms, by_hand }) = self;
        let prefix = KeyName::OF_FIRINGS;
        write!(f, "{prefix}{name}/{}{ms}", if *by_hand { BY_HAND } else { "" })
    }
}

impl<'a> FiringKey<'a> {
    /// Parses the key of a firing, if longhaul may have written it. Any producer may use any key.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (name, slot) = text.strip_prefix(KeyName::OF_FIRINGS)?.split_once('/')?;
        let by_hand = slot.strip_prefix(BY_HAND);
        let ms: u64 = by_hand.unwrap_or(slot).parse().ok()?;
        let slot = FiringSlot { ms, by_hand: by_hand.is_some() };
        let is_own = can_be_slot(ms) && Self(name, slot).to_string() == text;
        is_own.then_some(Self(name, slot))
    }

    /// The range of keys of all slots of a schedule up to this instant, or of all its firings by
    /// hand, ordered by instant.
    pub fn range(name: &str, by_hand: bool, to_ms: u64) -> (String, String) {
        let key = |ms| FiringKey(name, FiringSlot { ms, by_hand }).to_string();
        // Behind the last digit.
        (key(EARLIEST_MS), format!("{}:", key(to_ms.clamp(EARLIEST_MS, LATEST_MS))))
    }
}

/// Whether the key of a slot at this instant has as many digits as all others, so that keys have
/// the order of slots.
fn can_be_slot(ms: u64) -> bool {
    (EARLIEST_MS..=LATEST_MS).contains(&ms)
}

/// A schedule with its slots.
#[derive(Clone, Debug)]
pub struct SchedulePlan {
    /// The schedule.
    pub schedule: Schedule,
    slots: FiringTimes,
    window_ms: u64,
}

/// The known firings of a schedule.
#[derive(Clone, Debug, Default)]
pub struct FiringState {
    /// The last bound slot up to now.
    pub last: Option<u64>,
    /// The bound firings by hand.
    pub by_hand: Vec<u64>,
    /// Its unfinished tasks, in order.
    pub unfinished: Vec<QueueTask>,
}

/// The next step for a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FiringStep {
    /// Submit a task that waits for these.
    Fire {
        /// The slot.
        slot: FiringSlot,
        /// The tasks that it waits for.
        after: Vec<QueueTask>,
        /// Whether those are cancelled.
        cancels: bool,
    },
    /// Bind the slot to the task that is in its way.
    LeaveOut {
        /// The slot.
        slot: FiringSlot,
        /// The task that is in its way.
        task: QueueTask,
    },
    /// Do nothing before the next slot, if there is one.
    Wait(Option<u64>),
}

impl SchedulePlan {
    /// # Errors
    /// If the schedule cannot be used.
    pub fn new(schedule: Schedule) -> Result<Self, ScheduleError> {
        let (slots, window_ms) = (FiringTimes::of(&schedule)?, schedule.window_ms()?);
        schedule.task.payload()?;
        if schedule.since == 0 {
            // Otherwise all slots of the catch-up window, possibly a year, would be fired at once.
            return Err(ScheduleError::Document("it has no `since`".to_owned()));
        }
        Ok(Self { schedule, slots, window_ms })
    }

    /// The step at this time.
    pub fn step(&self, known: &FiringState, now_ms: u64) -> FiringStep {
        let (due, next) = self.due(known, now_ms);
        let Some(slot) = due else { return FiringStep::Wait(next) };
        let unfinished = known.unfinished.as_slice();
        let fire = |cancels| FiringStep::Fire { slot, after: unfinished.to_vec(), cancels };
        match (self.schedule.overlap, unfinished) {
            (Overlap::AllowAll, _) => FiringStep::Fire { slot, after: Vec::new(), cancels: false },
            (_, []) => fire(false),
            (Overlap::CancelOther, _) => fire(true),
            (Overlap::BufferOne, [_]) => fire(false),
            (Overlap::Skip | Overlap::BufferOne, [.., last]) => {
                FiringStep::LeaveOut { slot: self.last_due(slot, now_ms), task: *last }
            }
        }
    }

    /// The first slot that is due, or else the next one.
    fn due(&self, known: &FiringState, now_ms: u64) -> (Option<FiringSlot>, Option<u64>) {
        let earliest = now_ms.saturating_sub(self.window_ms);
        let Schedule { triggers, paused, since, .. } = &self.schedule;
        let is_open =
            |ms: &&u64| can_be_slot(**ms) && **ms >= earliest && !known.by_hand.contains(ms);
        let by_hand = triggers.iter().filter(is_open).min().copied();
        if let Some(ms) = by_hand.filter(|ms| *ms <= now_ms) {
            return (Some(FiringSlot { ms, by_hand: true }), None);
        }
        if *paused {
            return (None, by_hand);
        }
        let settled = known.last.unwrap_or(0).max(*since).max(earliest.saturating_sub(1));
        let settled = settled.max(EARLIEST_MS - 1);
        let next = self.slots.next_after(settled);
        match next {
            Some(ms) if ms <= now_ms => (Some(FiringSlot { ms, by_hand: false }), None),
            Some(ms) => (None, Some(by_hand.map_or(ms, |by_hand| by_hand.min(ms)))),
            None => (None, by_hand),
        }
    }

    /// The last of the slots that are due.
    fn last_due(&self, slot: FiringSlot, now_ms: u64) -> FiringSlot {
        if slot.by_hand {
            return slot;
        }
        let last = self.slots.last_up_to(now_ms).unwrap_or(slot.ms);
        FiringSlot { ms: last.max(slot.ms), ..slot }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskId;
    use std::time::Duration;

    const MINUTE: u64 = 60_000;
    const START: u64 = 1_700_000_040_000;

    fn task(entry: u64) -> QueueTask {
        QueueTask::normal(TaskId { ledger: 1, entry, partition: -1, batch_index: None })
    }

    /// Fires each minute, on whole minutes.
    fn plan(overlap: Overlap) -> SchedulePlan {
        let schedule = Schedule::every(Duration::from_secs(60)).overlap(overlap);
        let schedule = schedule.catch_up_window(Duration::from_secs(600));
        SchedulePlan::new(Schedule { since: START, created_at: START, ..schedule }).unwrap()
    }

    const fn slot(minutes: u64) -> FiringSlot {
        FiringSlot { ms: START + minutes * MINUTE, by_hand: false }
    }

    fn fire(minutes: u64, after: &[u64], cancels: bool) -> FiringStep {
        let after = after.iter().copied().map(task).collect();
        FiringStep::Fire { slot: slot(minutes), after, cancels }
    }

    /// Bound up to this minute, with these unfinished tasks.
    fn known(minutes: u64, unfinished: &[u64]) -> FiringState {
        let last = Some(START + minutes * MINUTE);
        let unfinished = unfinished.iter().copied().map(task).collect();
        FiringState { last, by_hand: Vec::new(), unfinished }
    }

    #[test]
    fn slots_are_fired_in_their_order_each_once() {
        let plan = plan(Overlap::AllowAll);
        let now = START + 3 * MINUTE + 1;
        assert_eq!(plan.step(&FiringState::default(), now), fire(1, &[], false));
        for (bound, next) in [(1, 2), (2, 3)] {
            assert_eq!(plan.step(&known(bound, &[7]), now), fire(next, &[], false));
        }
        assert_eq!(plan.step(&known(3, &[7]), now), FiringStep::Wait(Some(slot(4).ms)));
        assert_eq!(plan.step(&FiringState::default(), START), FiringStep::Wait(Some(slot(1).ms)));
    }

    #[test]
    fn each_policy_does_what_its_word_says() {
        let left_out = |entry| FiringStep::LeaveOut { slot: slot(3), task: task(entry) };
        let now = START + 3 * MINUTE;
        let steps = [
            (Overlap::Skip, &[][..], fire(2, &[], false)),
            (Overlap::Skip, &[7], left_out(7)),
            (Overlap::BufferOne, &[], fire(2, &[], false)),
            (Overlap::BufferOne, &[7], fire(2, &[7], false)),
            (Overlap::BufferOne, &[7, 8], left_out(8)),
            (Overlap::CancelOther, &[], fire(2, &[], false)),
            (Overlap::CancelOther, &[7, 8], fire(2, &[7, 8], true)),
            (Overlap::AllowAll, &[7, 8], fire(2, &[], false)),
        ];
        for (overlap, unfinished, step) in steps {
            let known = known(1, unfinished);
            assert_eq!(plan(overlap).step(&known, now), step, "{overlap:?} {unfinished:?}");
        }
    }

    /// Without this check, a document written by hand without the field would fire a year of slots.
    #[test]
    fn a_schedule_without_a_beginning_is_refused() {
        let told = SchedulePlan::new(Schedule::cron("* * * * *")).unwrap_err().to_string();
        assert_eq!(told, "the schedule cannot be read: it has no `since`");
    }

    /// A worker that returns after a week fires the slots within the window, and no older ones.
    #[test]
    fn what_was_missed_is_fired_within_the_window() {
        let plan = plan(Overlap::AllowAll);
        let late = START + 100 * MINUTE;
        assert_eq!(plan.step(&known(1, &[]), late), fire(90, &[], false));
        assert_eq!(plan.step(&known(95, &[]), late), fire(96, &[], false));
        assert_eq!(plan.step(&known(1, &[]), late + 1), fire(91, &[], false));
    }

    #[test]
    fn a_paused_schedule_fires_only_by_hand() {
        let mut plan = plan(Overlap::Skip);
        plan.schedule.paused = true;
        let now = START + 5 * MINUTE;
        assert_eq!(plan.step(&known(1, &[]), now), FiringStep::Wait(None));
        plan.schedule.triggers = vec![now, now + 5];
        let by_hand = FiringSlot { ms: now, by_hand: true };
        let fired = FiringStep::Fire { slot: by_hand, after: Vec::new(), cancels: false };
        assert_eq!(plan.step(&known(1, &[]), now), fired);
        let skipped = FiringStep::LeaveOut { slot: by_hand, task: task(7) };
        assert_eq!(plan.step(&known(1, &[7]), now), skipped);
        let after = FiringState { by_hand: vec![now], ..known(1, &[]) };
        assert_eq!(plan.step(&after, now), FiringStep::Wait(Some(now + 5)));
        plan.schedule.paused = false;
        assert_eq!(plan.step(&after, now), fire(2, &[], false));
    }

    /// An instant fires once, even if no worker was there; one that was past when the schedule was
    /// created never fires.
    #[test]
    fn an_instant_fires_once() {
        use std::time::UNIX_EPOCH;
        let at = UNIX_EPOCH + Duration::from_millis(START + 5);
        let made = |since| SchedulePlan::new(Schedule { since, ..Schedule::at(at) }).unwrap();
        let slot = FiringSlot { ms: START + 5, by_hand: false };
        let fired = FiringStep::Fire { slot, after: Vec::new(), cancels: false };
        assert_eq!(
            made(START).step(&FiringState::default(), START),
            FiringStep::Wait(Some(slot.ms))
        );
        assert_eq!(made(START).step(&FiringState::default(), START + 7 * MINUTE), fired);
        let bound = FiringState { last: Some(slot.ms), ..FiringState::default() };
        assert_eq!(made(START).step(&bound, START + 7 * MINUTE), FiringStep::Wait(None));
        assert_eq!(
            made(START + 5).step(&FiringState::default(), START + 7 * MINUTE),
            FiringStep::Wait(None)
        );
    }

    /// Instants in a document written by hand may be numbers of any size.
    #[test]
    fn instants_of_any_size_fire_nothing_and_overflow_nothing() {
        for ms in [0, 1, 9, EARLIEST_MS - 1, LATEST_MS + 1, u64::MAX] {
            let mut plan = plan(Overlap::AllowAll);
            plan.schedule.triggers = vec![ms];
            assert_eq!(
                plan.step(&known(1, &[]), START + MINUTE),
                FiringStep::Wait(Some(slot(2).ms))
            );
            plan.schedule.since = ms;
            for now in [0, START, u64::MAX] {
                let last = FiringState { last: Some(ms), ..FiringState::default() };
                if let FiringStep::Fire { slot, .. } = plan.step(&last, now) {
                    assert!(can_be_slot(slot.ms) && slot.ms <= now, "{ms} {now} {slot:?}");
                }
            }
        }
    }

    #[test]
    fn keys_of_firings_are_read_as_they_are_written_and_are_in_order() {
        for by_hand in [false, true] {
            let slots = [START, START + 1].map(|ms| FiringSlot { ms, by_hand });
            let [first, second] = slots.map(|slot| FiringKey("a b", slot).to_string());
            let read = FiringKey::parse(&first).unwrap();
            assert_eq!((read.0, read.1), ("a b", slots[0]));
            let (before, behind) = FiringKey::range("a b", by_hand, START);
            assert!(before < first && first < behind && behind < second, "{first}");
            let (_, behind) = FiringKey::range("a b", by_hand, u64::MAX);
            assert!(second < behind, "{first}");
        }
        for other in [
            "",
            "schedule/a",
            "schedule/a/x",
            "schedule/a/9",
            "schedule/a/+1700000000000",
            "schedule/a/01700000000000",
            "schedule/a/17000000000000",
            "schedule/a/18446744073709551615",
            "schedule/a/trigger/9",
            "schedule/a/b/1700000000000",
            "a/1700000000000",
        ] {
            assert!(FiringKey::parse(other).is_none(), "{other}");
        }
    }
}

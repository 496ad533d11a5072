//! Tasks of types that nobody asks for.

use super::solo::{MILLISECOND, OTHER, Solo, claims, reading, task};
use super::*;
use crate::protocol::limits::Limits;
use crate::worker::wanted::{TaskType, Wanted};

const SECOND: Duration = Duration::from_secs(1);

fn of(name: &str) -> TaskType {
    TaskType::of(Some(name))
}

impl Solo {
    /// A gateway that is asked for so many tasks of these types.
    fn gateway(asked: &[(&str, usize)]) -> Self {
        let mut solo = Self::new(0);
        solo.core.grant_leases(1 << 40);
        solo.ask(asked, 0);
        solo
    }

    /// From now on so many of these types are asked for, and so many of any.
    fn ask(&mut self, asked: &[(&str, usize)], any: usize) {
        let types = asked.iter().map(|(name, count)| (of(name), *count)).collect();
        self.slots.set_free(any + asked.iter().map(|(_, count)| count).sum::<usize>());
        let wanted = Wanted { any, types };
        self.slots.set_wanted((!asked.is_empty()).then_some(&wanted));
    }

    fn deliver_of(&mut self, id: TaskId, name: &str) {
        self.deliver(id);
        self.core.note_type(id, of(name));
    }

    /// The payload that is read says of which type the task is.
    fn payload_of(&mut self, id: TaskId, name: &str) -> Vec<Effect> {
        self.core.note_type(id, of(name));
        self.core.handle_payload(id, true, self.now);
        self.run()
    }
}

fn dropped(id: TaskId) -> Effect {
    Effect::Do(Action::DropPayload(id))
}

fn handed_back(did: &[(Duration, Effect)]) -> usize {
    let back =
        |(_, effect): &&(Duration, Effect)| matches!(effect, Effect::Do(Action::HandBack(_)));
    did.iter().filter(back).count()
}

fn claimed_ids(did: &[Effect]) -> Vec<TaskId> {
    claims(did).iter().map(|claim| claim.key.task).collect()
}

#[test]
fn what_nobody_asks_for_is_neither_claimed_nor_read_and_stands_in_nobodys_way() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    for entry in 0..100 {
        solo.deliver_of(task(entry), "y");
    }
    let did = solo.run();
    assert_eq!(did, (0..100).map(|entry| dropped(task(entry))).collect::<Vec<_>>());
    assert_eq!((solo.core.waiting(), solo.core.has_unwanted(), solo.slots.free()), (0, true, 1));
    assert_eq!(solo.core.looks_ahead(solo.now), 100);
    solo.deliver_of(task(200), "x");
    assert_eq!(claimed_ids(&solo.run()), [task(200)]);
}

#[test]
fn of_what_is_asked_for_the_first_is_read_and_no_more_than_are_asked_for() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    for (entry, name) in [(1, "y"), (2, "z"), (3, "y"), (4, "w"), (5, "z")] {
        solo.deliver_of(task(entry), name);
    }
    solo.run();
    // A hundred others ask for what is not there.
    solo.ask(&[("z", 1), ("v", 100)], 0);
    assert_eq!(solo.run(), [reading(task(2))]);
    assert_eq!(claimed_ids(&solo.payload_of(task(2), "z")), [task(2)]);
    assert_eq!(solo.run(), [], "the other one is not asked for any more");
    solo.ask(&[("v", 100)], 1);
    assert_eq!(solo.run(), [reading(task(1))]);
    assert_eq!(claimed_ids(&solo.payload_of(task(1), "y")), [task(1)]);
    solo.ask(&[], 3);
    assert_eq!(solo.run(), [3, 4, 5].map(|entry| reading(task(entry))), "anything, in order");
    assert!(!solo.core.has_unwanted());
}

/// Whoever asked has gone while the payload was read.
#[test]
fn a_payload_that_was_read_for_nobody_goes_and_the_task_waits_on() {
    let mut solo = Solo::gateway(&[("x", 1), ("y", 1)]);
    solo.deliver_of(task(1), "y");
    solo.core.machine.payload_missing(task(1));
    assert_eq!(solo.run(), [reading(task(1))]);
    solo.ask(&[("x", 1)], 0);
    assert_eq!(solo.payload_of(task(1), "y"), [dropped(task(1))]);
    solo.ask(&[("x", 1), ("y", 1)], 0);
    assert_eq!(solo.run(), [reading(task(1))]);
    solo.core.handle_payload(task(1), false, solo.now);
    assert_eq!(solo.core.unwanted, Default::default(), "nothing is left of what was read");
}

/// It was tried elsewhere: which type it is tells its message, which is read once.
#[test]
fn a_retry_of_a_type_that_nobody_asks_for_is_read_once_and_found_when_somebody_does() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    solo.read_failed(task(1), Duration::ZERO);
    let did = solo.wait(4 * H);
    let reads = |did: &[(Duration, Effect)]| {
        did.iter().filter(|(_, effect)| *effect == reading(task(1))).count()
    };
    assert_eq!(reads(&did), 1);
    assert_eq!(solo.payload_of(task(1), "y"), [dropped(task(1))]);
    assert_eq!(reads(&solo.wait(Duration::from_secs(3600))), 0);
    solo.ask(&[("x", 1), ("y", 1)], 0);
    assert_eq!(solo.run(), [reading(task(1))]);
    let claims = claims(&solo.payload_of(task(1), "y"));
    assert_eq!((claims.len(), claims[0].attempt), (1, 2));
}

#[test]
fn a_gateway_that_is_alone_keeps_them_and_sleeps() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    for entry in 0..1_000 {
        solo.deliver_of(task(entry), "y");
    }
    solo.run();
    let beats = solo.beats.len();
    assert_eq!(solo.wait(Duration::from_secs(3600)), []);
    assert!(solo.beats.len() - beats < 1_000, "no more than heartbeats");
    assert_eq!(solo.core.open_entries(), 1_000);
}

/// What others could run was held for a second of each second, by a gateway that was asked for something else: a worker beside it took seven times as long.
#[test]
fn where_others_are_they_go_back_and_are_left_to_them_for_longer_each_time() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    solo.alive = vec![OTHER];
    solo.wait(H);
    let mut next = 0;
    for (looked_at, left) in
        [(16, 50), (32, 100), (64, 200), (128, 400), (256, 800), (512, 1_000), (1_000, 1_000)]
    {
        for entry in next..next + looked_at + 1 {
            solo.deliver_of(task(entry), "y");
        }
        solo.run();
        assert_eq!(solo.core.unwanted_beyond(solo.now), 1, "no more than {looked_at}");
        assert_eq!(solo.core.looks_ahead(solo.now), 0);
        assert_eq!(handed_back(&solo.wait(99 * MILLISECOND)), 0);
        let back = handed_back(&solo.wait(MILLISECOND));
        assert_eq!(back, usize::try_from(looked_at + 1).unwrap().min(1_000));
        assert!(solo.core.leaves_to_others(solo.now));
        solo.wait((left - 1) * MILLISECOND);
        assert!(solo.core.leaves_to_others(solo.now), "for {left} ms");
        solo.wait(MILLISECOND);
        assert!(!solo.core.leaves_to_others(solo.now), "for {left} ms");
        solo.wait(SECOND);
        assert!(!solo.core.has_unwanted() && solo.core.open.is_empty());
        next += looked_at + 1;
    }
    // Something was found: it looks as carefully as at first.
    solo.deliver_of(task(next), "x");
    let read = solo.run();
    assert_eq!(read.len(), 1, "{read:?}");
    let [claim] = claims(&read)[..] else { panic!("{read:?}") };
    solo.land_claim(claim);
    for entry in next + 1..next + 18 {
        solo.deliver_of(task(entry), "y");
    }
    solo.run();
    assert_eq!(solo.core.unwanted_beyond(solo.now), 1);
}

#[test]
fn a_batch_of_which_one_runs_stays_until_that_is_over() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    solo.alive = vec![OTHER];
    solo.wait(H);
    for (index, name) in (0..).zip(["x", "y"]) {
        let id = TaskId { batch_index: Some(index), ..TASK };
        solo.core.handle_delivery(id, Some(2), solo.now);
        solo.core.note_type(id, of(name));
    }
    let [claim] = claims(&solo.run())[..] else { panic!("one of them") };
    solo.land_claim(claim);
    assert_eq!(handed_back(&solo.wait(5 * SECOND)), 0);
    solo.ask(&[("y", 1)], 0);
    assert_eq!(solo.run(), [reading(TaskId { batch_index: Some(1), ..TASK })]);
}

#[test]
fn a_drain_gives_all_of_them_back_at_once() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    for entry in 0..300 {
        solo.deliver_of(task(entry), "y");
    }
    solo.run();
    solo.core.drain(solo.now);
    assert_eq!(handed_back(&solo.wait(Duration::ZERO)), 300);
    assert!(!solo.core.has_unwanted());
}

#[test]
fn they_are_cancelled_and_expire() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    for entry in 0..3 {
        solo.deliver_of(task(entry), "y");
    }
    let limits = Limits { expires_at_ms: Some(WALL_MS + 5_000), ..Limits::NONE };
    solo.core.note_limits(task(1), limits);
    solo.run();
    solo.read(Entry::Cancel(task(0)));
    let kinds = |did: &[Effect]| {
        claims(did).iter().map(|claim| (claim.key.task, claim.kind)).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&solo.run()), [(task(0), ClaimKind::Cancelled)]);
    let did = solo.wait(6 * SECOND);
    let did: Vec<Effect> = did.into_iter().map(|(_, effect)| effect).collect();
    assert_eq!(kinds(&did), [(task(1), ClaimKind::Expired)]);
}

#[test]
fn beyond_so_many_they_count_as_what_was_asked_for() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    for entry in 0..10_002 {
        solo.deliver_of(task(entry), "y");
        if entry % 1_000 == 0 {
            solo.run();
        }
        if entry == 9_998 {
            solo.run();
            assert_eq!(
                (solo.core.unwanted_beyond(solo.now), solo.core.looks_ahead(solo.now)),
                (0, 1)
            );
        }
    }
    solo.run();
    assert_eq!((solo.core.unwanted_beyond(solo.now), solo.core.looks_ahead(solo.now)), (2, 0));
    solo.core.handle_session_lost();
    assert_eq!((solo.core.waiting(), solo.core.has_unwanted()), (0, false));
}

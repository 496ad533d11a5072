//! Cancel requests for tasks that were delivered nowhere.

use super::solo::{OTHER, Solo, beat, claims, once, reading, task};
use super::*;
use crate::protocol::rank::{SLOT, adoption_delay};
use std::collections::VecDeque;

const HOUR: Duration = Duration::from_secs(3600);

/// The claims that close tasks as cancelled.
#[track_caller]
fn closed(did: &[PartitionEffect]) -> Vec<Claim> {
    let claims = claims(did);
    assert!(claims.iter().all(|claim| claim.kind == ClaimKind::Cancelled), "{claims:?}");
    claims
}

impl Solo {
    /// A client requests the cancel of a task.
    fn cancel(&mut self, id: TaskId) {
        self.read(Entry::Cancel(id));
    }

    /// The message of a task was found, with this number of tasks in its batch.
    fn found(&mut self, id: TaskId, batch_size: Option<u32>) -> Vec<PartitionEffect> {
        let facts = TaskFacts { batch_size, ..TaskFacts::default() };
        self.core.handle_payload(id, Some(&facts), self.now);
        self.run()
    }

    /// The message of a task was not found.
    fn not_found(&mut self, id: TaskId) -> bool {
        self.core.handle_payload(id, None, self.now)
    }

    /// The times within `time` at which the message of the only task was looked for. It is never
    /// found; after the last look this worker gives up.
    fn look_in_vain(&mut self, time: Duration) -> Vec<Duration> {
        let (begin, mut looks) = (self.now, Vec::new());
        let mut gave_up = false;
        while self.now.since(begin) < time {
            for (at, effect) in self.run_for(SECOND) {
                assert_eq!((effect, gave_up), (reading(TASK), false));
                looks.push(at.since(begin));
                gave_up = self.not_found(TASK);
            }
        }
        looks
    }
}

/// Regression: the task waited until there was a request for tasks, and this worker has no slot.
#[test]
fn a_cancelled_task_that_was_delivered_nowhere_is_closed_by_its_message() {
    let mut solo = Solo::new(0);
    solo.cancel(TASK);
    assert_eq!(solo.wait(10 * SECOND), [(SLOT, reading(TASK))], "whoever holds it goes first");
    let [claim] = closed(&solo.found(TASK, None))[..] else { panic!("one claim") };
    solo.land_claim(claim);
    let shows = PartitionEffect::Do(Action::ShowOutcome(TASK));
    assert!(solo.run().contains(&shows));
    solo.core.handle_metadata_stored(TASK);
    let did = solo.run();
    assert!(did.contains(&PartitionEffect::Do(Action::Ack(TASK.entry_id()))), "{did:?}");
    assert_eq!(solo.core.waiting(), 0, "it stands in nobody's way");
}

#[test]
fn whoever_holds_a_cancelled_task_closes_it_at_once_and_the_others_do_nothing() {
    let mut solo = Solo::new(0);
    solo.deliver(TASK);
    solo.cancel(TASK);
    assert_eq!(closed(&solo.run()).len(), 1);

    let mut other = Solo::new(0);
    other.cancel(TASK);
    let key = once(TASK, 1, OTHER, 1);
    other.read(Entry::Claim(Claim::plain(key, 0, ClaimKind::Cancelled)));
    assert_eq!(other.wait(10 * SECOND), []);
}

/// One after the other, as at a takeover: the claim of the first has come back by then.
#[test]
fn workers_take_their_turns_at_what_was_delivered_nowhere() {
    let mut solo = Solo::new(0);
    solo.alive = vec![OTHER, OwnerId(11), OwnerId(12)];
    solo.wait(3 * H);
    let mut places = BTreeSet::new();
    for entry in 0..50 {
        let id = task(entry);
        let place = solo.core.rank(id, solo.now);
        solo.cancel(id);
        let did = solo.wait(10 * SECOND);
        assert_eq!(did, [(adoption_delay(place), reading(id))]);
        places.insert(place);
        let [claim] = closed(&solo.found(id, None))[..] else { panic!("one claim") };
        solo.land_claim(claim);
        solo.run();
        solo.see_to(id);
    }
    assert!(places.len() == 4 && places.last() == Some(&3), "{places:?}");
}

/// A request alone does not prove a task. Regression: ten thousand such requests cost each worker
/// nine thousand reads an hour forever. Now the message is looked for with growing pauses and then
/// no more; a worker that gets its delivery handles it.
#[test]
fn what_a_request_alone_tells_of_is_looked_for_ever_less_often_and_then_no_more() {
    let mut solo = Solo::new(2);
    solo.cancel(TASK);
    let looks = solo.look_in_vain(48 * HOUR);
    assert_eq!(looks.len(), 18, "{looks:?}");
    assert!((18 * HOUR..19 * HOUR).contains(&looks[17]), "{looks:?}");
    assert!(
        looks[4] < 10 * SECOND,
        "a topic that could not be read is soon there again: {looks:?}"
    );
    // Only another request makes the worker look again.
    solo.read(beat(HOUR, 0));
    assert!(solo.look_in_vain(HOUR).is_empty());
    solo.cancel(TASK);
    assert_eq!(solo.look_in_vain(SECOND).len(), 1);
    solo.deliver(TASK);
    assert_eq!(closed(&solo.run()).len(), 1);
}

/// Regression: each worker went through the cancel requests by id, so several read the same
/// messages at the same time.
#[test]
fn each_worker_begins_with_what_it_is_first_in_line_for() {
    let mut solo = Solo::new(0);
    solo.alive = vec![OTHER, OwnerId(11), OwnerId(12)];
    solo.wait(3 * H);
    for entry in 0..1_000 {
        solo.cancel(task(entry));
    }
    let mut read: VecDeque<PartitionEffect> =
        solo.wait(3 * SECOND).into_iter().map(|(_, did)| did).collect();
    assert_eq!(read.len(), 64);
    let mut places = Vec::new();
    while let Some(effect) = read.pop_front() {
        let PartitionEffect::Do(Action::ReadPayload(id)) = effect else { continue };
        places.push(solo.core.rank(id, solo.now));
        let [claim] = closed(&solo.found(id, None))[..] else { panic!("one claim: {id}") };
        solo.land_claim(claim);
        solo.run();
        solo.see_to(id);
        read.extend(solo.run());
    }
    assert!(places.is_sorted(), "{places:?}");
    let of = |place| places.iter().filter(|it| **it == place).count();
    assert_eq!((0..4).map(of).sum::<usize>(), 1_000);
    assert!((0..4).all(|place| of(place) > 150), "{places:?}");
}

/// The request is for a task of a batch, and the acknowledged message is the batch.
#[test]
fn the_batch_of_a_task_that_ended_unseen_is_not_acknowledged() {
    let mut solo = Solo::new(0);
    let [one, other] = [0, 1].map(|index| TaskId { batch_index: Some(index), ..TASK });
    solo.cancel(one);
    solo.wait(SECOND);
    let [claim] = closed(&solo.found(one, Some(2)))[..] else { panic!("one claim") };
    assert_eq!(claim.batch_size, Some(2));
    solo.land_claim(claim);
    solo.run();
    solo.core.handle_metadata_stored(one);
    let is_ack = |effect: &PartitionEffect| matches!(effect, PartitionEffect::Do(Action::Ack(_)));
    assert!(!solo.run().iter().any(is_ack));
    solo.cancel(other);
    solo.wait(SECOND);
    let [claim] = closed(&solo.found(other, Some(2)))[..] else { panic!("one claim") };
    solo.land_claim(claim);
    solo.run();
    solo.core.handle_metadata_stored(other);
    assert_eq!(solo.run().into_iter().filter(is_ack).count(), 1);
}

#[test]
fn no_more_messages_are_at_hand_at_once_than_are_being_ended() {
    let mut solo = Solo::new(0);
    for entry in 0..200 {
        solo.cancel(task(entry));
    }
    let mut read: Vec<PartitionEffect> =
        solo.wait(SECOND).into_iter().map(|(_, effect)| effect).collect();
    assert_eq!(read, (0..64).map(|entry| reading(task(entry))).collect::<Vec<_>>());
    for entry in 0..200 {
        assert_eq!(read.len(), 200.min(64 + usize::try_from(entry).unwrap()));
        let [claim] = closed(&solo.found(task(entry), None))[..] else { panic!("{entry}") };
        solo.land_claim(claim);
        solo.run();
        solo.see_to(task(entry));
        read.extend(solo.run());
    }
}

/// An operator has no heartbeat, and does not show the tasks that it has ended.
#[test]
fn what_was_ended_from_outside_is_told_from_what_a_worker_has_ended() {
    let mut solo = Solo::new(0);
    solo.alive = vec![OTHER];
    solo.wait(2 * H);
    let close = |owner| Entry::Claim(Claim::plain(once(TASK, 1, owner, 1), 0, ClaimKind::Final));
    let stranger = OwnerId(77);
    for (owner, held, outside) in
        [(OTHER, false, false), (stranger, true, false), (stranger, false, true)]
    {
        let mut core = solo.core.clone();
        if held {
            core.handle_delivery(TASK, &TaskFacts::default(), solo.now);
        }
        solo::land(&mut core, 1_000, close(owner), solo.now);
        assert_eq!(core.is_ended_from_outside(TASK), outside, "{owner:?} {held}");
        let told: Vec<_> = core.ended_from_outside(WALL_MS).collect();
        assert_eq!(told, if outside { vec![TASK] } else { Vec::new() });
        assert_eq!(core.ended_from_outside(WALL_MS + 1).count(), 0, "M showed it long enough");
        core.close_own(TASK);
        assert!(!core.is_ended_from_outside(TASK), "this worker sees to it");
    }
}

//! A worker that starts on a compacted view that has lost entries, as those of Pulsar do when
//! unloads race compactions.

use super::solo::{MILLISECOND, OTHER, Solo, beat};
use super::*;
use crate::protocol::digest::{Comparison, FoldDigest};
use crate::protocol::entry::Heartbeat;
use crate::protocol::rank::SLOT;

const OTHER_TASK: TaskId = TaskId { entry: 9, ..TASK };

/// Two workers, of which the first runs a task, and the indexes of all claims on the log.
fn running() -> (Pair, Vec<usize>) {
    let mut pair = Pair::new(2);
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    let claims: Vec<usize> =
        (0..pair.log.len()).filter(|index| matches!(pair.log[*index], Entry::Claim(_))).collect();
    assert_eq!(claims.len(), 1);
    (pair, claims)
}

/// Has a new worker start in place of the second one, with a view that has lost these entries.
fn restart(pair: &mut Pair, lost: &[usize], for_good: bool) {
    // The one that was there has said goodbye.
    pair.log.push(Entry::Tombstone(Key::Heartbeat(OwnerId(2))));
    pair.replace(1);
    let worker = &mut pair.workers[1];
    (worker.lost, worker.lost_for_good) = (Vec::new(), Vec::new());
    if for_good { &mut worker.lost_for_good } else { &mut worker.lost }.extend(lost);
}

#[test]
fn a_worker_that_agrees_with_another_one_is_ready_at_once() {
    let (mut pair, _) = running();
    restart(&mut pair, &[], false);
    assert!(pair.run_until(1, "ready") <= 5 * STEP);
    assert_eq!(pair.did(1), ["ready"]);
}

/// Earlier, a worker that began on a ledger that had lost a claim ran the task of the claim a
/// second time, beside the first one, when it was delivered there.
#[test]
fn what_the_view_has_lost_is_read_from_the_log() {
    let (mut pair, claims) = running();
    restart(&mut pair, &claims, false);
    pair.run_until(1, "ready");
    assert_eq!(pair.did(1), ["self-fence", "ready"]);
    pair.deliver(1, TASK);
    pair.run_for(SECOND);
    assert_eq!(pair.did(1), ["self-fence", "ready"], "the first worker runs the task");
}

#[test]
fn who_lacks_what_the_log_has_lost_too_is_not_ready_and_says_so() {
    let (mut pair, claims) = running();
    restart(&mut pair, &claims, true);
    pair.run_for(100 * SECOND);
    assert_eq!(pair.did(1), ["self-fence", "differs 1 false", "differs 1 false"]);
    // The task ends, and is forgotten in the end.
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(LedgerConfig::default().ledger_retention);
    pair.run_until(1, "ready");
    assert!(pair.did(0).contains(&"seal 1"));
}

#[test]
fn who_knows_of_a_loss_begins_when_nobody_is_left_who_knows_more() {
    let (mut pair, claims) = running();
    restart(&mut pair, &claims, true);
    pair.run_until(1, "differs 1 false");
    pair.workers[0].frozen = true;
    let waited = pair.run_until(1, "ready");
    assert!(waited > 2 * H && waited < 4 * H, "{waited:?}");
}

/// The first one by rank may have died a moment ago, unnoticed.
#[test]
fn if_one_does_not_answer_another_one_does() {
    for dead in [0, 1] {
        let mut pair = Pair::new(3);
        pair.workers[dead].frozen = true;
        pair.log.push(Entry::Tombstone(Key::Heartbeat(OwnerId(3))));
        pair.replace(2);
        let waited = pair.run_until(2, "ready");
        assert!(waited < SLOT + 10 * STEP, "{waited:?}");
        let answers = |entry: &&Entry| {
            matches!(entry, Entry::Heartbeat(Heartbeat {
                comparison: Some(Comparison::Answer { to, .. }), ..
            }) if *to == OwnerId(50))
        };
        pair.run_for(3 * SECOND);
        assert_eq!(pair.log.iter().filter(answers).count(), 1, "no second one is needed");
    }
}

#[test]
fn who_is_not_answered_begins_after_two_seconds() {
    let mut solo = Solo::fresh(1);
    solo.read(beat(SECOND, 0));
    let ready = |did: &[(Duration, PartitionEffect)]| {
        did.iter().any(|(_, effect)| *effect == PartitionEffect::Ready)
    };
    assert!(!ready(&solo.wait(4 * SLOT - MILLISECOND)));
    assert!(ready(&solo.wait(MILLISECOND)));
}

/// Earlier, two workers that had begun on the same wrong view confirmed each other, and the third
/// one, which knew better, took its own answer for superfluous.
#[test]
fn two_that_lack_the_same_do_not_confirm_each_other() {
    let mut pair = Pair::new(3);
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    let known = pair.log.len();
    for (index, id) in [(1, 2), (2, 3)] {
        pair.log.push(Entry::Tombstone(Key::Heartbeat(OwnerId(id))));
        pair.replace(index);
        // They have not heard of anybody.
        pair.workers[index].lost = (0..known).collect();
    }
    let settings = pair.workers[2].core.settings.clone();
    pair.workers[2].core = Partition::new(settings, OwnerId(60), OwnerId(61), pair.now);
    pair.run_for(3 * SECOND);
    for index in [1, 2] {
        assert!(pair.did(index).ends_with(&["self-fence", "ready"]), "{:?}", pair.did(index));
        assert_eq!(pair.workers[index].core.machine().fold(TASK).phase, Phase::Running);
    }
    assert_eq!(pair.did(0).last(), Some(&"start 1"), "it knew best");
}

/// Whoever answers late tells it something all the same: what was begun meanwhile cannot be undone,
/// but no more is. The first difference proves nothing, also to one that works.
#[test]
fn an_answer_that_comes_late_and_differs_has_the_log_read() {
    for (differs, fenced) in [(false, false), (true, true)] {
        let mut solo = Solo::fresh(1);
        solo.read(beat(SECOND, 0));
        solo.run();
        solo.wait(3 * SECOND);
        assert!(solo.core.machine().is_ready());
        for number in [1, 2] {
            assert_eq!(solo.beats.last().map(|beat| beat.number), Some(number));
            let own = solo.core.machine().digest();
            solo.read(answer(number, if differs { FoldDigest::default() } else { own }));
            let did = solo.run();
            assert_eq!(did.contains(&PartitionEffect::Fenced), fenced && number == 2);
            if !differs {
                break;
            }
        }
        assert_eq!(solo.core.reads_log(), fenced);
    }
}

/// Earlier, one worker that knew less than all others halted each that started, and those that ran.
#[test]
fn one_that_is_wrong_does_not_halt_the_others() {
    let mut pair = Pair::new(3);
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    // The first one has missed the request to cancel.
    pair.workers[0].lost = vec![pair.log.len()];
    pair.log.push(Entry::Cancel(OTHER_TASK));
    pair.run_for(SECOND);
    pair.log.push(Entry::Tombstone(Key::Heartbeat(OwnerId(3))));
    pair.replace(2);
    pair.run_until(2, "ready");
    pair.run_for(30 * SECOND);
    assert!(pair.workers[2].core.machine().is_ready(), "the second one agrees with it");
    assert!(pair.did(2).contains(&"differs 0 true"), "{:?}", pair.did(2));
    assert!(!pair.did(1).contains(&"self-fence"), "it was at work: {:?}", pair.did(1));
}

/// The answer of another worker to the question in this heartbeat.
fn answer(number: u64, digest: FoldDigest) -> Entry {
    let Entry::Heartbeat(other) = beat(SECOND, 0) else { panic!("no heartbeat") };
    let comparison = Some(Comparison::Answer { to: OwnerId(1), number, digest });
    let uptime_ms = other.uptime_ms + number;
    Entry::Heartbeat(Heartbeat { comparison, uptime_ms, ..other })
}

/// Earlier, a worker that had read the log in place of a wrong view read that view when it fenced
/// itself for another reason. Nobody else was there who knew better.
#[test]
fn who_knows_that_the_view_is_wrong_remembers_it_beyond_a_self_fence() {
    let (mut pair, claims) = running();
    restart(&mut pair, &claims, false);
    pair.run_until(1, "ready");
    pair.workers[0].offline = true;
    pair.workers[1].core.fence();
    pair.run_until(1, "ready");
    assert_eq!(pair.workers[1].core.machine().fold(TASK).epoch, Epoch(1), "it was read again");
    // A new ledger is another matter.
    pair.workers[1].core.handle_ledger_deleted();
    assert!(!pair.workers[1].core.reads_log());
}

/// A fleet that starts on a new ledger has nobody to ask.
#[test]
fn workers_that_start_at_once_do_not_wait_for_each_other() {
    let mut solo = Solo::fresh(1);
    let Entry::Heartbeat(other) = beat(SECOND, 0) else { panic!("no heartbeat") };
    let comparison = Some(Comparison::Question);
    solo.read(Entry::Heartbeat(Heartbeat { owner: OTHER, comparison, ..other }));
    assert!(solo.run().contains(&PartitionEffect::Ready));
}

/// An answer is about the position of its question. One to another worker, or to another question,
/// says nothing.
#[test]
fn only_the_answer_to_an_own_question_counts() {
    let mut solo = Solo::fresh(1);
    let Entry::Heartbeat(other) = beat(SECOND, 0) else { panic!("no heartbeat") };
    solo.read(Entry::Heartbeat(other.clone()));
    solo.run();
    let asked = solo.beats.last().expect("it asks").number;
    let digest = solo.core.machine().digest();
    for (to, number, ready) in
        [(OTHER, asked, false), (OwnerId(1), asked + 1, false), (OwnerId(1), asked, true)]
    {
        let comparison = Some(Comparison::Answer { to, number, digest });
        solo.read(Entry::Heartbeat(Heartbeat { comparison, ..other.clone() }));
        assert_eq!(solo.run().contains(&PartitionEffect::Ready), ready, "{to} {number}");
    }
}

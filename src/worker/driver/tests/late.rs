//! Answers that come late, when they mean something else or nothing any more.

use super::*;
use crate::worker::driver::showing::BodyReading;
use longhaul_core::protocol::entry::{Done, Outcome};
use longhaul_core::protocol::entry_set::{BatchOutcome, EntrySet};
use longhaul_core::protocol::key::SealKey;
use longhaul_core::protocol::seal::{EndedCounts, Seal};
use longhaul_core::settings::QueueSettings;
use longhaul_core::task::{Failure, FailureCause, text};

const OTHER: OwnerId = OwnerId(7);

fn key(task: TaskId, serial: u64) -> OnceKey {
    OnceKey { task, epoch: Epoch(1), owner: OTHER, serial }
}

fn claim(task: TaskId) -> Entry {
    let kind = ClaimKind::Run;
    Entry::Claim(Claim::plain(key(task, 1), 1, kind))
}

/// A worker that has read the ledger and may not consume yet, and a task that another worker has
/// ended.
async fn ended(outcome: Outcome, content: &'static [u8]) -> (Bench, TaskId) {
    let mut bench = Bench::new(brisk(), None, |_| async { Ok(Text("own".to_owned())) });
    let topic = bench.at(&bench.names.task, -1);
    bench.broker.forbid(&topic, true);
    let task = bench.submit(&[]);
    bench.write(&claim(task));
    let done = Entry::Done(Done { key: key(task, 2), attempt: 1, outcome, writer: None });
    let message = match std::str::from_utf8(content) {
        Ok(reason) if outcome == Outcome::Final => {
            ledger::failure(&done, &Failure::new(FailureCause::NoProgress, reason))
        }
        _ => ledger::message(&done, content),
    };
    bench.broker.publish(&bench.ledger(), message);
    bench.run_for(SECOND).await;
    (bench, task)
}

impl Bench {
    /// Allows the worker to consume.
    fn allow(&self) {
        self.broker.forbid(&self.at(&self.names.task, -1), false);
    }
}

fn entry_at(bench: &Bench, is_wanted: impl Fn(&Entry) -> bool) -> Message {
    let log = bench.broker.full_log(&bench.ledger());
    let wanted = |message: &&Message| ledger::read(message).is_ok_and(|entry| is_wanted(&entry));
    log.iter().find(wanted).cloned().expect("it stands there")
}

/// Regression: a body read for the end of a task before a self-fence was used for it afterwards,
/// although the ledger had a different entry by then. A claim's empty body became the result.
#[tokio::test(start_paused = true)]
async fn a_body_is_taken_from_the_entry_that_made_the_state_and_from_no_other() {
    let (mut bench, task) = ended(Outcome::Completed, b"the result").await;
    let claim = entry_at(&bench, |entry| matches!(entry, Entry::Claim(_)));
    bench.allow();
    let reading = BodyReading { at: claim.position, dead_letter: false, tries: 0 };
    bench.driver.handle_body(LANE, task, reading, Some(&claim));
    bench.run_for(5 * SECOND).await;
    let results: Vec<_> = bench.shown().into_iter().map(|(_, shown)| shown.result).collect();
    assert_eq!(results, [Some(Bytes::from_static(b"the result"))], "{results:?}");
}

/// Regression: when the message of a task was read again for its dead letter, the queue's settings
/// were left out, so the letter did not say for how long the attempt had reported nothing.
#[tokio::test(start_paused = true)]
async fn a_dead_letter_whose_message_is_read_again_goes_by_the_queue() {
    let (mut bench, _) = ended(Outcome::Final, text::NO_PROGRESS.as_bytes()).await;
    let mut settings = QueueSettings::default();
    settings.no_progress_timeout = Some(5 * SECOND);
    bench.settle(1, &settings);
    bench.run_for(SECOND).await;
    bench.allow();
    bench.run_for(10 * SECOND).await;
    let letters = bench.letters();
    assert_eq!(&letters[0].properties["detail"], "The attempt reported nothing for PT5S.");
}

/// Regression: a payload that was read for a dead letter and came after that was written was kept
/// for good, and so was its share of memory.
#[tokio::test(start_paused = true)]
async fn a_payload_that_comes_after_its_dead_letter_does_not_stay() {
    let (mut bench, task) = ended(Outcome::Final, b"why").await;
    bench.allow();
    bench.run_for(10 * SECOND).await;
    assert_eq!(bench.letters().len(), 1);
    let message = bench.broker.full_log(&bench.at(&bench.names.task, -1)).pop();
    assert!(message.is_some());
    bench.driver.handle_task_read(LANE, task, message, None);
    assert_eq!(bench.driver.lanes[-1].payloads.len(), 0);
}

/// Regression: the answer to a batch of tombstones from before a self-fence ended the later batch,
/// whose keys counted as removed.
#[tokio::test(start_paused = true)]
async fn an_old_batch_of_tombstones_ends_no_later_one() {
    let (mut bench, task) = ended(Outcome::Completed, b"").await;
    let mut entries = EntrySet::default();
    entries.push_entry(task.entry_id(), BatchOutcome::Completed);
    let seal = SealKey { owner: OTHER, serial: 3 };
    bench.broker.stall_publishes(&bench.ledger(), 600 * SECOND);
    let seal = Entry::Seal(Seal { key: seal, counts: EndedCounts::default(), entries });
    bench.write(&seal);
    bench.run_for(SECOND).await;
    let lane = &bench.driver.lanes[-1];
    let (generation, left) = (lane.generation, lane.core.machine().left());
    assert_eq!(left, 1, "its keys stand there, and their tombstones are on their way");
    let stored = |generation| WorkerEvent::Tombstoned {
        lane: LANE,
        generation,
        fate: PublishResult::Stored,
    };
    bench.driver.handle(stored(generation - 1));
    assert_eq!(bench.driver.lanes[-1].core.machine().left(), 1);
    bench.driver.handle(stored(generation));
    assert_eq!(bench.driver.lanes[-1].core.machine().left(), 0);
}

/// Regression: seals and tombstones that the ledger refused for good were retried without a log
/// line, while the ledger grew.
#[tokio::test(start_paused = true)]
async fn whatever_the_ledger_refuses_is_told() {
    for lane_event in [
        WorkerEvent::Published { lane: LANE, fate: PublishResult::Refused("too large".to_owned()) },
        WorkerEvent::Tombstoned {
            lane: LANE,
            generation: 1,
            fate: PublishResult::Refused("too large".to_owned()),
        },
    ] {
        let mut bench = Bench::new(brisk(), None, |_| async { Ok(Text::default()) });
        bench.driver.handle(lane_event);
        assert_eq!(bench.driver.stats.read().refusals, 1);
    }
    // Entries that are published without waiting for a receipt also report their fate.
    let mut bench = Bench::new(brisk(), None, |_| async { Ok(Text::default()) });
    bench.run_for(2 * SECOND).await;
    bench.broker.set_faults(Faults { publish_refused: 1.0, ..Faults::quiet() });
    bench.run_for(3 * SECOND).await;
    let stats = bench.driver.stats.read();
    assert_eq!((stats.refusals, stats.self_fenced), (1, 0), "a heartbeat was refused: {stats:?}");
}

/// Regression: a result was published without an answer; published again it was refused, and was
/// replaced by the reason for that. Then the first copy came back from the ledger: the task was
/// shown as completed, without its result and with that reason.
#[tokio::test(start_paused = true)]
async fn a_result_that_was_refused_and_then_counts_is_shown() {
    let (mut bench, task) = ended(Outcome::Completed, b"the result").await;
    let lane = bench.driver.lanes.get_mut(&LANE).expect("one");
    let result = longhaul_core::metadata::entry::OutcomeBody::Result(b"the result"[..].into());
    lane.keep_body((task, Epoch(1)), result);
    assert!(lane.refuse_result(key(task, 3), "too large"));
    bench.allow();
    bench.driver.show_end_unless_shown(LANE, task, Showing::Outcome);
    bench.run_for(SECOND).await;
    let shown: Vec<_> = bench.shown().into_iter().map(|(_, shown)| shown).collect();
    let [shown] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!(shown.result.as_deref(), Some(&b"the result"[..]));
    assert_eq!(shown.failure_reason, None);
}

/// Regression: the dead letter of a task without a readable payload was given up when the broker
/// refused it once, and the task was acknowledged: nothing was left of it.
#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_is_refused_is_published_until_it_is_stored() {
    for (payload, refusals) in [("", 1), ("", 5), ("payload", 1), ("payload", 2), ("payload", 3)] {
        let fatal = |_| async { Err(TaskError::fatal("why")) };
        let mut bench = Bench::new(brisk(), None, fatal);
        bench.run_for(SECOND).await;
        let dead_letters = bench.at(&bench.names.dead_letters, -1);
        for _ in 0..refusals {
            bench.broker.next_publish(&dead_letters, longhaul_memory::PublishFate::Refused);
        }
        let at = bench.at(&bench.names.task, -1);
        let properties = [("color", "red"), (text::DEDUPE_KEY, "key"), (text::LIMIT_KEY, "key")];
        let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let properties = properties.into();
        let message = Outgoing { properties, payload: payload.into(), ..Outgoing::default() };
        let entry = bench.broker.publish(&at, message).entry_id();
        bench.run_for(SECOND / 2).await;
        assert!(!bench.broker.is_acked(&at, "longhaul", entry), "it has no dead letter yet");
        bench.run_for(10 * SECOND).await;
        assert!(bench.broker.is_acked(&at, "longhaul", entry));
        let letters = bench.letters();
        let [letter] = &letters[..] else { panic!("{refusals}: {letters:?}") };
        assert!(letter.payload.is_empty());
        let smallest = refusals > usize::from(!payload.is_empty());
        assert_eq!(letter.properties.contains_key("color"), !smallest, "{payload} {refusals}");
        assert_eq!(&letter.properties["failureReason"], "Processing error: why");
        assert_eq!(&letter.properties["failureCause"], "error");
        for (_, shown) in bench.shown() {
            assert_eq!(shown.warning, None, "its keys are used: {payload} {refusals}");
        }
    }
}

/// Regression: data read to show the end of a task that came while the ledger was read anew after a
/// self-fence was kept as if still needed. Nothing dropped it until the task was sealed, an hour
/// later.
#[tokio::test(start_paused = true)]
async fn what_was_read_for_an_end_and_comes_in_a_second_read_does_not_stay() {
    let (mut bench, task) = ended(Outcome::Completed, b"the result").await;
    let done = entry_at(&bench, |entry| matches!(entry, Entry::Done(_)));
    let message = bench.broker.full_log(&bench.at(&bench.names.task, -1)).pop();
    assert!(message.is_some());
    // The read does not end before the own heartbeat has come back.
    bench.broker.stall_publishes(&bench.ledger(), 600 * SECOND);
    bench.driver.lanes.get_mut(&LANE).expect("one").core.handle_ledger_deleted();
    bench.run_for(SECOND).await;
    let machine = bench.driver.lanes[-1].core.machine();
    assert!(!machine.is_ready() && machine.fold(task).phase.is_terminal(), "it is read again");
    bench.driver.handle_task_read(LANE, task, message, Some(Showing::Outcome));
    let reading = BodyReading { at: done.position, dead_letter: false, tries: 0 };
    bench.driver.handle_body(LANE, task, reading, Some(&done));
    let lane = &bench.driver.lanes[-1];
    assert_eq!((lane.payloads.len(), lane.ended_attempts.len()), (0, 0));
}

/// Regression: a broker that did not answer was treated like one that reported a missing result,
/// and was asked with growing pauses. An end was shown four minutes after an outage.
#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_read_is_tried_again_soon() {
    let (mut bench, _) = ended(Outcome::Completed, b"the result").await;
    bench.broker.fail_requests(&bench.ledger(), 9);
    bench.allow();
    bench.run_for(60 * SECOND).await;
    let results: Vec<_> = bench.shown().into_iter().map(|(_, shown)| shown.result).collect();
    assert_eq!(results, [Some(Bytes::from_static(b"the result"))]);
}

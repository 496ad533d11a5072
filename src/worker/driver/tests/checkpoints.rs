//! Checkpoints while the ledger accepts them, accepts them late, or refuses them.

use super::*;

impl Bench {
    /// The checkpoints on the ledger, in order.
    fn checkpoints(&self) -> Vec<String> {
        let log = self.broker.full_log(&self.ledger());
        let is_one = |message: &&Message| matches!(ledger::read(message), Ok(Entry::Checkpoint(_)));
        let text = |message: &Message| ledger::content(message).unwrap().to_vec();
        log.iter().filter(is_one).map(|one| String::from_utf8(text(one)).unwrap()).collect()
    }
}

/// Stores this number of checkpoints at this interval, and notes when each call has returned.
fn giving(count: u32, every: Duration, config: WorkerConfig) -> (Bench, Diary) {
    Bench::with_diary(config, None, move |context, notes| async move {
        for number in 1..=count {
            tokio::time::sleep(every).await;
            context.checkpoint(number.to_string()).await?;
        }
        notes.note("given");
        context.checkpoint_stored().await?;
        notes.note("stored");
        context.cancelled().await;
        Ok(Text("done".to_owned()))
    })
}

/// Regression: a processor blocked at its first checkpoint until the ledger was back; with `?` its
/// attempt failed, after hours of work.
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_ledger_holds_up_no_processor() {
    for forbidden in [false, true] {
        let (mut bench, diary) = giving(20, SECOND, WorkerConfig::default());
        bench.submit(&[]);
        bench.run_for(5 * SECOND).await;
        let ledger = bench.ledger();
        if forbidden {
            bench.broker.forbid(&ledger, true);
        } else {
            bench.broker.stall_publishes(&ledger, 60 * SECOND);
        }
        bench.run_for(20 * SECOND).await;
        assert_eq!(diary.lines(), ["given"]);
        bench.run_for(40 * SECOND).await;
        bench.broker.forbid(&ledger, false);
        bench.run_for(20 * SECOND).await;
        assert_eq!(diary.lines(), ["given", "stored"]);
        assert_eq!(bench.checkpoints().last().map(String::as_str), Some("20"));
        assert_eq!(bench.driver.stats.read().started, 1);
    }
}

/// Regression: a checkpoint of unknown fate counted as not stored, and was not published again.
#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_got_lost_is_published_again_under_a_fresh_key() {
    use longhaul_memory::PublishFate;
    for fate in [PublishFate::Lost, PublishFate::ReceiptLost, PublishFate::Refused] {
        let (mut bench, diary) = giving(1, 3 * SECOND, WorkerConfig::default());
        bench.submit(&[]);
        bench.run_for(2 * SECOND).await;
        bench.broker.next_publish(&bench.ledger(), fate);
        bench.run_for(30 * SECOND).await;
        assert_eq!(diary.lines(), ["given", "stored"], "{fate:?}");
        assert_eq!(bench.checkpoints(), ["1"], "{fate:?}");
    }
}

/// Regression: between a self-fence and the end of the following bootstrap, a continuing attempt
/// could not store checkpoints.
#[tokio::test(start_paused = true)]
async fn a_self_fence_loses_no_checkpoint() {
    let (mut bench, diary) = giving(20, SECOND, brisk());
    bench.submit(&[]);
    bench.run_for(5 * SECOND).await;
    bench.transport.freeze();
    bench.run_for(20 * SECOND).await;
    assert_eq!(diary.lines(), ["given"]);
    bench.transport.thaw();
    bench.run_for(30 * SECOND).await;
    assert!(bench.driver.stats.read().self_fenced >= 1);
    assert_eq!(diary.lines(), ["given", "stored"]);
    assert_eq!(bench.checkpoints().last().map(String::as_str), Some("20"));
}

/// Regression: a checkpoint counted as stored when its receipt came. If it landed in the
/// millisecond after an operator's release, the log ignored it, and the next attempt did not find
/// it.
#[tokio::test(start_paused = true)]
async fn a_checkpoint_is_stored_when_it_was_read_back() {
    let (mut bench, diary) = giving(1, 3 * SECOND, WorkerConfig::default());
    bench.submit(&[]);
    bench.run_for(2 * SECOND).await;
    bench.broker.silence_followers(&bench.ledger(), 5 * SECOND);
    bench.run_for(3 * SECOND).await;
    assert_eq!(bench.checkpoints(), ["1"]);
    assert_eq!(diary.lines(), ["given"], "it stands on the ledger, and nobody has read it");
    bench.run_for(5 * SECOND).await;
    assert_eq!(diary.lines(), ["given", "stored"]);
    assert_eq!(bench.checkpoints(), ["1"]);
}

/// Regression: only reading back its entry ended the wait for a checkpoint with a receipt. If the
/// broker deleted the entry before the worker had read it, the attempt could store no later one.
#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_is_stored_and_never_read_is_published_again() {
    let (mut bench, diary) = giving(1, 3 * SECOND, WorkerConfig::default());
    bench.submit(&[]);
    bench.run_for(2 * SECOND).await;
    let is_one = |_: &[Message], it: &Message| matches!(ledger::read(it), Ok(Entry::Checkpoint(_)));
    bench.transport.miss(&bench.ledger(), is_one);
    bench.run_for(3 * SECOND).await;
    bench.transport.miss_nothing();
    assert_eq!(
        (bench.checkpoints(), diary.lines()),
        (vec!["1".to_owned()], vec!["given".to_owned()])
    );
    bench.run_for(30 * SECOND).await;
    assert_eq!(bench.checkpoints(), ["1", "1"]);
    assert_eq!(diary.lines(), ["given", "stored"]);
}

/// Regression: each checkpoint was published, however fast they came, and each waited for the
/// previous one.
#[tokio::test(start_paused = true)]
async fn the_newest_checkpoint_takes_the_place_of_those_that_wait() {
    let (mut bench, diary) = giving(500, SECOND / 100, WorkerConfig::default());
    bench.submit(&[]);
    bench.run_for(SECOND * 13 / 2).await;
    assert_eq!(diary.lines(), ["given", "stored"]);
    let found = bench.checkpoints();
    assert!(found.len() <= 7 && found.last().map(String::as_str) == Some("500"), "{found:?}");
}

/// Regression: the last checkpoint of an attempt was published once, when it ended, without a check
/// of its fate. An outage at that moment cost the next attempt all of the work, and a self-fence
/// kept only the outcome.
#[tokio::test(start_paused = true)]
async fn the_last_checkpoint_of_an_attempt_that_fails_in_an_outage_is_there_for_the_next_one() {
    for (outage, fenced) in [(3 * SECOND, false), (60 * SECOND, true)] {
        let (mut bench, diary) = Bench::with_diary(brisk(), None, |context, notes| async move {
            if let Some(found) = context.last_checkpoint() {
                notes.note(String::from_utf8_lossy(found));
                return Ok(Text("done".to_owned()));
            }
            tokio::time::sleep(3 * SECOND).await;
            context.checkpoint("an hour's work").await?;
            tokio::time::sleep(SECOND).await;
            Err(TaskError::retry("out of luck"))
        });
        bench.submit(&[]);
        bench.run_for(2 * SECOND).await;
        bench.transport.freeze();
        bench.run_for(outage).await;
        bench.transport.thaw();
        bench.run_for(60 * SECOND).await;
        assert_eq!(diary.lines(), ["an hour's work"]);
        assert_eq!(bench.driver.stats.read().self_fenced >= 1, fenced);
        assert_eq!(bench.driver.lanes[-1].ended_attempts.len(), 0);
    }
}

/// Regression: the processor of an attempt began however late its checkpoint was read, without a
/// check whether its claim still counted. A worker that had been suspended at that read for two
/// minutes began on a task that others had ended and sealed.
#[tokio::test(start_paused = true)]
async fn an_attempt_whose_checkpoint_is_not_read_within_h_is_given_back() {
    let (mut bench, diary) = with_checkpoint(brisk());
    bench.submit(&[]);
    bench.run_for(5 * SECOND).await;
    // This takes 1.5 s to 3 s.
    bench.broker.fail_requests(&bench.ledger(), 5);
    bench.run_for(20 * SECOND).await;
    assert_eq!(diary.lines(), ["Some(\"half\") false"], "it is not lost, and begins once");
    let log = bench.broker.full_log(&bench.ledger());
    let released = |message: &Message| match ledger::read(message) {
        Ok(Entry::Done(done)) => matches!(done.outcome, Outcome::Released(_)).then_some(done),
        _ => None,
    };
    let released: Vec<_> = log.iter().filter_map(released).collect();
    let [done] = &released[..] else { panic!("{released:?}") };
    assert_eq!((done.key.epoch, done.attempt), (Epoch(2), 2));
    assert_eq!(done.outcome, Outcome::Released(NextAttempt::default()), "it had not begun");
}

/// A task can be submitted with the checkpoint of a task elsewhere. Checkpoints of its own attempts
/// take the place of that one.
#[tokio::test(start_paused = true)]
async fn an_attempt_begins_with_the_checkpoint_of_the_message_until_the_ledger_has_one() {
    for (given, own, found) in [
        ("aGFsZg==", false, ["Some(\"half\")", "Some(\"half\")"]),
        ("aGFsZg==", true, ["Some(\"half\")", "Some(\"own\")"]),
        ("no base64", true, ["None", "Some(\"own\")"]),
    ] {
        let (mut bench, diary) =
            Bench::with_diary(brisk(), None, move |context, notes| async move {
                let last = context.last_checkpoint().map(|it| String::from_utf8_lossy(it));
                notes.note(format!("{last:?}"));
                assert!(!context.properties().contains_key("CHECKPOINT"));
                if context.attempt() > 1 {
                    return Ok(Text("done".to_owned()));
                }
                if own {
                    context.checkpoint("own").await?;
                    context.checkpoint_stored().await?;
                }
                Err(TaskError::retry("once more"))
            });
        bench.submit(&[("CHECKPOINT", given)]);
        bench.run_for(60 * SECOND).await;
        assert_eq!(diary.lines(), found, "{given}");
    }
}

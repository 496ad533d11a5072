//! Workers of another version beside this one, during a deploy: entries that this version does not
//! know are ignored and left unchanged.

use super::*;
use longhaul_core::protocol::entry::ClaimKind;

impl Bench {
    /// Writes an entry of another version to the ledger, with these additional properties.
    fn write_newer(&self, entry: &Entry, more: &[(&str, &str)]) {
        let mut message = ledger::message(entry, b"");
        let mut properties = message.properties.to_map();
        properties
            .extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        message.properties = properties.into();
        self.broker.publish(&self.ledger(), message);
    }
}

fn claim(task: TaskId, epoch: u32, serial: u64) -> Entry {
    let key = OnceKey { task, epoch: Epoch(epoch), owner: OwnerId(7), serial };
    Entry::Claim(Claim::plain(key, epoch, ClaimKind::Run))
}

/// A property that this version does not know must not make a claim void: both versions would run
/// the task.
#[tokio::test(start_paused = true)]
async fn a_claim_with_unknown_properties_counts() {
    let mut bench = Bench::new(brisk(), None, |context| report(context, 5));
    let task = bench.submit(&[]);
    bench.write_newer(&claim(task, 1, 1), &[("zz", "9"), ("yy", "7")]);
    bench.run_for(SECOND).await;
    let fold = bench.driver.lanes[-1].core.machine().fold(task);
    assert_eq!((fold.epoch, fold.owner), (Epoch(1), OwnerId(7)));
    assert_eq!(bench.driver.stats.read().started, 0);
    // The other worker falls silent, and this one takes over.
    bench.run_for(20 * SECOND).await;
    assert_eq!(bench.shown().last().unwrap().1.state, TaskState::Completed);
    assert_eq!(bench.driver.stats.read().malformed, 0);
}

/// A kind or state that this version does not know is counted, changes nothing, and keeps its key
/// when the task's own keys are removed.
#[tokio::test(start_paused = true)]
async fn unknown_kinds_and_states_are_ignored_and_stay() {
    let config = WorkerConfig {
        heartbeat: SECOND,
        self_fence: 5 * SECOND,
        ledger_retention: 60 * SECOND,
        ..WorkerConfig::default()
    };
    let mut bench = Bench::new(config, None, |context| report(context, 5));
    let task = bench.submit(&[]);
    bench.run_for(2 * SECOND).await;
    bench.write_newer(&claim(task, 2, 5), &[("s", "PREEMPTED")]);
    bench.write_newer(&claim(task, 2, 6), &[("k", "lease")]);
    let key = Some("lease/tasks/1".to_owned());
    let unknown = Outgoing { key: key.clone(), payload: "\u{1}".into(), ..Outgoing::default() };
    bench.broker.publish(&bench.ledger(), unknown);
    bench.run_for(6 * SECOND).await;
    let shown = bench.shown();
    let (_, last) = shown.last().unwrap();
    assert_eq!((last.state, last.attempts), (TaskState::Completed, 1));
    assert_eq!(bench.driver.stats.read().malformed, 3);
    for _ in 0..5 {
        bench.turns = 0;
        bench.run_for(60 * SECOND).await;
    }
    assert!(bench.driver.lanes[-1].core.machine().is_sealed(task), "its own keys are gone");
    let log = bench.broker.full_log(&bench.ledger());
    let removed = |key: &str| log.iter().any(|it| it.null && it.key.as_deref() == Some(key));
    let own: Vec<&Message> = log
        .iter()
        .filter(|it| it.key.as_deref().is_some_and(|key| key.starts_with(&task.to_string())))
        .collect();
    let is_known = |it: &&&Message| ledger::read(it).is_ok() && !it.null;
    for message in own.iter().filter(is_known) {
        assert!(removed(message.key.as_deref().unwrap()), "{:?}", message.key);
    }
    let kept: Vec<&str> = log
        .iter()
        .filter(|it| ledger::read(it).is_err())
        .filter_map(|it| it.key.as_deref())
        .collect();
    assert_eq!(kept.len(), 3);
    assert!(kept.iter().all(|key| !removed(key)), "{kept:?}");
}

/// The end of a task that another version has shown is shown again word for word, including fields
/// that this version does not know.
#[tokio::test(start_paused = true)]
async fn an_end_that_is_restored_keeps_unknown_fields() {
    let mut bench = repairing::sealed_before_a_zombie_came_with(|json| {
        json.replacen('{', r#"{"fromTheFuture":{"a":[1]},"#, 1)
    })
    .await;
    bench.run_for(30 * SECOND).await;
    let last = bench.broker.full_log(&bench.metadata()).pop().unwrap();
    let text = String::from_utf8(last.payload.to_vec()).unwrap();
    assert!(text.contains(r#""state":"COMPLETED""#), "{text}");
    assert!(text.contains(r#""fromTheFuture":{"a":[1]}"#), "{text}");
}

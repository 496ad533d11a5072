//! Entries that must be on a topic in the end, although a read fails or a publish is lost on the
//! way.

use super::*;
use crate::TaskState;
use longhaul_core::protocol::entry_set::{BatchOutcome, EntrySet};
use longhaul_core::protocol::key::SealKey;
use longhaul_core::protocol::seal::{EndedCounts, Seal};
use longhaul_memory::PublishFate;

impl Bench {
    /// The last entry on the metadata topic. `None`: a tombstone.
    fn shown_last(&self) -> Option<TaskMetadata> {
        let last = self.broker.full_log(&self.metadata()).pop().expect("something is shown");
        serde_json::from_slice(&last.payload).ok()
    }

    /// Runs for longer than the bench counts turns.
    async fn run_for_minutes(&mut self, minutes: u32) {
        for _ in 0..minutes {
            self.turns = 0;
            self.run_for(60 * SECOND).await;
        }
    }
}

/// A task has completed and is sealed, and then an entry of a zombie on it lands on the metadata
/// topic.
async fn sealed_before_a_zombie_came() -> Bench {
    sealed_before_a_zombie_came_with(|json| json).await
}

/// The same, if the end on the metadata topic was changed by `written`.
pub(super) async fn sealed_before_a_zombie_came_with(written: fn(String) -> String) -> Bench {
    let mut bench = Bench::new(brisk(), None, |_| async { Ok(Text("the result".to_owned())) });
    let task = bench.submit(&[]);
    bench.run_for(5 * SECOND).await;
    let log = bench.broker.full_log(&bench.metadata());
    let (first, last) = (log[0].clone(), log.last().unwrap().clone());
    let payload = written(String::from_utf8(last.payload.to_vec()).unwrap()).into();
    let (key, properties) = (last.key, last.properties);
    bench
        .broker
        .publish(&bench.metadata(), Outgoing { key, properties, payload, ..Outgoing::default() });
    let mut entries = EntrySet::default();
    entries.push_entry(task.entry_id(), BatchOutcome::Completed);
    let counts = EndedCounts { completed: 1, ..EndedCounts::default() };
    let key = SealKey { owner: OwnerId(7), serial: 9 };
    bench.write(&Entry::Seal(Seal { key, counts, entries }));
    bench.run_for(2 * SECOND).await;
    assert!(bench.driver.lanes[-1].core.machine().is_sealed(task));
    let Message { key, properties, payload, .. } = first;
    let entry = Outgoing { key, properties, payload, ..Outgoing::default() };
    bench.broker.publish(&bench.metadata(), entry);
    bench
}

/// Regression: a single failed read counted as a missing entry, so a result was deleted from the
/// metadata topic a few seconds after it had come.
#[tokio::test(start_paused = true)]
async fn an_end_that_cannot_be_read_just_now_is_shown_again_when_it_can() {
    let mut bench = sealed_before_a_zombie_came().await;
    bench.broker.fail_requests(&bench.metadata(), 3);
    bench.run_for_minutes(2).await;
    let shown = bench.shown_last().expect("it is no tombstone");
    assert_eq!(shown.state, TaskState::Completed);
}

/// Regression: the entry that corrects a zombie's was published once, without a check of its fate.
#[tokio::test(start_paused = true)]
async fn an_end_that_is_shown_again_and_gets_lost_is_shown_once_more() {
    let mut bench = sealed_before_a_zombie_came().await;
    bench.broker.next_publish(&bench.metadata(), PublishFate::Lost);
    bench.run_for_minutes(2).await;
    assert_eq!(bench.shown_last().map(|shown| shown.state), Some(TaskState::Completed));
}

/// Regression: each attempt of a task that is given back every second left an entry in the queue of
/// an unavailable metadata topic.
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_metadata_topic_piles_up_nothing() {
    let mut bench = Bench::new(brisk(), None, |_| async { Err(TaskError::snooze(SECOND)) });
    bench.run_for(5 * SECOND).await;
    bench.broker.forbid(&bench.metadata(), true);
    for _ in 0..16 {
        bench.submit(&[]);
    }
    bench.run_for_minutes(5).await;
    assert!(bench.driver.stats.read().started > 1_000, "they go on");
    assert!(
        bench.driver.metadata_in_flight < 200,
        "{} are on their way",
        bench.driver.metadata_in_flight
    );
}

/// Regression: the settings of a new ledger were published once. If they were lost, no worker
/// noticed that the ledger was replaced, and the next worker, with other settings, stopped the
/// first one.
#[tokio::test(start_paused = true)]
async fn settings_that_get_lost_are_published_again() {
    let mut bench = Bench::new(brisk(), None, end);
    while bench.broker.full_log(&bench.ledger()).is_empty() {
        bench.run_for(SECOND / 1_000).await;
    }
    bench.broker.next_publish(&bench.ledger(), PublishFate::Lost);
    bench.run_for(10 * SECOND).await;
    let log = bench.broker.full_log(&bench.ledger());
    let settings = |message: &&Message| matches!(ledger::read(message), Ok(Entry::Config(_)));
    assert_eq!(log.iter().filter(settings).count(), 1);
}

//! What a client measures.

use super::*;
use crate::telemetry::tests::Notes;

#[tokio::test(start_paused = true)]
async fn tasks_are_counted_that_the_broker_has_stored_and_sessions_that_were_lost() {
    let notes = Notes::default();
    let _guard = metrics::set_default_local_recorder(&notes);
    let bench = bench();
    bench.submit().await.unwrap();
    bench.submit().await.unwrap();
    bench.fake.world().fates.push_back(Fate::Refused);
    bench.submit().await.unwrap_err();
    let submitted = format!("longhaul_tasks_submitted_total{{queue={TASKS}}}");
    assert_eq!(notes.get(&submitted), Some(2.0));
    let reconnects = "longhaul_engine_reconnects_total{role=client}";
    assert_eq!(notes.get(reconnects), None);
    let _wait = waiting!(bench);
    bench.fake.break_followers();
    settle().await;
    assert_eq!(notes.get(reconnects), Some(1.0));
}

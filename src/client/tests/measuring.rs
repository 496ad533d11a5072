//! The client's metrics.

use super::*;
use crate::client::TaskStatus;
use crate::clock::Clock;
use crate::telemetry::tests::Notes;

#[tokio::test(start_paused = true)]
async fn tasks_are_counted_that_the_broker_has_stored_and_sessions_that_were_lost() {
    let notes = Notes::default();
    let _guard = metrics::set_default_local_recorder(&notes);
    let bench = bench();
    bench.submit().await.unwrap();
    bench.submit().await.unwrap();
    bench.fake.world().fates.push_back(ScriptedFate::Refused);
    bench.submit().await.unwrap_err();
    let submitted = format!("longhaul_tasks_submitted_total{{queue={TASKS}}}");
    assert_eq!(notes.get(&submitted), Some(2.0));
    let bytes = format!("longhaul_tasks_submitted_bytes_total{{queue={TASKS}}}");
    assert_eq!(notes.get(&bytes), Some(8.0), "`task` twice");
    let reconnects = "longhaul_engine_reconnects_total{role=client}";
    assert_eq!(notes.get(reconnects), None);
    let _wait = waiting!(bench);
    bench.fake.break_followers();
    settle().await;
    assert_eq!(notes.get(reconnects), Some(1.0));
}

/// Gauges of waiting tasks, as an autoscaler needs them.
#[tokio::test(start_paused = true)]
async fn a_view_measures_the_tasks_of_a_queue() {
    let notes = Notes::default();
    let _guard = metrics::set_default_local_recorder(&notes);
    let bench = bench();
    bench.submit().await.unwrap();
    bench.submit().await.unwrap();
    let view = bench.client.queue("tasks").tasks().await.unwrap();
    let gauge = |name: &str, labels: &str| notes.get(&format!("{name}{{queue={TASKS}{labels}}}"));
    assert_eq!(gauge("longhaul_demand", ""), None, "nobody has asked");
    let counts = view.measure().unwrap();
    assert_eq!(counts.of(TaskStatus::Ready), 2);
    assert_eq!(gauge("longhaul_tasks", ",state=ready"), Some(2.0));
    // All statuses are set, including those without tasks.
    for status in TaskStatus::ALL.into_iter().filter(|status| *status != TaskStatus::Ready) {
        let labels = format!(",state={}", status.word());
        assert_eq!(gauge("longhaul_tasks", &labels), Some(0.0), "{labels}");
    }
    assert_eq!(gauge("longhaul_demand", ""), Some(2.0));
    let since_ms = counts.oldest_ready.map(|(_, since_ms)| since_ms).unwrap();
    let waits = gauge("longhaul_oldest_ready_seconds", "").unwrap();
    let now_ms = Clock::System.wall_ms();
    let most = Duration::from_millis(now_ms.saturating_sub(since_ms)).as_secs_f64();
    assert!((0.0..=most).contains(&waits), "{waits} of {most}");
}

//! Reports about running tasks.

use crate::candidate::Orders;
use crate::stage::{PATIENCE, Scene};
use anyhow::{Context, ensure};
use longhaul::TaskRef;
use longhaul::ops::HistoryEvent;
use serde_json::json;
use std::time::Duration;

/// With a lease of a minute, a worker that reports nothing on its own is silent for 20 s.
pub(super) async fn progress(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let _worker = scene.worker(&Orders { lease_time: 60, ..Orders::default() })?;
    let steps = json!([[{ "progress": [1, 3, "copying"] }, { "log": "one" }, { "sleep": 15 }, { "succeed": "" }]]);
    let task = scene.submit(&steps).await?;
    // The worker must start first, and a lease of a minute is kept alive only after 20 s.
    let limit = Duration::from_secs(12);
    let shown =
        scene.until(&task, "shown with progress", limit, |shown| shown.progress.is_some()).await?;
    let progress = shown.progress.unwrap_or_default();
    let found = (progress.done, progress.total, progress.message.as_str());
    ensure!(found == (1, 3, "copying"), "the progress is {found:?}");
    scene.succeeds(&task, b"", 1).await
}

/// Whatever a worker says beside its result is less than the result.
pub(super) async fn odd_news(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let _worker = scene.worker(&Orders { concurrency: 4, ..Orders::default() })?;
    let half = r#"{ "log": "\ud83d half of a pair" }"#;
    let numbers = ["33.3", "-1", "1e300", "\"nan\"", "\"inf\""];
    let mut odd: Vec<String> =
        numbers.map(|done| format!(r#"{{ "progress": [{done}, 100, "odd"] }}"#)).into();
    odd.extend([half.to_owned(), r#"{ "log_bytes": 6000000 }"#.to_owned()]);
    odd.push(odd.join(", "));
    let mut tasks = vec![];
    for steps in &odd {
        let payload = format!(r#"{{ "attempts": [[{steps}, {{ "succeed": "fine" }}]] }}"#);
        tasks.push(scene.submit_text(&payload).await?);
    }
    for (task, steps) in tasks.iter().zip(&odd) {
        scene.succeeds(task, b"fine", 1).await.with_context(|| steps.clone())?;
    }
    let first = format!(r#"{half}, {{ "checkpoint": "page 7" }}, {{ "fail": "torn" }}"#);
    let second = r#"{ "succeed_with": "checkpoint" }"#;
    let payload = format!(r#"{{ "attempts": [[{first}], [{second}]] }}"#);
    let task = scene.submit_text(&payload).await?;
    scene.succeeds(&task, b"page 7", 2).await.context("the checkpoint beside an odd log line")
}

pub(super) async fn checkpoint(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let _worker = scene.worker(&Orders::default())?;
    // The second checkpoint comes right before the end, and counts.
    let first = json!([{ "checkpoint": "page 1" }, { "sleep": 2 }, { "checkpoint": "page 7 ü" }, { "fail": "torn" }]);
    let task = scene.submit(&json!([first, [{ "succeed_with": "checkpoint" }]])).await?;
    scene.succeeds(&task, "page 7 ü".as_bytes(), 2).await
}

pub(super) async fn keep_alive(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let _worker = scene.worker(&Orders { concurrency: 2, ..Orders::default() })?;
    let sleeping = scene.submit(&json!([[{ "sleep": 9 }, { "succeed": "rested" }]])).await?;
    // This step ignores everything until it is over.
    let blocked = scene.submit(&json!([[{ "block": 9 }, { "succeed": "woken" }]])).await?;
    scene.succeeds(&sleeping, b"rested", 1).await?;
    scene.succeeds(&blocked, b"woken", 1).await
}

/// More megabytes than an answer has: the worker needs several of them.
pub(super) async fn large_leases(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    const AT_ONCE: u32 = 16;
    let steps = json!([[{ "sleep": 15 }, { "succeed": "large" }]]);
    let payload = json!({ "attempts": steps, "more": "x".repeat(3_700_000) }).to_string();
    let mut tasks = vec![];
    for _ in 0..AT_ONCE {
        tasks.push(scene.submit_with(&payload, 1).await?);
    }
    let _worker =
        scene.worker(&Orders { concurrency: AT_ONCE, lease_time: 15, ..Orders::default() })?;
    for task in &tasks {
        scene.succeeds_within(Duration::from_secs(60), task, b"large", 1).await?;
    }
    runs_at_once(scene, &tasks, AT_ONCE).await
}

pub(super) async fn several(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    const AT_ONCE: u32 = 3;
    let mut tasks = vec![];
    for _ in 0..2 * AT_ONCE {
        tasks.push(scene.submit(&json!([[{ "sleep": 3 }, { "succeed": "" }]])).await?);
    }
    let _worker = scene.worker(&Orders { concurrency: AT_ONCE, ..Orders::default() })?;
    for task in &tasks {
        scene.end(task, PATIENCE).await?;
    }
    runs_at_once(scene, &tasks, AT_ONCE).await
}

async fn runs_at_once(scene: &Scene<'_>, tasks: &[TaskRef], wanted: u32) -> anyhow::Result<()> {
    let mut changes = vec![];
    for task in tasks {
        for entry in scene.history(task).await? {
            if let HistoryEvent::Leased { .. } = entry.event {
                changes.push((entry.published_ms, 1));
            } else if entry.event == HistoryEvent::Completed {
                changes.push((entry.published_ms, -1));
            }
        }
    }
    // At the same instant, ends sort before starts.
    changes.sort_unstable();
    let (mut running, mut most) = (0, 0);
    for (_, change) in changes {
        running += change;
        most = most.max(running);
    }
    let wanted = i32::try_from(wanted)?;
    ensure!(most == wanted, "the worker ran up to {most} tasks at once, not {wanted}");
    Ok(())
}

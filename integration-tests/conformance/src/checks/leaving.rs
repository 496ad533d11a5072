//! Tasks that a worker has to leave: cancelled, taken away, expired, released.

use crate::candidate::Orders;
use crate::door::{ProxiedRequest, ProxiedRequestKind};
use crate::stage::{PATIENCE, Scene, begun};
use anyhow::{Context, ensure};
use longhaul::TaskOutcome;
use longhaul::ops::{HistoryEntry, HistoryEvent};
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

pub(super) async fn cancelled(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let _worker = scene.worker(&Orders::default())?;
    let task = scene.submit(&json!([[begun(), { "sleep": 120 }]])).await?;
    scene.until_running(&task, 1).await?;
    scene.cancel(&task).await?;
    let end = scene.end(&task, Duration::from_secs(15)).await?;
    ensure!(
        end.outcome == Some(TaskOutcome::Cancelled),
        "the task ended as {:?}, not as cancelled",
        end.outcome
    );
    // The worker itself must have reported the end.
    let reported = |calls: &[ProxiedRequest]| calls.iter().any(|call| is_end(&call.kind));
    ensure!(reported(&scene.door.calls()), "the worker did not report the end of the task");
    let next = scene.submit(&json!([[{ "succeed": "next" }]])).await?;
    scene.succeeds(&next, b"next", 1).await
}

/// The processor continues and succeeds, although its lease is over.
pub(super) async fn taken_away(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let _worker = scene.worker(&Orders { concurrency: 2, ..Orders::default() })?;
    let steps =
        json!([[begun(), { "block": 8 }, { "succeed": "first" }], [{ "succeed": "second" }]]);
    let task = scene.submit(&steps).await?;
    scene.until_running(&task, 1).await?;
    scene.take_away(&task).await?;
    let refused = |calls: &[ProxiedRequest]| calls.iter().any(is_refusal);
    scene.door.until("a report on the ended lease", PATIENCE, refused).await?;
    // When this task is over, the worker has ended both tasks, and would have sent any forbidden
    // report.
    scene.end(&task, PATIENCE).await?;
    let after = scene.submit(&json!([[{ "sleep": 9 }, { "succeed": "" }]])).await?;
    scene.succeeds(&after, b"", 1).await?;
    silent_about_lost_leases(scene)
}

pub(super) async fn frozen(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let worker = scene.worker(&Orders { name: "frozen", ..Orders::default() })?;
    let steps =
        json!([[begun(), { "sleep": 120 }], [begun(), { "sleep": 4 }, { "succeed": "second" }]]);
    let task = scene.submit(&steps).await?;
    scene.until_running(&task, 1).await?;
    worker.signal(Signal::STOP)?;
    let other = scene.worker(&Orders { name: "other", ..Orders::default() })?;
    scene.until_running(&task, 2).await?;
    worker.signal(Signal::CONT)?;
    scene.succeeds(&task, b"second", 2).await?;
    drop(other);
    // It has one slot, which it must have freed.
    let next = scene.submit(&json!([[{ "succeed": "next" }]])).await?;
    let end = scene.end(&next, PATIENCE).await?;
    ensure!(end.result.is_some(), "the next task failed: {:?}", end.failure_reason);
    silent_about_lost_leases(scene)
}

pub(super) async fn drain(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let orders = Orders { concurrency: 2, drain: Some(4), ..Orders::default() };
    let mut worker = scene.worker(&orders)?;
    let long = json!([[{ "succeed_with": "checkpoint" }, { "checkpoint": "half" }, begun(), { "sleep": 120 }]]);
    let long = scene.submit(&long).await?;
    scene.until_running(&long, 1).await?;
    let stored = |calls: &[ProxiedRequest]| {
        let alive = ProxiedRequestKind::report("IN_PROGRESS");
        calls.iter().any(|call| call.kind == alive && call.status == Some(200))
    };
    scene.door.until("a keep-alive with the checkpoint", PATIENCE, stored).await?;
    let short = scene.submit(&json!([[begun(), { "sleep": 2 }, { "succeed": "in time" }]])).await?;
    scene.until_running(&short, 1).await?;
    worker.signal(Signal::TERM)?;
    let status = worker.ended(Duration::from_secs(45)).await?;
    ensure!(status.success(), "the worker ended with {status}");
    let gone = scene.history(&long).await?;
    let given_back = gone.iter().any(|entry| entry.event == HistoryEvent::Released);
    ensure!(given_back, "the worker did not give back the unfinished task");
    let late = scene.submit(&json!([[{ "succeed": "late" }]])).await?;
    let _next = scene.worker(&Orders { name: "next", ..orders })?;
    scene
        .succeeds(&short, b"in time", 1)
        .await
        .context("the task that ends within the drain limit")?;
    scene.succeeds(&long, b"half", 1).await.context("the task that was given back")?;
    scene.succeeds(&late, b"late", 1).await.context("a task submitted later")
}

pub(super) async fn long_drain(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let mut worker = scene.worker(&Orders { drain: None, ..Orders::default() })?;
    let steps = json!([[begun(), { "sleep": 14 }, { "succeed": "in its own time" }]]);
    let task = scene.submit(&steps).await?;
    scene.until_running(&task, 1).await?;
    worker.signal(Signal::TERM)?;
    scene.succeeds(&task, b"in its own time", 1).await?;
    let status = worker.ended(Duration::from_secs(30)).await?;
    ensure!(status.success(), "the worker ended with {status}");
    Ok(())
}

pub(super) async fn two_workers(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let mut other = scene.second().await?;
    let mut worker = scene.two_workers(&other, &Orders { lease_time: 30, ..Orders::default() })?;
    let steps = json!([[begun(), { "sleep": 120 }]]);
    let tasks = [scene.submit(&steps).await?, other.submit(&steps).await?];
    scene.until_running(&tasks[0], 1).await?;
    other.until_running(&tasks[1], 1).await?;
    worker.signal(Signal::TERM)?;
    let status = worker.ended(Duration::from_secs(45)).await?;
    ensure!(status.success(), "the process ended with {status}");
    for task in &tasks {
        let given_back = |entry: &HistoryEntry| entry.event == HistoryEvent::Released;
        let is_given_back = scene.history(task).await?.iter().any(given_back);
        ensure!(is_given_back, "the worker of {} did not give back its task", task.topic);
    }
    Ok(())
}

fn is_refusal(call: &ProxiedRequest) -> bool {
    matches!(call.kind, ProxiedRequestKind::Report(_)) && matches!(call.status, Some(404 | 409))
}

fn is_end(kind: &ProxiedRequestKind) -> bool {
    matches!(kind, ProxiedRequestKind::Report(status) if status != "IN_PROGRESS")
}

/// Reports may be in progress when the first one is refused. After that no more may come.
fn silent_about_lost_leases(scene: &Scene<'_>) -> anyhow::Result<()> {
    let calls = scene.door.calls();
    for (index, lost) in calls.iter().enumerate().filter(|(_, call)| is_refusal(call)) {
        let soon = lost.at + Duration::from_secs(1);
        let later = calls.iter().skip(index + 1);
        let mut later = later.filter(|call| call.lease == lost.lease && call.at > soon);
        if let Some(call) = later.next() {
            let after = call.at - lost.at;
            let what = &call.kind;
            anyhow::bail!(
                "the worker sent {what:?} on a lease {after:?} after a report on it was refused"
            );
        }
    }
    Ok(())
}

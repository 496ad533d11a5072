//! The ends of tasks.

use crate::candidate::Orders;
use crate::stage::{PATIENCE, Scene};
use anyhow::{Context, ensure};
use longhaul::ops::HistoryEvent;
use longhaul::{TaskOutcome, TaskRef};
use serde_json::json;

pub(super) async fn results(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let _worker = scene.worker(&Orders::default())?;
    let text = "Grüße, 世界 \u{1f44b}";
    let task = scene.submit(&json!([[{ "succeed": text }]])).await?;
    scene.succeeds(&task, text.as_bytes(), 1).await?;
    let task = scene.submit(&json!([[{ "succeed_base64": "AP+A/g==" }]])).await?;
    scene.succeeds(&task, &[0, 255, 128, 254], 1).await?;
    let payload = json!({ "attempts": [[{ "succeed_with": "payload" }]], "more": "ü" }).to_string();
    let task = scene.submit_text(&payload).await?;
    scene.succeeds(&task, payload.as_bytes(), 1).await
}

pub(super) async fn failure(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let _worker = scene.worker(&Orders::default())?;
    let steps = json!([[{ "fail": "a page is stuck" }], [{ "succeed": "done" }]]);
    let task = scene.submit(&steps).await?;
    scene.succeeds(&task, b"done", 2).await?;
    let reason = first_failure(scene, &task).await?.1;
    ensure!(reason.contains("a page is stuck"), "the failure reason is {reason:?}");
    Ok(())
}

pub(super) async fn odd_reason(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let _worker = scene.worker(&Orders { concurrency: 3, ..Orders::default() })?;
    let odd = [
        r#"{ "fail": "\ud83d half of a pair" }"#,
        r#"{ "fail_bytes": 6000000 }"#,
        r#"{ "fail": "soon", "retry_after": -0.5 }"#,
    ];
    for step in odd {
        let payload = format!(r#"{{ "attempts": [[{step}], [{{ "succeed": "done" }}]] }}"#);
        let task = scene.submit_text(&payload).await?;
        scene.succeeds(&task, b"done", 2).await.context(step)?;
    }
    Ok(())
}

pub(super) async fn fatal(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let _worker = scene.worker(&Orders::default())?;
    let task = scene.submit(&json!([[{ "fail": "a page is torn", "fatal": true }]])).await?;
    fails_for_good(scene, &task, "a page is torn").await
}

pub(super) async fn retry_after(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let _worker = scene.worker(&Orders::default())?;
    let steps = json!([[{ "fail": "closed", "retry_after": 2.5 }], [{ "succeed": "open" }]]);
    let task = scene.submit(&steps).await?;
    scene.succeeds(&task, b"open", 2).await?;
    let wait = first_failure(scene, &task).await?.0;
    ensure!((2_300..=2_700).contains(&wait), "the next attempt was due after {wait} ms, not 2,500");
    Ok(())
}

pub(super) async fn nonsense(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let _worker = scene.worker(&Orders::default())?;
    let task = scene.submit_text("this is no script").await?;
    fails_for_good(scene, &task, "").await?;
    let task = scene.submit(&json!([[{ "dance": "tango" }]])).await?;
    fails_for_good(scene, &task, "").await?;
    let task = scene.submit(&json!([[{ "succeed": "alive" }]])).await?;
    scene.succeeds(&task, b"alive", 1).await
}

pub(super) async fn too_large(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let _worker = scene.worker(&Orders::default())?;
    // The gateway refuses the result, and then the body before it has read it.
    for bytes in [2_000_000, 6_000_000] {
        let task = scene.submit(&json!([[{ "succeed_bytes": bytes }]])).await?;
        fails_for_good(scene, &task, "").await?;
    }
    let task = scene.submit(&json!([[{ "succeed_bytes": 500_000 }]])).await?;
    scene.succeeds(&task, "x".repeat(500_000).as_bytes(), 1).await
}

async fn fails_for_good(scene: &Scene<'_>, task: &TaskRef, why: &str) -> anyhow::Result<()> {
    let end = scene.end(task, PATIENCE).await?;
    let is_final = end.outcome == Some(TaskOutcome::Final);
    ensure!(
        is_final && end.attempts == 1,
        "the task ended as {:?} after {} attempts, not as failed for good after 1",
        end.outcome,
        end.attempts
    );
    let reason = end.failure_reason.unwrap_or_default();
    ensure!(reason.contains(why), "the failure reason is {reason:?}");
    Ok(())
}

/// The delay of the next attempt in ms, and the reason of the first failure.
async fn first_failure(scene: &Scene<'_>, task: &TaskRef) -> anyhow::Result<(u64, String)> {
    let failure = scene.history(task).await?.into_iter().find_map(|entry| {
        let HistoryEvent::Failed { next_attempt_ms, reason } = entry.event else { return None };
        Some((next_attempt_ms.saturating_sub(entry.published_ms), reason))
    });
    failure.context("the history has no failed attempt")
}

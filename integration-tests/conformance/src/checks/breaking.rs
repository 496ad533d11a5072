//! Gateways that refuse, do not answer, or go away.

use crate::candidate::Orders;
use crate::door::{InjectedFault, ProxiedRequest, ProxiedRequestKind};
use crate::stage::{Scene, begun};
use anyhow::{Context, ensure};
use serde_json::json;
use std::time::Duration;

/// The value of `Retry-After`, in s.
const PAUSE: u32 = 2;
/// A value of `Retry-After` for which no end may wait, in s.
const LONG_PAUSE: u32 = 20;

pub(super) async fn told_to_wait(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let kinds = [
        ProxiedRequestKind::Lease,
        ProxiedRequestKind::report("IN_PROGRESS"),
        ProxiedRequestKind::report("SUCCEEDED"),
    ];
    for kind in &kinds {
        for status in [429, 503] {
            scene.door.plant(kind.clone(), InjectedFault::Refuse { status, seconds: PAUSE });
        }
    }
    let _worker = scene.worker(&Orders { lease_time: 15, ..Orders::default() })?;
    let steps = json!([[{ "progress": [1, 2, "half"] }, { "sleep": 9 }, { "succeed": "patient" }]]);
    let task = scene.submit(&steps).await?;
    scene.succeeds(&task, b"patient", 1).await?;
    let calls = scene.door.calls();
    for kind in &kinds {
        waits(&calls, kind)?;
    }
    Ok(())
}

/// After each refused request, the next one of its kind comes no sooner than requested.
fn waits(calls: &[ProxiedRequest], kind: &ProxiedRequestKind) -> anyhow::Result<()> {
    let pause = Duration::from_secs(PAUSE.into()) - Duration::from_millis(200);
    let of_kind: Vec<&ProxiedRequest> = calls.iter().filter(|call| call.kind == *kind).collect();
    let mut refused = 0;
    for pair in of_kind.windows(2) {
        let [first, second] = pair else { continue };
        if matches!(first.status, Some(429 | 503)) {
            refused += 1;
            let after = second.at - first.at;
            ensure!(
                after >= pause,
                "the worker repeated {kind:?} after {after:?}, although Retry-After was {PAUSE} s"
            );
        }
    }
    ensure!(refused == 2, "the worker repeated {kind:?} after {refused} of 2 refusals");
    Ok(())
}

/// The processors return while their keep-alives are refused for longer than they take.
pub(super) async fn end_in_a_pause(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let (alive, end) =
        (ProxiedRequestKind::report("IN_PROGRESS"), ProxiedRequestKind::report("SUCCEEDED"));
    let statuses = [429, 503];
    for status in statuses {
        scene.door.plant(alive.clone(), InjectedFault::Refuse { status, seconds: LONG_PAUSE });
    }
    let _worker = scene.worker(&Orders { concurrency: 2, lease_time: 60, ..Orders::default() })?;
    // The worker has news for a second keep-alive when it has got the refusal.
    let steps = json!([[begun(), { "sleep": 3 }, { "log": "more" }, { "sleep": 3 }, { "succeed": "at once" }]]);
    let tasks = [scene.submit(&steps).await?, scene.submit(&steps).await?];
    for task in &tasks {
        scene.succeeds(task, b"at once", 1).await?;
    }
    let calls = scene.door.calls();
    let refused =
        |call: &&ProxiedRequest| call.kind == alive && matches!(call.status, Some(429 | 503));
    let refused: Vec<_> = calls.iter().filter(refused).collect();
    ensure!(refused.len() == statuses.len(), "{} keep-alives were refused, not 2", refused.len());
    for call in refused {
        let ended = calls.iter().find(|other| other.kind == end && other.lease == call.lease);
        let ended = ended.context("a task whose keep-alive was refused has no end")?;
        let after = ended.at - call.at;
        ensure!(
            after < Duration::from_secs(u64::from(LONG_PAUSE) - 5),
            "the worker sent an end {after:?} after a keep-alive was told to wait {LONG_PAUSE} s"
        );
    }
    Ok(())
}

pub(super) async fn answer_lost(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    scene.door.plant(ProxiedRequestKind::report("SUCCEEDED"), InjectedFault::CutAnswer);
    scene.door.plant(ProxiedRequestKind::report("IN_PROGRESS"), InjectedFault::CutAnswer);
    let _worker = scene.worker(&Orders::default())?;
    let task = scene.submit(&json!([[{ "sleep": 5 }, { "succeed": "told twice" }]])).await?;
    scene.succeeds(&task, b"told twice", 1).await?;
    let twice = |calls: &[ProxiedRequest]| {
        let told = ProxiedRequestKind::report("SUCCEEDED");
        let told = calls.iter().filter(|call| call.kind == told).count();
        told >= 2
    };
    let limit = Duration::from_secs(20);
    scene.door.until("the repeated report", limit, twice).await?;
    let next = scene.submit(&json!([[{ "succeed": "next" }]])).await?;
    scene.succeeds(&next, b"next", 1).await
}

pub(super) async fn gateway_restarted(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let mut gateway = scene.gateway().await?;
    let _worker =
        scene.worker_at(gateway.url(), &Orders { lease_time: 12, ..Orders::default() })?;
    let task = scene.submit(&json!([[begun(), { "sleep": 15 }, { "succeed": "kept" }]])).await?;
    scene.until_running(&task, 1).await?;
    gateway.kill().await?;
    gateway.start_again().await?;
    scene.succeeds(&task, b"kept", 1).await?;
    let next = scene.submit(&json!([[{ "succeed": "next" }]])).await?;
    scene.succeeds(&next, b"next", 1).await
}

pub(super) async fn gateway_gone(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let (mut first, mut second) = (scene.gateway().await?, scene.gateway().await?);
    let both = format!("{},{}", first.url(), second.url());
    let _worker = scene.worker_at(&both, &Orders { lease_time: 10, ..Orders::default() })?;
    for gateway in [&mut first, &mut second] {
        let task = scene.submit(&json!([[begun(), { "sleep": 9 }, { "succeed": "kept" }]])).await?;
        scene.until_running(&task, 1).await?;
        gateway.kill().await?;
        scene.succeeds(&task, b"kept", 1).await?;
        let next = scene.submit(&json!([[{ "succeed": "next" }]])).await?;
        scene.succeeds(&next, b"next", 1).await?;
        gateway.start_again().await?;
    }
    Ok(())
}

//! Answers that say nothing, and confirmations.

use crate::candidate::Orders;
use crate::door::{InjectedFault, ProxiedRequest, ProxiedRequestKind};
use crate::stage::{PATIENCE, Scene, begun};
use anyhow::ensure;
use futures::future::try_join_all;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// What proxies answer.
const STATUSES: [u16; 13] = [404, 409, 200, 302, 400, 401, 403, 408, 413, 421, 431, 500, 503];
/// How many confirmations in a row are answered by a proxy.
const CONFIRMATIONS: usize = 3;

pub(super) async fn proxy_page(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let faults = STATUSES.map(InjectedFault::page);
    repeats(scene, &faults).await
}

/// A gateway may know a new token later than the worker.
pub(super) async fn token_rotated(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let (unknown, missing) = ((401, "token_unknown"), (403, "scope_missing"));
    let faults = [unknown, missing, unknown, missing, unknown, missing];
    repeats(scene, &faults.map(|(status, code)| InjectedFault::problem(status, code))).await
}

/// As many tasks as faults report progress, and end, at about the same time.
async fn repeats(scene: &Scene<'_>, faults: &[InjectedFault]) -> anyhow::Result<()> {
    let end = ProxiedRequestKind::report("SUCCEEDED");
    for fault in faults {
        scene.door.plant(ProxiedRequestKind::report("IN_PROGRESS"), fault.clone());
        scene.door.plant(end.clone(), fault.clone());
    }
    for fault in faults.iter().take(CONFIRMATIONS) {
        scene.door.plant(ProxiedRequestKind::Confirm, fault.clone());
    }
    let concurrency = u32::try_from(faults.len())?;
    let _worker = scene.worker(&Orders { concurrency, lease_time: 20, ..Orders::default() })?;
    let mut tasks = vec![];
    for _ in faults {
        tasks.push(scene.submit(&json!([[begun(), { "sleep": 3 }, { "succeed": "kept" }]])).await?);
    }
    for task in &tasks {
        scene.succeeds(task, b"kept", 1).await?;
    }
    let ends = scene.door.calls().into_iter().filter(|call| call.kind == end).count();
    ensure!(ends >= 2 * faults.len(), "the worker sent {ends} ends for {} tasks", tasks.len());
    Ok(())
}

pub(super) async fn cut_answer(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let kinds = [
        ProxiedRequestKind::Lease,
        ProxiedRequestKind::Confirm,
        ProxiedRequestKind::report("IN_PROGRESS"),
        ProxiedRequestKind::report("SUCCEEDED"),
    ];
    for kind in &kinds {
        scene.door.plant(kind.clone(), InjectedFault::HalveAnswer);
    }
    // The first request for leases gets this task.
    let task = scene.submit(&json!([[{ "sleep": 4 }, { "succeed": "whole" }]])).await?;
    let _worker = scene.worker(&Orders::default())?;
    scene.succeeds(&task, b"whole", 1).await?;
    // The others are repeated in any case.
    for kind in [ProxiedRequestKind::Confirm, ProxiedRequestKind::report("SUCCEEDED")] {
        let twice =
            |calls: &[ProxiedRequest]| calls.iter().filter(|call| call.kind == kind).count() >= 2;
        scene.door.until(&format!("{kind:?} again"), PATIENCE, twice).await?;
    }
    Ok(())
}

pub(super) async fn unconfirmed(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let steps = json!([[{ "succeed": "confirmed" }]]);
    let confirm = ProxiedRequestKind::Confirm;
    let gate = Arc::new(Notify::new());
    scene.door.plant(confirm.clone(), InjectedFault::HoldAnswer(Arc::clone(&gate)));
    let worker = scene.worker(&Orders::default())?;
    let task = scene.submit(&steps).await?;
    scene.door.until("a confirmation", PATIENCE, |calls| confirmations(calls) > 0).await?;
    // A worker that does not wait for the answer ends the task in this time.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let has_begun = |call: &ProxiedRequest| matches!(call.kind, ProxiedRequestKind::Report(_));
    let calls = scene.door.calls();
    // It may have sent the confirmation again: the answer to the first one is held.
    let answered = calls.iter().filter(|call| call.kind == confirm && call.status.is_some());
    let is_early = answered.count() < 2 && calls.iter().any(has_begun);
    ensure!(!is_early, "the worker began a task before its leases were confirmed");
    gate.notify_one();
    scene.succeeds(&task, b"confirmed", 1).await?;
    let confirmed = confirmations(&scene.door.calls());
    let reports = || scene.door.calls().iter().filter(|call| has_begun(call)).count();
    let before = reports();
    let body = json!({ "outcomes": [{ "outcome": "NOT_IN_PROGRESS" }], "now": 1 }).to_string();
    let lost = InjectedFault::Answer { status: 200, content_type: "application/json", body };
    scene.door.plant(confirm.clone(), lost);
    scene.door.plant(confirm, InjectedFault::Refuse { status: 503, seconds: 30 });
    let task = scene.submit(&steps).await?;
    // The first lease is not confirmed, so the task comes again, and its worker is killed.
    let again = |calls: &[ProxiedRequest]| confirmations(calls) >= confirmed + 2;
    scene.door.until("a new confirmation", PATIENCE, again).await?;
    drop(worker);
    ensure!(reports() == before, "the worker began a task whose lease was not confirmed");
    let _next = scene.worker(&Orders { name: "next", ..Orders::default() })?;
    scene.succeeds(&task, b"confirmed", 1).await
}

/// The broker is away from the gateway for a moment.
pub(super) async fn unknown_outcome(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    const REPEATS: usize = 2;
    let body = json!({ "outcomes": [{ "outcome": "UNKNOWN" }], "now": 1 }).to_string();
    let unknown = InjectedFault::Answer { status: 200, content_type: "application/json", body };
    for _ in 0..REPEATS {
        scene.door.plant(ProxiedRequestKind::Confirm, unknown.clone());
    }
    let task = scene.submit(&json!([[{ "succeed": "known" }]])).await?;
    let _worker = scene.worker(&Orders { lease_time: 30, ..Orders::default() })?;
    // A worker that forgets the lease gets another one after 30 s.
    let repeated = |calls: &[ProxiedRequest]| confirmations(calls) > REPEATS;
    scene.door.until("a repeated confirmation", Duration::from_secs(20), repeated).await?;
    scene.succeeds(&task, b"known", 1).await?;
    let calls = scene.door.calls();
    let is_confirmation = |call: &&ProxiedRequest| call.kind == ProxiedRequestKind::Confirm;
    let mut leases: Vec<_> = calls.iter().filter(is_confirmation).map(|call| &call.lease).collect();
    leases.dedup();
    ensure!(leases.len() == 1, "the worker confirmed other leases than the unknown ones");
    let has_begun = |call: &ProxiedRequest| matches!(call.kind, ProxiedRequestKind::Report(_));
    let before = calls.iter().take_while(|call| !has_begun(call));
    let before = before.filter(is_confirmation).count();
    ensure!(before > REPEATS, "the worker began a task after {before} unknown outcomes");
    Ok(())
}

fn confirmations(calls: &[ProxiedRequest]) -> usize {
    let of_confirm = |call: &&ProxiedRequest| call.kind == ProxiedRequestKind::Confirm;
    calls.iter().filter(of_confirm).count()
}

/// The answer with the lease reaches the worker when its gateway is gone.
pub(super) async fn stopped_gateway(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let mut gateway = scene.gateway().await?;
    let door = scene.door_of(&gateway).await?;
    let gate = Arc::new(Notify::new());
    door.plant(ProxiedRequestKind::Lease, InjectedFault::HoldAnswer(Arc::clone(&gate)));
    let steps = json!([[{ "sleep": 1 }, { "succeed": "once" }]]);
    let task = scene.submit(&steps).await?;
    let orders = Orders { concurrency: 20, lease_time: 20, ..Orders::default() };
    let _worker = scene.worker_at(door.url(), &orders)?;
    let granted = |calls: &[ProxiedRequest]| {
        calls.iter().any(|call| call.kind == ProxiedRequestKind::Lease && call.status == Some(200))
    };
    door.until("a request for leases", PATIENCE, granted).await?;
    gateway.stop().await?;
    gate.notify_one();
    let tried = |calls: &[ProxiedRequest]| confirmations(calls) > 0;
    door.until("a confirmation", PATIENCE, tried).await?;
    gateway.start_again().await?;
    scene.succeeds_within(Duration::from_secs(60), &task, b"once", 1).await?;
    // Now it stops under requests for leases.
    let submitted = try_join_all((0..60).map(|_| scene.submit(&steps)));
    let (tasks, stopped) = tokio::join!(submitted, gateway.stop());
    let (tasks, ()) = (tasks?, stopped?);
    gateway.start_again().await?;
    for task in &tasks {
        scene.succeeds_within(Duration::from_secs(90), task, b"once", 1).await?;
    }
    Ok(())
}

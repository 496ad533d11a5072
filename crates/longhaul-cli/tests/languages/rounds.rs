//! The requirements on a worker in any language.

use crate::languages::language::{Language, Program};
use crate::languages::stage::{Stage, ends, leaves};
use crate::support::until;
use longhaul::{TaskMetadata, TaskOutcome, TaskState};
use rustix::process::Signal;
use serde_json::json;

#[tokio::test]
async fn a_worker_in_python() {
    play(Language::Python).await;
}

#[tokio::test]
async fn a_worker_in_go() {
    play(Language::Go).await;
}

#[tokio::test]
async fn a_worker_in_typescript() {
    play(Language::TypeScript).await;
}

async fn play(language: Language) {
    let Some(program) = language.program() else { return };
    let stage = Stage::new().await;
    it_succeeds_and_fails(&stage, &program).await;
    it_tells_its_progress_as_it_comes(&stage, &program).await;
    it_keeps_its_lease_and_hears_of_a_cancellation(&stage, &program).await;
    it_is_fenced_after_a_pause(&stage, &program).await;
    it_gives_its_task_back(&stage, &program).await;
}

async fn it_succeeds_and_fails(stage: &Stage, program: &Program) {
    let mut worker = stage.worker(program, "steady", "5").await;
    let task = stage.submit(&json!({ "pages": 3, "seconds_per_page": 0.01 })).await;
    let end = stage.end(&task).await;
    assert_eq!((end.result.as_deref(), end.attempts), (Some(&b"3 pages"[..]), 1));
    let task = stage.submit(&json!({ "pages": 3, "seconds_per_page": 0.01, "stuck_at": 2 })).await;
    let end = stage.end(&task).await;
    assert_eq!((end.result.as_deref(), end.attempts), (Some(&b"3 pages"[..]), 2));
    let task = stage.submit(&json!({ "broken": "a page is torn" })).await;
    let end = stage.end(&task).await;
    assert_eq!((end.outcome, end.attempts), (Some(TaskOutcome::Final), 1));
    let reason = end.failure_reason.unwrap();
    assert!(reason.contains("a page is torn"), "{reason}");
    worker.line_with(&format!("failed {}", task.id)).await;
    leaves(worker).await;
}

/// Progress must be sent as it comes, not only every third of the lease: short tasks would never
/// show any.
async fn it_tells_its_progress_as_it_comes(stage: &Stage, program: &Program) {
    let worker = stage.worker(program, "talkative", "60").await;
    let mut watch = stage.watch().await;
    let task = stage.submit(&json!({ "pages": 12, "seconds_per_page": 0.3 })).await;
    let id = task.id.to_string();
    let mut seen = 0;
    for _ in 0..2 {
        let further = |it: &TaskMetadata| {
            let done = it.progress.as_ref().map_or(0, |it| it.done);
            it.message_id == id && done > seen
        };
        let shown = until(&mut watch, further).await;
        seen = shown.progress.unwrap().done;
    }
    assert!((2..12).contains(&seen), "{seen}");
    assert_eq!(stage.end(&task).await.attempts, 1);
    leaves(worker).await;
}

/// The task takes longer than a lease.
async fn it_keeps_its_lease_and_hears_of_a_cancellation(stage: &Stage, program: &Program) {
    let mut worker = stage.worker(program, "patient", "3").await;
    let mut watch = stage.watch().await;
    let task = stage.submit(&json!({ "pages": 30, "seconds_per_page": 0.2 })).await;
    let shown =
        until(&mut watch, |it| it.progress.is_some() && it.message_id == task.id.to_string()).await;
    let progress = shown.progress.unwrap();
    assert_eq!((progress.total, progress.message.as_str()), (30, "copying"));
    let end = stage.end(&task).await;
    assert_eq!((end.result.as_deref(), end.attempts), (Some(&b"30 pages"[..]), 1));
    let task = stage.submit(&json!({ "pages": 1_000, "seconds_per_page": 0.1 })).await;
    worker.line_with(&format!("leased {} attempt 1", task.id)).await;
    stage.client.cancel(&task).await.unwrap();
    worker.line_with(&format!("cancelled {}", task.id)).await;
    assert_eq!(stage.end(&task).await.outcome, Some(TaskOutcome::Cancelled));
    leaves(worker).await;
}

async fn it_is_fenced_after_a_pause(stage: &Stage, program: &Program) {
    let mut frozen = stage.worker(program, "frozen", "3").await;
    let mut watch = stage.watch().await;
    let task = stage.submit(&json!({ "pages": 40, "seconds_per_page": 0.1 })).await;
    frozen.line_with(&format!("leased {} attempt 1", task.id)).await;
    let id = task.id.to_string();
    until(&mut watch, |it| it.progress.is_some() && it.message_id == id).await;
    frozen.signal(Signal::STOP);
    let mut other = stage.worker(program, "other", "3").await;
    other.line_with(&format!("leased {id} attempt 2")).await;
    frozen.signal(Signal::CONT);
    let told = frozen.line_with(&id).await;
    // The packages add for how long no keep-alive has succeeded.
    assert!(told.starts_with(&format!("lost {id}: stale_lease_id")), "{told}");
    let end = stage.end(&task).await;
    let history = stage.client.queue(&task.topic).history(task.id).await.unwrap();
    assert_eq!((end.result.as_deref(), end.attempts), (Some(&b"40 pages"[..]), 2), "{history:#?}");
    leaves(frozen).await;
    leaves(other).await;
}

/// A release costs no attempt, and the next one continues from the checkpoint.
async fn it_gives_its_task_back(stage: &Stage, program: &Program) {
    let mut worker = stage.worker(program, "leaving", "5").await;
    let task = stage.submit(&json!({ "pages": 20, "seconds_per_page": 0.2 })).await;
    worker.line_with(&format!("leased {} attempt 1", task.id)).await;
    worker.signal(Signal::TERM);
    worker.line_with(&format!("released {}", task.id)).await;
    ends(worker).await;
    let mut next = stage.worker(program, "next", "5").await;
    next.line_with(&format!("succeeded {}", task.id)).await;
    let end = stage.end(&task).await;
    assert_eq!((end.state, end.attempts), (TaskState::Completed, 1));
}

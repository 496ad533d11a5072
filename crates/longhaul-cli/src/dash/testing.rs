//! Helpers for tests of the dashboard: keys, and sample answers of a gateway.

use super::state::{DashboardData, DashboardEffect, DashboardState, QueueLine};
use crate::service::letters::Letter;
use crate::service::tasks::{ListedTask, QueueTaskCounts};
use longhaul::Progress;
use ratatui::crossterm::event::{KeyCode, KeyEvent};

/// Presses one key per character; returns the effect of the last one.
pub(super) fn press(dash: &mut DashboardState, keys: &str) -> Option<DashboardEffect> {
    let code = |key| match key {
        '⏎' => KeyCode::Enter,
        '⎋' => KeyCode::Esc,
        '⌫' => KeyCode::Backspace,
        '↑' => KeyCode::Up,
        '↓' => KeyCode::Down,
        '→' => KeyCode::Tab,
        '⇟' => KeyCode::PageDown,
        '⇞' => KeyCode::PageUp,
        '⇱' => KeyCode::Home,
        '⇲' => KeyCode::End,
        key => KeyCode::Char(key),
    };
    keys.chars().map(|key| dash.key(KeyEvent::from(code(key)))).last().flatten()
}

pub(super) fn answer_of_queues(names: &[&str]) -> DashboardData {
    let line = |name: &&str| {
        let by_status = [("ready", 12), ("running", 3), ("failed", 1)].into();
        let counts =
            QueueTaskCounts { queue: (*name).to_owned(), by_status, ..QueueTaskCounts::default() };
        QueueLine { name: (*name).to_owned(), counts: Ok(counts) }
    };
    DashboardData::Queues { queues: names.iter().map(line).collect(), has_more: false }
}

pub(super) fn answer_of_tasks(names: &[&str]) -> DashboardData {
    let tasks = names.iter().map(|name| task(name)).collect();
    DashboardData::Tasks { tasks, owners: Vec::new(), has_more: false }
}

/// A running task that has done 30 of 40.
pub(super) fn task(name: &str) -> ListedTask {
    let progress =
        serde_json::from_str::<Progress>(r#"{"done":30,"total":40,"message":"writing"}"#);
    ListedTask {
        task: name.to_owned(),
        status: "running",
        attempts: 1,
        epoch: 1,
        created_ms: 0,
        changed_ms: 0,
        due_ms: None,
        worker: Some("worker-7".to_owned()),
        cancel_requested: false,
        progress: progress.ok(),
        reason: None,
        why: None,
        waits_for: Vec::new(),
        tags: Vec::new(),
        task_type: None,
        key: None,
    }
}

pub(super) fn letter(task: &str, reason: &str) -> Letter {
    let (task, reason) = (task.to_owned(), reason.to_owned());
    Letter { task, reason, attempts: 3, ..Letter::default() }
}

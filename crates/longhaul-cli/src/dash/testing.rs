//! Helpers for tests of the dashboard: keys, and sample answers of a gateway.

use super::state::{DashboardData, DashboardEffect, DashboardState, QueueLine};
use longhaul_api::dead::DeadLetterBody;
use longhaul_api::task::{ProgressBody, TaskBody, TaskCountsBody, WorkerBody};
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
        let by_status = [("ready".into(), 12), ("running".into(), 3), ("failed".into(), 1)].into();
        let counts = TaskCountsBody { by_status, ..TaskCountsBody::default() };
        QueueLine { name: (*name).to_owned(), counts: Ok(counts) }
    };
    DashboardData::Queues { queues: names.iter().map(line).collect(), has_more: false }
}

pub(super) fn answer_of_tasks(names: &[&str]) -> DashboardData {
    let tasks = names.iter().map(|name| task(name)).collect();
    DashboardData::Tasks { tasks, owners: Vec::new(), has_more: false }
}

/// A running task that has done 30 of 40.
pub(super) fn task(name: &str) -> TaskBody {
    let worker = WorkerBody { name: "worker-7".to_owned(), ..WorkerBody::default() };
    TaskBody {
        id: name.to_owned(),
        status: "running".into(),
        attempts: 1,
        epoch: Some(1),
        worker: Some(worker),
        progress: Some(ProgressBody { done: 30, total: 40, message: "writing".to_owned() }),
        ..TaskBody::default()
    }
}

pub(super) fn letter(task: &str, reason: &str) -> DeadLetterBody {
    let (task, reason) = (task.to_owned(), reason.to_owned());
    DeadLetterBody { task, reason, attempts: 3, ..DeadLetterBody::default() }
}

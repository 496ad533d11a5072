//! The lists as rows of text. Pure.
//!
//! Columns are in order of importance: in a narrow window the last ones are left out.

use super::pulse::Pulse;
use super::state::{DashboardData, DashboardState, QueueLine};
use crate::output::Tone;
use crate::output::text;
use crate::service::tasks::statuses;
use crate::service::workers::{WorkerProcess, by_process};
use crate::times;
use longhaul_api::dead::DeadLetterBody;
use longhaul_api::task::{ProgressBody, TaskBody, TaskCountsBody, WorkerBody};
use longhaul_api::worker::QueueWorker;
use std::collections::HashMap;
use std::time::Duration;

/// The maximum length of a cell, in characters.
const CELL_MAX: usize = 200;

/// The width of a progress bar, in characters.
const BAR: u64 = 10;

/// The statuses shown first.
const FIRST: [&str; 5] = ["ready", "running", "retrying", "failed", "completed"];

/// A list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DashboardTable {
    pub(crate) heads: Vec<ColumnHead>,
    pub(crate) rows: Vec<DashboardRow>,
}

/// The head of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnHead {
    pub(crate) title: &'static str,
    /// Numbers are right-aligned.
    pub(crate) is_number: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DashboardRow {
    /// The row's queue, task or worker.
    pub(crate) key: String,
    pub(crate) cells: Vec<Cell>,
    /// The details shown when the cursor is on the row.
    pub(crate) detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

/// A cell of untrusted text, without characters that move the cursor or change the direction.
fn cell(text: &str) -> Cell {
    toned(text, Tone::Plain)
}

fn toned(text: &str, tone: Tone) -> Cell {
    Cell { text: text::short(text, CELL_MAX), tone }
}

const fn words(title: &'static str) -> ColumnHead {
    ColumnHead { title, is_number: false }
}

const fn number(title: &'static str) -> ColumnHead {
    ColumnHead { title, is_number: true }
}

/// The list of the current tab.
pub(crate) fn of(dash: &DashboardState) -> DashboardTable {
    match &dash.answer {
        Some(DashboardData::Queues { queues, .. }) => of_queues(queues, dash.answered_ms),
        Some(DashboardData::Tasks { tasks, owners, .. }) => of_tasks(dash, tasks, owners),
        Some(DashboardData::Workers { owners }) => of_workers(dash, owners),
        Some(DashboardData::Letters { letters, .. }) => of_letters(letters, dash.answered_ms),
        None => DashboardTable::default(),
    }
}

fn of_queues(queues: &[QueueLine], now_ms: u64) -> DashboardTable {
    let order = || {
        let others = statuses().filter(|word| !FIRST.contains(word));
        FIRST.into_iter().chain(others)
    };
    let mut heads = vec![words("QUEUE")];
    heads.extend(order().map(number));
    let row = |queue: &QueueLine| {
        let mut cells = vec![cell(&queue.name)];
        let detail = match &queue.counts {
            Ok(counts) => {
                cells.extend(order().map(|word| count(counts, word)));
                detail_of_counts(counts, now_ms)
            }
            Err(why) => {
                cells.extend(order().map(|_| toned("?", Tone::Bad)));
                format!("Its tasks cannot be counted: {why}")
            }
        };
        DashboardRow { key: queue.name.clone(), cells, detail }
    };
    DashboardTable { heads, rows: queues.iter().map(row).collect() }
}

fn count(counts: &TaskCountsBody, word: &str) -> Cell {
    let count = counts.of(word);
    let tone = match (count, word) {
        (0, _) => Tone::Faint,
        (_, "failed" | "expired") => Tone::Bad,
        (_, "running" | "claimed") => Tone::Busy,
        (_, "completed") => Tone::Good,
        _ => Tone::Plain,
    };
    toned(&count.to_string(), tone)
}

fn detail_of_counts(counts: &TaskCountsBody, now_ms: u64) -> String {
    let told = statuses().filter_map(|word| {
        let count = counts.of(word);
        (count > 0).then(|| format!("{count} {word}"))
    });
    let told = told.collect::<Vec<_>>().join(", ");
    let told = if told.is_empty() { "no tasks".to_owned() } else { told };
    match &counts.oldest_ready {
        Some(oldest) => {
            format!("{told}. The oldest ready task came {}.", times::ago(oldest.since, now_ms))
        }
        None => format!("{told}."),
    }
}

fn of_tasks(dash: &DashboardState, tasks: &[TaskBody], owners: &[QueueWorker]) -> DashboardTable {
    let running = owners.iter().flat_map(|seen| seen.running.iter().map(move |task| (task, seen)));
    let running: HashMap<_, _> = running.collect();
    let row = |task: &TaskBody| {
        let owner = running.get(&task.id);
        let pulse = owner.and_then(|seen| dash.pulse(&seen.owner));
        let holder = owner.filter(|seen| seen.holds_leases);
        let [heartbeat, missed] = match holder {
            Some(seen) => told_beats(seen.last_heartbeat_at, seen.missed_heartbeats, dash),
            None => beats(pulse, dash.answered_ms),
        };
        let says = task.progress.as_ref().map(|progress| progress.message.as_str());
        let cells = vec![
            cell(&task.id),
            status(task),
            cell(&task.progress.as_ref().map(bar).unwrap_or_default()),
            heartbeat,
            missed,
            cell(&task.worker.as_ref().map(WorkerBody::title).unwrap_or_default()),
            cell(&task.attempts.to_string()),
            cell(says.unwrap_or_default()),
            cell(task.task_type.as_deref().unwrap_or_default()),
            cell(task.key.as_deref().unwrap_or_default()),
        ];
        DashboardRow { key: task.id.clone(), cells, detail: detail_of_task(task, pulse, dash) }
    };
    let heads = vec![
        words("TASK"),
        words("STATUS"),
        words("PROGRESS"),
        words("HEARTBEAT"),
        number("MISSED"),
        words("WORKER"),
        number("ATTEMPT"),
        words("MESSAGE"),
        words("TYPE"),
        words("KEY"),
    ];
    DashboardTable { heads, rows: tasks.iter().map(row).collect() }
}

fn status(task: &TaskBody) -> Cell {
    if task.cancel_requested {
        return toned("cancelling", Tone::Bad);
    }
    let is_busy = matches!(&*task.status, "running" | "claimed");
    toned(&task.status, if is_busy { Tone::Busy } else { Tone::Plain })
}

/// The time since the last heartbeat, and the number missing since.
fn beats(pulse: Option<&Pulse>, now_ms: u64) -> [Cell; 2] {
    let beats = |pulse: &Pulse| shown_beats(pulse.silence_ms(now_ms), pulse.missed(now_ms));
    pulse.map_or_else(|| [cell(""), cell("")], beats)
}

/// The same of a holder of leases, as the gateway tells it.
fn told_beats(last_ms: Option<u64>, missed: u64, dash: &DashboardState) -> [Cell; 2] {
    let beats = |last_ms| shown_beats(dash.answered_ms.saturating_sub(last_ms), missed);
    last_ms.map_or_else(|| [cell(""), cell("")], beats)
}

fn shown_beats(silence_ms: u64, missed: u64) -> [Cell; 2] {
    let tone = if missed == 0 { Tone::Good } else { Tone::Bad };
    let silence = Duration::from_secs(silence_ms / 1_000);
    [toned(&format!("{} ago", short(silence)), tone), toned(&missed.to_string(), tone)]
}

/// Whole seconds, so that the width does not change with each answer.
fn short(silence: Duration) -> String {
    if silence.is_zero() { "0s".to_owned() } else { times::human(silence) }
}

fn bar(progress: &ProgressBody) -> String {
    let ProgressBody { done, total, .. } = progress;
    if *total == 0 {
        return done.to_string();
    }
    let share = |of: u64| {
        let share = u128::from(*done) * u128::from(of) / u128::from(*total);
        u64::try_from(share).unwrap_or(of).min(of)
    };
    let full = usize::try_from(share(BAR)).unwrap_or_default();
    let all = usize::try_from(BAR).unwrap_or_default();
    format!("{}{} {:>3} %", "█".repeat(full), "░".repeat(all - full), share(100))
}

fn detail_of_task(task: &TaskBody, pulse: Option<&Pulse>, dash: &DashboardState) -> String {
    let mut told = vec![format!("attempt {}", task.attempts)];
    if let Some(worker) = &task.worker {
        told.push(format!("worker {}", worker.title()));
    }
    if let Some(ProgressBody { done, total, message }) = &task.progress {
        let message = if message.is_empty() { String::new() } else { format!(": {message}") };
        told.push(format!("progress {done} of {total}{message}"));
    }
    if let Some(pulse) = pulse {
        let missed = pulse.missed(dash.answered_ms);
        let silence = Duration::from_secs(pulse.silence_ms(dash.answered_ms) / 1_000);
        told.push(format!("last heartbeat {} ago, {missed} missed", short(silence)));
    }
    if let Some(due) = task.due_at.filter(|due| *due > dash.answered_ms) {
        told.push(format!("due {}", times::ago(due, dash.answered_ms)));
    }
    if !task.waits_for.is_empty() {
        told.push(format!("waits for {}", task.waits_for.join(", ")));
    }
    text::line(&format!("{}: {}", task.id, told.join("; "))).into_owned()
}

fn of_workers(dash: &DashboardState, owners: &[QueueWorker]) -> DashboardTable {
    let row = |worker: &WorkerProcess| {
        let pulses = || worker.owners.values().filter_map(|owner| dash.pulse(owner));
        // A worker has a heartbeat per partition; the oldest one shows a problem.
        let pulse = pulses().max_by_key(|pulse| pulse.silence_ms(dash.answered_ms));
        let [heartbeat, missed] = match pulse {
            Some(pulse) => beats(Some(pulse), dash.answered_ms),
            None if worker.holds_leases => {
                told_beats(worker.last_heartbeat_at, worker.missed_heartbeats, dash)
            }
            None => [toned("left", Tone::Faint), cell("")],
        };
        let kind = match (worker.grants_leases, worker.holds_leases) {
            _ if worker.draining => "draining",
            (true, _) => "gateway",
            (false, true) => "over HTTP",
            (false, false) => "worker",
        };
        let cells = vec![
            cell(&worker.name),
            heartbeat,
            missed,
            cell(&worker.running.len().to_string()),
            cell(kind),
            cell(&worker.host),
            cell(&worker.process.map(|process| process.to_string()).unwrap_or_default()),
            cell(&worker.version),
            cell(&worker.label),
        ];
        let runs = if worker.running.is_empty() {
            "nothing".to_owned()
        } else {
            worker.running.join(", ")
        };
        let detail = text::line(&format!("{} runs {runs}", worker.name)).into_owned();
        let owner = worker.owners.values().next().map(String::as_str).unwrap_or_default();
        DashboardRow { key: format!("{} {owner}", worker.name), cells, detail }
    };
    let heads = vec![
        words("WORKER"),
        words("HEARTBEAT"),
        number("MISSED"),
        number("RUNNING"),
        words("KIND"),
        words("HOST"),
        number("PROCESS"),
        words("VERSION"),
        words("LABEL"),
    ];
    DashboardTable { heads, rows: by_process(owners.iter().cloned()).iter().map(row).collect() }
}

fn of_letters(letters: &[DeadLetterBody], now_ms: u64) -> DashboardTable {
    let row = |letter: &DeadLetterBody| {
        let reason = letter.detail.as_ref().unwrap_or(&letter.reason);
        let cells = vec![
            cell(&letter.task),
            cell(&times::ago(letter.at / 1_000 * 1_000, now_ms / 1_000 * 1_000)),
            cell(reason),
            cell(&letter.attempts.to_string()),
            cell(letter.task_type.as_deref().unwrap_or_default()),
            cell(letter.key.as_deref().unwrap_or_default()),
        ];
        let at = times::iso(letter.at);
        let detail = text::line(&format!("{} failed at {at}: {reason}", letter.task)).into_owned();
        DashboardRow { key: letter.task.clone(), cells, detail }
    };
    let heads = vec![
        words("TASK"),
        words("FAILED"),
        words("REASON"),
        number("ATTEMPTS"),
        words("TYPE"),
        words("KEY"),
    ];
    DashboardTable { heads, rows: letters.iter().map(row).collect() }
}

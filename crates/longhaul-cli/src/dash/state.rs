//! The state of the dashboard, and its changes by keys and answers. Pure: events bring the time,
//! and requests are returned.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a terminal has more keys than mean something here"
)]

use super::pulse::Pulse;
use super::tables::{self, DashboardTable};
use longhaul::TaskRef;
use longhaul_api::dead::DeadLetterBody;
use longhaul_api::task::{TaskBody, TaskCountsBody};
use longhaul_api::worker::QueueWorker;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::HashMap;

/// The number of rows that a page key moves.
const PAGE: usize = 10;

/// The maximum length of a filter.
const FILTER_MAX: usize = 100;

/// The lists; one is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tab {
    #[default]
    Queues,
    Tasks,
    Workers,
    Letters,
}

impl Tab {
    pub(crate) const ALL: [Self; 4] = [Self::Queues, Self::Tasks, Self::Workers, Self::Letters];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Queues => "Queues",
            Self::Tasks => "Tasks",
            Self::Workers => "Workers",
            Self::Letters => "Dead letters",
        }
    }

    fn step(self, by: usize) -> Self {
        let at = Self::ALL.iter().position(|tab| *tab == self).unwrap_or_default();
        Self::ALL.get((at + by) % Self::ALL.len()).copied().unwrap_or_default()
    }
}

/// Which tasks are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TaskListScope {
    /// Running tasks.
    #[default]
    Running,
    /// All unfinished tasks.
    Open,
}

/// The request that fills a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DashboardQuery {
    Queues,
    Tasks { queue: String, scope: TaskListScope },
    Workers { queue: String },
    Letters { queue: String },
}

/// A queue with its counts, or the error.
#[derive(Clone, Debug)]
pub(crate) struct QueueLine {
    pub(crate) name: String,
    pub(crate) counts: Result<TaskCountsBody, String>,
}

/// An answer. `has_more` if it is incomplete.
#[derive(Clone, Debug)]
pub(crate) enum DashboardData {
    Queues { queues: Vec<QueueLine>, has_more: bool },
    Tasks { tasks: Vec<TaskBody>, owners: Vec<QueueWorker>, has_more: bool },
    Workers { owners: Vec<QueueWorker> },
    Letters { letters: Vec<DeadLetterBody>, has_more: bool },
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DashboardError {
    /// The gateway does not answer; otherwise it refuses.
    pub(crate) is_away: bool,
    pub(crate) why: String,
}

/// An action on a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DashboardAction {
    Cancel(TaskRef),
    Replay(TaskRef),
}

/// The effect of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DashboardEffect {
    Quit,
    /// Another list is shown: request it at once.
    Look,
    Do(DashboardAction),
}

/// A message for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) text: String,
    pub(crate) is_bad: bool,
}

/// The row of the cursor. The cursor stays on its row when others come and go.
#[derive(Clone, Debug, Default)]
struct RowCursor {
    key: Option<String>,
    /// The index of that row, for when it is gone.
    row: usize,
}

/// The cursor and filter of a list.
#[derive(Clone, Debug, Default)]
struct ListViewState {
    cursor: RowCursor,
    filter: String,
}

/// The whole state.
#[derive(Clone, Debug, Default)]
pub(crate) struct DashboardState {
    pub(crate) tab: Tab,
    pub(crate) scope: TaskListScope,
    pub(crate) read_only: bool,
    /// A filter is being typed.
    pub(crate) is_typing: bool,
    pub(crate) notice: Option<Notice>,
    /// The action to perform if the answer is yes.
    pub(crate) question: Option<DashboardAction>,
    /// An action is in progress.
    pub(crate) is_acting: bool,
    pub(crate) trouble: Option<DashboardError>,
    /// When the last answer came, in ms since the epoch.
    pub(crate) answered_ms: u64,
    pub(crate) now_ms: u64,
    pub(crate) has_more: bool,
    pub(crate) answer: Option<DashboardData>,
    places: [ListViewState; Tab::ALL.len()],
    /// By owner id.
    pulses: HashMap<String, Pulse>,
}

impl DashboardState {
    /// A dashboard with the tasks of a queue, or the list of queues.
    pub(crate) fn new(queue: Option<String>, read_only: bool, now_ms: u64) -> Self {
        let mut dash = Self { read_only, now_ms, answered_ms: now_ms, ..Self::default() };
        if queue.is_some() {
            dash.tab = Tab::Tasks;
        }
        dash.place_mut(Tab::Queues).cursor.key = queue;
        dash
    }

    /// The queue of the lists other than the first.
    pub(crate) fn queue(&self) -> Option<&str> {
        self.place(Tab::Queues).cursor.key.as_deref()
    }

    pub(crate) fn filter(&self) -> &str {
        &self.place(self.tab).filter
    }

    pub(crate) fn pulse(&self, owner: &str) -> Option<&Pulse> {
        self.pulses.get(owner)
    }

    /// The request to make.
    pub(crate) fn wanted(&self) -> DashboardQuery {
        let queue = || self.queue().map(str::to_owned);
        let wanted = match self.tab {
            Tab::Queues => None,
            Tab::Tasks => queue().map(|queue| DashboardQuery::Tasks { queue, scope: self.scope }),
            Tab::Workers => queue().map(|queue| DashboardQuery::Workers { queue }),
            Tab::Letters => queue().map(|queue| DashboardQuery::Letters { queue }),
        };
        wanted.unwrap_or(DashboardQuery::Queues)
    }

    /// The current list, filtered.
    pub(crate) fn table(&self) -> DashboardTable {
        let mut table = tables::of(self);
        let filter = self.filter().to_lowercase();
        if !filter.is_empty() {
            let fits = |text: &str| text.to_lowercase().contains(&filter);
            table
                .rows
                .retain(|row| fits(&row.key) || row.cells.iter().any(|cell| fits(&cell.text)));
        }
        table
    }

    /// The index of the cursor's row.
    pub(crate) fn selected(&self, table: &DashboardTable) -> Option<usize> {
        let cursor = &self.place(self.tab).cursor;
        let last = table.rows.len().checked_sub(1)?;
        let found = table.rows.iter().position(|row| Some(&row.key) == cursor.key.as_ref());
        Some(found.unwrap_or_else(|| cursor.row.min(last)))
    }

    /// Advances the time.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Takes the answer to a request, or its error.
    pub(crate) fn answer(
        &mut self,
        wanted: &DashboardQuery,
        answer: Result<DashboardData, DashboardError>,
        now_ms: u64,
    ) {
        self.now_ms = now_ms;
        let answer = match answer {
            Ok(answer) => answer,
            Err(trouble) => {
                self.trouble = Some(trouble);
                return;
            }
        };
        self.trouble = None;
        self.answered_ms = now_ms;
        // The user has switched to another list meanwhile.
        if *wanted != self.wanted() {
            return;
        }
        self.has_more = match &answer {
            DashboardData::Queues { has_more, .. }
            | DashboardData::Tasks { has_more, .. }
            | DashboardData::Letters { has_more, .. } => *has_more,
            DashboardData::Workers { .. } => false,
        };
        if let DashboardData::Tasks { owners, .. } | DashboardData::Workers { owners } = &answer {
            self.hear(owners);
        }
        self.answer = Some(answer);
        self.settle();
    }

    /// Takes the result of an action.
    pub(crate) fn outcome(&mut self, outcome: Result<String, String>, now_ms: u64) {
        self.now_ms = now_ms;
        self.is_acting = false;
        let is_bad = outcome.is_err();
        let text = match outcome {
            Ok(text) | Err(text) => text,
        };
        self.notice = Some(Notice { text, is_bad });
    }

    /// Handles a key.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<DashboardEffect> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && key.code == KeyCode::Char('c') {
            return Some(DashboardEffect::Quit);
        }
        if let Some(act) = self.question.take() {
            return self.decide(act, key.code);
        }
        if self.is_typing {
            self.type_key(key.code);
            return None;
        }
        self.notice = None;
        self.command(key.code)
    }

    fn command(&mut self, key: KeyCode) -> Option<DashboardEffect> {
        match key {
            KeyCode::Char('q') => return Some(DashboardEffect::Quit),
            KeyCode::Tab | KeyCode::Right => return self.turn_to(self.tab.step(1)),
            KeyCode::BackTab | KeyCode::Left => {
                return self.turn_to(self.tab.step(Tab::ALL.len() - 1));
            }
            KeyCode::Char(digit @ '1'..='4') => {
                let at = usize::try_from(u32::from(digit) - u32::from('1')).unwrap_or_default();
                return self.turn_to(Tab::Queues.step(at));
            }
            KeyCode::Enter if self.tab == Tab::Queues => return self.turn_to(Tab::Tasks),
            KeyCode::Char('a') if self.tab == Tab::Tasks => {
                self.scope = if self.scope == TaskListScope::Running {
                    TaskListScope::Open
                } else {
                    TaskListScope::Running
                };
                return self.turned();
            }
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => {
                self.place_mut(self.tab).filter.clear();
                self.settle();
            }
            KeyCode::Char('c') if self.tab == Tab::Tasks => self.ask(DashboardAction::Cancel),
            KeyCode::Char('r') if self.tab == Tab::Letters => self.ask(DashboardAction::Replay),
            key => self.move_by(key),
        }
        None
    }

    /// Asks for confirmation of an action on the task under the cursor.
    fn ask(&mut self, act: impl FnOnce(TaskRef) -> DashboardAction) {
        let refused = |text: &str| Some(Notice { text: text.to_owned(), is_bad: true });
        if self.read_only {
            self.notice = refused("This dashboard only reads: it was started with --read-only.");
            return;
        }
        if self.is_acting {
            self.notice = refused("The request before this one has no answer yet.");
            return;
        }
        let table = self.table();
        let row = self.selected(&table).and_then(|row| table.rows.get(row));
        self.question = row.and_then(|row| row.key.parse().ok()).map(act);
    }

    fn decide(&mut self, act: DashboardAction, key: KeyCode) -> Option<DashboardEffect> {
        match key {
            KeyCode::Char('y' | 'Y') => {
                self.is_acting = true;
                Some(DashboardEffect::Do(act))
            }
            KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => None,
            // Any other key leaves the question open.
            _ => {
                self.question = Some(act);
                None
            }
        }
    }

    fn type_key(&mut self, key: KeyCode) {
        let filter = &mut self.place_mut(self.tab).filter;
        match key {
            KeyCode::Char(typed) if filter.chars().count() < FILTER_MAX => filter.push(typed),
            KeyCode::Backspace => {
                filter.pop();
            }
            KeyCode::Esc => {
                filter.clear();
                self.is_typing = false;
            }
            KeyCode::Enter | KeyCode::Tab | KeyCode::Down | KeyCode::Up => self.is_typing = false,
            _ => {}
        }
        self.settle();
    }

    fn move_by(&mut self, key: KeyCode) {
        let table = self.table();
        let Some(row) = self.selected(&table) else { return };
        let last = table.rows.len().saturating_sub(1);
        let row = match key {
            KeyCode::Up | KeyCode::Char('k') => row.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => row + 1,
            KeyCode::PageUp => row.saturating_sub(PAGE),
            KeyCode::PageDown => row + PAGE,
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return,
        };
        self.point(&table, row.min(last));
    }

    fn turn_to(&mut self, tab: Tab) -> Option<DashboardEffect> {
        if tab != Tab::Queues && self.queue().is_none() {
            let text = "There is no queue yet.".to_owned();
            self.notice = Some(Notice { text, is_bad: true });
            return None;
        }
        self.tab = tab;
        self.turned()
    }

    fn turned(&mut self) -> Option<DashboardEffect> {
        self.answer = None;
        self.has_more = false;
        Some(DashboardEffect::Look)
    }

    /// Updates the heartbeats of these workers, and forgets all others.
    fn hear(&mut self, owners: &[QueueWorker]) {
        let now_ms = self.now_ms;
        let mut before = std::mem::take(&mut self.pulses);
        for seen in owners {
            // Of a lease the gateway knows how often it is kept alive.
            let Some(last_ms) = seen.last_heartbeat_at.filter(|_| !seen.holds_leases) else {
                continue;
            };
            let mut pulse =
                before.remove(&seen.owner).unwrap_or_else(|| Pulse::new(last_ms, now_ms));
            pulse.hear(last_ms, now_ms);
            self.pulses.insert(seen.owner.clone(), pulse);
        }
    }

    /// Moves the cursor to an existing row.
    fn settle(&mut self) {
        if self.answer.is_none() {
            return;
        }
        let table = self.table();
        if let Some(row) = self.selected(&table) {
            self.point(&table, row);
        }
    }

    fn point(&mut self, table: &DashboardTable, row: usize) {
        let key = table.rows.get(row).map(|row| row.key.clone());
        self.place_mut(self.tab).cursor = RowCursor { key, row };
    }

    fn place(&self, tab: Tab) -> &ListViewState {
        let [queues, tasks, workers, letters] = &self.places;
        match tab {
            Tab::Queues => queues,
            Tab::Tasks => tasks,
            Tab::Workers => workers,
            Tab::Letters => letters,
        }
    }

    fn place_mut(&mut self, tab: Tab) -> &mut ListViewState {
        let [queues, tasks, workers, letters] = &mut self.places;
        match tab {
            Tab::Queues => queues,
            Tab::Tasks => tasks,
            Tab::Workers => workers,
            Tab::Letters => letters,
        }
    }
}

#[cfg(test)]
mod tests;

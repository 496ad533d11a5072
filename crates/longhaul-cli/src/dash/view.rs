//! Draws the state. Pure: it writes only to a frame.

use super::state::{DashboardAction, DashboardState, Tab, TaskListScope};
use super::tables::{Cell, DashboardTable};
use crate::output::Tone;
use crate::output::text;
use crate::service::tasks::named;
use crate::times;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{self, Block, Clear, Paragraph, TableState, Wrap};
use std::time::Duration;

/// The minimum width of the first column, and the maximum of any.
const FIRST_MIN: usize = 12;
const COLUMN_MAX: usize = 40;

/// The gap between columns.
const GAP: usize = 2;

/// The fewest lines of a window with room for details.
const TALL: u16 = 16;

/// The fixed options of a dashboard.
#[derive(Clone, Debug)]
pub(crate) struct DashboardStyle {
    /// The gateway's address.
    pub(crate) gateway: String,
    pub(crate) has_colours: bool,
}

impl DashboardStyle {
    fn tone(&self, tone: Tone) -> Style {
        let colour = |colour| if self.has_colours { Style::new().fg(colour) } else { Style::new() };
        match tone {
            Tone::Plain => Style::new(),
            Tone::Good => colour(Color::Green),
            Tone::Bad => colour(Color::Red).add_modifier(Modifier::BOLD),
            Tone::Busy => colour(Color::Cyan),
            Tone::Faint => Style::new().add_modifier(Modifier::DIM),
        }
    }
}

/// Draws everything. `scroll` keeps the list's scroll position.
pub(crate) fn draw(
    frame: &mut Frame<'_>,
    dash: &DashboardState,
    look: &DashboardStyle,
    scroll: &mut TableState,
) {
    let area = frame.area();
    let keys = key_lines(dash, usize::from(area.width));
    let keys_height = u16::try_from(keys.len()).unwrap_or(u16::MAX).min(3);
    let banner = banner(dash);
    let banner_height = banner.as_ref().map_or(0, |text| height(text, area.width).min(3));
    let detail_height = if area.height >= TALL { 3 } else { 0 };
    let [top, tabs, alarm, list, detail, line, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(banner_height),
        Constraint::Min(1),
        Constraint::Length(detail_height),
        Constraint::Length(1),
        Constraint::Length(keys_height),
    ])
    .areas(area);
    frame.render_widget(header(dash, look), top);
    frame.render_widget(tab_line(dash), tabs);
    if let Some(text) = banner {
        let style = look.tone(Tone::Bad).add_modifier(Modifier::REVERSED);
        frame.render_widget(Paragraph::new(text).style(style).wrap(Wrap { trim: true }), alarm);
    }
    let table = dash.table();
    scroll.select(dash.selected(&table));
    draw_list(frame, dash, look, &table, scroll, list);
    let row = dash.selected(&table).and_then(|row| table.rows.get(row));
    let told = row.map(|row| row.detail.as_str()).unwrap_or_default();
    frame.render_widget(
        Paragraph::new(told).style(look.tone(Tone::Faint)).wrap(Wrap { trim: true }),
        detail,
    );
    frame.render_widget(message(dash, look, &table), line);
    frame.render_widget(Paragraph::new(keys), bottom);
    if let Some(act) = &dash.question {
        draw_question(frame, act, area);
    }
}

/// The number of lines of a text at this width.
fn height(text: &str, width: u16) -> u16 {
    let (mut lines, mut column) = (1_u16, 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        let needed = if column == 0 { length } else { column + 1 + length };
        if column > 0 && needed > usize::from(width) {
            lines = lines.saturating_add(1);
            column = length;
        } else {
            column = needed;
        }
    }
    lines
}

fn header<'a>(dash: &'a DashboardState, look: &'a DashboardStyle) -> Paragraph<'a> {
    let mut spans = vec![Span::styled("longhaul dash", Style::new().add_modifier(Modifier::BOLD))];
    if let Some(queue) = dash.queue().filter(|_| dash.tab != Tab::Queues) {
        spans.push(Span::raw(format!("  queue {}", text::short(queue, COLUMN_MAX))));
    }
    if dash.read_only {
        spans.push(Span::raw("  read-only"));
    }
    spans.push(Span::styled(format!("  {}", text::line(&look.gateway)), look.tone(Tone::Faint)));
    Paragraph::new(Line::from(spans))
}

fn tab_line(dash: &DashboardState) -> Paragraph<'static> {
    let mut spans = Vec::new();
    for (number, tab) in (1..).zip(Tab::ALL) {
        let style = if tab == dash.tab {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        spans.push(Span::styled(format!(" {number} {} ", tab.title()), style));
    }
    Paragraph::new(Line::from(spans))
}

/// The problem between here and the gateway.
fn banner(dash: &DashboardState) -> Option<String> {
    let trouble = dash.trouble.as_ref()?;
    let why = text::line(&trouble.why);
    if !trouble.is_away {
        return Some(format!("The gateway refuses: {why}"));
    }
    let age = dash.now_ms.saturating_sub(dash.answered_ms) / 1_000;
    let age = times::human(Duration::from_secs(age.max(1)));
    Some(format!("The gateway is away; this is how it stood {age} ago. Trying again. ({why})"))
}

fn draw_list(
    frame: &mut Frame<'_>,
    dash: &DashboardState,
    look: &DashboardStyle,
    table: &DashboardTable,
    scroll: &mut TableState,
    area: Rect,
) {
    if table.rows.is_empty() {
        let text = Paragraph::new(empty(dash)).style(look.tone(Tone::Faint));
        frame.render_widget(text.wrap(Wrap { trim: true }), area);
        return;
    }
    let widths = widths(table, usize::from(area.width));
    let shown = widths.len();
    let styled = |cell: &Cell, is_number: bool| {
        let alignment = if is_number { Alignment::Right } else { Alignment::Left };
        let text = Text::styled(cell.text.clone(), look.tone(cell.tone));
        widgets::Cell::from(text.alignment(alignment))
    };
    let rows = table.rows.iter().map(|row| {
        let cells = row.cells.iter().zip(&table.heads).take(shown);
        widgets::Row::new(cells.map(|(cell, head)| styled(cell, head.is_number)))
    });
    let heads = table.heads.iter().take(shown).map(|head| {
        let cell = Cell { text: head.title.to_uppercase(), tone: Tone::Plain };
        styled(&cell, head.is_number)
    });
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let list = widgets::Table::new(rows, widths)
        .header(widgets::Row::new(heads).style(bold))
        .column_spacing(u16::try_from(GAP).unwrap_or(1))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(list, area, scroll);
}

/// The widths of the columns that fit; the first one is always included.
fn widths(table: &DashboardTable, room: usize) -> Vec<Constraint> {
    let width = |column: usize| {
        let cells = table.rows.iter().filter_map(|row| row.cells.get(column));
        let longest = cells.map(|cell| Span::raw(cell.text.as_str()).width()).max();
        let head = table.heads.get(column).map_or(0, |head| head.title.len());
        longest.unwrap_or_default().max(head).min(COLUMN_MAX)
    };
    let first = width(0).min(room);
    let mut left = room.saturating_sub(first.max(FIRST_MIN));
    let mut chosen = vec![Constraint::Length(u16::try_from(first).unwrap_or(u16::MAX))];
    for column in 1..table.heads.len() {
        let needed = width(column);
        if needed + GAP > left {
            break;
        }
        left -= needed + GAP;
        chosen.push(Constraint::Length(u16::try_from(needed).unwrap_or(u16::MAX)));
    }
    chosen
}

/// Why a list is empty.
fn empty(dash: &DashboardState) -> String {
    if dash.answer.is_none() {
        return "Asking the gateway …".to_owned();
    }
    if !dash.filter().is_empty() {
        return "Nothing here fits the filter.".to_owned();
    }
    match (dash.tab, dash.scope) {
        (Tab::Queues, _) => {
            "There are no queues yet. `longhaul topic setup NAME` makes one, and so does its first worker."
        }
        (Tab::Tasks, TaskListScope::Running) => "No task of this queue runs. Press a for all open tasks.",
        (Tab::Tasks, TaskListScope::Open) => "All tasks of this queue are over.",
        (Tab::Workers, _) => "Nobody works on this queue.",
        (Tab::Letters, _) => "This queue has no dead letters.",
    }
    .to_owned()
}

/// The line above the keys: a filter, a notice, or the number of rows shown.
fn message<'a>(
    dash: &'a DashboardState,
    look: &DashboardStyle,
    table: &DashboardTable,
) -> Paragraph<'a> {
    if dash.is_typing {
        let text = format!("filter: {}▏", text::line(dash.filter()));
        return Paragraph::new(text).style(Style::new().add_modifier(Modifier::BOLD));
    }
    if let Some(notice) = &dash.notice {
        let tone = if notice.is_bad { Tone::Bad } else { Tone::Good };
        return Paragraph::new(text::line(&notice.text)).style(look.tone(tone));
    }
    let more = if dash.has_more { " of more" } else { "" };
    let mut told = format!("{} shown{more}", table.rows.len());
    if dash.tab == Tab::Tasks {
        told.push_str(if dash.scope == TaskListScope::Running {
            ", running"
        } else {
            ", all open"
        });
    }
    if !dash.filter().is_empty() {
        told.push_str(&format!(", filter: {}", text::line(dash.filter())));
    }
    if dash.is_acting {
        told.push_str(", waiting for the gateway");
    }
    Paragraph::new(told).style(look.tone(Tone::Faint))
}

/// The keys available now, with their actions.
fn keys_of(dash: &DashboardState) -> Vec<(&'static str, &'static str)> {
    if dash.question.is_some() {
        return vec![("y", "yes"), ("n", "no")];
    }
    if dash.is_typing {
        return vec![("Enter", "keep"), ("Esc", "clear")];
    }
    let mut keys = vec![("q", "quit"), ("Tab", "next"), ("↑↓", "move")];
    match dash.tab {
        Tab::Queues => keys.push(("Enter", "open")),
        Tab::Tasks => {
            keys.push((
                "a",
                if dash.scope == TaskListScope::Running { "all open" } else { "running" },
            ));
            keys.extend((!dash.read_only).then_some(("c", "cancel")));
        }
        Tab::Letters => keys.extend((!dash.read_only).then_some(("r", "replay"))),
        Tab::Workers => {}
    }
    keys.push(("/", "filter"));
    keys.extend((!dash.filter().is_empty()).then_some(("Esc", "no filter")));
    keys
}

/// The keys as lines, each key on one line with its action.
fn key_lines(dash: &DashboardState, width: usize) -> Vec<Line<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let (mut lines, mut column) = (vec![Line::default()], 0);
    for (key, does) in keys_of(dash) {
        let length = key.chars().count() + 1 + does.len();
        if column > 0 && column + length > width {
            lines.push(Line::default());
            column = 0;
        }
        if let Some(line) = lines.last_mut() {
            line.push_span(Span::styled(key, bold));
            line.push_span(Span::raw(format!(" {does}  ")));
        }
        column += length + 2;
    }
    lines
}

fn draw_question(frame: &mut Frame<'_>, act: &DashboardAction, area: Rect) {
    let text = match act {
        DashboardAction::Cancel(task) => {
            format!("Cancel {}? Whatever runs it is asked to end. y/n", named(task))
        }
        DashboardAction::Replay(task) => {
            format!("Run {} once more, as a new task? y/n", named(task))
        }
    };
    let width = area.width.min(60);
    let height = height(&text, width.saturating_sub(2)).saturating_add(2).min(area.height);
    let [row] = Layout::vertical([Constraint::Length(height)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    let [window] = Layout::horizontal([Constraint::Length(width)])
        .flex(ratatui::layout::Flex::Center)
        .areas(row);
    frame.render_widget(Clear, window);
    let block = Block::bordered().title(" Sure? ");
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }).block(block), window);
}

#[cfg(test)]
mod tests;

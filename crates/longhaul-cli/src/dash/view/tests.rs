use super::*;
use crate::dash::state::{DashboardData, DashboardError};
use crate::dash::testing::{answer_of_queues, answer_of_tasks, letter, press, task};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// The lines of the window.
fn shown(dash: &DashboardState, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let look = DashboardStyle { gateway: "http://127.0.0.1:7070/".to_owned(), has_colours: true };
    let mut scroll = TableState::new();
    terminal.draw(|frame| draw(frame, dash, &look, &mut scroll)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned()).collect()
}

fn told(answer: DashboardData, tab: Tab) -> DashboardState {
    let mut dash = DashboardState::new(Some("mails".to_owned()), false, 1_000);
    dash.tab = tab;
    let wanted = dash.wanted();
    dash.answer(&wanted, Ok(answer), 2_000);
    dash
}

#[track_caller]
fn has(lines: &[String], words: &str) {
    assert!(lines.iter().any(|line| line.contains(words)), "no `{words}`:\n{}", lines.join("\n"));
}

#[test]
fn queues_stand_with_their_counts() {
    let dash = told(answer_of_queues(&["bills", "mails"]), Tab::Queues);
    let lines = shown(&dash, 80, 20);
    has(&lines, "QUEUE  READY  RUNNING  RETRYING  FAILED  COMPLETED");
    has(&lines, "bills     12        3         0       1          0");
    has(&lines, "12 ready, 3 running, 1 failed.");
    has(&lines, "q quit  Tab next  ↑↓ move  Enter open  / filter");
}

#[test]
fn progress_is_a_bar() {
    let lines = shown(&told(answer_of_tasks(&["mails@1:1:-1"]), Tab::Tasks), 100, 20);
    has(&lines, "mails@1:1:-1  running  ███████░░░  75 %");
    has(&lines, "a all open  c cancel");
}

#[test]
fn a_gateway_that_is_away_is_announced() {
    let mut dash = told(answer_of_tasks(&["mails@1:1:-1"]), Tab::Tasks);
    let wanted = dash.wanted();
    let away = DashboardError { is_away: true, why: "connection refused".to_owned() };
    dash.answer(&wanted, Err(away), 14_000);
    let lines = shown(&dash, 80, 20);
    has(&lines, "The gateway is away; this is how it stood 12s ago. Trying again. (connection");
    has(&lines, "mails@1:1:-1");
}

#[test]
fn who_only_reads_sees_no_keys_that_act() {
    let mut dash = told(answer_of_tasks(&["mails@1:1:-1"]), Tab::Tasks);
    dash.read_only = true;
    let lines = shown(&dash, 80, 20);
    has(&lines, "read-only");
    assert!(!lines.iter().any(|line| line.contains("cancel")), "{lines:#?}");
}

#[test]
fn a_question_names_the_task() {
    let mut dash = told(answer_of_tasks(&["mails@1:1:-1"]), Tab::Tasks);
    press(&mut dash, "c");
    let lines = shown(&dash, 80, 20);
    has(&lines, "Cancel mails@1:1:-1?");
    has(&lines, "y yes  n no");
}

/// Untrusted text may try to clear the window, hide itself, or change the direction.
#[test]
fn hostile_texts_are_spelled_out() {
    let hostile = "\u{1b}[2Jgone\u{202e}drawkcab\u{7}";
    let letters = vec![letter("mails@1:1:-1", hostile)];
    let lines =
        shown(&told(DashboardData::Letters { letters, has_more: false }, Tab::Letters), 120, 20);
    has(&lines, "\\u{1b}[2Jgone\\u{202e}drawkcab\\u{7}");
    let is_hostile = |character: char| character.is_control() || character == '\u{202e}';
    assert!(!lines.concat().contains(is_hostile), "{lines:#?}");
}

/// A small window leaves out columns and details; keys and the question remain.
#[test]
fn every_size_is_drawn() {
    let names: Vec<_> = (0..30).map(|entry| format!("mails@12:{entry}:-1")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let letters = vec![letter("mails@1:1:-1", "no"), letter("mails@1:2:-1", &"long ".repeat(50))];
    let wide = task("mails@1:1:-1");
    let answers = [
        (answer_of_queues(&["bills", "世界世界世界世界世界世界世界世界世界"]), Tab::Queues),
        (answer_of_tasks(&names), Tab::Tasks),
        (DashboardData::Tasks { tasks: vec![wide], owners: vec![], has_more: true }, Tab::Tasks),
        (DashboardData::Workers { owners: vec![] }, Tab::Workers),
        (DashboardData::Letters { letters, has_more: true }, Tab::Letters),
    ];
    for (answer, tab) in answers {
        for keys in ["", "c", "r", "/x", "⇲"] {
            let mut dash = told(answer.clone(), tab);
            press(&mut dash, keys);
            dash.trouble =
                Some(DashboardError { is_away: true, why: "no route to host ".repeat(9) });
            for (width, height) in [(40, 12), (1, 1), (2, 40), (300, 2), (13, 7), (320, 100)] {
                shown(&dash, width, height);
            }
        }
    }
    let mut dash = told(answer_of_tasks(&names), Tab::Tasks);
    press(&mut dash, "⇲");
    let lines = shown(&dash, 40, 12);
    has(&lines, "mails@12:29:-1  running");
    has(&lines, "c cancel");
    press(&mut dash, "c");
    has(&shown(&dash, 40, 12), "Cancel mails@12:29:-1?");
}

use super::*;
use crate::dash::testing::{answer_of_queues, answer_of_tasks, letter, press, task};

fn dash(tab: Tab) -> DashboardState {
    let mut dash = DashboardState::new(Some("mails".to_owned()), false, 1_000);
    dash.tab = tab;
    dash
}

fn with_tasks(names: &[&str]) -> DashboardState {
    let mut dash = dash(Tab::Tasks);
    tell(&mut dash, answer_of_tasks(names));
    dash
}

fn tell(dash: &mut DashboardState, answer: DashboardData) {
    let wanted = dash.wanted();
    dash.answer(&wanted, Ok(answer), 2_000);
}

fn on(dash: &DashboardState) -> Option<String> {
    let table = dash.table();
    dash.selected(&table).map(|row| table.rows[row].key.clone())
}

#[test]
fn enter_opens_the_tasks_of_the_queue_under_the_cursor() {
    let mut dash = DashboardState::new(None, false, 1_000);
    assert_eq!(dash.wanted(), DashboardQuery::Queues);
    assert_eq!(press(&mut dash, "2"), None, "there is no queue yet");
    tell(&mut dash, answer_of_queues(&["bills", "mails"]));
    assert_eq!(press(&mut dash, "↓"), None);
    assert_eq!(press(&mut dash, "⏎"), Some(DashboardEffect::Look));
    let queue = "mails".to_owned();
    assert_eq!(
        dash.wanted(),
        DashboardQuery::Tasks { queue: queue.clone(), scope: TaskListScope::Running }
    );
    assert_eq!(press(&mut dash, "a"), Some(DashboardEffect::Look));
    assert_eq!(
        dash.wanted(),
        DashboardQuery::Tasks { queue: queue.clone(), scope: TaskListScope::Open }
    );
    press(&mut dash, "→→");
    assert_eq!(dash.wanted(), DashboardQuery::Letters { queue });
    press(&mut dash, "→");
    assert_eq!(dash.wanted(), DashboardQuery::Queues);
}

/// If the list moved under the cursor, users would cancel the wrong task.
#[test]
fn the_cursor_stays_on_its_task_when_others_come_and_go() {
    let mut dash = with_tasks(&["mails@1:1:-1", "mails@1:2:-1", "mails@1:3:-1"]);
    press(&mut dash, "↓");
    assert_eq!(on(&dash).as_deref(), Some("mails@1:2:-1"));
    tell(&mut dash, answer_of_tasks(&["mails@1:2:-1", "mails@1:3:-1", "mails@1:4:-1"]));
    assert_eq!(on(&dash).as_deref(), Some("mails@1:2:-1"));
    tell(&mut dash, answer_of_tasks(&["mails@1:3:-1", "mails@1:4:-1"]));
    assert_eq!(on(&dash).as_deref(), Some("mails@1:3:-1"));
    tell(&mut dash, answer_of_tasks(&[]));
    assert_eq!(on(&dash), None);
}

#[test]
fn the_cursor_does_not_leave_the_list() {
    let names: Vec<_> = (0..25).map(|entry| format!("mails@1:{entry}:-1")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut dash = with_tasks(&names);
    for (keys, row) in [("↑", 0), ("⇟", 10), ("⇟⇟", 24), ("↓", 24), ("⇞", 14), ("⇱", 0), ("⇲", 24)]
    {
        press(&mut dash, keys);
        assert_eq!(dash.selected(&dash.table()), Some(row), "{keys}");
    }
}

#[test]
fn nothing_is_cancelled_without_a_yes() {
    let act = DashboardAction::Cancel("mails@1:2:-1".parse().unwrap());
    for (answer, effect) in [
        ("y", Some(DashboardEffect::Do(act.clone()))),
        ("Y", Some(DashboardEffect::Do(act.clone()))),
        ("n", None),
        ("⎋", None),
        ("q", None),
    ] {
        let mut dash = with_tasks(&["mails@1:1:-1", "mails@1:2:-1"]);
        press(&mut dash, "↓");
        assert_eq!(press(&mut dash, "c"), None);
        assert_eq!(dash.question, Some(act.clone()));
        // Keys that are not an answer change neither the cursor nor the list.
        assert_eq!(press(&mut dash, "↑2c⏎"), None);
        assert_eq!(dash.question, Some(act.clone()));
        assert_eq!(press(&mut dash, answer), effect, "{answer}");
        assert_eq!(dash.question, None);
        assert_eq!(dash.is_acting, effect.is_some());
    }
}

/// The question is about the task that it names, whatever the list does meanwhile.
#[test]
fn what_is_confirmed_is_what_was_asked() {
    let mut dash = with_tasks(&["mails@1:1:-1"]);
    press(&mut dash, "c");
    tell(&mut dash, answer_of_tasks(&["mails@1:7:-1"]));
    let act = DashboardAction::Cancel("mails@1:1:-1".parse().unwrap());
    assert_eq!(press(&mut dash, "y"), Some(DashboardEffect::Do(act)));
}

#[test]
fn one_request_is_under_way_at_most() {
    let mut dash = with_tasks(&["mails@1:1:-1"]);
    press(&mut dash, "cy");
    press(&mut dash, "c");
    assert_eq!(dash.question, None);
    assert!(dash.notice.as_ref().unwrap().is_bad);
    dash.outcome(Ok("cancel requested".to_owned()), 3_000);
    assert!(!dash.notice.as_ref().unwrap().is_bad);
    press(&mut dash, "c");
    assert!(dash.question.is_some());
}

#[test]
fn a_dead_letter_is_replayed() {
    let mut dash = dash(Tab::Letters);
    let letters = vec![letter("mails@1:4:-1", "no such customer")];
    tell(&mut dash, DashboardData::Letters { letters, has_more: false });
    // `c` has no effect here.
    press(&mut dash, "c");
    assert_eq!(dash.question, None);
    let act = DashboardAction::Replay("mails@1:4:-1".parse().unwrap());
    assert_eq!(press(&mut dash, "ry"), Some(DashboardEffect::Do(act)));
}

#[test]
fn who_only_reads_is_told_so() {
    for (tab, key) in [(Tab::Tasks, "c"), (Tab::Letters, "r")] {
        let mut dash = DashboardState::new(Some("mails".to_owned()), true, 1_000);
        dash.tab = tab;
        let letters = vec![letter("mails@1:4:-1", "no")];
        tell(
            &mut dash,
            match tab {
                Tab::Letters => DashboardData::Letters { letters, has_more: false },
                _ => answer_of_tasks(&["mails@1:1:-1"]),
            },
        );
        assert_eq!(press(&mut dash, key), None);
        assert_eq!(dash.question, None);
        assert!(dash.notice.as_ref().unwrap().text.contains("--read-only"));
    }
}

#[test]
fn a_filter_is_typed_kept_and_cleared() {
    let mut dash = with_tasks(&["mails@1:1:-1", "mails@1:22:-1", "mails@1:23:-1"]);
    // While a filter is typed, letters are text.
    assert_eq!(press(&mut dash, "/q:2"), None);
    assert_eq!(dash.filter(), "q:2");
    assert_eq!(dash.table().rows.len(), 0);
    press(&mut dash, "⌫⌫⌫:2");
    assert_eq!(dash.table().rows.len(), 2);
    assert_eq!(on(&dash).as_deref(), Some("mails@1:22:-1"));
    press(&mut dash, "⏎↓");
    assert_eq!(on(&dash).as_deref(), Some("mails@1:23:-1"));
    press(&mut dash, "⎋");
    assert_eq!((dash.filter(), dash.table().rows.len()), ("", 3));
    assert_eq!(on(&dash).as_deref(), Some("mails@1:23:-1"));
    press(&mut dash, "/");
    for _ in 0..200 {
        press(&mut dash, "x");
    }
    assert_eq!(dash.filter().len(), FILTER_MAX);
}

#[test]
fn an_answer_that_comes_late_is_not_shown_in_another_list() {
    let mut dash = dash(Tab::Tasks);
    let wanted = dash.wanted();
    press(&mut dash, "→");
    dash.answer(&wanted, Ok(answer_of_tasks(&["mails@1:1:-1"])), 2_000);
    assert!(dash.answer.is_none());
}

#[test]
fn what_was_known_stays_while_the_gateway_is_away() {
    let mut dash = with_tasks(&["mails@1:1:-1"]);
    let (wanted, away) =
        (dash.wanted(), DashboardError { is_away: true, why: "connection refused".to_owned() });
    dash.answer(&wanted, Err(away.clone()), 9_000);
    assert_eq!((dash.trouble.as_ref(), dash.answered_ms, dash.now_ms), (Some(&away), 2_000, 9_000));
    assert_eq!(dash.table().rows.len(), 1);
    tell(&mut dash, answer_of_tasks(&["mails@1:1:-1"]));
    assert_eq!(dash.trouble, None);
}

/// A task with a silent worker must stand out.
#[test]
fn a_task_shows_the_heartbeats_of_whoever_runs_it() {
    let mut dash = dash(Tab::Tasks);
    let owner = |owner: &str, last_heartbeat_at, running: &str| QueueWorker {
        partition: -1,
        owner: owner.to_owned(),
        worker: None,
        last_heartbeat_at: Some(last_heartbeat_at),
        missed_heartbeats: 0,
        holds_leases: false,
        running: vec![running.to_owned()],
    };
    let owners = vec![owner("a", 99_000, "mails@1:1:-1"), owner("b", 60_000, "mails@1:2:-1")];
    let tasks = ["mails@1:1:-1", "mails@1:2:-1", "mails@1:3:-1"].map(task).to_vec();
    let wanted = dash.wanted();
    dash.answer(&wanted, Ok(DashboardData::Tasks { tasks, owners, has_more: false }), 100_000);
    let table = dash.table();
    let heads: Vec<_> = table.heads.iter().map(|head| head.title).collect();
    assert_eq!(heads[3..5], ["HEARTBEAT", "MISSED"]);
    let cells = |row: usize| table.rows[row].cells[3..5].iter().map(|cell| cell.text.as_str());
    assert_eq!(cells(0).collect::<Vec<_>>(), ["1s ago", "0"]);
    assert_eq!(cells(1).collect::<Vec<_>>(), ["40s ago", "3"]);
    assert_eq!(cells(2).collect::<Vec<_>>(), ["", ""]);
}

#[test]
fn control_and_c_ends_it_whatever_is_going_on() {
    for keys in ["", "/", "c"] {
        let mut dash = with_tasks(&["mails@1:1:-1"]);
        press(&mut dash, keys);
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(dash.key(key), Some(DashboardEffect::Quit), "{keys}");
    }
}

//! The dashboard on a pseudo-terminal, against a real gateway.

use super::stage::{Stage, longhaul};
use pty_process::Size;
use pty_process::blocking::{Command, Pty, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};
use serde_json::Value;
use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// The time limit for anything that should be visible at once.
const PATIENCE: Duration = Duration::from_secs(60);

#[expect(clippy::disallowed_methods, reason = "a program that hangs ends no wait of its own")]
fn now() -> Instant {
    Instant::now()
}

/// The dashboard and its terminal.
struct Dash {
    child: Child,
    pty: Arc<Pty>,
    /// The program's output in pieces; ends with the program.
    written: Receiver<Vec<u8>>,
    terminal: vt100::Parser,
}

impl Dash {
    fn start(stage: &Stage, arguments: &[&str]) -> Self {
        let url = stage.gateway();
        Self::start_at(stage, &[arguments, &["--gateway", &url, "--every", "100ms"]].concat())
    }

    fn start_at(stage: &Stage, arguments: &[&str]) -> Self {
        let (pty, pts) = open().unwrap();
        pty.resize(Size::new(24, 100)).unwrap();
        let mut command = longhaul(&[&["dash"], arguments].concat(), stage.folder.path());
        command.envs(stage.variables()).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        let child = Command::from(command).spawn(pts).unwrap();
        let pty = Arc::new(pty);
        let (sender, written) = sync_channel(1_024);
        std::thread::spawn({
            let pty = Arc::clone(&pty);
            move || {
                let mut piece = vec![0; 4_096];
                // Reading a terminal that nobody has open is an error on Linux.
                while let Ok(length @ 1..) = (&*pty).read(&mut piece) {
                    if sender.send(piece[..length].to_vec()).is_err() {
                        return;
                    }
                }
            }
        });
        let [rows, columns] = [24, 100].map(|length| NonZero::new(length).unwrap());
        Self { child, pty, written, terminal: vt100::Parser::new(rows, columns, 0) }
    }

    fn press(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        let [height, width] = [rows, columns].map(|length| NonZero::new(length).unwrap());
        self.terminal.screen_mut().set_size(height, width);
        self.pty.resize(Size::new(rows, columns)).unwrap();
    }

    /// Waits until the terminal's content matches, and returns it.
    #[track_caller]
    fn until(&mut self, what: &str, fits: impl Fn(&str) -> bool) -> String {
        let deadline = now() + PATIENCE;
        loop {
            let shown = self.terminal.screen().contents();
            if fits(&shown) {
                return shown;
            }
            match self.piece(deadline) {
                Ok(piece) => self.terminal.process(&piece),
                Err(why) => panic!("{what}: {why}\n{shown}"),
            }
        }
    }

    /// The next output of the program. Times on the terminal change every second, so the limit is a
    /// deadline rather than per piece.
    fn piece(&self, deadline: Instant) -> Result<Vec<u8>, RecvTimeoutError> {
        self.written.recv_timeout(deadline.saturating_duration_since(now()))
    }

    /// As `until`, for words.
    #[track_caller]
    fn shows(&mut self, words: &str) -> String {
        self.until(words, |shown| shown.contains(words))
    }

    /// Waits for its end; returns the exit code and the terminal's content. The terminal must be
    /// restored.
    #[track_caller]
    fn ended(mut self) -> (Option<i32>, String) {
        let deadline = now() + PATIENCE;
        loop {
            match self.piece(deadline) {
                Ok(piece) => self.terminal.process(&piece),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("it does not end\n{}", self.terminal.screen().contents())
                }
            }
        }
        let code = self.child.wait().unwrap().code();
        let screen = self.terminal.screen();
        assert!(!screen.alternate_screen(), "{}", screen.contents());
        assert!(!screen.hide_cursor());
        let modes = tcgetattr(&*self.pty).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
        (code, screen.contents())
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Dash {
    fn drop(&mut self) {
        // It has usually ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Submits a task; returns its name.
fn submit(stage: &Stage, payload: &str) -> String {
    stage.told(&["task", "submit", "tasks", payload, "-q"]).trim().to_owned()
}

/// The words, without the spaces and line breaks of the window.
fn words(shown: &str) -> String {
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn status(stage: &Stage, task: &str) -> String {
    let told = stage.told(&["task", "get", task, "-o", "json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    told["status"].as_str().or_else(|| told[0]["status"].as_str()).unwrap().to_owned()
}

#[test]
fn queues_are_counted_and_a_running_tasks_progress_moves() {
    let stage = Stage::with_gateway();
    let task = submit(&stage, "paced");
    let mut dash = Dash::start(&stage, &[]);
    dash.shows("QUEUE  READY  RUNNING  RETRYING  FAILED  COMPLETED");
    // Ready, running, retrying, failed, completed.
    let counted = |shown: &str, counts: [&str; 5]| {
        let row = shown.lines().find(|line| line.starts_with("tasks "));
        row.is_some_and(|row| row.split_whitespace().skip(1).take(5).eq(counts))
    };
    dash.until("one task runs", |shown| counted(shown, ["0", "1", "0", "0", "0"]));
    dash.press("\r");
    let shown = dash.shows(&task);
    assert!(shown.contains("queue tasks") && shown.contains("shouter"), "{shown}");
    dash.until("a heartbeat", |shown| {
        shown.lines().any(|line| line.starts_with(&task) && words(line).contains("s ago 0 "))
    });
    for (pace, shown) in [(1, "██░░░░░░░░  25 %"), (3, "███████░░░  75 %")]
    {
        stage.pace(pace);
        dash.shows(shown);
    }
    dash.press("3");
    // The gateway is listed as well.
    dash.until("the worker, which runs one task", |shown| {
        let mut lines = shown.lines();
        lines.any(|line| line.starts_with("shouter ") && words(line).contains("s ago 0 1 worker"))
    });
    stage.pace(4);
    dash.press("1");
    dash.until("one task is completed", |shown| counted(shown, ["0", "0", "0", "0", "1"]));
    dash.press("q");
    assert_eq!(dash.ended().0, Some(0));
    stage.end();
}

#[test]
fn a_task_is_cancelled_after_a_yes_and_not_before() {
    let stage = Stage::with_gateway();
    let task = submit(&stage, "slow");
    let mut dash = Dash::start(&stage, &["tasks"]);
    dash.shows(&format!("{task}  running"));
    dash.press("c");
    dash.shows(&format!("Cancel {task}?"));
    dash.press("n");
    dash.until("the question is gone", |shown| !shown.contains("Cancel tasks@"));
    assert_eq!(status(&stage, &task), "running");
    dash.press("cy");
    dash.shows("cancel requested");
    dash.shows("No task of this queue runs.");
    assert_eq!(status(&stage, &task), "cancelled");
    dash.press("\u{3}");
    assert_eq!(dash.ended().0, Some(0));
    stage.end();
}

#[test]
fn a_dead_letter_is_run_once_more_after_a_yes() {
    let stage = Stage::with_gateway();
    let task = submit(&stage, "fail");
    stage.longhaul(&["task", "wait", &task]);
    let mut dash = Dash::start(&stage, &["tasks", "--reason", "the customer is back"]);
    dash.press("4");
    // The customer's name would clear the window.
    dash.until("what it says", |shown| {
        words(shown).contains("the customer \\u{1b}[2Jdoes not exist")
    });
    dash.press("r");
    dash.shows(&format!("Run {task} once more, as a new task?"));
    dash.press("y");
    let shown = dash.shows("runs once more as tasks@");
    let (_, new) = shown.split_once("runs once more as ").unwrap();
    let new = new.split_whitespace().next().unwrap();
    assert_ne!(new, task);
    stage.longhaul(&["task", "wait", new]);
    assert_eq!(status(&stage, new), "failed");
    let actions = stage.told(&["queue", "actions", "tasks"]);
    assert!(actions.contains("the customer is back"), "{actions}");
    dash.press("q");
    assert_eq!(dash.ended().0, Some(0));
    stage.end();
}

#[test]
fn who_only_reads_changes_nothing() {
    let stage = Stage::with_gateway();
    let task = submit(&stage, "slow");
    let mut dash = Dash::start(&stage, &["tasks", "--read-only"]);
    dash.shows(&format!("{task}  running"));
    dash.press("c");
    dash.shows("--read-only");
    dash.press("y");
    dash.until("the key", |shown| !shown.contains("--read-only"));
    assert_eq!(status(&stage, &task), "running");
    dash.press("q");
    assert_eq!(dash.ended().0, Some(0));
    stage.told(&["task", "cancel", &task]);
    stage.end();
}

#[test]
fn it_goes_on_when_the_gateway_is_back() {
    let mut stage = Stage::with_gateway();
    let task = submit(&stage, "slow");
    let mut dash = Dash::start(&stage, &["tasks"]);
    dash.shows(&task);
    let address = stage.kill_gateway();
    let shown = dash.shows("The gateway is away; this is how it stood");
    assert!(shown.contains(&task), "what was known is gone:\n{shown}");
    let other = submit(&stage, "slow");
    stage.start_gateway(address);
    dash.until("the task that came meanwhile", |shown| {
        shown.contains(&other) && !shown.contains("is away")
    });
    // It accepts actions again.
    dash.press("cy");
    dash.shows("cancel requested");
    dash.signal(Signal::TERM);
    assert_eq!(dash.ended().0, Some(0));
    stage.told(&["task", "cancel", &other]);
    stage.end();
}

/// A window of 40 by 12 leaves out columns, and a smaller one lines; no size ends the program.
#[test]
fn windows_may_be_small_and_change() {
    let stage = Stage::with_gateway();
    let task = submit(&stage, "slow");
    let mut dash = Dash::start(&stage, &["tasks"]);
    dash.shows("WORKER");
    dash.resize(12, 40);
    dash.until("a narrow window", |shown| {
        shown.contains(&task) && shown.contains("c cancel") && !shown.contains("WORKER")
    });
    dash.press("c");
    dash.shows("Sure?");
    dash.press("n");
    for (rows, columns) in [(1, 1), (2, 200), (50, 3)] {
        dash.resize(rows, columns);
        dash.press("1234");
    }
    dash.press("2");
    dash.resize(30, 120);
    dash.until("a large window", |shown| shown.contains(&task) && shown.contains("WORKER"));
    dash.press("q");
    assert_eq!(dash.ended().0, Some(0));
    stage.told(&["task", "cancel", &task]);
    stage.end();
}

/// A key that comes together with a new size must not stay unread until the next key: the program
/// once stayed open after a q, and a test run with it.
#[test]
fn a_key_that_comes_with_a_new_size_counts() {
    let stage = Stage::with_gateway();
    let mut dash = Dash::start(&stage, &["tasks"]);
    dash.shows("No task of this queue runs.");
    for columns in 60..100 {
        dash.resize(20, columns);
        dash.resize(24, columns);
        dash.press("4");
        dash.shows("This queue has no dead letters.");
        dash.resize(20, columns);
        dash.resize(24, columns);
        dash.press("2");
        dash.shows("No task of this queue runs.");
    }
    dash.press("q");
    assert_eq!(dash.ended().0, Some(0));
    stage.end();
}

#[test]
fn it_refuses_where_there_is_no_terminal() {
    let stage = Stage::with_gateway();
    let mut command = longhaul(&["dash", "--gateway", &stage.gateway()], stage.folder.path());
    let output = command.envs(stage.variables()).stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &[][..]), "{told}");
    assert!(told.contains("needs a terminal") && told.contains("longhaul task list"), "{told}");
    stage.end();
}

/// A wrong address is reported at once, before the terminal is taken.
#[test]
fn an_address_where_nobody_answers_ends_it() {
    let mut stage = Stage::with_gateway();
    let address = stage.kill_gateway();
    let dash = Dash::start_at(&stage, &["--gateway", &format!("http://{address}")]);
    let (code, shown) = dash.ended();
    assert_eq!(code, Some(5), "{shown}");
    assert!(shown.contains("cannot be reached"), "{shown}");
    stage.start_gateway(address);
    let dash = Dash::start(&stage, &["no-such-queue"]);
    let (code, shown) = dash.ended();
    assert_eq!(code, Some(3), "{shown}");
    stage.end();
}

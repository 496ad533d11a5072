//! The program started by hand: its output, its options, and its tokens.

use super::troubles::ground::addresses;
use crate::broker::RUN;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

/// A broker on free ports, killed at the end of the test.
pub(super) struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    /// The log until it was ready.
    pub(super) said: String,
    /// `host:port` of the admin interface.
    pub(super) admin: String,
}

fn program(arguments: &[&str]) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    // No variables that set an option or the log format.
    program.args(arguments).env_clear().stdout(Stdio::piped()).stderr(Stdio::piped());
    program
}

pub(super) fn run(arguments: &[&str]) -> Output {
    program(arguments).output().unwrap()
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

impl Server {
    pub(super) fn start(arguments: &[&str]) -> Self {
        Self::start_as(program(&[&RUN, arguments].concat()))
    }

    /// Starts it by a command that pipes standard error.
    pub(super) fn start_as(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let ready = read_to(&mut stderr, &mut said, "admin=");
        let (_, rest) = ready.split_once("http://").unwrap();
        let admin = rest.split('"').next().unwrap().to_owned();
        Self { child, stderr, said, admin }
    }

    /// Where clients connect to, if it advertises no name.
    pub(super) fn address(&self) -> SocketAddr {
        self.said.lines().find_map(addresses).unwrap().0
    }

    /// Reads the log up to a line with these words.
    fn line_with(&mut self, words: &str) -> String {
        read_to(&mut self.stderr, &mut self.said, words)
    }

    /// Terminates it. Returns whether it exited normally, and the rest of its log.
    pub(super) fn terminate(mut self) -> (bool, String) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().success(), rest)
    }

    /// Sends a request to the admin interface, and returns the whole answer.
    fn ask(&self, request: &str, token: Option<&str>) -> String {
        self.ask_as("localhost", request, token, "")
    }

    /// As `ask`, with a host name and a body.
    fn ask_as(&self, host: &str, request: &str, token: Option<&str>, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.admin).unwrap();
        let token =
            token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!(
            "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{token}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// Reads a log up to a line with these words.
fn read_to(log: &mut impl BufRead, said: &mut String, words: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended: {said}");
        said.push_str(&line);
        if line.contains(words) {
            return line;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A process that has ended was already waited for.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Without options the broker keeps nothing and says so; a log to a file has no escape sequences,
/// and `localhost` is a valid host.
#[test]
fn it_says_that_nothing_is_kept_and_in_plain_text() {
    let server = Server::start(&[]);
    assert!(server.said.contains("WARN") && server.said.contains("no --data"), "{}", server.said);
    assert!(!server.said.contains('\u{1b}'), "{:?}", server.said);
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let sizes =
        ["--data", data, "--broker-disk-bytes-max", "1G", "--broker-message-bytes-max", "512K"];
    let server = Server::start(&sizes);
    assert!(!server.said.contains("WARN"), "{}", server.said);
}

#[test]
fn what_cannot_be_read_is_refused_in_words() {
    for (arguments, words) in [
        (["--broker-disk-bytes-max", "1X"], "expected a number of bytes, or one with K, M, G or T"),
        (["--broker-disk-bytes-max", "1M"], "at least 256 MiB"),
        (["--broker-connections-max", "many"], "expected a number"),
        (["--broker-backup", "store"], "needs a data directory"),
        (["--broker", "7300"], "expected HOST:PORT"),
    ] {
        let refused = run(&[&["broker", "run"], &arguments[..]].concat());
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let said = text(&refused.stderr);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

/// Regression: the program panicked when it refused a place.
#[test]
fn a_backup_has_a_place_outside_the_directory_that_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (data, within) = (data.to_str().unwrap(), data.join("store"));
    for (place, words) in [
        (
            "ftp://host/folder",
            "the kind `ftp` is not supported. Use a directory, or s3://bucket/folder",
        ),
        (within.to_str().unwrap(), "it is inside the data directory"),
        // It exists, and nobody may write there, root included.
        ("/proc", "cannot use /proc for backups: "),
    ] {
        let arguments = ["--data", data, "--broker-backup", place];
        let refused = run(&[&RUN[..], &arguments].concat());
        assert_eq!(refused.status.code(), Some(2), "{place}");
        let said = text(&refused.stderr);
        assert!(said.contains(words) && !said.contains("panicked"), "{said}");
    }
}

#[test]
fn the_admin_interface_answers_for_the_hosts_that_it_was_told() {
    let hosts = ["--admin-hosts", "admin.example", "--broker-host", "broker.example"];
    let server = Server::start(&hosts);
    let health = "GET /status.html";
    for host in ["localhost", "127.0.0.1:80", "admin.example", "broker.example:8080"] {
        assert!(server.ask_as(host, health, None, "").starts_with("HTTP/1.1 200"), "{host}");
    }
    assert!(server.ask_as("evil.test", health, None, "").starts_with("HTTP/1.1 421"));
}

/// The time must not always be 0.
#[test]
fn the_metrics_tell_how_long_the_disk_took() {
    let server = Server::start(&[]);
    let topic = "PUT /admin/v2/persistent/public/default/t";
    assert!(server.ask(topic, None).starts_with("HTTP/1.1 204"));
    // The broker reads its log's times once a second.
    let seconds = std::iter::repeat_with(|| {
        let page = server.ask("GET /metrics", None);
        let name = "longhaul_broker_log_sync_seconds_total ";
        let line = page.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse::<f64>().unwrap()
    });
    assert!(seconds.take(100_000).any(|seconds| seconds > 0.0));
}

/// `check` refused a directory that a broker uses, so whoever suspected the disk had to stop the
/// broker first.
#[test]
fn a_broker_that_runs_can_be_checked() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let server = Server::start(&["--data", data]);
    assert!(server.ask("PUT /admin/v2/persistent/public/default/t", None).contains(" 204 "));
    let beside = run(&["broker", "check", data]);
    assert_eq!(beside.status.code(), Some(0), "{}", text(&beside.stderr));
    let told = text(&beside.stdout);
    assert!(told.starts_with(&format!("{data} is sound.")), "{told}");
    assert!(told.contains("It has 1 topics"), "{told}");
    let other = folder.path().join("other");
    let salvaged = run(&["broker", "salvage", data, other.to_str().unwrap()]);
    assert_eq!(salvaged.status.code(), Some(2), "the broker uses it");
    let told = text(&salvaged.stderr);
    let pid = server.child.id().to_string();
    assert!(told.contains("a broker uses") && told.contains(&pid), "{told}");
    assert_eq!(run(&["broker", "check", "/nowhere"]).status.code(), Some(2));
}

#[test]
fn damage_has_its_own_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["data", "new", "again"].map(|name| folder.path().join(name));
    let [data, new, again] = paths.each_ref().map(|path| path.to_str().unwrap());
    let server = Server::start(&["--data", data]);
    let code = |arguments: &[&str]| run(&[&["broker"], arguments].concat()).status.code();
    let inventory = paths[0].join("segments");
    // The broker writes its inventory in the background; on a busy machine a kill could come first.
    let is_there = |_| {
        server.ask("GET /admin/v2/brokers/health", None);
        inventory.try_exists().unwrap()
    };
    assert!((0..10_000).any(is_there), "no inventory");
    drop(server);
    let mut bytes = std::fs::read(&inventory).unwrap();
    bytes[14] ^= 1;
    std::fs::write(&inventory, bytes).unwrap();
    let checked = run(&["broker", "check", data]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(text(&checked.stderr).contains("longhaul broker salvage"));
    let checked = run(&["broker", "check", data, "-o", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!((&report["sound"], report["damage"].as_array().unwrap().len()), (&false.into(), 1));
    assert_eq!(code(&["salvage", data, new]), Some(1));
    assert_eq!(code(&["salvage", data, new]), Some(2), "it is not empty");
    assert_eq!(code(&["check", new]), Some(0));
    // `-q` was ignored.
    std::fs::remove_file(paths[1].join("segments")).unwrap();
    let notes =
        |arguments: &[&str]| text(&run(&[&["broker", "check", new], arguments].concat()).stdout);
    assert!(notes(&[]).contains("Besides:") && !notes(&["-q"]).contains("Besides:"));
    assert_eq!(code(&["salvage", new, again]), Some(0));
}

#[test]
fn a_signal_stops_it_in_order() {
    let (is_well, said) = Server::start(&[]).terminate();
    assert!(is_well && said.contains("stopping"), "{said}");
}

/// The program creates JSON Web Tokens, and a refusal appears in the broker's log.
#[test]
fn a_secret_and_a_token_are_two_commands() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret.key");
    let path = secret.to_str().unwrap();
    assert!(run(&["token", "secret", path]).status.success());
    assert_eq!(std::fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
    let kept = std::fs::read(&secret).unwrap();
    let again = run(&["token", "secret", path]);
    assert!(!again.status.success() && std::fs::read(&secret).unwrap() == kept);
    let create = |role: &str| {
        let made = run(&["token", "sign", "--secret", path, "--role", role]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        text(&made.stdout).trim().to_owned()
    };
    let mut server =
        Server::start(&["--broker-token-secret", path, "--broker-superusers", "admin"]);
    let (tenants, own) =
        ("GET /admin/v2/tenants", "GET /lookup/v2/topic/persistent/public/default/t");
    let admin = create("admin");
    assert!(server.ask(tenants, Some(&admin)).starts_with("HTTP/1.1 200"));
    let worker = create("worker");
    assert!(server.ask(tenants, Some(&worker)).starts_with("HTTP/1.1 403"));
    let denied = server.ask(own, Some(&worker));
    assert!(
        denied.starts_with("HTTP/1.1 403") && denied.contains("ask a superuser for a grant"),
        "{denied}"
    );
    let grant = "POST /admin/v2/namespaces/public/default/permissions/worker";
    let granted = server.ask_as("localhost", grant, Some(&admin), r#"["produce","consume"]"#);
    assert!(granted.starts_with("HTTP/1.1 204"), "{granted}");
    assert!(server.ask(own, Some(&worker)).starts_with("HTTP/1.1 200"));
    for _ in 0..3 {
        assert!(server.ask(tenants, None).starts_with("HTTP/1.1 401"));
    }
    // The advice was missing.
    let refused =
        run(&["broker", "backup", "now", "--admin-url", &format!("http://{}", server.admin)]);
    assert!(text(&refused.stderr).contains("--token-file"), "{}", text(&refused.stderr));
    let forged = format!("{worker}x");
    assert!(server.ask(tenants, Some(&forged)).starts_with("HTTP/1.1 401"));
    let told = server.line_with("signature");
    assert!(told.contains("a login from 127.0.0.1 was refused"), "{told}");
    let missing = server.said.lines().filter(|line| line.contains("a token is needed")).count();
    assert_eq!(missing, 1, "{}", server.said);
    assert!(!server.said.contains(&worker), "a token is in the log");
}

/// Commands of the page need `--data`: without it the data is in a temporary directory that is
/// removed at the end.
#[test]
fn the_commands_of_the_page_keep_their_data() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/broker.md");
    let page = std::fs::read_to_string(path).unwrap().replace("\\\n", "");
    let starts: Vec<_> = page.lines().filter(|line| line.contains("broker run --data ")).collect();
    assert_eq!(starts.len(), 4, "{starts:?}");
    let all = page.lines().filter(|line| line.contains("broker run --")).count();
    assert_eq!(all, starts.len(), "{starts:?}");
}

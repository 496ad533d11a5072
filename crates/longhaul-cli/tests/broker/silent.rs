//! Silent sockets use up the program's descriptors, and do no harm.

use super::program::Server;
use crate::broker::RUN;
use crate::broker::client::{self, Client, PATIENCE, ask_at};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The pause between two requests: polling without one takes processor time from the awaited work.
const POLL: Duration = Duration::from_millis(5);

/// Starts a broker with these options of `ulimit`.
fn start_limited(data: &Path, limit: &str) -> Server {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")]);
    shell.arg(env!("CARGO_BIN_EXE_longhaul")).args(RUN).arg("--data").arg(data);
    shell.env("NO_COLOR", "1").env("RUST_LOG", "info");
    shell.stdout(Stdio::null()).stderr(Stdio::piped());
    Server::start_as(shell)
}

/// Silent sockets, without a token, must not take all descriptors: the broker would end at its next
/// segment.
async fn silent_sockets_do_no_harm(limit: &str, sockets: usize) -> String {
    let data = tempfile::tempdir().unwrap();
    let server = start_limited(data.path(), limit);
    let mut client = Client::connect(server.address()).await.unwrap();
    client.produce("load", 1).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..sockets {
        silent.push(Client::dial(server.address()).await.unwrap());
    }
    // The answer comes at once, although silent sockets are dropped only after 10 s.
    let one_more = match Client::connect(server.address()).await {
        Ok(_) => "served".to_owned(),
        Err(error) => error.to_string(),
    };
    // Several segments, each a new file.
    let body = vec![7; 1024 * 1024];
    for sequence in 0..40 {
        client.publish_one(1, sequence, &body).await.unwrap();
    }
    let segments = std::fs::read_dir(data.path().join("log")).unwrap().count();
    assert!(segments >= 4, "{segments}");
    drop(silent);
    // The broker notices their ends one by one.
    let connected =
        timeout(PATIENCE, async { while Client::connect(server.address()).await.is_err() {} });
    connected.await.unwrap();
    client::serves(server.address()).await;
    let before = server.said.clone();
    let (is_well, said) = server.terminate();
    assert!(is_well, "{said}");
    format!("{one_more} {before}{said}")
}

/// The usual limit is raised.
#[tokio::test]
async fn silent_sockets_do_not_end_the_broker() {
    let limit = Resource::Nofile;
    let maximum = getrlimit(limit).maximum;
    // The other ends are in this process.
    setrlimit(limit, Rlimit { current: maximum, maximum }).unwrap();
    let said = silent_sockets_do_no_harm("-Sn 1024", 1_500).await;
    assert!(said.starts_with("served") && !said.contains("open files"), "{said}");
}

/// If it cannot be raised, excess connections get an error with the reason.
#[tokio::test]
async fn silent_sockets_do_not_end_the_broker_under_a_hard_limit() {
    let said = silent_sockets_do_no_harm("-n 200", 400).await;
    assert!(said.contains("allows fewer connections"), "{said}");
    assert!(said.contains("the broker has reached its limit of connections"), "{said}");
    assert_eq!(said.matches("closing new ones").count(), 1, "{said}");
    assert!(!said.contains("cannot write the log"), "{said}");
}

/// Opens connections until one is refused.
async fn let_in(server: &Server) -> Vec<Client> {
    let mut all = Vec::new();
    loop {
        match Client::connect(server.address()).await {
            Ok(client) => all.push(client),
            Err(error) if error.kind() == ErrorKind::TimedOut => panic!("{error}"),
            Err(_) => return all,
        }
    }
}

/// Waits until the broker has at most this many connections.
async fn go(server: &Server, clients: Vec<Client>, left: u64) {
    drop(clients);
    let gone = async {
        loop {
            let metrics = ask_at(&server.admin, "GET", "/metrics");
            let line = metrics.lines().find(|line| line.starts_with("pulsar_active_connections"));
            let count: f64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
            if count <= left as f64 {
                break;
            }
            sleep(POLL).await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
}

/// Files opened after the start must reduce the number of connections, or the log would have no
/// descriptor for its next segment.
#[tokio::test]
async fn files_that_are_opened_later_leave_room_for_fewer_connections() {
    const VIEWS: usize = 100;
    let data = tempfile::tempdir().unwrap();
    let server = start_limited(data.path(), "-n 400");
    let clients = let_in(&server).await;
    let before = clients.len();
    go(&server, clients, 0).await;
    let mut client = Client::connect(server.address()).await.unwrap();
    // A compacted view is a file that stays open.
    let compaction =
        |view: usize| format!("/admin/v2/persistent/public/default/view-{view}/compaction");
    for view in 0..VIEWS {
        let producer = view as u64 + 1;
        client.produce(&format!("view-{view}"), producer).await.unwrap();
        client.publish_one(producer, 0, b"x").await.unwrap();
        let asked = ask_at(&server.admin, "PUT", &compaction(view));
        assert!(asked.starts_with("HTTP/1.1 204"), "{asked}");
        // Compactions run at low priority, so each one has its own time limit.
        let made = async {
            while !ask_at(&server.admin, "GET", &compaction(view)).contains("SUCCESS") {
                sleep(POLL).await;
            }
        };
        timeout(PATIENCE, made).await.unwrap();
    }
    let clients = let_in(&server).await;
    let fewer = before - clients.len();
    // One is the client's own. An eighth of the rest is for the admin interface.
    assert!((80..=96).contains(&fewer), "{fewer} fewer than {before}, for {VIEWS} files more");
    // With all of them open the log starts new segments.
    client.produce("load", 1000).await.unwrap();
    let body = vec![7; 1024 * 1024];
    for sequence in 0..20 {
        client.publish_one(1000, sequence, &body).await.unwrap();
    }
    go(&server, clients, 1).await;
    client::serves(server.address()).await;
    let (is_well, said) = server.terminate();
    assert!(is_well && !said.contains("cannot write the log"), "{said}");
    assert!(said.contains("(ulimit -n) leaves no room for"), "{said}");
}

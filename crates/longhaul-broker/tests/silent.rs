//! Sockets that say nothing take the descriptors of the program, and do no harm.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed"
)]

mod client;

use client::{Client, PATIENCE};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command as Program, Stdio};
use tokio::time::timeout;

/// A running broker.
struct Server {
    child: Child,
    address: SocketAddr,
    stderr: Option<BufReader<std::process::ChildStderr>>,
    /// Before it was ready.
    said: String,
}

fn program(data: &Path) -> Program {
    let mut program = Program::new(env!("CARGO_BIN_EXE_longhaul-broker"));
    program.arg("--data").arg(data).args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    program.env("NO_COLOR", "1").env("RUST_LOG", "info").stderr(Stdio::piped());
    program
}

impl Server {
    /// With these options of `ulimit`.
    fn start_limited(data: &Path, limit: &str) -> Self {
        let whole = program(data);
        let mut shell = Program::new("sh");
        shell.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")]);
        shell.arg(whole.get_program()).args(whole.get_args());
        shell.env("NO_COLOR", "1").env("RUST_LOG", "info").stderr(Stdio::piped());
        Self::start_as(shell)
    }

    #[expect(
        clippy::zombie_processes,
        reason = "the process is waited for when the server is dropped"
    )]
    fn start_as(mut program: Program) -> Self {
        let mut child = program.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended: {said}");
            if let Some((_, rest)) = line.split_once("pulsar://") {
                let address = rest.split(['"', ' ', '\n']).next().unwrap().parse().unwrap();
                return Self { child, address, stderr: Some(stderr), said };
            }
            said.push_str(&line);
        }
    }

    /// Asks it to stop. Says whether it ended well, and what it said.
    fn terminate(mut self) -> (bool, String) {
        let id = i32::try_from(self.child.id()).unwrap();
        let id = rustix::process::Pid::from_raw(id).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let said = std::io::read_to_string(self.stderr.take().unwrap()).unwrap();
        (self.child.wait().unwrap().success(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind; one that ended has waited already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Sockets that said nothing, without any token, took all descriptors of the process, and the broker ended at its next segment.
async fn silent_sockets_do_no_harm(limit: &str, sockets: usize) -> String {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start_limited(data.path(), limit);
    let mut client = Client::connect(server.address).await.unwrap();
    client.produce("load", 1).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..sockets {
        silent.push(Client::dial(server.address).await.unwrap());
    }
    // Several segments, each of which is a new file.
    let body = vec![7; 1024 * 1024];
    for sequence in 0..40 {
        client.publish_one(1, sequence, &body).await.unwrap();
    }
    let segments = std::fs::read_dir(data.path().join("log")).unwrap().count();
    assert!(segments >= 4, "{segments}");
    let one_more = match Client::connect(server.address).await {
        Ok(_) => "served".to_owned(),
        Err(error) => error.to_string(),
    };
    drop(silent);
    // The broker learns one by one that they have gone.
    let connected =
        timeout(PATIENCE, async { while Client::connect(server.address).await.is_err() {} });
    connected.await.unwrap();
    client::serves(server.address).await;
    let before = server.said.clone();
    let (is_well, said) = server.terminate();
    assert!(is_well, "{said}");
    format!("{one_more} {before}{said}")
}

/// The common limit: it is raised.
#[tokio::test]
async fn silent_sockets_do_not_end_the_broker() {
    let limit = Resource::Nofile;
    let maximum = getrlimit(limit).maximum;
    // The other ends are here.
    setrlimit(limit, Rlimit { current: maximum, maximum }).unwrap();
    let said = silent_sockets_do_no_harm("-Sn 1024", 1_500).await;
    assert!(said.starts_with("served") && !said.contains("open files"), "{said}");
}

/// Where it cannot be raised, those that are one too many learn why.
#[tokio::test]
async fn silent_sockets_do_not_end_the_broker_under_a_hard_limit() {
    let said = silent_sockets_do_no_harm("-n 200", 400).await;
    assert!(said.contains("allows fewer connections"), "{said}");
    assert!(said.contains("as many connections as it may have"), "{said}");
    assert_eq!(said.matches("more are closed").count(), 1, "{said}");
    assert!(!said.contains("nothing is written"), "{said}");
}

//! The program is killed under load, again and again, in one directory: what was confirmed is there after every start.

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
use longhaul_wire::messages::{Command, CommandGetLastMessageId, MessageIdData};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command as Program, Stdio};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tokio::time::timeout;

const ROUNDS: u64 = 8;
const TOPIC: &str = "load";
/// Messages without receipt, of one producer.
const IN_FLIGHT: u64 = 50;

type Id = (u64, u64);

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
    fn start(data: &Path) -> Self {
        Self::start_as(program(data))
    }

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

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
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

/// What clients have seen.
#[derive(Default)]
struct Seen {
    receipts: BTreeMap<Id, Vec<u8>>,
    shown: BTreeMap<Id, Vec<u8>>,
    acked: BTreeSet<Id>,
    confirmed: BTreeSet<Id>,
}

fn id(it: &MessageIdData) -> Id {
    (it.ledger_id, it.entry_id)
}

/// Publishes until the broker is gone.
async fn publish(
    address: SocketAddr,
    round: u64,
    producer: u64,
    seen: Arc<Mutex<Seen>>,
    more: Arc<Notify>,
) -> std::io::Result<()> {
    let body = |sequence: u64| format!("{round}-{producer}-{sequence}").repeat(8).into_bytes();
    let mut client = Client::connect(address).await?;
    client.produce(TOPIC, producer).await?;
    for sequence in 0..IN_FLIGHT {
        client.publish(producer, sequence, &body(sequence)).await?;
    }
    let mut next = IN_FLIGHT;
    loop {
        let Command::SendReceipt(receipt) = client.answer().await?.command else { continue };
        let id = id(&receipt.message_id.unwrap());
        let former = seen.lock().unwrap().receipts.insert(id, body(receipt.sequence_id));
        assert!(former.is_none(), "{id:?} was given twice");
        client.publish(producer, next, &body(next)).await?;
        next += 1;
        more.notify_one();
    }
}

/// Consumes and acknowledges until the broker is gone.
async fn consume(address: SocketAddr, seen: Arc<Mutex<Seen>>) -> std::io::Result<()> {
    let mut client = Client::connect(address).await?;
    client.subscribe(TOPIC, "works", 1).await?;
    client.flow(1, 1_000_000).await?;
    let mut asked = BTreeMap::new();
    loop {
        let frame = client.answer().await?;
        match frame.command {
            Command::Message(message) => {
                let key = id(&message.message_id);
                let body = frame.payload.unwrap().body().to_vec();
                let request_id = client.request_id();
                {
                    let mut seen = seen.lock().unwrap();
                    assert!(!seen.confirmed.contains(&key), "{key:?} was acknowledged");
                    seen.shown.insert(key, body);
                    // Some stay, for the next round.
                    if key.1.is_multiple_of(7) {
                        continue;
                    }
                    seen.acked.insert(key);
                }
                asked.insert(request_id, key);
                client.ack(1, message.message_id, request_id).await?;
            }
            Command::AckResponse(answer) => {
                assert_eq!(answer.error, None);
                let key = asked.remove(&answer.request_id.unwrap()).unwrap();
                seen.lock().unwrap().confirmed.insert(key);
            }
            _ => {}
        }
    }
}

/// Everything that a subscription still has.
async fn read_all(
    address: SocketAddr,
    subscription: &str,
) -> std::io::Result<BTreeMap<Id, Vec<u8>>> {
    let mut client = Client::connect(address).await?;
    client.subscribe(TOPIC, subscription, 1).await?;
    let request_id = client.request_id();
    client.send(CommandGetLastMessageId { consumer_id: 1, request_id }).await?;
    let Command::GetLastMessageIdResponse(last) = client.answer().await?.command else {
        panic!("no last id")
    };
    let last = id(&last.last_message_id);
    client.flow(1, u32::MAX).await?;
    let mut all = BTreeMap::new();
    while last.0 != u64::MAX && !all.contains_key(&last) {
        let frame = client.answer().await?;
        let Command::Message(message) = frame.command else { continue };
        all.insert(id(&message.message_id), frame.payload.unwrap().body().to_vec());
    }
    Ok(all)
}

/// Compares what is there with what was seen.
async fn check(address: SocketAddr, seen: &Mutex<Seen>) {
    let kept = read_all(address, "keeps").await.unwrap();
    {
        let seen = seen.lock().unwrap();
        for (what, list) in [("receipt", &seen.receipts), ("delivery", &seen.shown)] {
            for (id, body) in list {
                assert_eq!(kept.get(id), Some(body), "a {what} of {id:?}");
            }
        }
    }
    // The last entry may be acknowledged: one that is not comes behind all others.
    let mut client = Client::connect(address).await.unwrap();
    client.produce(TOPIC, 1).await.unwrap();
    let end = loop {
        let end = client.publish_one(1, 0, b"end").await.unwrap();
        seen.lock().unwrap().receipts.insert(id(&end), b"end".to_vec());
        if end.entry_id.is_multiple_of(7) {
            break id(&end);
        }
    };
    let left = read_all(address, "works").await.unwrap();
    let mut seen = seen.lock().unwrap();
    let back = seen.confirmed.iter().find(|it| left.contains_key(it));
    assert_eq!(back, None, "acknowledged, and the answer was seen");
    let lost = kept.keys().find(|it| !left.contains_key(it) && !seen.acked.contains(it));
    assert_eq!(lost, None, "nobody has acknowledged it");
    seen.shown.extend(left);
    assert!(seen.shown.contains_key(&end));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_confirmed_survives_every_kill() {
    let directory = tempfile::tempdir().unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..ROUNDS {
        let server = Server::start(directory.path());
        let address = server.address;
        check(address, &seen).await;
        let enough = seen.lock().unwrap().receipts.len() + random.usize(300..4000);
        let more = Arc::new(Notify::new());
        let mut tasks = tokio::task::JoinSet::new();
        for producer in 0..2 {
            tasks.spawn(publish(address, round, producer, Arc::clone(&seen), Arc::clone(&more)));
        }
        tasks.spawn(consume(address, Arc::clone(&seen)));
        while seen.lock().unwrap().receipts.len() < enough {
            timeout(PATIENCE, more.notified()).await.expect("receipts");
        }
        // In the middle of whatever it does.
        server.kill();
        while let Some(ended) = tasks.join_next().await {
            assert!(ended.unwrap().is_err(), "clients work until the broker is gone");
        }
    }
    let server = Server::start(directory.path());
    check(server.address, &seen).await;
    refuses_a_second(directory.path());
    let (is_well, said) = server.terminate();
    assert!(is_well, "{said}");
    let server = Server::start(directory.path());
    assert!(!server.said.contains("dropped"), "nothing was being written: {}", server.said);
    check(server.address, &seen).await;
    let seen = seen.lock().unwrap();
    let enough = seen.receipts.len() > 1000 && seen.confirmed.len() > 500;
    assert!(enough, "{} receipts, {} acks", seen.receipts.len(), seen.confirmed.len());
}

/// Another process in the same directory would write over what the first one confirmed.
fn refuses_a_second(data: &Path) {
    let output = program(data).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("is in use by process"), "{said}");
}

/// Sockets that said nothing, without any token, took all descriptors of the process, and the broker ended at its next segment.
async fn silent_sockets_do_no_harm(limit: &str, sockets: usize) -> String {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start_limited(data.path(), limit);
    let mut client = Client::connect(server.address).await.unwrap();
    client.produce(TOPIC, 1).await.unwrap();
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

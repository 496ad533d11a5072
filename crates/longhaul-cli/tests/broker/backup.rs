//! Machines are lost under load, and the broker comes back from its backup: everything that was
//! confirmed before the time that a restore names is there, and no id is given twice.

use super::RUN;
use super::client::{Client, PATIENCE, ask_at};
use super::troubles::ground::{addresses, call};
use longhaul_wire::messages::Command as Answer;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

const TOPICS: [&str; 2] = ["kept", "consumed"];
const SUBSCRIPTIONS: [&str; 2] = ["all", "works"];
/// Machines that are lost.
const MACHINES: u64 = 3;
/// Receipts before each kill of a machine. Before the first one there is a checkpoint, too.
const RECEIPTS: [usize; 3] = [3000, 500, 1500];
const IN_FLIGHT: u64 = 20;
/// So that the log begins several segments, and has a checkpoint.
const BODY_BYTES: usize = 12_000;

type Id = (u64, u64);

/// What clients were told, with the time.
#[derive(Default)]
struct Told {
    /// The number of each message, by topic and id.
    receipts: BTreeMap<(usize, Id), (u64, u64)>,
    /// The ids of all receipts, also of messages that were lost since.
    given: BTreeSet<Id>,
    /// Acknowledged, or skipped.
    acked: BTreeSet<Id>,
    news: Arc<Notify>,
}

type Shared = Arc<Mutex<Told>>;

#[expect(clippy::disallowed_methods, reason = "the judge is a clock of its own")]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// A broker that is killed at the end.
struct Broker {
    child: Child,
    address: SocketAddr,
    admin: String,
}

impl Broker {
    fn start(data: &Path, store: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.args(RUN).arg("--data").arg(data).arg("--broker-backup").arg(store);
        command.env_clear().stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let (address, admin) = lines.find_map(|line| addresses(&line)).expect("it is ready");
        // Its pipe must not fill up.
        std::thread::spawn(move || lines.for_each(|line| println!("{line}")));
        Self { child, address, admin }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Publishes until the connection ends.
async fn publish(address: SocketAddr, topic: usize, told: Shared) -> std::io::Result<()> {
    let mut client = Client::connect(address).await?;
    client.produce(TOPICS[topic], 1).await?;
    let first = fastrand::u64(..u64::MAX / 2);
    for sequence in 0..u64::MAX {
        client.publish(1, sequence, &body(first + sequence)).await?;
        if sequence < IN_FLIGHT {
            continue;
        }
        let Answer::SendReceipt(receipt) = client.answer().await?.command else { return Ok(()) };
        let id = receipt.message_id.map(|id| (id.ledger_id, id.entry_id)).unwrap();
        let mut told = told.lock().unwrap();
        assert!(told.given.insert(id), "{id:?} was given twice");
        told.receipts.insert((topic, id), (first + receipt.sequence_id, now()));
        told.news.notify_one();
    }
    Ok(())
}

/// Without a subscription nothing would be kept.
async fn subscribe(address: SocketAddr, topic: usize) -> std::io::Result<Client> {
    let mut client = Client::connect(address).await?;
    client.subscribe(TOPICS[topic], SUBSCRIPTIONS[topic], 1).await?;
    Ok(client)
}

/// Acknowledges everything of the second topic until the connection ends, so that segments go.
async fn consume(address: SocketAddr, told: Shared) -> std::io::Result<()> {
    let mut client = subscribe(address, 1).await?;
    client.flow(1, u32::MAX).await?;
    loop {
        let Answer::Message(message) = client.answer().await?.command else { continue };
        let id = &message.message_id;
        told.lock().unwrap().acked.insert((id.ledger_id, id.entry_id));
        let request_id = client.request_id();
        client.ack(1, message.message_id, request_id).await?;
    }
}

fn body(number: u64) -> Vec<u8> {
    let mut body = number.to_le_bytes().to_vec();
    body.resize(BODY_BYTES, u8::try_from(number % 251).unwrap());
    body
}

/// All messages of a topic that are not acknowledged, by id.
async fn messages(broker: &Broker, topic: usize) -> BTreeMap<Id, u64> {
    let path = format!("/admin/v2/persistent/public/default/{}/stats", TOPICS[topic]);
    let mut client = subscribe(broker.address, topic).await.unwrap();
    let subscription = SUBSCRIPTIONS[topic];
    let stats = super::troubles::ground::get(&broker.admin, &path);
    let count = stats["subscriptions"][subscription]["msgBacklog"].as_u64().unwrap();
    client.flow(1, u32::MAX).await.unwrap();
    let mut found = BTreeMap::new();
    while found.len() < usize::try_from(count).unwrap() {
        let frame = timeout(PATIENCE, client.answer()).await.unwrap().unwrap();
        let Answer::Message(message) = frame.command else { continue };
        let bytes = frame.payload.unwrap().body().to_vec();
        let number = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        assert_eq!(bytes, body(number));
        found.insert((message.message_id.ledger_id, message.message_id.entry_id), number);
    }
    found
}

/// Clients work until there are so many receipts more, and the store has what it shall have. Then
/// the broker is killed. Returns the time before which everything is stored, as the metrics told.
async fn load(
    broker: Broker,
    told: &Shared,
    receipts: usize,
    is_stored: impl Fn(u64) -> bool,
) -> u64 {
    // Before the first pass, the metrics count from the start.
    let started = now();
    let mut stored = 0;
    subscribe(broker.address, 0).await.unwrap();
    subscribe(broker.address, 1).await.unwrap();
    let mut clients = JoinSet::new();
    for topic in 0..TOPICS.len() {
        clients.spawn(publish(broker.address, topic, Arc::clone(told)));
    }
    clients.spawn(consume(broker.address, Arc::clone(told)));
    let (enough, news) = {
        let told = told.lock().unwrap();
        (told.given.len() + receipts, Arc::clone(&told.news))
    };
    let path = format!("/admin/v2/persistent/public/default/{}/compaction", TOPICS[0]);
    let mut is_compacted = false;
    loop {
        if told.lock().unwrap().given.len() >= enough {
            // A slow answer names an earlier time.
            stored = backed_up(&broker.admin).max(stored);
            if is_stored(stored.saturating_sub(started)) {
                break;
            }
        }
        timeout(PATIENCE, news.notified()).await.expect("a receipt");
        if !is_compacted && told.lock().unwrap().given.len() + receipts / 2 > enough {
            is_compacted = call(&broker.admin, "PUT", &path, b"") < 300;
        }
    }
    broker.kill();
    while let Some(ended) = clients.join_next().await {
        ended.unwrap().ok();
    }
    if stored > started { stored } else { 0 }
}

/// The time before which everything is stored, by the metrics.
fn backed_up(admin: &str) -> u64 {
    // No later time is claimed.
    let asked = now();
    let page = ask_at(admin, "GET", "/metrics");
    let name = "longhaul_broker_backup_age_seconds ";
    let age = page.lines().find_map(|line| line.strip_prefix(name)).expect("a backup");
    let age = Duration::from_secs_f64(age.parse().unwrap());
    asked - u64::try_from(age.as_millis()).unwrap()
}

/// Makes a directory of the backup, and returns the time before which it has everything.
fn restore(store: &Path, new: &Path) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    let output =
        command.args(["broker", "restore", "--from"]).arg(store).arg(new).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    let (_, at) = said.split_once("confirmed before ").expect("a time");
    let at: jiff::Timestamp = at.trim().trim_end_matches('.').parse().unwrap();
    u64::try_from(at.as_millisecond()).unwrap()
}

/// The messages whose receipts came before this time, and that are not there.
fn lost(told: &Told, found: &[BTreeMap<Id, u64>], before: u64) -> Vec<Id> {
    let receipts = told.receipts.iter().filter(|(_, (_, at))| *at < before);
    let lost = receipts.filter(|&(&(topic, id), &(number, _))| {
        !told.acked.contains(&id) && found[topic].get(&id) != Some(&number)
    });
    lost.map(|(&(_, id), _)| id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_machine_comes_back_from_its_backup() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let told = Shared::default();
    let mut data = folder.path().join("0");
    let (mut lost_since, mut happened) = (0, [0; 3]);
    for machine in 1..=MACHINES {
        let mut backed_up = 0;
        for (number, receipts) in RECEIPTS.into_iter().enumerate() {
            let broker = Broker::start(&data, &store);
            // So that segments go that are stored, and others that are not stored yet.
            let oldest = (number == 0 && machine > 1).then(|| skip_all(&broker, &data, &told));
            let is_stored = |after_start: u64| {
                let are_gone = oldest.as_ref().is_none_or(|oldest| !oldest.is_file());
                match number {
                    0 => objects(&store, &data, "checkpoint") > 0 && are_gone,
                    1 => true,
                    // The metrics name a time that the judge can take at its word.
                    _ => after_start > 0,
                }
            };
            backed_up = load(broker, &told, receipts, is_stored).await;
        }
        for (sum, kind) in happened.iter_mut().zip(["log", "checkpoint", "compact"]) {
            *sum += objects(&store, &data, kind);
        }
        std::fs::remove_dir_all(&data).unwrap();
        data = folder.path().join(machine.to_string());
        let as_of = restore(&store, &data);
        let broker = Broker::start(&data, &store);
        let found = [messages(&broker, 0).await, messages(&broker, 1).await];
        let mut told = told.lock().unwrap();
        assert!(backed_up > 0);
        let early = lost(&told, &found, as_of.max(backed_up));
        assert_eq!(early.first(), None, "and {} more of machine {machine}", early.len());
        lost_since += lost(&told, &found, u64::MAX).len();
        // What was lost after that time stays lost, and its ids with it.
        told.receipts.retain(|(topic, id), _| found[*topic].contains_key(id));
        drop(told);
        broker.kill();
    }
    println!("{lost_since} messages with a receipt were lost in the last moment: {happened:?}");
    assert!(happened[0] > 9 && happened[1] >= 3 && happened[2] > 0, "{happened:?}");
    assert!(lost_since > 0, "the judge finds what is lost");
}

/// Skips everything that is kept, and returns the oldest segment, which then goes.
fn skip_all(broker: &Broker, data: &Path, told: &Shared) -> PathBuf {
    let topic = TOPICS[0];
    let path = format!("/admin/v2/persistent/public/default/{topic}/subscription/all/skip_all");
    assert_eq!(call(&broker.admin, "POST", &path, b""), 204);
    let mut told = told.lock().unwrap();
    let ids: Vec<Id> = told.receipts.keys().map(|(_, id)| *id).collect();
    told.acked.extend(ids);
    let files = std::fs::read_dir(data.join("log")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "seg")).min().unwrap()
}

/// Objects of a kind that the store has of a directory.
fn objects(store: &Path, data: &Path, kind: &str) -> usize {
    let folder = std::fs::read_to_string(data.join("backup")).unwrap_or_default();
    std::fs::read_dir(store.join(folder.trim()).join(kind)).map_or(0, Iterator::count)
}

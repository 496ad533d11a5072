//! The program is killed under load repeatedly on one directory, while its disk fills up,
//! descriptors run out, topics are compacted and unloaded, and operators make invalid requests.
//! Everything confirmed must exist after every start.
//!
//! `LONGHAUL_KILLS` sets the number of rounds, `LONGHAUL_KILLS_SEED` their seed.

pub(super) mod ground;
pub(super) mod load;

use crate::broker::client::{Client, PATIENCE};
use fastrand::Rng;
use ground::{Ground, Running, call};
use load::{
    Id, KEYS, Round, Seen, TOPIC, VIEW, consume, publish, publish_values, read, read_values,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::time::timeout;

const ROUNDS: u64 = 12;
const NAMESPACE: &str = "/admin/v2/persistent/public/default";

/// Counts of the faults that occurred, so that a test without any fails.
#[derive(Debug, Default)]
struct Happened {
    /// Whether the disk could be filled.
    is_small: bool,
    receipts: usize,
    acks: usize,
    refused: usize,
    killed_full: usize,
    started_full: usize,
    recovered: usize,
    short_of_descriptors: usize,
    calls_done: usize,
    calls_refused: usize,
    compactions: usize,
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_confirmed_survives_every_kill() {
    let rounds = setting("LONGHAUL_KILLS", ROUNDS);
    let happened = rounds_of_trouble(rounds, false).await;
    println!("{rounds} kills: {happened:?}");
    let n = usize::try_from(rounds).unwrap();
    assert!(happened.receipts > 100 * n && happened.acks > 50 * n, "{happened:?}");
    assert!(happened.calls_done > n && happened.calls_refused > n, "{happened:?}");
    assert!(happened.compactions > n / 4 && happened.short_of_descriptors > n / 16, "{happened:?}");
    let full = [happened.killed_full, happened.started_full, happened.recovered, happened.refused];
    assert!(!happened.is_small || full.iter().all(|&times| times > n / 16), "{happened:?}");
}

/// Restoring an earlier state of the directory simulates a broker that confirms too early.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_lost_is_found() {
    let mut rounds = tokio::task::JoinSet::new();
    rounds.spawn(rounds_of_trouble(2, true));
    let ended = rounds.join_next().await.expect("an end");
    let found = ended.expect_err("a finding").into_panic();
    let found = found.downcast_ref::<String>().expect("a message");
    assert!(found.contains("a receipt of"), "{found}");
}

/// With `loses`, everything written in a round is lost after it.
async fn rounds_of_trouble(rounds: u64, loses: bool) -> Happened {
    let directory = tempfile::tempdir().unwrap();
    let volume = directory.path().join("volume");
    std::fs::create_dir(&volume).unwrap();
    let mut ground = Ground::new(&volume);
    let mut random = Rng::with_seed(setting("LONGHAUL_KILLS_SEED", 5));
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut happened = Happened { is_small: ground.is_small, ..Happened::default() };
    for number in 0..rounds {
        let is_full = random.bool() && number > 0 && ground.is_small;
        if is_full {
            ground.fill();
            happened.started_full += 1;
        }
        let is_short = random.u8(0..4) == 0;
        let broker = ground.start(if is_short { "-n 120" } else { "-n 1024" });
        let kept = check(&broker, &seen).await;
        ground.drain();
        settle(&broker, &seen, &kept);
        let round = Round {
            address: broker.address,
            number,
            seen: Arc::clone(&seen),
            news: Arc::default(),
            is_over: Arc::default(),
        };
        if loses {
            ground.order("rm -rf earlier && cp -a data earlier");
        }
        trouble(&mut ground, &broker, &round, is_short, &mut random, &mut happened).await;
        if loses {
            ground.order("rm -rf data && mv earlier data");
        }
    }
    ends_well(&mut ground, &seen).await;
    {
        let seen = seen.lock().unwrap();
        happened.receipts = seen.given.len();
        happened.acks = seen.confirmed.len();
        happened.refused = seen.refused;
    }
    happened
}

/// A round: clients work, a fault occurs, and the broker is killed at an arbitrary point.
async fn trouble(
    ground: &mut Ground,
    broker: &Running,
    round: &Round,
    is_short: bool,
    random: &mut Rng,
    happened: &mut Happened,
) {
    let mut clients = tokio::task::JoinSet::new();
    for producer in 0..2 {
        clients.spawn(round.clone().go_on(move |round| publish(round, producer)));
    }
    clients.spawn(round.clone().go_on(publish_values));
    clients.spawn(round.clone().go_on(consume));
    let operator = {
        let (admin, is_over) = (broker.admin.clone(), Arc::clone(&round.is_over));
        let random = random.fork();
        std::thread::spawn(move || operate(&admin, random, is_short, &is_over))
    };
    receipts(round, "at first", random.usize(100..800)).await;
    let mut silent = Vec::new();
    if is_short {
        // Each of them takes a descriptor of the broker, until it has none left.
        for _ in 0..200 {
            silent.extend(Client::dial(broker.address).await);
        }
        receipts(round, "without descriptors", 300).await;
        happened.short_of_descriptors += 1;
    }
    if random.bool() && ground.is_small {
        ground.fill();
        let before = round.seen.lock().unwrap().refused;
        wait(round, "on a full disk", |seen| seen.refused > before).await;
        if random.bool() {
            happened.killed_full += 1;
        } else {
            ground.drain();
            receipts(round, "after the disk had room again", random.usize(1..300)).await;
            happened.recovered += 1;
        }
    }
    round.is_over.store(true, Ordering::SeqCst);
    let (said, _) = ground.end("KILL");
    assert!(!said.contains("panicked"), "{said}");
    drop(silent);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    let (done, refused, compactions) = operator.join().unwrap();
    happened.calls_done += done;
    happened.calls_refused += refused;
    happened.compactions += compactions;
    ground.drain();
}

async fn receipts(round: &Round, when: &str, more: usize) {
    let enough = round.seen.lock().unwrap().given.len() + more;
    wait(round, when, |seen| seen.given.len() >= enough).await;
}

async fn wait(round: &Round, when: &str, mut is_so: impl FnMut(&Seen) -> bool) {
    let waited = timeout(PATIENCE, async {
        while !is_so(&round.seen.lock().unwrap()) {
            round.news.notified().await;
        }
    });
    waited.await.unwrap_or_else(|_| {
        let (number, refused) = (round.number, round.seen.lock().unwrap().refused);
        panic!("nothing more {when} in round {number}, {refused} refused")
    });
}

/// Makes admin calls until the round is over. Returns the numbers of successes, refusals and
/// started compactions.
fn operate(
    admin: &str,
    mut random: Rng,
    is_short: bool,
    is_over: &AtomicBool,
) -> (usize, usize, usize) {
    let long = "x".repeat(220);
    let nested = [vec![b'['; 125], vec![b']'; 125]].concat();
    let (mut done, mut refused, mut compactions) = (0, 0, 0);
    while !is_over.load(Ordering::SeqCst) {
        let topic = format!("{NAMESPACE}/t{}", random.u8(0..4));
        let subscription = format!("{NAMESPACE}/{TOPIC}/subscription/s{}", random.u8(0..2));
        let (method, path, body): (&str, String, &[u8]) = match random.u8(0..14) {
            0 => ("PUT", format!("{NAMESPACE}/{long}/partitions"), b"3"),
            1 => ("POST", format!("{topic}/persistence"), &nested),
            2 => ("PUT", topic, b""),
            3 => ("DELETE", format!("{topic}?force=true"), b""),
            4 => ("PUT", format!("{topic}/partitions"), b"3"),
            5 => ("DELETE", format!("{topic}/partitions?force=true"), b""),
            6 => ("PUT", subscription, b""),
            7 => ("DELETE", format!("{subscription}?force=true"), b""),
            8 => ("POST", format!("{topic}/retention"), b"{\"retentionTimeInMinutes\": \"x\"}"),
            9 => ("GET", format!("{NAMESPACE}/{TOPIC}/stats"), b""),
            // An unload disconnects producers and consumers, which could not reconnect while there
            // are no descriptors.
            10 if !is_short => ("PUT", format!("{NAMESPACE}/{TOPIC}/unload"), b""),
            _ => ("PUT", format!("{NAMESPACE}/{VIEW}/compaction"), b""),
        };
        let is_compaction = path.ends_with("/compaction");
        match call(admin, method, &path, body) {
            200..=299 => {
                done += 1;
                compactions += usize::from(is_compaction);
            }
            0 => {}
            _ => refused += 1,
        }
    }
    (done, refused, compactions)
}

/// Compares the stored messages with those seen, and returns them. Needs no writes.
async fn check(broker: &Running, seen: &Mutex<Seen>) -> BTreeMap<Id, u64> {
    for subscription in ["keeps", "works"] {
        read(broker.address, subscription, 0).await.unwrap();
    }
    let kept = read(broker.address, "keeps", backlog(broker, "keeps")).await.unwrap();
    let left = read(broker.address, "works", backlog(broker, "works")).await.unwrap();
    let values = read_values(broker.address).await.unwrap();
    let seen = seen.lock().unwrap();
    for (what, list) in [("receipt", &seen.receipts), ("delivery", &seen.shown)] {
        for (id, number) in list {
            assert_eq!(kept.get(id), Some(number), "a {what} of {id:?}: {}", broker.said);
        }
    }
    let returned = kept.keys().find(|&&id| Some(id) <= seen.skipped);
    assert_eq!(returned, None, "it was skipped, and the answer was seen");
    let back = seen.confirmed.iter().find(|&id| left.contains_key(id));
    assert_eq!(back, None, "acknowledged, and the answer was seen");
    let lost = kept.keys().find(|&id| !left.contains_key(id) && !seen.acked.contains(id));
    assert_eq!(lost, None, "nobody has acknowledged it");
    for key in 0..KEYS {
        let (kept, confirmed) = (values.get(&key), seen.values.get(&key));
        assert!(kept >= confirmed, "key {key}: {kept:?}, and {confirmed:?} was confirmed");
    }
    drop(seen);
    kept
}

/// Deletes compared messages to make room for another round.
fn settle(broker: &Running, seen: &Mutex<Seen>, kept: &BTreeMap<Id, u64>) {
    let mut seen = seen.lock().unwrap();
    let path = format!("{NAMESPACE}/{TOPIC}/subscription/keeps/skip_all");
    assert_eq!(call(&broker.admin, "POST", &path, b""), 204);
    assert_eq!(backlog(broker, "keeps"), 0);
    seen.skipped = kept.keys().next_back().copied().or(seen.skipped);
    seen.receipts.clear();
    seen.shown.clear();
    for name in ["s0", "s1"] {
        let path = format!("{NAMESPACE}/{TOPIC}/subscription/{name}?force=true");
        call(&broker.admin, "DELETE", &path, b"");
    }
    // Nothing of a topic is deleted during its compaction.
    call(&broker.admin, "PUT", &format!("{NAMESPACE}/{VIEW}"), b"");
    let path = format!("{NAMESPACE}/{VIEW}/compactionThreshold");
    assert_eq!(call(&broker.admin, "POST", &path, b"1000000"), 204);
}

/// The number of unacknowledged messages of a subscription.
fn backlog(broker: &Running, subscription: &str) -> usize {
    let path = format!("{NAMESPACE}/{TOPIC}/stats");
    let stats = ground::get(&broker.admin, &path);
    let backlog = &stats["subscriptions"][subscription]["msgBacklog"];
    usize::try_from(backlog.as_u64().unwrap_or_else(|| panic!("{stats}"))).unwrap()
}

/// At the end the broker stops when asked to, and its next start finds nothing half-written.
async fn ends_well(ground: &mut Ground, seen: &Mutex<Seen>) {
    let broker = ground.start("-n 1024");
    let kept = check(&broker, seen).await;
    settle(&broker, seen, &kept);
    ground.refuses_a_second();
    let (said, status) = ground.end("TERM");
    assert_eq!(status, "0", "{said}");
    let broker = ground.start("-n 1024");
    assert!(!broker.said.contains("dropped"), "nothing was being written: {}", broker.said);
    check(&broker, seen).await;
    let (said, status) = ground.end("TERM");
    assert_eq!(status, "0", "{said}");
}

//! Each cause, the state that leads to it, and its sentence.

use super::cause::Known;
use super::*;
use crate::client::tasks::{TaskLease, WorkerInfo};
use longhaul_core::protocol::key::{Epoch, OwnerId};
use longhaul_core::protocol::register::{
    Document, DocumentKey, DocumentName, Gate, GateKind, Hold, HoldKey, KeyKind, KeyName, Period,
    RegisterEntry, Stamp, Ticket,
};
use longhaul_core::task::{Position, WorkerIdentity};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const NOW: u64 = 1_792_000_000_000;

const fn id(entry: u64) -> TaskId {
    TaskId { ledger: 1, entry, partition: -1, batch_index: None }
}

fn info(status: TaskStatus) -> TaskInfo {
    TaskInfo {
        id: id(9),
        status,
        created_ms: NOW - 60_000,
        changed_ms: NOW - 60_000,
        due_ms: None,
        attempts: 0,
        epoch: 0,
        owner: None,
        worker: None,
        lease: None,
        cancel_requested: false,
        progress: None,
        waits_for: Vec::new(),
        tags: Vec::new(),
        task_type: None,
        key: None,
        reason: None,
        cause: None,
    }
}

fn worker(name: &str, slots: Option<u32>, running: usize, missed: u64) -> WorkerInfo {
    let mut identity = WorkerIdentity::named(name);
    (identity.instance, identity.slots) = (name.to_owned(), slots);
    identity.grants_leases = slots.is_none();
    WorkerInfo {
        partition: -1,
        owner: format!("owner of {name}"),
        identity: Some(Arc::new(identity)),
        started_ms: None,
        max_attempts: None,
        last_heartbeat_ms: Some(NOW - 3_000),
        missed_heartbeats: missed,
        holds_leases: false,
        running: (0..running as u64).map(id).collect(),
    }
}

/// A queue with one idle worker and nothing else.
struct Bench {
    info: TaskInfo,
    properties: BTreeMap<String, String>,
    register: Register,
    read: u64,
    workers: Vec<WorkerInfo>,
    open: Vec<String>,
    before: Option<TaskId>,
    ahead: u64,
}

impl Bench {
    fn new(status: TaskStatus) -> Self {
        Self {
            info: info(status),
            properties: BTreeMap::new(),
            register: Register::default(),
            read: 0,
            workers: vec![worker("w1", Some(4), 0, 0)],
            open: Vec::new(),
            before: None,
            ahead: 0,
        }
    }

    fn stamp(&self) -> Stamp {
        Stamp { writer: OwnerId(7), serial: self.read }
    }

    fn read(&mut self, entry: &RegisterEntry) {
        self.read += 1;
        let position = Position { ledger: 5, entry: self.read, batch_index: None };
        self.register.apply_at(entry, position, NOW - 1_000);
    }

    fn settings(&mut self, json: &'static str) {
        let (name, stamp) = (DocumentName::queue_settings(), self.stamp());
        let key = DocumentKey { name, version: 1, stamp };
        self.read(&RegisterEntry::Document(Document { key, content: json.into() }));
    }

    fn bind(&mut self, key: &str, task: u64, overwrites: bool) {
        let name = KeyName::new(KeyKind::Dedupe, key).unwrap();
        let (task, stamp) = (QueueTask::normal(id(task)), self.stamp());
        let key = HoldKey { name, period: Period(0), epoch: Epoch(1), task, stamp };
        self.read(&RegisterEntry::Bind(Hold { key, digest: None, overwrites }));
    }

    fn ticket(&mut self, kind: GateKind, key: Option<&str>, task: u64) {
        let gate = Gate { kind, key: key.map(Into::into) };
        let ticket = Ticket { gate, task: id(task), owner: OwnerId(1), stamp: self.stamp() };
        self.read(&RegisterEntry::Ticket(ticket, "tasks".into()));
    }

    fn why(&self) -> Why {
        let settings = self.register.settings();
        let known = Known {
            now_ms: NOW,
            task: QueueTask::normal(self.info.id),
            topic: "tasks",
            info: &self.info,
            facts: &TaskFacts::read(&self.properties),
            register: &self.register,
            settings: &settings,
            workers: &self.workers,
            open: self.open.clone(),
            before: self.before,
            ahead: self.ahead,
        };
        Why {
            task: self.info.id,
            status: self.info.status,
            cause: known.cause(),
            limits: TaskLimits::default(),
            at_ms: NOW,
        }
    }

    #[track_caller]
    fn says(&self, sentence: &str) {
        assert_eq!(self.why().to_string(), sentence);
    }
}

#[test]
fn times_that_are_ahead() {
    let mut bench = Bench::new(TaskStatus::Scheduled);
    bench.info.due_ms = Some(NOW + 3_661_000);
    bench.says("it is scheduled: it may begin in 1h 1m (2026-10-14T18:47:41Z)");
    let mut bench = Bench::new(TaskStatus::Retrying);
    (bench.info.due_ms, bench.info.attempts) = (Some(NOW + 40_000), 2);
    bench.says("attempt 2 has ended without a result; the next one may begin in 40s (2026-10-14T17:47:20Z)");
}

#[test]
fn workers_that_are_not_there_or_busy() {
    let mut bench = Bench::new(TaskStatus::Ready);
    bench.says("it is ready, and no task of its priority is before it; 1 worker is alive");
    bench.ahead = 2;
    bench.says("it is ready, and 2 ready tasks are before it; 1 worker is alive");
    bench.workers = vec![worker("w1", Some(4), 4, 0), worker("w2", Some(8), 8, 1)];
    bench.says("all 12 slots of 2 workers are busy; 2 ready tasks are before it");
    bench.workers = vec![worker("gate", None, 0, 0)];
    bench.settings(r#"{"paused": true}"#);
    bench.says("the queue is paused; resume it with `longhaul queue resume`");
    bench.register = Register::default();
    bench.workers.push(worker("w1", Some(4), 4, 0));
    bench.says("all 4 slots of 1 worker are busy; 2 ready tasks are before it");
    bench.workers.pop();
    bench.says("no worker serves the queue: only 1 gateway is alive, and no worker there asks for this task; start a worker");
    bench.workers = vec![worker("w1", Some(4), 0, 2)];
    bench.workers[0].last_heartbeat_ms = Some(NOW - 240_000);
    bench.says("no worker is alive: the last heartbeat was 4m ago; start a worker");
    bench.workers.clear();
    bench.says("no worker of the queue is alive; start a worker");
}

/// A worker has an owner id on each partition, but shares its slots.
#[test]
fn the_slots_of_a_worker_count_once_over_all_partitions() {
    let mut bench = Bench::new(TaskStatus::Ready);
    bench.workers = vec![worker("w1", Some(4), 1, 0), worker("w1", Some(4), 3, 0)];
    bench.workers[1].partition = 7;
    bench.says("all 4 slots of 1 worker are busy");
}

#[test]
fn other_tasks_that_come_first() {
    let mut bench = Bench::new(TaskStatus::Waiting);
    bench.info.waits_for = (1..=8).map(|entry| id(entry).to_string()).collect();
    bench.open = bench.info.waits_for[..6].to_vec();
    bench.says("it waits for 6 of 8 tasks: 1:1:-1, 1:2:-1, 1:3:-1, 1:4:-1, 1:5:-1 and 1 more");
    let mut bench = Bench::new(TaskStatus::Ready);
    bench.before = Some(id(3));
    bench.says("the queue runs one task per order key at a time, and 1:3:-1 comes first");
}

#[test]
fn keys_that_other_tasks_hold() {
    for overwrites in [false, true] {
        let mut bench = Bench::new(TaskStatus::Ready);
        bench.properties.insert("DEDUPE_KEY".to_owned(), "k".to_owned());
        bench.bind("k", 3, false);
        bench.bind("k", 9, overwrites);
        bench.says(if overwrites {
            "task 1:3:-1 holds the key `k`; this task replaces it as soon as it is over"
        } else {
            "task 1:3:-1 holds the key `k`: the next worker that sees this task closes it as a duplicate"
        });
    }
}

#[test]
fn a_pause_and_limits() {
    let mut bench = Bench::new(TaskStatus::Ready);
    bench.settings(r#"{"paused": true}"#);
    bench.says("the queue is paused; resume it with `longhaul queue resume`");

    let mut bench = Bench::new(TaskStatus::Ready);
    bench.properties.insert("LIMIT_KEY".to_owned(), "tenant-7".to_owned());
    bench.settings(r#"{"perKey": {"maxInFlight": 2}}"#);
    for task in 1..=3 {
        bench.ticket(GateKind::Slots, Some("tenant-7"), task);
    }
    let full = "the limit of the key `tenant-7` is reached: 2 of 2 run, and";
    bench.says(&format!("{full} 1 task is before it"));
    bench.ticket(GateKind::Slots, Some("tenant-7"), 9);
    bench.ticket(GateKind::Slots, Some("tenant-7"), 10);
    bench.says(&format!("{full} 1 task is before it"));

    let mut bench = Bench::new(TaskStatus::Ready);
    bench.settings(r#"{"rate": {"tokens": 1, "per": "PT10S"}}"#);
    bench.ticket(GateKind::Pace, None, 1);
    bench.says(
        "the limit of the queue is reached: the next start is allowed in 9s (2026-10-14T17:46:49Z)",
    );
}

#[test]
fn a_task_that_runs_and_one_that_is_over() {
    let mut bench = Bench::new(TaskStatus::Running);
    bench.info.owner = Some("owner of w1".to_owned());
    bench.info.worker = bench.workers[0].identity.clone();
    bench.says("`w1` has been running it for 1m; its last heartbeat is 3s old, and after two intervals without one another worker takes the task over");
    bench.workers[0].missed_heartbeats = 2;
    bench.says("`w1` has been running it for 1m; the worker has been silent for 3s, and no other worker is alive; start a worker");
    bench.workers.push(worker("w2", Some(4), 0, 0));
    bench.says("`w1` has been running it for 1m; the worker has been silent for 3s, so another worker takes the task over");
    // Earlier, nobody learned that a takeover waited for a slot, or at a limit.
    bench.workers[1].running = (0..4).map(id).collect();
    bench.says("`w1` has been running it for 1m; the worker has been silent for 3s, and another worker takes the task over as soon as it may: all 4 slots of 1 worker are busy");
    bench.settings(r#"{"paused": true}"#);
    bench.says("`w1` has been running it for 1m; the worker has been silent for 3s, and another worker takes the task over as soon as it may: the queue is paused; resume it with `longhaul queue resume`");
    bench.register = Register::default();
    bench.workers[1].running.clear();
    bench.settings(r#"{"rate": {"tokens": 1, "per": "PT10S"}}"#);
    bench.ticket(GateKind::Pace, None, 1);
    bench.says("`w1` has been running it for 1m; the worker has been silent for 3s, and another worker takes the task over as soon as it may: the limit of the queue is reached: the next start is allowed in 9s (2026-10-14T17:46:49Z)");
    bench.register = Register::default();
    (bench.info.owner, bench.info.worker) = (None, None);
    bench.says("a worker that the ledger does not name has been running it for 1m");
    let (worker, lease_time) = (Arc::from("ann"), Duration::from_secs(30));
    bench.info.lease = Some(TaskLease { worker, lease_time, expires_ms: NOW + 20_000 });
    bench.says("`ann` leased it 1m ago; without a keep-alive the attempt fails in 20s (2026-10-14T17:47:00Z)");
    bench.info.status = TaskStatus::Completed;
    bench.says("the task is over: completed");
    let mut bench = Bench::new(TaskStatus::Ready);
    bench.info.cancel_requested = true;
    bench.says("its cancellation was requested: the next worker that sees the task closes it");
}

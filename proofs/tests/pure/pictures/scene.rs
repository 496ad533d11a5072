//! Two workers and a task: the stored and read entries, row by row.

use longhaul::testing::{Plan, Surroundings, prepare};
use longhaul::topics::TopicNames;
use longhaul::{EntryId, TaskContext, TaskError, TaskMetadata, TaskProcessor, Text, WorkerConfig};
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{ClaimKind, Entry};
use longhaul_core::protocol::fold::{IgnoredReason, TaskFold, Verdict};
use longhaul_memory::{Faults, Happening, MachineClock, MemoryBroker, MemoryTransport};
use longhaul_transport::{Message, Outgoing, TopicPartition};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

/// The lanes of a picture, from left to right.
pub(super) const LANES: [&str; 6] =
    ["submitter", "worker A", "worker B", "task topic", "ledger", "metadata topic"];
pub(super) const SUBMITTER: usize = 0;
pub(super) const A: usize = 1;
pub(super) const B: usize = 2;
pub(super) const TASKS: usize = 3;
pub(super) const LEDGER: usize = 4;
pub(super) const METADATA: usize = 5;

/// The task arrives when both workers have read the ledger.
const BEGIN: Duration = Duration::from_secs(2);
/// The trouble of worker A begins this long after the submit.
const TROUBLE: Duration = Duration::from_secs(13);
/// How long worker A is cut off: long enough to replace it, and too short for worker B to end the
/// task.
const AWAY: Duration = Duration::from_secs(25);
const SUBSCRIPTION: &str = "longhaul";
/// A heartbeat.
const ALIVE: &str = "alive";

/// The scenes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Play {
    Claim,
    /// Worker A is killed.
    Takeover,
    /// Worker A is cut off and goes on working.
    Zombie,
}

impl Play {
    const fn works(self) -> Duration {
        Duration::from_secs(match self {
            Self::Claim => 3,
            Self::Takeover | Self::Zombie => 20,
        })
    }
}

/// A row of a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// The time since the submit.
    pub(super) at: Duration,
    pub(super) what: What,
    pub(super) text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// An entry was stored on a topic.
    Stores {
        by: usize,
        on: usize,
        ignored: Option<IgnoredReason>,
    },
    /// An entry has reached these workers.
    Reads {
        by: Vec<usize>,
        on: usize,
    },
    Acks {
        by: usize,
    },
    Begins {
        who: usize,
    },
    Ends {
        who: usize,
    },
    /// A worker has a trouble.
    Happens {
        who: usize,
    },
}

/// Works for a fixed time, and notes its start and end.
#[derive(Clone)]
struct Body {
    who: usize,
    works: Duration,
    broker: MemoryBroker,
    rows: Arc<Mutex<Vec<Row>>>,
}

impl Body {
    fn tell(&self, what: What, text: String) {
        let at = self.broker.clock().now().0;
        self.rows.lock().unwrap().push(Row { at, what, text });
    }
}

impl TaskProcessor for Body {
    type Task = Text;
    type Output = Text;

    async fn process(&self, _task: Text, context: TaskContext) -> Result<Text, TaskError> {
        self.tell(What::Begins { who: self.who }, format!("attempt {} begins", context.attempt()));
        tokio::time::sleep(self.works).await;
        self.tell(What::Ends { who: self.who }, "the work is done".to_owned());
        Ok(Text("done".to_owned()))
    }
}

/// A worker. It stops when this is dropped.
struct Worker {
    transport: MemoryTransport,
    tasks: JoinSet<()>,
    _handle: longhaul::WorkerHandle,
}

async fn start(broker: &MemoryBroker, names: &TopicNames, body: Body) -> Worker {
    let clock = MachineClock::start(broker.clock().wall_ms(), Duration::from_secs(86_400), 0);
    let clock = clock.clock();
    let transport = broker.connect_with_clock(LANES[body.who], clock);
    let seed = body.who as u64;
    let plan = Plan::new(WorkerConfig::default(), names.clone(), body).unwrap();
    let gate = transport.gate();
    let around = Surroundings {
        transport: Arc::new(transport.clone()),
        clock,
        rng: fastrand::Rng::with_seed(seed),
        gate: gate.clone(),
        bodies: tokio::runtime::Handle::current(),
    };
    let (run, handle) = prepare(plan, around).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(gate.wrap(run));
    Worker { transport, tasks, _handle: handle }
}

/// Plays the scene in paused time.
pub(super) fn run(play: Play) -> Vec<Row> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(perform(play))
}

async fn perform(play: Play) -> Vec<Row> {
    let broker = MemoryBroker::new(7, Faults { prefetch: 0, ..Faults::quiet() });
    let names: TopicNames = "tasks".parse().unwrap();
    for (topic, deduplication) in [
        (&names.register, true),
        (&names.dead_letters, false),
        (&names.metadata, false),
        (&names.ledger, true),
        (&names.task, false),
    ] {
        broker.create_topic(topic, None, deduplication);
    }
    let at = |topic: &str| TopicPartition { topic: topic.to_owned(), partition: -1 };
    let task_topic = at(&names.task);
    broker.create_subscription(&task_topic, SUBSCRIPTION);
    let rows = Arc::default();
    let body =
        |who| Body { who, works: play.works(), broker: broker.clone(), rows: Arc::clone(&rows) };
    let mut first = start(&broker, &names, body(A)).await;
    // The broker gives the task to the worker that started first.
    let second = start(&broker, &names, body(B)).await;
    tokio::time::sleep(BEGIN).await;
    let begin = broker.clock().now().0;
    let payload = "Hello".into();
    broker.publish(&task_topic, Outgoing { payload, ..Outgoing::default() });
    tokio::time::sleep(TROUBLE).await;
    match play {
        Play::Claim => {}
        Play::Takeover => {
            body(A).tell(What::Happens { who: A }, "killed".to_owned());
            first.tasks.abort_all();
            first.transport.kill();
        }
        Play::Zombie => {
            body(A).tell(What::Happens { who: A }, "cut off, and works on".to_owned());
            first.transport.freeze_for(AWAY);
            tokio::time::sleep(AWAY).await;
            body(A).tell(What::Happens { who: A }, "back".to_owned());
        }
    }
    tokio::time::sleep(Duration::from_secs(80)).await;
    drop((first, second));
    let told = rows.lock().unwrap().clone();
    let topics =
        [(TASKS, at(&names.task)), (LEDGER, at(&names.ledger)), (METADATA, at(&names.metadata))];
    let mut rows = shown(&broker, &topics, begin, told);
    let is_alive = |row: &Row| row.text == ALIVE;
    // Heartbeats of worker B are left out, and those of worker A while it has no trouble.
    let is_told = |row: &Row| {
        row.what == What::Stores { by: A, on: LEDGER, ignored: None } && play != Play::Claim
    };
    rows.retain(|row| !is_alive(row) || is_told(row));
    while rows.last().is_some_and(is_alive) {
        rows.pop();
    }
    rows
}

/// The rows, from the entries that the broker has stored and delivered.
fn shown(
    broker: &MemoryBroker,
    topics: &[(usize, TopicPartition)],
    begin: Duration,
    told: Vec<Row>,
) -> Vec<Row> {
    let mut texts = BTreeMap::new();
    for (lane, at) in topics {
        let mut fold = TaskFold::default();
        for message in broker.full_log(at) {
            let position = message.position;
            let id = EntryId { ledger: position.ledger, entry: position.entry };
            if let Some(text) = described(*lane, &message, &mut fold) {
                texts.insert((at.to_string(), id), (*lane, text));
            }
        }
    }
    let lane = |name: &str| LANES.iter().position(|lane| *lane == name).unwrap_or(SUBMITTER);
    let history = broker.history();
    let mut rows = Vec::new();
    for event in history.events() {
        let of = |partition: &Arc<str>, entry: EntryId| texts.get(&(partition.to_string(), entry));
        let (what, text) = match &event.what {
            Happening::Stored { by, partition, entry, .. } => {
                let Some((on, (text, ignored))) = of(partition, *entry) else { continue };
                (What::Stores { by: lane(by), on: *on, ignored: *ignored }, text.clone())
            }
            Happening::Received { by, partition, position, .. } => {
                let entry = EntryId { ledger: position.ledger, entry: position.entry };
                let Some((on, (text, _))) = of(partition, entry) else { continue };
                if *on == METADATA || text == ALIVE {
                    continue;
                }
                let text =
                    if *on == TASKS { "delivered".to_owned() } else { format!("read: {text}") };
                (What::Reads { by: vec![lane(by)], on: *on }, text)
            }
            Happening::Acked { by, partition, entry, .. } if of(partition, *entry).is_some() => {
                (What::Acks { by: lane(by) }, "acknowledged".to_owned())
            }
            Happening::Sent { .. }
            | Happening::Acked { .. }
            | Happening::Followed { .. }
            | Happening::Fetched { .. }
            | Happening::Unread { .. }
            | Happening::Missed { .. }
            | Happening::Note(_) => continue,
        };
        rows.push(Row { at: event.at.0, what, text });
    }
    // Starts come after the entries read at the same time, because these cause them.
    rows.extend(told);
    rows.retain(|row: &Row| row.at >= begin);
    rows.sort_by_key(|row| (row.at, !matches!(row.what, What::Happens { .. })));
    rows.iter_mut().for_each(|row| row.at -= begin);
    together(rows)
}

/// Merges rows: an entry read by both workers at the same time, and an entry that a worker writes
/// twice because the first copy was not confirmed.
fn together(rows: Vec<Row>) -> Vec<Row> {
    let mut found: Vec<Row> = Vec::new();
    for row in rows {
        let same = |last: &&mut Row| last.at == row.at && last.text == row.text;
        match (&row.what, found.iter_mut().rev().find(same)) {
            (
                What::Reads { by, on: LEDGER },
                Some(Row { what: What::Reads { by: others, .. }, .. }),
            ) => {
                others.extend(by);
                others.sort_unstable();
                others.dedup();
            }
            (What::Stores { .. }, Some(last)) if last.what == row.what => {}
            _ => found.push(row),
        }
    }
    found
}

/// A short text for an entry, and the reason if it has no effect. `None` for clean-up entries.
fn described(
    lane: usize,
    message: &Message,
    fold: &mut TaskFold,
) -> Option<(String, Option<IgnoredReason>)> {
    match lane {
        TASKS => Some(("a task".to_owned(), None)),
        METADATA => {
            let entry: TaskMetadata = serde_json::from_slice(&message.payload).ok()?;
            let state = serde_json::to_value(entry.state).ok()?;
            Some((format!("{}, attempt {}", state.as_str()?, entry.attempts), None))
        }
        _ => {
            let entry = ledger::read(message).unwrap();
            let text = match &entry {
                Entry::Claim(claim) => {
                    let kind = if claim.kind == ClaimKind::Run { "claim" } else { "closing claim" };
                    format!("{kind}: epoch {}, attempt {}", claim.key.epoch.0, claim.attempt)
                }
                Entry::Done(done) => {
                    format!("done: epoch {}, {:?}", done.key.epoch.0, done.outcome)
                }
                Entry::Heartbeat(_) => return Some((ALIVE.to_owned(), None)),
                Entry::Cancel(_)
                | Entry::Checkpoint(_)
                | Entry::Renewal(_)
                | Entry::Seal(_)
                | Entry::Config(_)
                | Entry::Tombstone(_) => return None,
            };
            let ignored = match fold.apply(&entry) {
                Verdict::Accepted => None,
                Verdict::Ignored(reason) => Some(reason),
            };
            Some((text, ignored))
        }
    }
}

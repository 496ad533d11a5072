//! A crowd: several gateway processes, and HTTP workers and submitters that use them.

mod callers;
mod gateways;
mod history;
mod holding;
mod linear;
mod log;
mod told;
mod verdict;

use super::bench::{Folder, SETTLE_PAUSE, may_pass, set_up, whole};
use super::reading::{Tail, ledger_entry, read_whole, view_entry};
use super::{Options, Row, wall_ms};
use crate::sandbox::{Admin, Sandbox};
use anyhow::{Context, Result, ensure};
use callers::Callers;
use gateways::{COUNT, Gateways};
use holding::LEASE_TIME;
use log::Log;
use longhaul::topics::{AdminOptions, TopicNames, TopicSettings};
use longhaul::{Client, TaskId};
use longhaul_core::protocol::entry::Outcome;
use longhaul_session::{ConnectOptions, PulsarTransport};
use proofs::checkers::{History, Report, Run, Violation, check};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use told::{Answered, Leased, Plan, Shown, Submitted};
use verdict::{ATTEMPTS, Evidence};

/// The queue's name.
const QUEUE: &str = "crowd";

/// The time limit for the tasks to end after the last fault.
const END_LIMIT: Duration = Duration::from_secs(300);

/// The time after which everything is shown: 2 heartbeat intervals, and the delays by rank.
pub(super) const SETTLED: Duration = Duration::from_secs(60);

/// The size of a crowd.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// The fewest tasks submitted.
    pub(super) tasks: usize,
    pub(super) workers: usize,
    pub(super) submitters: usize,
    /// Between two submits of one submitter.
    pub(super) submit_every: Duration,
    pub(super) kill_every: Duration,
    /// Tasks are submitted until this many gateways were killed.
    pub(super) kills_min: usize,
    /// The time limit until all ends are shown. The gateway that wrote a lease's end shows it; if
    /// it was killed first, another one does, 2 heartbeat intervals (20 s) later. With a shorter
    /// limit, ends left to killed gateways are not judged.
    pub(super) settle_max: Duration,
}

/// The environment of a crowd. Dropping it kills the gateways.
#[derive(Debug)]
pub(super) struct Crowd {
    size: Size,
    seed: u64,
    sandbox: Sandbox,
    /// An admin API that answers although a broker of a cluster is dead.
    pub(super) admin: Admin,
    transport: PulsarTransport,
    pub(super) names: TopicNames,
    gateways: Gateways,
    callers: Arc<Callers>,
    /// Of the gateways' logs.
    folder: Folder,
}

/// The time of a fault of a broker, in ms of the wall clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    pub(super) what: &'static str,
    /// When it was killed.
    pub(super) at_ms: u64,
    /// When it was gone: requests sent later and accepted were served without it.
    pub(super) gone_ms: u64,
}

/// The accepted requests of the crowd.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Callers>);

impl Progress {
    /// Whether a submit and a report sent after this time were accepted.
    pub(super) fn is_after(&self, ms: u64) -> bool {
        let accepted = &self.0.accepted;
        let times = [&accepted.submit_ms, &accepted.report_ms];
        times.iter().all(|at| at.load(Ordering::Relaxed) > ms)
    }
}

/// All answers.
struct Answers {
    leases: Vec<Leased>,
    submits: Vec<Submitted>,
    kills: usize,
    outages: Vec<Outage>,
    from_ms: u64,
}

impl Crowd {
    /// Gateways in front of a Pulsar, for their own namespace: they look after all its queues.
    /// `bundles` is the number of the namespace's bundles.
    pub(super) async fn new(
        sandbox: &Sandbox,
        admins: &str,
        bundles: Option<u32>,
        size: Size,
        options: &Options,
    ) -> Result<Self> {
        let topic = sandbox.topic("crowd");
        let (_, name) = topic.rsplit_once('/').context("a topic has a name")?;
        let namespace = format!("public/{name}");
        let body = bundles.map(|count| json!({ "bundles": { "numBundles": count } }));
        let path = format!("namespaces/{namespace}");
        sandbox.admin().call(Method::PUT, &path, body.as_ref()).await?;
        let names = TopicNames::new(&format!("persistent://{namespace}/{QUEUE}"), "longhaul")?;
        let admin = longhaul::topics::Admin::new(admins, &AdminOptions::default())?;
        set_up(&admin, &names, &TopicSettings::default()).await?;
        let url = sandbox.service_url();
        let transport = PulsarTransport::connect(ConnectOptions::new(url)).await?;
        let folder = Folder::new(options, "crowd")?;
        let gateways = Gateways::start(&folder.path, (url, admins), &namespace).await?;
        let callers = Arc::new(Callers::new(gateways.urls(), QUEUE)?);
        let (sandbox, admin, seed) = (sandbox.clone(), sandbox.admin().clone(), options.seed);
        Ok(Self { size, seed, sandbox, admin, transport, names, gateways, callers, folder })
    }

    /// Runs all callers while gateways are killed and `outages` happen; then judges.
    pub(super) async fn run(
        mut self,
        options: &Options,
        outages: impl AsyncFnOnce(&TopicNames, Progress) -> Result<(Vec<Outage>, Admin)>,
    ) -> Result<Row> {
        let answers = self.work(outages).await?;
        let mut row = Row::new("crowd", options);
        self.tell(&answers, &mut row);
        self.judge(answers, &mut row).await?;
        if options.keep.is_some() {
            row.figure("kept_in", self.folder.path.display().to_string());
        }
        Ok(row)
    }

    async fn work(
        &mut self,
        outages: impl AsyncFnOnce(&TopicNames, Progress) -> Result<(Vec<Outage>, Admin)>,
    ) -> Result<Answers> {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let ((calm, _), (over, _)) = (watch::channel(false), watch::channel(false));
        let (mut working, mut submitting) = (JoinSet::new(), JoinSet::new());
        let from_ms = wall_ms();
        for number in 0..self.size.workers {
            let caller = Arc::clone(&self.callers);
            working.spawn(caller.work(format!("worker-{number}"), rng.fork(), over.subscribe()));
        }
        let next = Arc::new(AtomicUsize::new(0));
        for _ in 0..self.size.submitters {
            let (caller, next) = (Arc::clone(&self.callers), Arc::clone(&next));
            let Size { tasks, submit_every, .. } = self.size;
            submitting.spawn(caller.submit(next, tasks, calm.subscribe(), submit_every));
        }
        let (mut killed, kills_min) = (self.gateways.killed(), self.size.kills_min);
        let kills = self.gateways.kill_in_turn(self.size.kill_every, over.subscribe());
        let (transport, names) = (self.transport.clone(), &self.names);
        let progress = Progress(Arc::clone(&self.callers));
        let lead = async {
            let (outages, admin) = outages(names, progress).await?;
            killed.wait_for(|kills| *kills >= kills_min).await?;
            calm.send_replace(true);
            let submits = all(submitting).await?;
            let count = read_whole(&transport, &whole(&names.task)).await?.len();
            let mut tail = Tail::new(transport, whole(&names.ledger));
            // The verdict reports tasks that have not ended by then.
            tail.until(END_LIMIT, |tail| tail.ended >= count).await;
            over.send_replace(true);
            Ok((submits, outages, admin))
        };
        let (kills, leases, (submits, outages, admin)) =
            tokio::try_join!(kills, all(working), lead)?;
        self.admin = admin;
        Ok(Answers { leases, submits, kills, outages, from_ms })
    }

    /// Adds the figures, and the minimums that make the run conclusive.
    fn tell(&self, answers: &Answers, row: &mut Row) {
        let Answers { leases, submits, kills, outages, from_ms } = answers;
        let count = |plan: Option<Plan>, answered: &dyn Fn(&Answered) -> bool| {
            let of = leases.iter().filter(|it| plan == Some(it.plan) || plan.is_none());
            of.filter(|it| it.answered().is_some_and(answered)).count()
        };
        let counts = |it: &Answered| *it == Answered::Counts;
        let refused = |it: &Answered| matches!(it, Answered::Refused(_));
        row.figure("seconds", wall_ms().saturating_sub(*from_ms) / 1000);
        row.figure("tasks", submits.len());
        row.figure("workers", self.size.workers);
        row.figure("kills", *kills);
        row.figure("failed_starts", self.gateways.failed_starts);
        row.figure("leases", leases.len());
        row.figure("hung", count(Some(Plan::Hang), &|_| true));
        row.figure("failures_accepted", count(Some(Plan::Fail), &counts));
        row.figure("successes_accepted", count(None, &counts) - count(Some(Plan::Fail), &counts));
        row.figure("hung_accepted", count(Some(Plan::Hang), &counts));
        row.figure("refused", count(None, &refused));
        let mut codes: BTreeMap<&str, usize> = BTreeMap::new();
        for leased in leases {
            if let Some(Answered::Refused(code)) = leased.answered() {
                *codes.entry(code).or_default() += 1;
            }
        }
        row.figure("refused_with", format!("{codes:?}"));
        row.figure("reports_repeated", leases.iter().filter(|it| it.tries.len() > 1).count());
        row.figure("submits_repeated", submits.iter().filter(|it| it.tries.len() > 1).count());
        row.figure("troubles", format!("{:?}", self.callers.troubles()));
        for outage in outages {
            let [submit, report] = [first_submit(submits, outage), first_report(leases, outage)];
            for (what, ms) in [("submit", submit), ("report", report)] {
                row.figure(&format!("{}_to_first_{what}_ms", outage.what), ms);
            }
        }
        for (what, count, least) in [
            ("refused reports", count(None, &refused), 1),
            ("leases that hung", count(Some(Plan::Hang), &|_| true), 1),
            ("accepted failures", count(Some(Plan::Fail), &counts), 1),
            ("tasks", submits.len(), self.size.tasks),
            ("kills", *kills, self.size.kills_min),
        ] {
            row.floor(what, count, least);
        }
        history::judge(submits, leases, &self.callers.looks()).tell(self.size.tasks, row);
    }

    /// Checks log and gateways, once everything has settled.
    async fn judge(&self, answers: Answers, row: &mut Row) -> Result<()> {
        let (from_ms, mut waited) = (wall_ms(), Duration::ZERO);
        let (history, log, mut report) = loop {
            let tasks = read_whole(&self.transport, &whole(&self.names.task)).await?;
            let history = self.history(&answers.leases, &tasks).await?;
            let report = check(&history);
            if !self.may_settle(&report, waited) {
                let log = Log::read(&tasks, &history);
                break (history, log, report);
            }
            for gateway in 0..COUNT {
                self.callers.knock(gateway).await?;
            }
            tokio::time::sleep(SETTLE_PAUSE).await;
            waited += SETTLE_PAUSE;
        };
        row.figure("settled_after_ms", wall_ms() - from_ms);
        let left = self.left_to_the_dead(&mut report, answers.kills);
        row.figure("left_to_the_dead", left.len());
        row.judged(&report);
        row.refused(&self.gateways.logs()?);
        row.figure("messages", history.tasks.len());
        row.figure("duplicates", history.tasks.len().saturating_sub(answers.submits.len()));
        row.figure("granted_in_vain", log.epochs.len().saturating_sub(answers.leases.len()));
        row.spread("expired_past_deadline", past_deadline(&log, &answers.leases));
        let client = Client::connect(self.sandbox.service_url()).await?;
        let verified = client.queue(&self.names.task).verify().await?;
        if verified.broken > 0 || verified.tasks != history.tasks.len() as u64 {
            row.violations.push(format!("verify: {verified:?}"));
        }
        let Answers { leases, submits, .. } = answers;
        let mut evidence = Evidence { leases, submits, log, left, ..Evidence::default() };
        for gateway in 0..COUNT {
            evidence.shown.push(self.shown(gateway).await?);
            evidence.letters.push(self.letters(gateway).await?);
        }
        row.violations.extend(verdict::judge(&evidence));
        Ok(())
    }

    /// Whether the violations may still disappear. Ends left to killed gateways are awaited for the
    /// time in the size; their unacknowledged messages are redelivered, which takes a busy Pulsar
    /// longer than that.
    fn may_settle(&self, report: &Report, waited: Duration) -> bool {
        let differs = |it: &&Violation| matches!(it, Violation::ViewDiffers(..));
        let left = report.violations.iter().filter(differs).count() as u64;
        let comes_back = |it: &Violation| matches!(it, Violation::Backlog(count) if *count > left);
        let comes_back = report.violations.iter().any(comes_back);
        let limit = if comes_back { SETTLED } else { self.size.settle_max };
        waited < limit && report.violations.iter().any(may_pass)
    }

    /// Removes ends from the report that are not shown yet because they are left to killed
    /// gateways, if those are not awaited.
    fn left_to_the_dead(&self, report: &mut Report, kills: usize) -> BTreeSet<TaskId> {
        let mut left = BTreeSet::new();
        if self.size.settle_max >= SETTLED {
            return left;
        }
        for violation in &report.violations {
            if let Violation::ViewDiffers(task, _) = violation {
                left.insert(*task);
            }
        }
        // Each worker has at most one lease that may end at the moment of a kill.
        let most = kills * self.size.workers;
        if left.len() <= most {
            let acks = left.len() as u64;
            report.violations.retain(|it| {
                !matches!(it, Violation::ViewDiffers(..))
                    && !matches!(it, Violation::Backlog(count) if *count <= acks)
            });
        }
        left
    }

    async fn history(
        &self,
        leases: &[Leased],
        tasks: &[longhaul_transport::Message],
    ) -> Result<History> {
        // In this order: later topics may only be behind earlier ones in what they show.
        let view = read_whole(&self.transport, &whole(&self.names.metadata)).await?;
        let ledger = read_whole(&self.transport, &whole(&self.names.ledger)).await?;
        Ok(History {
            tasks: tasks.iter().map(|message| TaskId::new(message.position, -1)).collect(),
            ledger: ledger.into_iter().map(ledger_entry).collect(),
            compacted: None,
            view: view.iter().map(view_entry).collect(),
            runs: leases.iter().map(run).collect(),
            max_attempts: ATTEMPTS,
            backlog: self.admin.backlog(&self.names.task).await?,
        })
    }

    async fn shown(&self, gateway: usize) -> Result<BTreeMap<TaskId, Shown>> {
        let tasks = self.callers.list(gateway, "tasks", "tasks").await?;
        let shown = tasks.iter().map(|task| {
            let id = task.get("id").and_then(Value::as_str).with_context(|| task.to_string())?;
            Ok((id.parse()?, Shown::read(task)?))
        });
        let shown: Vec<(TaskId, Shown)> = shown.collect::<Result<_>>()?;
        let count = shown.len();
        let by_id: BTreeMap<_, _> = shown.into_iter().collect();
        ensure!(by_id.len() == count, "gateway {gateway} lists tasks twice");
        Ok(by_id)
    }

    async fn letters(&self, gateway: usize) -> Result<Vec<TaskId>> {
        let letters = self.callers.list(gateway, "dead", "dead_letters").await?;
        let task = |letter: &Value| -> Result<TaskId> {
            let task = letter.get("task").and_then(Value::as_str);
            Ok(task.with_context(|| letter.to_string())?.parse()?)
        };
        letters.iter().map(task).collect()
    }
}

/// The results of all tasks. The first error ends the others.
async fn all<T: 'static>(mut tasks: JoinSet<Result<Vec<T>>>) -> Result<Vec<T>> {
    let mut found = Vec::new();
    while let Some(returned) = tasks.join_next().await {
        found.extend(returned??);
    }
    Ok(found)
}

/// A granted lease, for the checkers.
fn run(leased: &Leased) -> Run {
    Run {
        worker: leased.worker.clone(),
        task: leased.task,
        epoch: leased.epoch,
        attempt: leased.attempt,
        started_us: leased.granted_ms * 1000,
        cancelled_us: None,
        ended_us: leased.tries.last().map(|last| last.answered_ms * 1000),
    }
}

fn first_submit(submits: &[Submitted], outage: &Outage) -> Option<u64> {
    first(submits.iter().flat_map(|it| &it.tries), outage)
}

fn first_report(leases: &[Leased], outage: &Outage) -> Option<u64> {
    first(leases.iter().flat_map(|it| &it.tries), outage)
}

/// The time from a kill until the first accepted request that was sent after the process was gone.
fn first<'a>(tries: impl Iterator<Item = &'a told::Try>, outage: &Outage) -> Option<u64> {
    let accepted =
        tries.filter(|it| it.answered == Answered::Counts && it.sent_ms > outage.gone_ms);
    accepted.map(|it| it.answered_ms.saturating_sub(outage.at_ms)).min()
}

/// How long after their deadlines hanging leases were ended, in ms, by the publishers' clocks.
fn past_deadline(log: &Log, leases: &[Leased]) -> Vec<u64> {
    let hung = leases.iter().filter(|it| it.plan == Plan::Hang);
    let logged = hung.filter_map(|it| log.epochs.get(&(it.task, it.epoch)));
    let late = logged.filter_map(|epoch| {
        let ended = epoch.ended.as_ref()?;
        let failed = matches!(ended.outcome, Outcome::Failed(_) | Outcome::Final);
        let lease_ms = u64::try_from(LEASE_TIME.as_millis()).ok()?;
        failed.then(|| ended.at_ms.saturating_sub(epoch.claimed_ms + lease_ms))
    });
    late.collect()
}

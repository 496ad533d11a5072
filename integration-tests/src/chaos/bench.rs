//! One scenario's topics, workers and tasks.

use super::compactor::Compactor;
use super::fleet::{Fleet, Settings};
use super::load::{Script, send};
use super::reading::{Tail, last_entry, ledger_entry, read_compacted, read_whole, view_entry};
use super::{Host, Options, Row, deduplication, losses};
use crate::example::program;
use crate::sandbox::Sandbox;
use anyhow::Result;
use longhaul::TaskId;
use longhaul::topics::{Admin, AdminOptions, TopicNames, TopicSettings, setup};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{Message, TopicPartition};
use proofs::checkers::{Compacted, History, Report, Run, Violation, check};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// The time limit for acks and repairs of the metadata topic after the last task has ended.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);
/// How often the setup of topics is tried on a broker that does not answer.
const SETUPS_MAX: u32 = 5;
pub(super) const SETTLE_PAUSE: Duration = Duration::from_millis(500);

/// See the module's documentation. Dropping it kills the workers.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) fleet: Fleet,
    pub(super) rng: fastrand::Rng,
    pub(super) transport: PulsarTransport,
    pub(super) names: TopicNames,
    pub(super) row: Row,
    pub(super) settings: Settings,
    /// The intended number of concurrent tasks.
    pub(super) in_flight: Option<usize>,
    pub(super) sandbox: Sandbox,
    /// Compacts ledger and metadata topic from the start.
    pub(super) compactor: Compactor,
    /// The ledger as it grows.
    pub(super) tail: Tail,
    _folder: Folder,
}

impl Bench {
    /// Topics that keep everything for the checkers, and are compacted all the time.
    pub(super) async fn new(
        host: &Host,
        scenario: &str,
        options: &Options,
        settings: Settings,
    ) -> Result<Self> {
        let mut bench = Self::plain(host, scenario, options, settings).await?;
        bench.compactor.keep_all().await?;
        bench.compactor.start(options.short);
        Ok(bench)
    }

    /// Topics as set up for users.
    pub(super) async fn plain(
        host: &Host,
        scenario: &str,
        options: &Options,
        settings: Settings,
    ) -> Result<Self> {
        let sandbox = host.sandbox().clone();
        let url = sandbox.service_url().to_owned();
        let transport = PulsarTransport::connect(ConnectOptions::new(&url)).await?;
        let names = TopicNames::new(&sandbox.topic(scenario), "longhaul")?;
        let admin = Admin::new(sandbox.admin().url(), &AdminOptions::default())?;
        let ledger_retention = settings.ledger_retention;
        let topics = TopicSettings { ledger_retention, ..TopicSettings::default() };
        set_up(&admin, &names, &topics).await?;
        if options.no_deduplication {
            deduplication::switch_off(&sandbox, &admin, &names).await?;
        }
        let compactor = Compactor::new(sandbox.admin().clone(), &names);
        let folder = Folder::new(options, scenario)?;
        let program = program("scripted", &folder.path).await?;
        let fleet = Fleet::new(&program, &folder.path, &url, &names.task, &settings);
        let tail = Tail::new(transport.clone(), whole(&names.ledger));
        Ok(Self {
            fleet,
            rng: fastrand::Rng::with_seed(options.seed),
            transport,
            names,
            row: Row::new(scenario, options),
            settings,
            in_flight: options.in_flight,
            sandbox,
            compactor,
            tail,
            _folder: folder,
        })
    }

    /// Submits tasks like a plain producer, and returns their ids.
    pub(super) async fn submit(&self, scripts: Vec<Script>) -> Result<Vec<TaskId>> {
        send(&self.transport, &self.task_topic(), scripts).await
    }

    pub(super) fn task_topic(&self) -> TopicPartition {
        whole(&self.names.task)
    }

    pub(super) fn ledger_topic(&self) -> TopicPartition {
        whole(&self.names.ledger)
    }

    pub(super) fn view_topic(&self) -> TopicPartition {
        whole(&self.names.metadata)
    }

    /// Waits until this many tasks have ended, or the limit is over: the checkers report missing
    /// ones.
    pub(super) async fn wait_ended(&mut self, count: usize, limit: Duration) -> bool {
        self.tail.until(limit, |tail| tail.ended >= count).await
    }

    /// Waits up to `limit` until every task has ended and been acknowledged, and runs the checkers.
    pub(super) async fn finish(&mut self, limit: Duration) -> Result<(History, Report)> {
        let tasks = read_whole(&self.transport, &self.task_topic()).await?.len();
        self.wait_ended(tasks, limit).await;
        self.compactor.stop().await;
        let (history, report) = self.settled(&self.names).await?;
        self.row.judged(&report);
        self.compactor.tell(&mut self.row);
        let heartbeat = self.settings.heartbeat;
        let logs = self.fleet.logs()?;
        self.row.refused(&logs);
        losses::note(&mut self.row, &logs, &history, &report, heartbeat);
        Ok((history, report))
    }

    /// The logs of the queue, or of one of its levels, after a time for acks and repairs of the
    /// metadata topic.
    pub(super) async fn settled(&self, names: &TopicNames) -> Result<(History, Report)> {
        let mut waited = Duration::ZERO;
        loop {
            let history = self.history(names).await?;
            let report = check(&history);
            if waited >= SETTLE_LIMIT || !report.violations.iter().any(may_pass) {
                return Ok((history, report));
            }
            tokio::time::sleep(SETTLE_PAUSE).await;
            waited += SETTLE_PAUSE;
        }
    }

    /// The history of the tasks of the queue, or of one of its levels.
    async fn history(&self, names: &TopicNames) -> Result<History> {
        let compacted = self.compacted(&names.ledger).await?;
        let tasks = read_whole(&self.transport, &whole(&names.task)).await?;
        // In this order: later topics may only be behind earlier ones in what they show.
        let view = read_whole(&self.transport, &whole(&names.metadata)).await?;
        let ledger = read_whole(&self.transport, &whole(&names.ledger)).await?;
        let task_id = |message: &Message| TaskId::new(message.position, -1);
        let tasks: Vec<TaskId> = tasks.iter().map(task_id).collect();
        let known: BTreeSet<TaskId> = tasks.iter().copied().collect();
        // Workers with levels run the tasks of all levels.
        let is_one = |run: &Run| !self.settings.levels || known.contains(&run.task);
        Ok(History {
            tasks,
            ledger: ledger.into_iter().map(ledger_entry).collect(),
            compacted,
            view: view.iter().map(view_entry).collect(),
            runs: self.fleet.runs()?.into_iter().filter(is_one).collect(),
            max_attempts: self.settings.max_attempts,
            backlog: self.sandbox.admin().backlog(&names.task).await?,
        })
    }

    /// Compacts the ledger and reads the rest; `None` if it is empty.
    async fn compacted(&self, ledger: &str) -> Result<Option<Compacted>> {
        let topic = whole(ledger);
        let Some(horizon) = last_entry(&self.transport, &topic).await? else { return Ok(None) };
        self.compactor.compact_one(ledger).await?;
        let view = read_compacted(&self.transport, &topic).await?;
        let ledger = view.into_iter().map(ledger_entry).collect();
        Ok(Some(Compacted { horizon, ledger }))
    }

    pub(super) fn into_row(self) -> Row {
        self.row
    }
}

/// Sets the topics up. A broker that has just started may be too slow; the setup resumes where it
/// stopped.
pub(super) async fn set_up(
    admin: &Admin,
    names: &TopicNames,
    topics: &TopicSettings,
) -> Result<()> {
    let mut tries = 1;
    while let Err(cause) = setup(admin, names, topics).await {
        if tries == SETUPS_MAX {
            return Err(cause.into());
        }
        tries += 1;
    }
    Ok(())
}

/// Violations that may disappear: the last acks and repairs are in progress.
pub(super) const fn may_pass(violation: &Violation) -> bool {
    matches!(
        violation,
        Violation::ViewDiffers(..) | Violation::Backlog(_) | Violation::ViewAhead(..)
    )
}

pub(super) fn whole(topic: &str) -> TopicPartition {
    TopicPartition { topic: topic.to_owned(), partition: -1 }
}

/// A folder for logs and journals. Removed at the end, unless kept.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    _temporary: Option<TempDir>,
}

impl Folder {
    pub(super) fn new(options: &Options, scenario: &str) -> Result<Self> {
        let Some(keep) = &options.keep else {
            let folder = tempfile::tempdir()?;
            return Ok(Self { path: folder.path().to_owned(), _temporary: Some(folder) });
        };
        let path = keep.join(format!("{scenario}-{}-{}", options.seed, super::wall_ms()));
        std::fs::create_dir_all(&path)?;
        Ok(Self { path, _temporary: None })
    }
}

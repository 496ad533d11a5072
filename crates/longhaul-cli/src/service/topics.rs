//! The topics of a queue: setup, correction, checks and compaction. A gateway has routes to create
//! and show topics, which do and show less.

use super::{no_queue, short_topic};
use crate::output::{TableRow, Tone};
use longhaul::Client;
use longhaul::topics::{CompactionState, CompactionStatus, TopicFinding};
use longhaul_api::topics::FindingBody;
use serde::Serialize;

/// The result of a setup.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TopicSetupReport {
    pub(crate) steps: Vec<String>,
    pub(crate) findings: Vec<FindingBody>,
    pub(crate) dry_run: bool,
}

/// A difference from the required settings.
pub(crate) fn finding_body(finding: TopicFinding) -> FindingBody {
    FindingBody {
        severity: finding.severity.to_string(),
        topic: finding.topic,
        what: finding.what,
        risk: finding.risk,
        remedy: finding.remedy,
    }
}

/// The fields of a finding, for people.
pub(crate) fn finding_fields(finding: &FindingBody) -> [(&'static str, String); 4] {
    [
        ("found", format!("{}: {}", finding.severity, finding.what)),
        ("topic", finding.topic.clone()),
        ("risk", finding.risk.clone()),
        ("remedy", finding.remedy.clone()),
    ]
}

/// The words for compactions that run, and for those that failed.
pub(crate) const RUNNING: &str = "running";
pub(crate) const FAILED: &str = "failed";

/// The progress of a partition's compaction.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CompactionProgress {
    pub(crate) topic: String,
    pub(crate) state: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) error: String,
}

impl CompactionProgress {
    pub(crate) fn of(state: CompactionState) -> Self {
        let CompactionState { topic, status, last_error, .. } = state;
        let word = match status {
            CompactionStatus::NotRun => "not run",
            CompactionStatus::Running => RUNNING,
            CompactionStatus::Success => "done",
            CompactionStatus::Error => FAILED,
            CompactionStatus::Unknown | _ => "unknown",
        };
        Self { topic, state: word, error: last_error }
    }
}

impl TableRow for CompactionProgress {
    const HEADS: &'static [&'static str] = &["TOPIC", "COMPACTION", "ERROR"];

    fn cells(&self) -> Vec<String> {
        vec![short_topic(&self.topic).to_owned(), self.state.to_owned(), self.error.clone()]
    }

    fn tone(&self) -> Tone {
        match self.state {
            FAILED => Tone::Bad,
            RUNNING => Tone::Busy,
            _ => Tone::Good,
        }
    }
}

/// The result of a verification.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VerifyReport {
    pub(crate) sound: bool,
    pub(crate) tasks: u64,
    pub(crate) ledger_entries: u64,
    pub(crate) metadata_entries: u64,
    pub(crate) malformed: u64,
    pub(crate) late: u64,
    pub(crate) broken: u64,
    pub(crate) findings: Vec<InvariantFinding>,
    /// Places with possibly unread entries.
    pub(crate) unread: Vec<String>,
}

/// An entry that breaks an invariant.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct InvariantFinding {
    pub(crate) invariant: String,
    pub(crate) task: Option<String>,
    pub(crate) topic: &'static str,
    pub(crate) partition: i32,
    pub(crate) position: String,
    pub(crate) what: String,
}

impl TableRow for InvariantFinding {
    const HEADS: &'static [&'static str] =
        &["INVARIANT", "TASK", "TOPIC", "PARTITION", "POSITION", "WHAT"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.invariant.clone(),
            self.task.clone().unwrap_or_default(),
            self.topic.to_owned(),
            self.partition.to_string(),
            self.position.clone(),
            self.what.clone(),
        ]
    }

    fn tone(&self) -> Tone {
        Tone::Bad
    }
}

/// Checks every entry of a queue against the invariants of the protocol.
pub(crate) async fn verify(client: &Client, queue: &str) -> anyhow::Result<VerifyReport> {
    if !client.queue(queue).exists().await? {
        return Err(no_queue(short_topic(queue)).into());
    }
    let found = client.queue(queue).verify().await?;
    let name = super::tasks::namer(queue);
    let broken = |it: longhaul::ops::BrokenInvariant| InvariantFinding {
        invariant: it.id.to_owned(),
        task: it.task.map(&name),
        topic: if it.on_metadata { "metadata" } else { "ledger" },
        partition: it.partition,
        position: format!("{}:{}", it.position.ledger, it.position.entry),
        what: it.what,
    };
    Ok(VerifyReport {
        sound: found.is_sound() && found.unread.is_empty(),
        tasks: found.tasks,
        ledger_entries: found.ledger_entries,
        metadata_entries: found.metadata_entries,
        malformed: found.malformed,
        late: found.late,
        broken: found.broken,
        findings: found.findings.into_iter().map(broken).collect(),
        unread: found.unread,
    })
}

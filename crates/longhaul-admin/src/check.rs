//! Reports topic properties that do not meet the protocol's needs. Changes nothing.

mod existence;
mod listed;
mod unfit;

use super::admin::Admin;
use super::http::AdminError;
use super::observe::{Observed, TopicRole, TopicState, in_words, observe};
use super::policy::{Policy, PolicySource};
use super::rules::{COMPACTION_THRESHOLD_BYTES, Unmet, unmet};
use super::settings::TopicSettings;
use super::setup::plan;
use listed::{indexes, listed};
use longhaul_core::topics::{DEAD_LETTER_SUBSCRIPTION, TopicNames, TopicParts};
use std::fmt;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Works, but less well, or not for ever.
    Warning,
    /// Tasks may run twice, get lost, or stop.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// Kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FindingKind {
    /// The topic does not exist.
    TopicMissing,
    /// Some partitions of the topic do not exist.
    PartitionsMissing,
    /// The topic, or some of its partitions, accepts no more messages for good.
    TopicTerminated,
    /// The topic has fewer partitions than the task topic, or one of the two has none at all.
    PartitionsDiffer,
    /// The workers' subscription, or a durable one on the dead letters, does not exist.
    SubscriptionMissing,
    /// The workers' subscription does not exist, but the ledger has its tasks.
    SubscriptionLost,
    /// Deduplication is off on the ledger or the task topic.
    DeduplicationOff,
    /// The broker deletes messages too early.
    RetentionTooShort,
    /// The broker deletes messages too late.
    RetentionTooLong,
    /// The broker never compacts the topic.
    CompactionThreshold,
    /// Nothing keeps uncompacted entries from being deleted.
    CompactionCursor,
    /// The broker acknowledges messages when they reach an age.
    MessageTtl,
    /// The broker stops deliveries at this number of unacknowledged messages.
    UnackedLimit,
    /// The broker deletes the topic when it is unused.
    DeleteWhileInactive,
    /// The broker has no topic-level policies, so the effective ones are only partly known.
    PoliciesDisabled,
    /// The broker cannot write while a single bookie is down.
    Ensemble,
    /// The broker refuses producers without a schema; most of longhaul's have none.
    SchemaEnforced,
    /// The broker refuses producers that do not encrypt; longhaul's do not.
    EncryptionRequired,
    /// The topic is replicated to other clusters.
    Replicated,
    /// The broker stops producers, or skips messages, when a subscription has too many unread
    /// messages.
    BacklogQuota,
}

/// A property that does not meet the protocol's needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicFinding {
    /// Full name of the topic.
    pub topic: String,
    /// Kind, for callers that branch on it.
    pub kind: FindingKind,
    /// Severity.
    pub severity: Severity,
    /// The value found and the value needed.
    pub what: String,
    /// The risk.
    pub risk: String,
    /// The remedy.
    pub remedy: String,
}

impl fmt::Display for TopicFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, severity, what, risk, remedy, .. } = self;
        write!(f, "{severity}: {topic}: {what}\n  risk: {risk}\n  remedy: {remedy}")
    }
}

/// Reports properties that do not meet the protocol's needs, the most severe first. During a
/// failover of the cluster it retries for [`FAILOVER_TIME_MAX`](super::FAILOVER_TIME_MAX).
///
/// ```no_run
/// # mod longhaul { pub mod topics { pub use longhaul_admin::*; pub use longhaul_core::topics::*; } }
/// use longhaul::topics::{Admin, AdminOptions, TopicNames, TopicSettings, check};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let admin = Admin::new("http://localhost:8080", &AdminOptions::default())?;
/// let names: TopicNames = "tasks".parse()?;
/// for finding in check(&admin, &names, &TopicSettings::default()).await? {
///     println!("{finding}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The admin API cannot be reached, or refuses.
pub async fn check(
    admin: &Admin,
    names: &TopicNames,
    settings: &TopicSettings,
) -> Result<Vec<TopicFinding>, AdminError> {
    let observed = observe(&admin.retrying(), names, settings).await?;
    Ok(findings(&observed, names, settings))
}

/// Result of the check before a worker starts.
#[derive(Debug)]
pub struct StartCheck {
    /// The findings, the most severe first.
    pub findings: Vec<TopicFinding>,
    /// Partitions of [`FindingKind::SubscriptionLost`]; -1 for a topic without partitions.
    pub lost: Vec<i32>,
    /// Whether [`setup`](super::setup) would change anything about the findings.
    pub can_be_set_up: bool,
}

/// Like [`check`], for a worker that is about to start.
///
/// # Errors
/// As [`check`].
pub async fn check_for_start(
    admin: &Admin,
    names: &TopicNames,
    settings: &TopicSettings,
) -> Result<StartCheck, AdminError> {
    let observed = observe(&admin.retrying(), names, settings).await?;
    let partitioned = observed.task.as_ref().is_some_and(|task| task.shape.is_some());
    let index = |index| if partitioned { i32::try_from(index).unwrap_or(i32::MAX) } else { -1 };
    let lost = observed.lost_subscriptions().into_iter().map(index).collect();
    let replaying = TopicSettings { replay: true, ..settings.clone() };
    let can_be_set_up = plan(&observed, names, &replaying).is_ok_and(|steps| !steps.is_empty());
    Ok(StartCheck { findings: findings(&observed, names, settings), lost, can_be_set_up })
}

/// Judges the observed state. Pure.
pub(super) fn findings(
    observed: &Observed,
    names: &TopicNames,
    settings: &TopicSettings,
) -> Vec<TopicFinding> {
    let mut findings = Vec::new();
    for role in TopicRole::ALL {
        let judge = Judge { role, topic: role.topic(names), names };
        match observed.topic(role) {
            None => findings.push(judge.topic_missing()),
            Some(state) => {
                findings.extend(judge.partitions_missing(state));
                findings.extend(judge.terminated(state));
                findings.extend(judge.partitions_differ(state, observed.task.as_ref(), settings));
                findings.extend(judge.policies(state, settings, observed.bookies));
                findings.extend(judge.compaction_cursor(state));
                findings.extend(judge.ensemble(state, observed.bookies));
                findings.extend(judge.traits(&state.traits));
            }
        }
    }
    findings.extend(subscription(observed, names, settings));
    findings.extend(dead_letter_subscription(observed, names));
    let Observed { task, ledger, metadata, register, dead_letters, .. } = observed;
    let topics = [task, ledger, metadata, register, dead_letters];
    if topics.into_iter().flatten().any(|topic| topic.policies.source == PolicySource::Namespace) {
        let judge = Judge { role: TopicRole::Task, topic: &names.task, names };
        findings.push(judge.policies_disabled());
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// Judges one topic.
struct Judge<'a> {
    role: TopicRole,
    topic: &'a str,
    names: &'a TopicNames,
}

impl Judge<'_> {
    fn finding(
        &self,
        kind: FindingKind,
        severity: Severity,
        what: String,
        risk: &str,
        remedy: String,
    ) -> TopicFinding {
        TopicFinding {
            topic: self.topic.to_owned(),
            kind,
            severity,
            what,
            risk: risk.to_owned(),
            remedy,
        }
    }

    fn setup(&self) -> String {
        setup_command(self.names)
    }

    fn partitions_differ(
        &self,
        state: &TopicState,
        task: Option<&TopicState>,
        settings: &TopicSettings,
    ) -> Option<TopicFinding> {
        let task = task?;
        let (found, needed) = (in_words(state.shape), in_words(task.shape));
        let (what, remedy) = match (self.role, state.shape, task.shape) {
            (TopicRole::Task, count, _) => {
                let wanted = settings.partitions?;
                if count == Some(wanted) {
                    return None;
                }
                let what = format!("the topic has {found}, the settings say {wanted}");
                // Any other mismatch needs a different topic or setting.
                let grows = count.is_some_and(|count| count < wanted);
                let remedy = if grows {
                    self.setup()
                } else {
                    format!("set partitions to what the topic has ({found}), or use another topic")
                };
                let risk = "tasks are spread over other partitions than planned";
                return Some(self.finding(
                    FindingKind::PartitionsDiffer,
                    Severity::Warning,
                    what,
                    risk,
                    remedy,
                ));
            }
            (TopicRole::Register | TopicRole::DeadLetters, None, _) => return None,
            (TopicRole::Register, Some(_), _) => (
                format!("the topic has {found}, but a register must have none"),
                format!("stop the workers, delete {}, then {}", self.topic, self.setup()),
            ),
            (TopicRole::DeadLetters, Some(_), _) => {
                let what = format!("the topic has {found}, but a dead-letter topic must have none");
                let risk =
                    "the broker refuses dead letters, and tasks that failed for good stay open";
                let remedy = format!(
                    "if its messages are not needed, delete {} and {}; or use another dead-letter topic",
                    self.topic,
                    self.setup()
                );
                let kind = FindingKind::PartitionsDiffer;
                return Some(self.finding(kind, Severity::Error, what, risk, remedy));
            }
            (_, None, None) => return None,
            (_, Some(have), Some(need)) if have >= need => return None,
            (_, Some(_), Some(_)) => {
                (format!("the topic has {found}, the task topic has {needed}"), self.setup())
            }
            _ => {
                let what = format!("the topic has {found}, the task topic has {needed}");
                (what, format!("stop the workers, delete {}, then {}", self.topic, self.setup()))
            }
        };
        let risk = if self.role == TopicRole::Register {
            "workers cannot read it, and take no tasks"
        } else {
            "tasks of the missing partitions are held and never run"
        };
        Some(self.finding(FindingKind::PartitionsDiffer, Severity::Error, what, risk, remedy))
    }

    fn policies(
        &self,
        state: &TopicState,
        settings: &TopicSettings,
        bookies: Option<u32>,
    ) -> Vec<TopicFinding> {
        let mut findings = Vec::new();
        for unmet in unmet(self.role, &state.policies, settings, bookies) {
            let remedy = self.policy_remedy(&unmet, state.policies.source);
            findings.push(self.finding(unmet.kind, unmet.severity, unmet.what, unmet.risk, remedy));
        }
        findings
    }

    fn policy_remedy(&self, unmet: &Unmet, source: PolicySource) -> String {
        let Ok(topic) = TopicParts::parse(self.topic) else { return self.setup() };
        let too_long = unmet.kind == FindingKind::RetentionTooLong;
        let too_short = unmet.kind == FindingKind::RetentionTooShort;
        match source {
            // Setup does not lower a retention, because that deletes messages.
            PolicySource::Applied if too_long => {
                format!("if older messages are not needed: {}", unmet.policy.request(topic))
            }
            PolicySource::Applied => self.set(&unmet.policy),
            // Tasks and ledger need different retentions, and usually share the namespace.
            PolicySource::Namespace if self.role == TopicRole::Task && (too_long || too_short) => {
                self.enable()
            }
            PolicySource::Namespace => {
                format!("{}, or {}", self.enable(), unmet.policy.namespace_request(topic))
            }
        }
    }

    fn policies_disabled(&self) -> TopicFinding {
        let what = "topic-level policies are disabled at the broker: only those of the namespace are known";
        let risk = "a default in the broker's configuration may cause problems that this check does not find";
        let kind = FindingKind::PoliciesDisabled;
        self.finding(kind, Severity::Warning, what.to_owned(), risk, self.enable())
    }

    fn enable(&self) -> String {
        format!("set topicLevelPoliciesEnabled=true at the brokers and {}", self.setup())
    }

    fn compaction_cursor(&self, state: &TopicState) -> Option<TopicFinding> {
        if !self.role.is_compacted() || state.policies.compaction_threshold_bytes == 0 {
            // Without a threshold there is no cursor; the threshold is already reported.
            return None;
        }
        let missing = indexes(&state.partitions, |partition| {
            partition.exists && !partition.compaction_cursor
        });
        let what = format!("no compaction cursor (`__compaction`) on {}", listed(&missing)?);
        let risk = "the broker deletes entries older than the retention before they are compacted";
        let threshold = Policy::CompactionThreshold { bytes: COMPACTION_THRESHOLD_BYTES };
        let remedy = self.set(&threshold);
        Some(self.finding(FindingKind::CompactionCursor, Severity::Error, what, risk, remedy))
    }

    fn ensemble(&self, state: &TopicState, bookies: Option<u32>) -> Option<TopicFinding> {
        let (ensemble, bookies) = (state.policies.ensemble?, bookies?);
        // A cluster with a single bookie is not expected to survive its loss.
        if bookies < 2 || ensemble < bookies {
            return None;
        }
        let what =
            format!("entries are spread over {ensemble} bookies, but there are only {bookies}");
        let risk = "a single dead bookie stops every publish until it is back";
        let remedy =
            format!("run at least {} bookies, or lower the ensemble below {bookies}", ensemble + 1);
        Some(self.finding(FindingKind::Ensemble, Severity::Warning, what, risk, remedy))
    }

    fn set(&self, policy: &Policy) -> String {
        match TopicParts::parse(self.topic) {
            Ok(parts) => format!("{}, or {}", self.setup(), policy.request(parts)),
            Err(_) => self.setup(),
        }
    }
}

fn setup_command(names: &TopicNames) -> String {
    let (task, name) = (&names.task, names.task.trim_start_matches("persistent://public/default/"));
    format!(
        "set the topics of {task} up with `longhaul topic setup {name}`, or `longhaul::topics::setup` in a program"
    )
}

fn subscription(
    observed: &Observed,
    names: &TopicNames,
    settings: &TopicSettings,
) -> Option<TopicFinding> {
    let task = observed.task.as_ref()?;
    let subscription = &settings.subscription;
    let topic = names.task.clone();
    let severity = Severity::Error;
    let lost = observed.lost_subscriptions();
    if let Some(partitions) = listed(&lost) {
        return Some(TopicFinding {
            topic,
            kind: FindingKind::SubscriptionLost,
            severity,
            what: format!("the subscription `{subscription}` is missing on {partitions}, but the ledger has entries"),
            risk: "the unfinished deliveries are lost, and a new subscription delivers finished tasks again"
                .to_owned(),
            remedy: format!(
                "find out who deleted it; then {} and `replay`, which delivers all messages of the topic again",
                setup_command(names)
            ),
        });
    }
    let missing = indexes(&task.partitions, |partition| partition.exists && !partition.subscribed);
    Some(TopicFinding {
        topic,
        kind: FindingKind::SubscriptionMissing,
        severity,
        what: format!("the subscription `{subscription}` is missing on {}", listed(&missing)?),
        risk: "tasks submitted before the first worker starts may be deleted".to_owned(),
        remedy: setup_command(names),
    })
}

fn dead_letter_subscription(observed: &Observed, names: &TopicNames) -> Option<TopicFinding> {
    let letters = observed.dead_letters.as_ref()?;
    let missing =
        indexes(&letters.partitions, |partition| partition.exists && !partition.subscribed);
    Some(TopicFinding {
        topic: names.dead_letters.clone(),
        kind: FindingKind::SubscriptionMissing,
        severity: Severity::Error,
        what: format!("there is no durable subscription on {}", listed(&missing)?),
        risk: "the broker deletes unhandled dead letters when their retention is over".to_owned(),
        remedy: format!(
            "{}, which creates the subscription `{DEAD_LETTER_SUBSCRIPTION}`, or create one of another name",
            setup_command(names)
        ),
    })
}

#[cfg(test)]
mod tests;

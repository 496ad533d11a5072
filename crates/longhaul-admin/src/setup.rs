//! Sets up the topics of a task topic as the protocol needs them.
//!
//! It works in rounds: observe, plan, act, and observe again, until nothing is left to do. Correct
//! topics stay unchanged, so a second run changes nothing. Setup deletes nothing: it does not lower
//! a retention, except on a topic that it has just created.
//!
//! Invariant: ledger and metadata cover every partition of the task topic before the task topic has
//! it.

use super::admin::Admin;
use super::check::{FindingKind, Severity, TopicFinding, findings};
use super::http::{AdminError, AdminErrorKind};
use super::observe::{Observed, TopicRole, TopicState, in_words, observe, partition_names};
use super::policy::{Policy, PolicySource};
use super::rules::{unmet, wanted};
use super::settings::{TopicSettings, TopicSettingsError};
use longhaul_core::topics::{DEAD_LETTER_SUBSCRIPTION, TopicNameError, TopicNames};
use longhaul_types::classified;
use longhaul_types::error::{Class, ErrorKind};
use std::fmt;
use std::time::Duration;

/// Rounds of planning and acting. One is enough unless someone else changes the topics meanwhile.
const ROUNDS_MAX: usize = 5;
/// How often the result of a completed round is observed. A policy takes effect 3 to 50 ms after it
/// was set.
const LOOKS_MAX: usize = 20;
/// Pause between two observations.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// A change by setup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupStep {
    /// Create a topic.
    CreateTopic {
        /// Full name.
        topic: String,
        /// `None` makes a topic without partitions.
        partitions: Option<u32>,
    },
    /// Raise the number of partitions.
    GrowPartitions {
        /// Full name.
        topic: String,
        /// The new number.
        partitions: u32,
    },
    /// Create the missing partitions of a topic.
    CreateMissingPartitions {
        /// Full name.
        topic: String,
    },
    /// Create the durable subscription, at the earliest message, wherever it is missing.
    CreateSubscription {
        /// Full name.
        topic: String,
        /// Name of the subscription.
        subscription: String,
    },
    /// Set a policy.
    SetPolicy {
        /// Full name.
        topic: String,
        /// The policy.
        policy: Policy,
    },
}

impl fmt::Display for SetupStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateTopic { topic, partitions } => {
                write!(f, "create {topic} with {}", in_words(*partitions))
            }
            Self::GrowPartitions { topic, partitions } => {
                write!(f, "grow {topic} to {partitions} partitions")
            }
            Self::CreateMissingPartitions { topic } => {
                write!(f, "create the missing partitions of {topic}")
            }
            Self::CreateSubscription { topic, subscription } => {
                write!(
                    f,
                    "create the subscription `{subscription}` of {topic} at the earliest message"
                )
            }
            Self::SetPolicy { topic, policy } => write!(f, "set {policy} on {topic}"),
        }
    }
}

/// Result of a setup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetupReport {
    /// Steps in the order they were taken; empty if nothing had to change.
    pub steps: Vec<SetupStep>,
    /// Warnings about properties that setup does not change.
    pub findings: Vec<TopicFinding>,
}

/// Why a setup failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The client has no URL of the admin API.
    #[error(
        "topics are set up through the admin API: give the client its URL with `ClientBuilder::admin_url`"
    )]
    NoAdminUrl,
    /// The task topic's name is invalid.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// The settings are out of range; nothing was changed.
    #[error("the topic settings cannot be used")]
    Settings(#[from] TopicSettingsError),
    /// A call failed. Run setup again: it continues where it stopped.
    #[error("the admin API refused or failed")]
    Admin(#[from] AdminError),
    /// Pulsar can neither remove partitions nor partition an unpartitioned topic; nothing was
    /// changed.
    #[error(
        "{topic} has {found}, which cannot become {wanted}: set it up with {found}, or use another topic"
    )]
    Partitions {
        /// Full name of the topic.
        topic: String,
        /// The partitions found.
        found: String,
        /// The partitions wanted.
        wanted: String,
    },
    /// The subscription is gone although the ledger has its tasks, and `replay` was not set;
    /// nothing was changed.
    #[error("{0}")]
    SubscriptionLost(Box<TopicFinding>),
    /// All steps were taken, and these errors remain.
    #[error("the topics are not set up correctly:{}", lines(.0))]
    Incomplete(Vec<TopicFinding>),
}

classified!(SetupError);

impl SetupError {
    const fn class(&self) -> Class {
        match self {
            Self::NoAdminUrl => (ErrorKind::Misconfigured, "no_admin_api"),
            Self::Topic(_) => (ErrorKind::Invalid, "queue_name_invalid"),
            Self::Settings(_) => (ErrorKind::Invalid, "request_unfit"),
            Self::Admin(error) => error.class(),
            Self::Partitions { .. } => (ErrorKind::Conflict, "partitions_cannot_change"),
            Self::SubscriptionLost(_) => (ErrorKind::NotSetUp, "subscription_lost"),
            Self::Incomplete(_) => (ErrorKind::Refused, "broker_refused"),
        }
    }
}

fn lines(findings: &[TopicFinding]) -> String {
    findings.iter().map(|finding| format!("\n{finding}")).collect()
}

/// Creates and corrects topics; `Queue::setup_topics` does it with the client's settings.
///
/// ```no_run
/// # mod longhaul { pub mod topics { pub use longhaul_admin::*; pub use longhaul_core::topics::*; } }
/// use longhaul::topics::{Admin, AdminOptions, TopicNames, TopicSettings, setup};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let admin = Admin::new("http://localhost:8080", &AdminOptions::default())?;
/// let names: TopicNames = "tasks".parse()?;
/// let settings = TopicSettings { partitions: Some(4), ..TopicSettings::default() };
/// for step in setup(&admin, &names, &settings).await?.steps {
///     println!("{step}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// Creates and changes everything that does not meet the protocol's needs, and verifies the result.
/// During a failover of the cluster it retries for [`FAILOVER_TIME_MAX`](super::FAILOVER_TIME_MAX).
///
/// # Errors
/// See [`SetupError`]. Completed steps are kept.
pub async fn setup(
    admin: &Admin,
    names: &TopicNames,
    settings: &TopicSettings,
) -> Result<SetupReport, SetupError> {
    settings.validate()?;
    let admin = &admin.retrying();
    let mut observed = observe(admin, names, settings).await?;
    let mut steps = Vec::new();
    let mut failed = None;
    for _ in 0..ROUNDS_MAX {
        let round = plan(&observed, names, settings)?;
        if round.is_empty() {
            break;
        }
        failed = take_all(admin, round, &mut steps).await?;
        let looks = if failed.is_some() { 1 } else { LOOKS_MAX };
        observed = settle(admin, names, settings, looks).await?;
    }
    if let Some(failed) = failed
        && !plan(&observed, names, settings)?.is_empty()
    {
        return Err(failed.into());
    }
    let findings = findings(&observed, names, settings);
    let (errors, findings): (Vec<_>, Vec<_>) =
        findings.into_iter().partition(|finding| finding.severity == Severity::Error);
    if errors.is_empty() {
        if !steps.is_empty() {
            tracing::info!(topic = names.task, created = %created(&steps), steps = steps.len(), "topics set up");
        }
        Ok(SetupReport { steps, findings })
    } else {
        Err(SetupError::Incomplete(errors))
    }
}

/// The created topics, for the log.
fn created(steps: &[SetupStep]) -> String {
    let created = steps.iter().filter_map(|step| match step {
        SetupStep::CreateTopic { topic, .. } => Some(topic.as_str()),
        SetupStep::GrowPartitions { .. }
        | SetupStep::CreateMissingPartitions { .. }
        | SetupStep::CreateSubscription { .. }
        | SetupStep::SetPolicy { .. } => None,
    });
    created.collect::<Vec<_>>().join(" ")
}

/// Takes the steps of one round, up to the first failure that another round may resolve: the broker
/// refuses a change that another setup makes at the same moment. Returns that failure.
async fn take_all(
    admin: &Admin,
    round: Vec<SetupStep>,
    taken: &mut Vec<SetupStep>,
) -> Result<Option<AdminError>, AdminError> {
    for step in round {
        tracing::debug!(%step, "topic setup");
        match take(admin, &step).await {
            Ok(()) => taken.push(step),
            Err(e) => match e.kind {
                // The namespace's policies may suffice; the next observation decides.
                AdminErrorKind::PoliciesDisabled => {}
                // A topic that another setup is creating does not exist yet for every call.
                AdminErrorKind::Conflict
                | AdminErrorKind::NotFound
                | AdminErrorKind::Unavailable
                | AdminErrorKind::Other => return Ok(Some(e)),
                AdminErrorKind::Unreachable
                | AdminErrorKind::Unauthorized
                | AdminErrorKind::Invalid => return Err(e),
            },
        }
    }
    Ok(None)
}

/// The steps that [`setup`] would take now. Changes nothing.
///
/// # Errors
/// The errors of [`setup`], except those that only occur while steps are taken.
pub async fn dry_run(
    admin: &Admin,
    names: &TopicNames,
    settings: &TopicSettings,
) -> Result<Vec<SetupStep>, SetupError> {
    settings.validate()?;
    let observed = observe(admin, names, settings).await?;
    plan(&observed, names, settings)
}

/// Observes until nothing is left to do, for at most that many pauses.
async fn settle(
    admin: &Admin,
    names: &TopicNames,
    settings: &TopicSettings,
    looks: usize,
) -> Result<Observed, SetupError> {
    let mut observed = observe(admin, names, settings).await?;
    for _ in 0..looks {
        if plan(&observed, names, settings)?.is_empty() {
            break;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        observed = observe(admin, names, settings).await?;
    }
    Ok(observed)
}

async fn take(admin: &Admin, step: &SetupStep) -> Result<(), AdminError> {
    match step {
        SetupStep::CreateTopic { topic, partitions } => {
            exists_already(admin.create_topic(topic, *partitions).await)
        }
        SetupStep::GrowPartitions { topic, partitions } => {
            admin.grow_partitions(topic, *partitions).await
        }
        SetupStep::CreateMissingPartitions { topic } => {
            admin.create_missing_partitions(topic).await
        }
        SetupStep::CreateSubscription { topic, subscription } => {
            for partition in partition_names(topic, admin.partitions(topic).await?) {
                exists_already(admin.create_subscription(&partition, subscription).await)?;
            }
            Ok(())
        }
        SetupStep::SetPolicy { topic, policy } => admin.set_policy(topic, policy).await,
    }
}

/// Accepts that someone else created it first. The next observation shows any difference.
fn exists_already(result: Result<(), AdminError>) -> Result<(), AdminError> {
    match result {
        Err(e) if e.kind == AdminErrorKind::Conflict => Ok(()),
        other => other,
    }
}

/// The steps from the observed to the wanted state. Pure.
pub(super) fn plan(
    observed: &Observed,
    names: &TopicNames,
    settings: &TopicSettings,
) -> Result<Vec<SetupStep>, SetupError> {
    if !settings.replay {
        let lost = findings(observed, names, settings)
            .into_iter()
            .find(|finding| finding.kind == FindingKind::SubscriptionLost);
        if let Some(lost) = lost {
            return Err(SetupError::SubscriptionLost(Box::new(lost)));
        }
    }
    let shape = wanted_shape(observed.task.as_ref(), &names.task, settings)?;
    let mut steps = Vec::new();
    // The task topic comes last: a task on it must find its partition of the ledger.
    for role in [
        TopicRole::Ledger,
        TopicRole::Metadata,
        TopicRole::Register,
        TopicRole::DeadLetters,
        TopicRole::Task,
    ] {
        let topic = role.topic(names);
        let shape = if role.is_single() { None } else { shape };
        match observed.topic(role) {
            None => steps.extend(creation(role, topic, shape, settings)),
            Some(state) => {
                let policies = policies(role, state, settings, observed.bookies);
                steps.extend(amendment(role, topic, state, shape, settings, policies)?);
            }
        }
    }
    Ok(steps)
}

/// The partitions that the task topic should have.
fn wanted_shape(
    task: Option<&TopicState>,
    topic: &str,
    settings: &TopicSettings,
) -> Result<Option<u32>, SetupError> {
    let Some(task) = task else { return Ok(settings.partitions) };
    match (task.shape, settings.partitions) {
        (found, None) => Ok(found),
        (Some(found), Some(wanted)) if found <= wanted => Ok(Some(wanted)),
        (found, wanted) => Err(impossible(topic, found, wanted)),
    }
}

fn impossible(topic: &str, found: Option<u32>, wanted: Option<u32>) -> SetupError {
    SetupError::Partitions {
        topic: topic.to_owned(),
        found: in_words(found),
        wanted: in_words(wanted),
    }
}

/// All steps for a topic that does not exist.
fn creation(
    role: TopicRole,
    topic: &str,
    shape: Option<u32>,
    settings: &TopicSettings,
) -> Vec<SetupStep> {
    let topic = || topic.to_owned();
    let mut steps = vec![SetupStep::CreateTopic { topic: topic(), partitions: shape }];
    if let Some(subscription) = subscription(role, settings) {
        steps.push(SetupStep::CreateSubscription { topic: topic(), subscription });
    }
    let policies = wanted(role, settings);
    steps
        .extend(policies.into_iter().map(|policy| SetupStep::SetPolicy { topic: topic(), policy }));
    steps
}

/// The durable subscription that a topic gets.
fn subscription(role: TopicRole, settings: &TopicSettings) -> Option<String> {
    match role {
        TopicRole::Task => Some(settings.subscription.clone()),
        TopicRole::DeadLetters => Some(DEAD_LETTER_SUBSCRIPTION.to_owned()),
        TopicRole::Metadata | TopicRole::Ledger | TopicRole::Register => None,
    }
}

/// The steps that an existing topic needs.
fn amendment(
    role: TopicRole,
    topic: &str,
    state: &TopicState,
    shape: Option<u32>,
    settings: &TopicSettings,
    policies: Vec<Policy>,
) -> Result<Vec<SetupStep>, SetupError> {
    let mut steps = Vec::new();
    match (state.shape, shape) {
        (None, None) => {}
        (Some(found), Some(wanted)) if found < wanted => {
            steps.push(SetupStep::GrowPartitions { topic: topic.to_owned(), partitions: wanted });
        }
        (Some(_), Some(_)) => {}
        (found, wanted) => return Err(impossible(topic, found, wanted)),
    }
    if state.partitions.iter().any(|partition| !partition.exists) {
        steps.push(SetupStep::CreateMissingPartitions { topic: topic.to_owned() });
    }
    if let Some(subscription) = subscription(role, settings)
        && state.partitions.iter().any(|partition| !partition.subscribed)
    {
        steps.push(SetupStep::CreateSubscription { topic: topic.to_owned(), subscription });
    }
    if state.policies.source == PolicySource::Applied {
        steps.extend(
            policies
                .into_iter()
                .map(|policy| SetupStep::SetPolicy { topic: topic.to_owned(), policy }),
        );
    }
    Ok(steps)
}

fn policies(
    role: TopicRole,
    state: &TopicState,
    settings: &TopicSettings,
    bookies: Option<u32>,
) -> Vec<Policy> {
    let mut policies: Vec<Policy> = unmet(role, &state.policies, settings, bookies)
        .into_iter()
        // A longer retention may be an archive. Lowering it would delete messages.
        .filter(|unmet| unmet.kind != FindingKind::RetentionTooLong)
        .map(|unmet| unmet.policy)
        .collect();
    let bytes = state.policies.compaction_threshold_bytes;
    let no_cursor = state.partitions.iter().any(|p| p.exists && !p.compaction_cursor);
    if role.is_compacted() && bytes > 0 && no_cursor {
        // The broker creates the cursor when the threshold is set, even to the same value.
        policies.push(Policy::CompactionThreshold { bytes });
    }
    policies
}

#[cfg(test)]
mod tests;

//! A worker's check before it starts and creates anything: whether its topics are as the protocol
//! needs them. It sets up the topics that it can.
//!
//! The policies of topics can be read and set only through the admin API. If none is configured, or
//! it does not answer, the worker starts and logs what is unknown. It refuses to start in one case:
//! the subscription is gone although the ledger has tasks. A new one would deliver finished tasks
//! again, and the state of the old one is lost.

use super::handle::WorkerError;
use super::task_error::chain;
use crate::config::WorkerConfig;
use crate::topics::{
    Admin, AdminError, FAILOVER_TIME_MAX, FindingKind, SetupError, Severity, StartCheck,
    TopicFinding, TopicNames, TopicSettings, check_for_start, like, setup,
};
use crate::transport::{
    Follow, Message, Start, TopicPartition, Transport, TransportError, TransportErrorKind,
};
use longhaul_core::ledger;
use longhaul_core::protocol::entry::Entry;
use longhaul_session::{ConnectOptions, PulsarTransport};
use std::time::Duration;
use tokio::time::timeout;

/// Time limit for all answers of the admin API to a check, and then to a set-up; longer than the
/// check's and the set-up's retries while a cluster fails over.
const ADMIN_TIME_MAX: Duration = Duration::from_secs(FAILOVER_TIME_MAX.as_secs() + 30);
/// How long the ledger may be silent before its end is reached.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// The risk with topics that were not checked.
const RISK: &str = "if the ledger lacks deduplication, compaction or retention, tasks may run \
    twice or lose their outcomes; run `Queue::setup_topics`";

/// Checks a worker's topics before it starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preflight {
    /// The admin API for the check, if it is configured.
    admin: Option<Admin>,
    /// Whether it only checks.
    leaves_alone: bool,
}

impl Preflight {
    pub(crate) const fn new(admin: Option<Admin>) -> Self {
        Self { admin, leaves_alone: false }
    }

    pub(crate) const fn admin(&self) -> Option<&Admin> {
        self.admin.as_ref()
    }

    /// Sets whether it may set topics up.
    pub(super) const fn set_up(&mut self, allowed: bool) {
        self.leaves_alone = !allowed;
    }

    /// Checks the topics through the admin API, sets up what it can, and logs the remaining risks.
    /// Topics of a level of a queue get as many partitions as the queue has.
    ///
    /// # Errors
    /// [`WorkerError::SubscriptionLost`], [`WorkerError::TopicTerminated`], or the ledger has to be
    /// read and cannot be.
    pub(super) async fn look(
        &self,
        options: &ConnectOptions,
        topics: &TopicNames,
        level_of: Option<&TopicNames>,
        config: &WorkerConfig,
    ) -> Result<(), WorkerError> {
        let topic = &topics.task;
        let Some(admin) = &self.admin else {
            // Often the topics are already set up, and the embedded broker does it by itself: no
            // reason to warn.
            tracing::info!(
                topic,
                "no admin URL: the topics are not checked. On Pulsar, set them up once with `Queue::setup_topics`"
            );
            return Ok(());
        };
        let settings = TopicSettings {
            ledger_retention: config.ledger_retention,
            subscription: config.subscription.clone(),
            ..TopicSettings::default()
        };
        let check = async {
            let settings = match level_of {
                Some(queue) => like(admin, &settings, queue, topics).await?,
                None => settings,
            };
            Ok::<_, AdminError>((check_for_start(admin, topics, &settings).await?, settings))
        };
        let cause = match timeout(ADMIN_TIME_MAX, check).await {
            Ok(Ok((checked, settings))) => {
                return self.judge(admin, checked, options, topics, &settings).await;
            }
            Ok(Err(error)) => chain(&error),
            Err(_) => "no answer in time".to_owned(),
        };
        tracing::warn!(topic, cause, "topics not checked: {RISK}");
        Ok(())
    }

    async fn judge(
        &self,
        admin: &Admin,
        checked: StartCheck,
        options: &ConnectOptions,
        topics: &TopicNames,
        settings: &TopicSettings,
    ) -> Result<(), WorkerError> {
        let StartCheck { findings, lost, can_be_set_up } = checked;
        let is_loss = |finding: &TopicFinding| finding.kind == FindingKind::SubscriptionLost;
        let (losses, mut findings): (Vec<_>, Vec<_>) = findings.into_iter().partition(is_loss);
        for finding in losses {
            let transport = PulsarTransport::connect(options.clone()).await?;
            if remembers_tasks(&transport, &topics.ledger, &lost).await? {
                return Err(WorkerError::SubscriptionLost(Box::new(finding)));
            }
            // Another worker is about to create it, or died before it could: it heartbeats first.
            tracing::debug!(
                topic = finding.topic,
                "no subscription yet, and no task in the ledger"
            );
        }
        if can_be_set_up && !self.leaves_alone {
            // The subscription that seemed lost was just found never to have delivered anything.
            let settings = TopicSettings { replay: true, ..settings.clone() };
            let cause = match timeout(ADMIN_TIME_MAX, setup(admin, topics, &settings)).await {
                Ok(Ok(report)) => {
                    findings = report.findings;
                    None
                }
                Ok(Err(SetupError::Incomplete(left))) => {
                    findings = left;
                    None
                }
                Ok(Err(error)) => Some(chain(&error)),
                Err(_) => Some("no answer in time".to_owned()),
            };
            if let Some(cause) = cause {
                tracing::warn!(topic = topics.task, cause, "the topics could not be set up");
            }
        }
        let ended = |finding: &TopicFinding| {
            finding.kind == FindingKind::TopicTerminated && finding.topic != topics.task
        };
        if let Some(ended) = findings.iter().position(ended) {
            return Err(WorkerError::TopicTerminated(Box::new(findings.swap_remove(ended))));
        }
        findings.iter().for_each(tell);
        Ok(())
    }
}

fn tell(finding: &TopicFinding) {
    let TopicFinding { topic, what, risk, remedy, .. } = finding;
    match finding.severity {
        Severity::Error => tracing::warn!(topic, "{what}; at risk: {risk}; remedy: {remedy}"),
        Severity::Warning => tracing::info!(topic, "{what}; at risk: {risk}; remedy: {remedy}"),
    }
}

/// Whether one of these partitions of the ledger contains more than heartbeats and settings.
async fn remembers_tasks(
    transport: &dyn Transport,
    ledger: &str,
    partitions: &[i32],
) -> Result<bool, TransportError> {
    for partition in partitions {
        let topic = TopicPartition { topic: ledger.to_owned(), partition: *partition };
        let follow = Follow { start: Start::Earliest, compacted: true };
        let mut follower = transport.follower(&topic, follow).await?;
        let Some(last) = follower.last_position().await? else { continue };
        loop {
            let message = timeout(SILENCE_MAX, follower.next()).await;
            let message = message.map_err(|_| {
                let cause = "the end of the ledger was not reached in time";
                TransportError::new(TransportErrorKind::Unreachable, &topic, cause)
            })??;
            if is_of_an_attempt(&message) {
                return Ok(true);
            }
            if message.position >= last {
                break;
            }
        }
    }
    Ok(false)
}

/// Whether the message proves that a task was claimed. A cancel proves no delivery: it may come
/// before the first worker.
fn is_of_an_attempt(message: &Message) -> bool {
    matches!(ledger::read(message), Ok(Entry::Claim(_) | Entry::Done(_) | Entry::Checkpoint(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::AdminOptions;

    fn message(key: &str, properties: &[(&str, &str)]) -> Message {
        let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Message {
            key: Some(key.to_owned()),
            properties: properties.iter().map(text).collect(),
            payload: longhaul_core::protocol::body::encode(b""),
            ..Message::at(longhaul_core::task::Position { ledger: 1, entry: 1, batch_index: None })
        }
    }

    #[test]
    fn only_attempts_prove_that_a_subscription_was_there() {
        let owner = "0".repeat(32);
        let once = format!("7:3:-1/1/{owner}/1");
        let of_attempt = [("t", "7:3:-1"), ("e", "1"), ("a", "1"), ("o", owner.as_str())];
        let claim = [[("k", "claim"), ("s", "RUN")].as_slice(), &of_attempt].concat();
        assert!(is_of_an_attempt(&message(&once, &claim)));
        let done = [[("k", "done"), ("s", "COMPLETED")].as_slice(), &of_attempt].concat();
        assert!(is_of_an_attempt(&message(&once, &done)));
        assert!(!is_of_an_attempt(&message("7:3:-1/cancel", &[("k", "cancel"), ("t", "7:3:-1")])));
        assert!(!is_of_an_attempt(&message(&format!("hb/{owner}"), &[("k", "hb")])));
        assert!(!is_of_an_attempt(&message("anything", &[])));
    }

    #[tokio::test]
    async fn an_admin_api_that_does_not_answer_keeps_no_worker_from_starting() {
        let admin = Admin::new("http://127.0.0.1:1", &AdminOptions::default()).unwrap();
        let (topics, config) = ("tasks".parse().unwrap(), WorkerConfig::default());
        let options = ConnectOptions::new("pulsar://127.0.0.1:1");
        for admin in [Some(admin), None] {
            assert!(Preflight::new(admin).look(&options, &topics, None, &config).await.is_ok());
        }
    }
}

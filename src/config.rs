//! The settings of a worker.

use crate::worker::DeadLetterPolicy;
use crate::worker::leasing::LeaseTerms;
use longhaul_core::partition::PartitionSettings;
use longhaul_core::protocol::config::{LEDGER_FORMAT, LedgerConfig};
use longhaul_core::protocol::retry::RetryPolicy;
use longhaul_core::task::WorkerIdentity;
use longhaul_core::task::terms::INTERVALS_MAX;
use std::time::Duration;

/// The settings of a worker. The defaults suit tasks of minutes to hours.
///
/// ```
/// use longhaul::WorkerConfig;
/// use std::time::Duration;
///
/// let mut config = WorkerConfig::default();
/// config.heartbeat = Duration::from_secs(5);
/// assert!(config.validate().is_ok());
/// config.heartbeat = Duration::from_secs(300);
/// let refused = config.validate().unwrap_err();
/// assert_eq!(refused.field, "heartbeat");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerConfig {
    /// The name of the Shared subscription on the task topic; workers with the same name share the
    /// tasks. It is set on the client
    /// ([`ClientBuilder::subscription`](crate::ClientBuilder::subscription)), which derives topic
    /// names from it, too.
    pub(crate) subscription: String,
    /// The worker leases its claims to HTTP workers, and processes nothing itself.
    pub(crate) leases: Option<LeaseTerms>,
    /// Tasks that run concurrently. Default: 16.
    pub concurrency: usize,
    /// Attempts per task. An attempt that died with its worker counts; one released by a drain does
    /// not. Default: 3.
    pub max_attempts: u32,
    /// The time limit of an attempt, unless the task's message sets it by `MAX_TASK_DURATION`. An
    /// attempt that takes longer is cancelled and fails. Default: `None`, no limit.
    pub max_duration: Option<Duration>,
    /// Heartbeat interval. Other workers take over the tasks of a worker that is silent for 2
    /// intervals. Default: 10 s.
    pub heartbeat: Duration,
    /// How often the metadata entry of a running task is renewed. Default: 5 min.
    pub keep_alive: Duration,
    /// How long a finished task's entry stays on the metadata topic. Default: 1 day.
    pub retention: Duration,
    /// How long a finished task stays in the ledger. Default: 1 h.
    pub ledger_retention: Duration,
    /// The minimum time to remember an idempotency key after the end of its task; also the length
    /// of a register period. A key is remembered for at most three times as long. The setting of
    /// the worker with the first rank applies. At least 10 heartbeat intervals. Default: 7 days.
    pub key_retention: Duration,
    /// Self-fence: a worker cut off from the ledger for longer starts afresh with a new owner id.
    /// Its running tasks continue if they are still its own. At most a quarter of
    /// `ledger_retention`. Default: 10 min.
    pub self_fence: Duration,
    /// The pauses between attempts, unless the task's message sets them. A list of intervals also
    /// sets the number of attempts, in place of `max_attempts`.
    pub backoff: RetryPolicy,
    /// How long a processor may continue after [`cancelled`](crate::TaskContext::cancelled) before
    /// its future is dropped. Default: 5 s, which is also the maximum at the deadline of a drain.
    pub cancel_grace: Duration,
    /// How long running tasks may take to end when the worker is drained [by its
    /// name](crate::Queue::drain_worker); after that they are released.
    /// [`run_until_signal`](crate::WorkerHandle::run_until_signal) uses its own time instead.
    /// Default: 30 s.
    pub drain_limit: Duration,
    /// The maximum result size in bytes; a larger result fails the task for good. Default: 1 MiB.
    pub result_bytes_max: usize,
    /// The maximum payload size in bytes that metadata entries carry; each entry of a task carries
    /// its payload. A larger payload is left out, and watchers read it from the task topic by the
    /// task's id. At most 1 MiB. Default: 64 KiB.
    pub shown_task_bytes_max: usize,
    /// The most bytes held for tasks that do not run: payloads that wait for a slot, and payloads
    /// and results whose end is not yet written. At the limit no more tasks are taken until there
    /// is room. Default: 256 MiB.
    pub held_bytes_max: usize,
    /// Also runs tasks that were replicated from another cluster. They have a different id in each
    /// cluster, and run once in each cluster whose workers have this set. Use the same value for
    /// all workers of a subscription. Default: false, tasks run only where they were submitted.
    pub run_replicated: bool,
    /// Your label for this worker, such as a deployment, a zone or a version of your program; the
    /// first 128 bytes count. Its heartbeats carry it, and so do the entries of its tasks, in
    /// [`TaskMetadata::worker`](crate::TaskMetadata::worker). Default: empty.
    pub label: String,
    /// The worker's identity; set when it starts.
    pub(crate) identity: WorkerIdentity,
    /// Which tasks get a dead letter, and how many letters are kept for how long. Use the same
    /// value for all workers of a queue. Default: tasks that failed for good, kept until they are
    /// handled.
    pub dead_letters: DeadLetterPolicy,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        let ledger = LedgerConfig::default();
        Self {
            subscription: ledger.subscription,
            leases: None,
            concurrency: 16,
            max_attempts: 3,
            max_duration: None,
            heartbeat: ledger.heartbeat,
            keep_alive: Duration::from_secs(300),
            retention: Duration::from_secs(24 * 3600),
            ledger_retention: ledger.ledger_retention,
            key_retention: Duration::from_secs(7 * 24 * 3600),
            self_fence: ledger.self_fence,
            backoff: RetryPolicy::default(),
            cancel_grace: Duration::from_secs(5),
            drain_limit: Duration::from_secs(30),
            result_bytes_max: 1024 * 1024,
            shown_task_bytes_max: 64 * 1024,
            held_bytes_max: 256 * 1024 * 1024,
            run_replicated: false,
            label: String::new(),
            identity: WorkerIdentity::default(),
            dead_letters: DeadLetterPolicy::new(),
        }
    }
}

/// A setting is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigError {
    /// The setting.
    pub field: &'static str,
    /// The problem, with the bound.
    pub problem: String,
}

impl WorkerConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// Names the first setting that is out of bounds, and the bound.
    pub fn validate(&self) -> Result<(), ConfigError> {
        const CONCURRENCY_MAX: usize = 100_000;
        // The metadata entry carries the result in Base64, and must fit into Pulsar's 5 MiB.
        const RESULT_BYTES_MAX: usize = 3 * 1024 * 1024;
        // With a result of the default size the entry fits into a message; otherwise the task is
        // left out.
        const SHOWN_TASK_BYTES_MAX: usize = 1024 * 1024;
        // At least one task and its result.
        const HELD_BYTES_MIN: usize = 16 * 1024 * 1024;
        let name = &self.subscription;
        let plain = !name.is_empty() && !name.contains(|c: char| c.is_control() || c == '/');
        self.check_durations()?;
        let (part, intervals) = (self.ledger_retention / 4, self.backoff.intervals.len());
        let rules = [
            (plain, "subscription", "must not be empty and holds no `/`".to_owned()),
            (
                (1..=CONCURRENCY_MAX).contains(&self.concurrency),
                "concurrency",
                format!("must be between 1 and {CONCURRENCY_MAX}, is {}", self.concurrency),
            ),
            (self.max_attempts > 0, "max_attempts", "must be at least 1".to_owned()),
            above_zero(self.max_duration.unwrap_or(Duration::MAX), "max_duration"),
            (
                self.heartbeat >= Duration::from_millis(100),
                "heartbeat",
                format!("must be at least 100ms, is {:?}", self.heartbeat),
            ),
            (
                6 * self.heartbeat <= part,
                "heartbeat",
                format!(
                    "must be at most ledger_retention/24 = {:?}, is {:?}",
                    part / 6,
                    self.heartbeat
                ),
            ),
            (
                2 * self.heartbeat < self.self_fence && self.self_fence <= part,
                "self_fence",
                format!(
                    "must be above 2 heartbeats and at most ledger_retention/4 = {part:?}, is {:?}",
                    self.self_fence
                ),
            ),
            above_zero(self.keep_alive, "keep_alive"),
            (
                self.backoff.base <= self.backoff.max,
                "backoff",
                format!("base {:?} exceeds max {:?}", self.backoff.base, self.backoff.max),
            ),
            (
                intervals <= INTERVALS_MAX,
                "backoff",
                format!("must have at most {INTERVALS_MAX} intervals, has {intervals}"),
            ),
            (
                (1..=RESULT_BYTES_MAX).contains(&self.result_bytes_max),
                "result_bytes_max",
                format!("must be between 1 and {RESULT_BYTES_MAX}, is {}", self.result_bytes_max),
            ),
            (
                self.shown_task_bytes_max <= SHOWN_TASK_BYTES_MAX,
                "shown_task_bytes_max",
                format!("must be at most {SHOWN_TASK_BYTES_MAX}, is {}", self.shown_task_bytes_max),
            ),
            (
                self.held_bytes_max >= HELD_BYTES_MIN,
                "held_bytes_max",
                format!("must be at least {HELD_BYTES_MIN}, is {}", self.held_bytes_max),
            ),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, field, problem)) => Err(ConfigError { field, problem }),
            None => Ok(()),
        }
    }

    /// Checks that later code can calculate with every duration.
    fn check_durations(&self) -> Result<(), ConfigError> {
        // A hundred years: far below any overflow.
        const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
        let durations = [
            ("max_duration", self.max_duration.unwrap_or_default()),
            ("heartbeat", self.heartbeat),
            ("keep_alive", self.keep_alive),
            ("retention", self.retention),
            ("ledger_retention", self.ledger_retention),
            ("key_retention", self.key_retention),
            ("self_fence", self.self_fence),
            ("backoff", self.backoff.max),
            ("backoff", self.backoff.intervals.iter().max().copied().unwrap_or_default()),
            ("cancel_grace", self.cancel_grace),
        ];
        if let Some((field, duration)) =
            durations.into_iter().find(|(_, duration)| *duration > DURATION_MAX)
        {
            let problem = format!("must be at most {DURATION_MAX:?}, is {duration:?}");
            return Err(ConfigError { field, problem });
        }
        Ok(())
    }

    /// The length of a register period.
    pub(crate) fn key_period(&self) -> Duration {
        self.key_retention.max(self.heartbeat.saturating_mul(10))
    }

    /// The number of attempts of a task whose message does not set it.
    pub(crate) fn attempts(&self) -> u32 {
        self.backoff.attempts().unwrap_or(self.max_attempts)
    }

    /// The settings shared by all workers on a ledger.
    pub(crate) fn ledger(&self) -> LedgerConfig {
        // The ledger stores whole milliseconds, and a worker must accept the settings that it wrote
        // itself.
        let whole = |time: Duration| {
            Duration::from_secs(time.as_secs())
                + Duration::from_millis(u64::from(time.subsec_millis()))
        };
        LedgerConfig {
            version: 1,
            subscription: self.subscription.clone(),
            heartbeat: whole(self.heartbeat),
            ledger_retention: whole(self.ledger_retention),
            self_fence: whole(self.self_fence),
            format: LEDGER_FORMAT,
        }
    }

    /// The settings of the protocol for a partition of the task topic; -1 if unpartitioned.
    pub(crate) fn partition(&self, partition: i32) -> PartitionSettings {
        PartitionSettings { ledger: self.ledger(), partition, max_attempts: self.attempts() }
    }
}

/// A setting that must not be zero, as a rule of [`WorkerConfig::validate`].
fn above_zero(duration: Duration, setting: &'static str) -> (bool, &'static str, String) {
    (!duration.is_zero(), setting, "must be above zero".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::protocol::entry::Entry;

    #[test]
    fn defaults_are_valid() {
        assert_eq!(WorkerConfig::default().validate(), Ok(()));
    }

    /// The ledger stores whole milliseconds: a worker must not refuse settings that it wrote
    /// itself, such as a self-fence of a seventh of the ledger retention.
    #[test]
    fn a_worker_agrees_with_the_settings_that_it_writes() {
        let third = Duration::from_secs(10) / 3;
        let part = WorkerConfig::default().ledger_retention / 7;
        let config = WorkerConfig { heartbeat: third, self_fence: part, ..WorkerConfig::default() };
        assert_eq!(config.validate(), Ok(()));
        let written = Entry::Config(config.ledger());
        let (key, properties, body) =
            (written.key().to_string(), written.properties(), written.body(b""));
        assert_eq!(Entry::read(Some(&key), &properties, &body, false), Ok(written));
    }

    /// A heartbeat of `Duration::MAX`, meant as none, must not panic.
    #[test]
    fn a_duration_that_is_too_long_is_refused_and_no_panic() {
        let fields: [fn(&mut WorkerConfig) -> &mut Duration; 9] = [
            |c| c.max_duration.get_or_insert_default(),
            |c| &mut c.heartbeat,
            |c| &mut c.keep_alive,
            |c| &mut c.retention,
            |c| &mut c.ledger_retention,
            |c| &mut c.key_retention,
            |c| &mut c.self_fence,
            |c| &mut c.backoff.max,
            |c| &mut c.cancel_grace,
        ];
        for field in fields {
            let mut config = WorkerConfig::default();
            *field(&mut config) = Duration::MAX;
            let error = config.validate().unwrap_err();
            assert!(error.problem.starts_with("must be at most 3153600000s"), "{error}");
        }
    }

    #[test]
    fn a_bad_setting_is_named_with_its_bound() {
        #[track_caller]
        fn check(change: impl FnOnce(&mut WorkerConfig), error: &str) {
            let mut config = WorkerConfig::default();
            change(&mut config);
            let found = config.validate().map_err(|error| error.to_string());
            assert_eq!(found, Err(error.to_owned()));
        }
        check(|c| c.concurrency = 0, "concurrency: must be between 1 and 100000, is 0");
        check(
            |c| c.self_fence = Duration::from_secs(1200),
            "self_fence: must be above 2 heartbeats and at most ledger_retention/4 = 900s, is 1200s",
        );
        check(
            |c| c.heartbeat = Duration::from_secs(200),
            "heartbeat: must be at most ledger_retention/24 = 150s, is 200s",
        );
        check(|c| c.max_duration = Some(Duration::ZERO), "max_duration: must be above zero");
        let error = "held_bytes_max: must be at least 16777216, is 0";
        check(|c| c.held_bytes_max = 0, error);
        check(|c| c.subscription.clear(), "subscription: must not be empty and holds no `/`");
    }
}

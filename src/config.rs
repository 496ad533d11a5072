//! The settings of a worker.

use crate::worker::DeadLetterPolicy;
use crate::worker::leasing::LeaseTerms;
use longhaul_core::partition::PartitionSettings;
use longhaul_core::protocol::config::{LedgerConfig, PROTOCOL_VERSION};
use longhaul_core::protocol::retry::RetryPolicy;
use longhaul_core::task::WorkerIdentity;
use longhaul_core::task::terms::INTERVALS_MAX;
use std::time::Duration;

/// How a worker works. The defaults suit tasks of minutes to hours.
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
    /// Name of the Shared subscription on the task topic; workers with the same name share the
    /// tasks. It is set at the client
    /// ([`ClientBuilder::subscription`](crate::ClientBuilder::subscription)), which needs it, too:
    /// names of topics follow from it.
    pub(crate) subscription: String,
    /// It leases what it claims, and processes nothing itself.
    pub(crate) leases: Option<LeaseTerms>,
    /// Tasks that run at once. Default 16.
    pub concurrency: usize,
    /// Attempts that a task has. Attempts that died with their worker count, those given back by a
    /// drain do not. Default 3.
    pub max_attempts: u32,
    /// How long an attempt may take at a task whose message does not say it by `MAX_TASK_DURATION`;
    /// then it is cancelled and has failed. Default `None`: as long as it takes.
    pub max_duration: Option<Duration>,
    /// H: how often the worker says that it is alive. A worker silent for 2 H loses its tasks to
    /// others. Default 10 s.
    pub heartbeat: Duration,
    /// How often a running task's entry on the metadata topic is renewed. Default 5 min.
    pub keep_alive: Duration,
    /// How long a finished task's entry stays on the metadata topic. Default 1 day.
    pub retention: Duration,
    /// R: how long a finished task stays in the ledger. Default 1 h.
    pub ledger_retention: Duration,
    /// How long an idempotency key is remembered at least, from the end of its task, and how long a
    /// period of the register is: at most three times as long. That of the worker which is first by
    /// rank counts. Never less than 10 heartbeats; default 7 days.
    pub key_retention: Duration,
    /// G: a worker cut off from the ledger for longer starts afresh; what it runs goes on if it is
    /// still its own. At most R/4. Default 10 min.
    pub self_fence: Duration,
    /// How long a task waits between attempts, if its message does not say it. A list of intervals
    /// also says how many attempts there are: `max_attempts` does not count then.
    pub backoff: RetryPolicy,
    /// How long a processor may go on after [`cancelled`](crate::TaskContext::cancelled) before its
    /// future is dropped. Default 5 s, which is also the most at the deadline of a drain.
    pub cancel_grace: Duration,
    /// How long running tasks may take to end when somebody drains the worker
    /// [by its name](crate::Queue::drain); what still runs then is given back.
    /// [`run_until_signal`](crate::WorkerHandle::run_until_signal) puts its own time in the place
    /// of this one. Default 30 s.
    pub drain_limit: Duration,
    /// The largest result, in bytes; a larger one fails the task for good. Default 1 MiB.
    pub result_bytes_max: usize,
    /// The largest payload that a task's entries on the metadata topic carry, in bytes: each of
    /// them carries it. A larger one is left out, and whoever watches reads it on the task topic,
    /// by the task's id. At most 1 MiB; default 64 KiB.
    pub shown_task_bytes_max: usize,
    /// The most bytes held of tasks that do not run: payloads that wait for a slot, payloads and
    /// results whose end is not written yet. At the ceiling no more tasks are taken until there is
    /// room. Default 256 MiB.
    pub held_bytes_max: usize,
    /// Runs tasks that were replicated from another cluster, too. They have another id in each
    /// cluster, and run once in each of those whose workers say so. All workers of a subscription
    /// should say the same. Default false: they run where they were submitted.
    pub run_replicated: bool,
    /// What you call this worker: a deployment, a zone, a version of your program. Its heartbeats
    /// say it, and the entries of the tasks that it runs, in
    /// [`TaskMetadata::worker`](crate::TaskMetadata::worker); the first 128 bytes. Default:
    /// nothing.
    pub label: String,
    /// Who the worker says it is; set when it starts.
    pub(crate) identity: WorkerIdentity,
    /// Workers of the Java reference work on the same subscription. They do not read the ledger, so
    /// this worker reads the metadata topic before a claim and before a start: it leaves alone what
    /// they run, and goes on from their attempts and ends. [`keep_alive`](Self::keep_alive) and
    /// [`max_attempts`](Self::max_attempts) must be theirs. Default false.
    pub legacy: bool,
    /// Which tasks get a dead letter, and how many letters are kept for how long. All workers of a
    /// queue should say the same. Default: those that failed for good, until somebody has handled
    /// them.
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
            legacy: false,
            dead_letters: DeadLetterPolicy::new(),
        }
    }
}

/// A setting is out of its bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigError {
    /// The setting.
    pub field: &'static str,
    /// What is wrong with it, with the bound.
    pub problem: String,
}

impl WorkerConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// Names the first setting that is out of its bounds, and the bound.
    pub fn validate(&self) -> Result<(), ConfigError> {
        const CONCURRENCY_MAX: usize = 100_000;
        // The entry on the metadata topic carries it in Base64, and fits into Pulsar's 5 MiB.
        const RESULT_BYTES_MAX: usize = 3 * 1024 * 1024;
        // With a result of the default size the entry fits into a message; one that does not is
        // shown without the task.
        const SHOWN_TASK_BYTES_MAX: usize = 1024 * 1024;
        // One task and its result at least.
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

    /// What comes after this may calculate with every duration.
    fn check_durations(&self) -> Result<(), ConfigError> {
        // A hundred years: far from where arithmetic on times ends.
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

    /// How long a period of the register is.
    pub(crate) fn key_period(&self) -> Duration {
        self.key_retention.max(self.heartbeat.saturating_mul(10))
    }

    /// How many attempts a task has whose message does not say it.
    pub(crate) fn attempts(&self) -> u32 {
        self.backoff.attempts().unwrap_or(self.max_attempts)
    }

    /// The part that all workers on a ledger share.
    pub(crate) fn ledger(&self) -> LedgerConfig {
        // The ledger tells whole milliseconds, and a worker must agree with what it has written
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
            protocol_min: PROTOCOL_VERSION,
        }
    }

    /// What the rules take of it, for a partition of the task topic, or -1.
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

    /// With a self-fence of a seventh of R no worker could start: it refused the settings that it
    /// had written itself, which say whole milliseconds.
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

    /// A heartbeat of `Duration::MAX`, meant as none, was a panic.
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

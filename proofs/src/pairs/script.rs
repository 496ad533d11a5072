//! Scripts of tasks.

use super::Feature;
use longhaul::{Priority, TaskId, TaskRef};
use std::time::Duration;

/// The limit keys and their task limits.
pub(super) const LIMITS: [(&str, u32); 2] = [("one", 1), ("two", 2)];
/// Order keys and dedupe keys.
pub(super) const KEYS: [&str; 2] = ["red", "green"];
pub(super) const TYPES: [&str; 2] = ["a", "b"];
/// Attempts of a task.
pub(super) const ATTEMPTS: u32 = 3;

/// The features and the behaviour of a task.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    /// Whether the task has no feature that makes it wait.
    pub(super) plain: bool,
    /// An index into `LIMITS`.
    pub(super) limit: Option<usize>,
    pub(super) order: Option<&'static str>,
    pub(super) dedupe: Option<&'static str>,
    pub(super) idempotency: Option<String>,
    /// Whether its message repeats that of an existing task: it never runs.
    pub(super) duplicate: bool,
    pub(super) task_type: Option<&'static str>,
    pub(super) high: bool,
    pub(super) delay: Option<Duration>,
    /// The wall-clock time in ms after which no attempt begins.
    pub(super) expires_ms: Option<u64>,
    pub(super) checkpoints: bool,
    /// The tasks that it waits for.
    pub(super) after: Vec<TaskRef>,
    /// The number of attempts that fail before one succeeds.
    pub(super) fails: u32,
    /// The duration of an attempt.
    pub(super) works: Duration,
}

impl Script {
    /// A task that may run at once.
    pub(super) fn plain(features: &[Feature], rng: &mut fastrand::Rng) -> Self {
        let works = Duration::from_millis(rng.u64(100..2_000));
        let typed = features.contains(&Feature::Type);
        let task_type = typed.then(|| TYPES[rng.usize(..TYPES.len())]);
        Self { plain: true, works, task_type, ..Self::default() }
    }

    /// A task with these features, drawn at this time. It may wait for `others`.
    pub(super) fn draw(
        features: &[Feature],
        (now_ms, others): (u64, &[TaskRef]),
        rng: &mut fastrand::Rng,
    ) -> Self {
        let mut script = Self { plain: false, ..Self::plain(features, rng) };
        for feature in features {
            match feature {
                Feature::Limit => script.limit = Some(rng.usize(..LIMITS.len())),
                Feature::Order => script.order = rng.choice(KEYS),
                Feature::Overwrite => script.dedupe = rng.choice(KEYS),
                Feature::Level => script.high = rng.bool(),
                Feature::Delay => script.delay = Some(Duration::from_millis(rng.u64(100..20_000))),
                Feature::After if !others.is_empty() => {
                    let first = rng.usize(..others.len());
                    script.after = others.iter().skip(first).take(3).cloned().collect();
                }
                Feature::Expire => script.expires_ms = Some(now_ms + rng.u64(1_000..60_000)),
                Feature::Checkpoint => script.checkpoints = true,
                Feature::Fail => script.fails = rng.u32(..=ATTEMPTS),
                Feature::Idempotent => script.idempotency = Some(format!("{:x}", rng.u64(..))),
                Feature::Lease
                | Feature::After
                | Feature::Type
                | Feature::Batch
                | Feature::Cancel
                | Feature::Delete
                | Feature::Release
                | Feature::Drain
                | Feature::Kill
                | Feature::Partition
                | Feature::Pause
                | Feature::Narrow
                | Feature::Compact
                | Feature::Broker
                | Feature::Fence => {}
            }
        }
        if features.contains(&Feature::Fence) && rng.u8(..8) == 0 {
            // It outlives a self-fence.
            script.works += Duration::from_millis(rng.u64(20_000..40_000));
        }
        if features.contains(&Feature::Lease) {
            // Long enough for several gateways to read about it.
            script.works += Duration::from_millis(rng.u64(..6_000));
        }
        if script.dedupe.is_some() {
            // The holder of a key runs while other tasks are to replace it, and its order key is
            // the dedupe key.
            script.works += Duration::from_secs(rng.u64(..10));
            script.order = script.order.and(script.dedupe);
            // With an idempotency key the dedupe key would be ignored.
            script.idempotency = None;
        }
        script
    }

    pub(super) const fn priority(&self) -> Priority {
        if self.high { Priority::High } else { Priority::Normal }
    }

    /// The properties of its message, as any producer would set them.
    pub(super) fn properties(&self) -> Vec<(&'static str, String)> {
        let names: Vec<String> = self.after.iter().map(|task| task.id.to_string()).collect();
        let text = |it: &'static str| it.to_owned();
        let all = [
            ("LIMIT_KEY", self.limit.map(|limit| text(LIMITS[limit].0))),
            ("DEDUPE_KEY", self.dedupe.map(text)),
            ("OVERWRITE", self.dedupe.map(|_| text("true"))),
            ("EXPIRES_AT", self.expires_ms.map(|it| it.to_string())),
            ("IDEMPOTENCY_KEY", self.idempotency.clone()),
            ("ORDER_KEY", self.order.map(text)),
            ("TASK_TYPE", self.task_type.map(text)),
            (
                "DELAY",
                self.delay.map(|it| format!("PT{}.{:03}S", it.as_secs(), it.subsec_millis())),
            ),
            ("AFTER_FAILED", (!names.is_empty()).then(|| text("run"))),
            ("AFTER", (!names.is_empty()).then(|| names.join(","))),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// A task that was submitted.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) task: TaskRef,
    /// The number of its script.
    pub(super) number: usize,
}

impl Placed {
    pub(super) const fn id(&self) -> TaskId {
        self.task.id
    }
}

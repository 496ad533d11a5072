//! The settings that all workers of a ledger must share. They are stored on the ledger itself, as
//! its `cfg` entry: write-once per version; the highest version applies.

use crate::topics::DEFAULT_SUBSCRIPTION;
use std::time::Duration;

/// The format of the entries of ledger and register that this build reads and writes. A change that
/// an earlier build would misread raises it; an entry, property or field that may be ignored does
/// not.
pub const LEDGER_FORMAT: u32 = 1;

/// A version of a ledger's settings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LedgerConfig {
    /// Version of these settings, from 1. Only a build with another format writes a later one, so
    /// that the workers of this one stop.
    pub version: u32,
    /// The subscription of the ledger: two groups of workers on one task topic must not share a
    /// ledger.
    pub subscription: String,
    /// Heartbeat interval of an owner (H).
    pub heartbeat: Duration,
    /// How long a finished task stays on the ledger (R).
    pub ledger_retention: Duration,
    /// Maximum age of a view before its worker fences itself (G).
    pub self_fence: Duration,
    /// The format of the entries of ledger and register: see [`LEDGER_FORMAT`].
    pub format: u32,
}

/// The settings of a ledger that each worker configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LedgerTimes {
    /// Heartbeat interval (H): `WorkerConfig::heartbeat`.
    pub heartbeat: Duration,
    /// Ledger retention (R): `WorkerConfig::ledger_retention`.
    pub ledger_retention: Duration,
    /// Self-fence limit (G): `WorkerConfig::self_fence`.
    pub self_fence: Duration,
}

/// Why a worker may not work on a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerConfigError {
    /// The ledger belongs to another subscription.
    #[error(
        "the ledger belongs to subscription `{theirs}`, not to `{ours}`: give this worker a ledger topic of its own"
    )]
    Subscription {
        /// The ledger's subscription.
        theirs: String,
        /// The worker's subscription.
        ours: String,
    },
    /// A setting differs.
    #[error(
        "{name} is {theirs:?} on this ledger but {ours:?} here: workers on one ledger must agree, so set it to {theirs:?}"
    )]
    Differs {
        /// The setting.
        name: &'static str,
        /// The ledger's value.
        theirs: Duration,
        /// The worker's value.
        ours: Duration,
        /// All settings of this kind on the ledger.
        ledger: LedgerTimes,
    },
    /// This build does not know the format of the ledger.
    #[error(
        "the ledger has format {theirs}, but this version of longhaul reads format {LEDGER_FORMAT}: run the version that its other workers have"
    )]
    Format {
        /// The ledger's format.
        theirs: u32,
    },
}

impl Default for LedgerConfig {
    /// Version 1 for the default subscription: heartbeat interval 10 s, ledger retention 1 h,
    /// self-fence limit 10 min.
    fn default() -> Self {
        Self {
            version: 1,
            subscription: DEFAULT_SUBSCRIPTION.to_owned(),
            heartbeat: Duration::from_secs(10),
            ledger_retention: Duration::from_secs(3600),
            self_fence: Duration::from_secs(600),
            format: LEDGER_FORMAT,
        }
    }
}

impl LedgerConfig {
    /// Checks whether a worker configured with `self` may work on a ledger whose newest settings
    /// are `theirs`.
    ///
    /// # Errors
    /// The first setting that differs.
    pub fn agrees_with(&self, theirs: &Self) -> Result<(), LedgerConfigError> {
        if theirs.format != LEDGER_FORMAT {
            return Err(LedgerConfigError::Format { theirs: theirs.format });
        }
        if self.subscription != theirs.subscription {
            return Err(LedgerConfigError::Subscription {
                theirs: theirs.subscription.clone(),
                ours: self.subscription.clone(),
            });
        }
        let ledger = theirs.times();
        let pairs = [
            ("heartbeat", theirs.heartbeat, self.heartbeat),
            ("ledger_retention", theirs.ledger_retention, self.ledger_retention),
            ("self_fence", theirs.self_fence, self.self_fence),
        ];
        match pairs.into_iter().find(|(_, theirs, ours)| theirs != ours) {
            Some((name, theirs, ours)) => {
                Err(LedgerConfigError::Differs { name, theirs, ours, ledger })
            }
            None => Ok(()),
        }
    }

    const fn times(&self) -> LedgerTimes {
        let Self { heartbeat, ledger_retention, self_fence, .. } = *self;
        LedgerTimes { heartbeat, ledger_retention, self_fence }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> LedgerConfig {
        LedgerConfig {
            version: 1,
            subscription: "workers".to_owned(),
            heartbeat: Duration::from_secs(5),
            ledger_retention: Duration::from_secs(60),
            self_fence: Duration::from_secs(8),
            format: LEDGER_FORMAT,
        }
    }

    /// Two workers with different settings would judge silence by different intervals, and two
    /// subscriptions would take each other's tasks for their own.
    #[test]
    fn whatever_workers_must_share_is_compared() {
        let ours = config();
        assert_eq!(ours.agrees_with(&LedgerConfig { version: 9, ..config() }), Ok(()));
        for theirs in [LEDGER_FORMAT - 1, LEDGER_FORMAT + 1] {
            let unknown = LedgerConfig { format: theirs, ..config() };
            assert_eq!(ours.agrees_with(&unknown), Err(LedgerConfigError::Format { theirs }));
        }
        let other = LedgerConfig { subscription: "others".to_owned(), ..config() };
        let theirs = other.subscription.clone();
        let ours_is = ours.subscription.clone();
        let differs = LedgerConfigError::Subscription { theirs, ours: ours_is };
        assert_eq!(ours.agrees_with(&other), Err(differs));
        let second = Duration::from_secs(1);
        let changed = [
            ("heartbeat", LedgerConfig { heartbeat: second, ..config() }, ours.heartbeat),
            (
                "ledger_retention",
                LedgerConfig { ledger_retention: second, ..config() },
                ours.ledger_retention,
            ),
            ("self_fence", LedgerConfig { self_fence: second, ..config() }, ours.self_fence),
        ];
        for (name, theirs, mine) in changed {
            let ledger = theirs.times();
            let differs = LedgerConfigError::Differs { name, theirs: second, ours: mine, ledger };
            assert_eq!(ours.agrees_with(&theirs), Err(differs));
        }
    }
}

//! The settings that all workers of a ledger must share. They stand in the ledger itself, as its
//! `cfg` entry: write-once per version, the highest version counts.

use crate::topics::DEFAULT_SUBSCRIPTION;
use std::time::Duration;

/// The version of the task protocol that this build speaks. 3 knows claims that park a task, 4
/// knows leases.
pub const PROTOCOL_VERSION: u32 = 4;

/// The first version that knows claims that park a task. To an earlier one such a claim is no
/// entry, so that two workers would run the task.
pub const PROTOCOL_PARKS: u32 = 3;

/// The first version that knows leases. An earlier one waits for heartbeats of a lease, and would
/// take its task over after 2 H.
pub const PROTOCOL_LEASES: u32 = 4;

/// A version of a ledger's settings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LedgerConfig {
    /// Version of these settings, from 1.
    pub version: u32,
    /// The subscription that the ledger belongs to: two groups of workers on one task topic must
    /// not share a ledger.
    pub subscription: String,
    /// H: how often an owner says that it is alive.
    pub heartbeat: Duration,
    /// R: how long a finished task stays in the ledger.
    pub ledger_retention: Duration,
    /// G: how old a view may get before its worker fences itself.
    pub self_fence: Duration,
    /// Workers that speak an older version of the protocol must stay out.
    pub protocol_min: u32,
}

/// Those of a ledger's settings that each worker is configured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LedgerTimes {
    /// H: `WorkerConfig::heartbeat`.
    pub heartbeat: Duration,
    /// R: `WorkerConfig::ledger_retention`.
    pub ledger_retention: Duration,
    /// G: `WorkerConfig::self_fence`.
    pub self_fence: Duration,
}

/// Why a worker may not work on a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerConfigError {
    /// Another subscription's ledger.
    #[error(
        "the ledger belongs to subscription `{theirs}`, not to `{ours}`: give this worker a ledger topic of its own"
    )]
    Subscription {
        /// What the ledger says.
        theirs: String,
        /// What the worker is configured with.
        ours: String,
    },
    /// A setting differs.
    #[error(
        "{name} is {theirs:?} on this ledger but {ours:?} here: workers on one ledger must agree, so set it to {theirs:?}"
    )]
    Differs {
        /// The setting.
        name: &'static str,
        /// What the ledger says.
        theirs: Duration,
        /// What the worker is configured with.
        ours: Duration,
        /// All settings of this kind that stand on the ledger.
        ledger: LedgerTimes,
    },
    /// A newer protocol is needed.
    #[error(
        "the ledger needs protocol version {needed}, this build speaks {PROTOCOL_VERSION}: upgrade this worker"
    )]
    Protocol {
        /// The version that the ledger asks for.
        needed: u32,
    },
}

impl Default for LedgerConfig {
    /// Version 1 for the default subscription: H is 10 s, R 1 h, G 10 min.
    fn default() -> Self {
        Self {
            version: 1,
            subscription: DEFAULT_SUBSCRIPTION.to_owned(),
            heartbeat: Duration::from_secs(10),
            ledger_retention: Duration::from_secs(3600),
            self_fence: Duration::from_secs(600),
            protocol_min: PROTOCOL_VERSION,
        }
    }
}

impl LedgerConfig {
    /// Whether all who may work under these settings speak this version of the protocol.
    #[must_use]
    pub const fn keep_out_before(&self, protocol: u32) -> bool {
        self.protocol_min >= protocol
    }

    /// The next version of these settings, which keeps those out who do not; `None` behind the last
    /// one.
    #[must_use]
    pub fn keeping_out_before(&self, protocol: u32) -> Option<Self> {
        let version = self.version.checked_add(1)?;
        Some(Self { version, protocol_min: protocol, ..self.clone() })
    }

    /// Whether a worker configured with `self` may work on a ledger whose newest settings are
    /// `theirs`.
    ///
    /// # Errors
    /// Names the first setting that differs.
    pub fn agrees_with(&self, theirs: &Self) -> Result<(), LedgerConfigError> {
        if theirs.protocol_min > PROTOCOL_VERSION {
            return Err(LedgerConfigError::Protocol { needed: theirs.protocol_min });
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

    pub(super) fn write(&self, put: &mut dyn FnMut(&'static str, String)) {
        put("sub", self.subscription.clone());
        put("h", self.heartbeat.as_millis().to_string());
        put("r", self.ledger_retention.as_millis().to_string());
        put("g", self.self_fence.as_millis().to_string());
        put("v", self.protocol_min.to_string());
    }

    pub(super) fn read<'a>(
        version: u32,
        get: &dyn Fn(&str) -> Option<&'a str>,
    ) -> Result<Self, &'static str> {
        let millis = |name: &'static str| {
            get(name).and_then(|text| text.parse().ok()).map(Duration::from_millis).ok_or(name)
        };
        Ok(Self {
            version,
            subscription: get("sub").ok_or("sub")?.to_owned(),
            heartbeat: millis("h")?,
            ledger_retention: millis("r")?,
            self_fence: millis("g")?,
            protocol_min: get("v").and_then(|text| text.parse().ok()).ok_or("v")?,
        })
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
            protocol_min: PROTOCOL_VERSION,
        }
    }

    /// Two workers with different settings would judge each other's silence by different clocks,
    /// and two subscriptions would take each other's tasks for their own.
    #[test]
    fn whatever_workers_must_share_is_compared() {
        let ours = config();
        assert_eq!(ours.agrees_with(&LedgerConfig { version: 9, ..config() }), Ok(()));
        assert_eq!(ours.agrees_with(&LedgerConfig { protocol_min: 1, ..config() }), Ok(()));
        let needed = PROTOCOL_VERSION + 1;
        let newer = LedgerConfig { protocol_min: needed, ..config() };
        assert_eq!(ours.agrees_with(&newer), Err(LedgerConfigError::Protocol { needed }));
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

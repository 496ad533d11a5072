//! Faults: the harness around the machines breaks one rule of leases at a time.

use longhaul_core::protocol::entry::Done;
use longhaul_core::protocol::key::{OnceKey, OwnerId};
use serde::{Deserialize, Serialize};

/// A rule that the harness breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LeaseFault {
    /// None.
    #[default]
    None,
    /// All gateways start their serials at the same number.
    SameSeed,
    /// The end of a silent lease is published in the gateway's own name.
    EndInOwnName,
    /// A gateway lets go of a lease when another one publishes a renewal, before reading it.
    LetGoUnread,
    /// A gateway treats a granted lease without reports as never granted, and gives it back.
    GrantedReleased,
    /// The end of a silent lease is published for the lease that runs at that time.
    EpochUnchecked,
    /// A keep-alive is confirmed when the renewal is published, not when it is stored.
    KeptUnstored,
    /// A report is confirmed by any end of the same kind: success or not.
    AnyEndConfirms,
    /// A claim that was given up and lands later is not given back.
    NoRelease,
    /// The end of a silent lease is published even if a renewal was read since.
    SilenceInsisted,
}

impl LeaseFault {
    /// The entry that is published instead of an end because of silence.
    #[must_use]
    pub fn tampered(self, done: Done, owner: OwnerId) -> Done {
        if self == Self::EndInOwnName {
            return Done { key: OnceKey { owner, ..done.key }, ..done };
        }
        done
    }
}

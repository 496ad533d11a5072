//! One rule of leases broken at a time, by the harness around the machines.

use longhaul_core::protocol::entry::Done;
use longhaul_core::protocol::key::{OnceKey, OwnerId};

/// A rule that the harness breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LeaseFault {
    /// None.
    #[default]
    None,
    /// All gateways begin their serials at the same place.
    SameSeed,
    /// The end of a silent lease is published in the gateway's own name.
    EndInOwnName,
    /// A gateway lets go of a lease because another one is about to renew it.
    LetGoUnread,
    /// A gateway takes a lease that nobody reports on for one that was never granted, and gives it
    /// back.
    GrantedReleased,
    /// The end of a silent lease is that of whichever lease runs when it is published.
    EpochUnchecked,
    /// A keep-alive is confirmed when the renewal is published.
    KeptUnstored,
    /// A report is confirmed by any end that is as good or bad as what it says.
    AnyEndConfirms,
    /// A claim that was given up and lands is not given back.
    NoRelease,
    /// The end of a silent lease is insisted on, whatever was read since.
    SilenceInsisted,
}

impl LeaseFault {
    const ALL: [Self; 10] = [
        Self::None,
        Self::SameSeed,
        Self::EndInOwnName,
        Self::LetGoUnread,
        Self::GrantedReleased,
        Self::EpochUnchecked,
        Self::KeptUnstored,
        Self::AnyEndConfirms,
        Self::NoRelease,
        Self::SilenceInsisted,
    ];

    /// Finds a fault by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| format!("{fault:?}") == name)
    }

    /// What is published in place of an end that rests on silence.
    #[must_use]
    pub fn tampered(self, done: Done, owner: OwnerId) -> Done {
        if self == Self::EndInOwnName {
            return Done { key: OnceKey { owner, ..done.key }, ..done };
        }
        done
    }
}

//! What keeps the broker from defects that it once had. The tests of the simulation take each of these out, and show that the defect is found: see
//! `simulation/planted.rs`. Everywhere else they are compiled in, and cost nothing.

/// A cure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cure {
    /// What is done now and then goes by a clock that never goes back.
    Clock,
    /// Names are looked at where they come in, and a change is recorded only when it applies.
    Checked,
    /// A start needs every segment that the inventory names.
    Inventory,
    /// A start needs the log as far as it was noted as confirmed.
    Confirmed,
    /// A write that lacks a file descriptor is tried again.
    Descriptors,
    /// Consumers get what lies behind an entry that cannot be read.
    Unreadable,
    /// Segments get smaller with the room that there is for them.
    SmallSegments,
    /// There is room for the next checkpoint, whatever others take.
    Reserve,
    /// JSON that is nested deep is refused.
    Nested,
    /// Connections leave file descriptors to the log.
    Connections,
    /// A start knows of the checkpoint that there is, and one is written where segments wait for it.
    Checkpoint,
    /// A compaction waits after one that failed.
    Backoff,
    /// On a full disk rounds come before acknowledgements have taken all that is kept for them.
    EarlyRounds,
}

/// Whether a test has taken this one out.
#[cfg(not(test))]
pub(crate) const fn is_out(_: Cure) -> bool {
    false
}

#[cfg(test)]
pub(crate) use taken::{is_out, without};

#[cfg(test)]
mod taken {
    use super::Cure;
    use std::cell::Cell;

    thread_local! {
        static OUT: Cell<&'static [Cure]> = const { Cell::new(&[]) };
    }

    pub(crate) fn is_out(cure: Cure) -> bool {
        OUT.get().contains(&cure)
    }

    /// Does something without these, on this thread. It must not panic.
    pub(crate) fn without<T>(cures: &'static [Cure], work: impl FnOnce() -> T) -> T {
        OUT.set(cures);
        let done = work();
        OUT.set(&[]);
        done
    }
}

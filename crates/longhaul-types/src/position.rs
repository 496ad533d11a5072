//! Where messages lie.

/// Where a message lies in the log of one partition. Ordered as the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// Ledger of the managed log.
    pub ledger: u64,
    /// Entry in the ledger.
    pub entry: u64,
    /// Index inside the entry's batch; `None` for a message that came alone.
    pub batch_index: Option<u32>,
}

impl Position {
    /// The entry that holds the message.
    #[must_use]
    pub const fn entry_id(self) -> EntryId {
        EntryId { ledger: self.ledger, entry: self.entry }
    }
}

/// What the broker acknowledges: one entry, with all messages of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId {
    /// Ledger of the managed log.
    pub ledger: u64,
    /// Entry in the ledger.
    pub entry: u64,
}

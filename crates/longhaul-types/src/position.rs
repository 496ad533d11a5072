//! Positions of messages.

/// Position of a message in the log of one partition. Positions are ordered as the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// Ledger of the managed log.
    pub ledger: u64,
    /// Entry in the ledger.
    pub entry: u64,
    /// Index inside the entry's batch; `None` for a message outside a batch.
    pub batch_index: Option<u32>,
}

impl Position {
    /// The entry that holds the message.
    #[must_use]
    pub const fn entry_id(self) -> EntryId {
        EntryId { ledger: self.ledger, entry: self.entry }
    }
}

/// The unit that the broker acknowledges: one entry, with all messages of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId {
    /// Ledger of the managed log.
    pub ledger: u64,
    /// Entry in the ledger.
    pub entry: u64,
}

//! Positions of messages.

use std::fmt;

/// Position of a message in the log of one partition. Positions are ordered as the log is.
///
/// Its text form is `ledger:entry`, with `:index` added for a message in a batch.
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

    /// Parses the text form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(':');
        let (ledger, entry) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        let batch_index = numbers.next().map(str::parse).transpose().ok()?;
        numbers.next().is_none().then_some(Self { ledger, entry, batch_index })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.ledger, self.entry)?;
        match self.batch_index {
            Some(index) => write!(f, ":{index}"),
            None => Ok(()),
        }
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

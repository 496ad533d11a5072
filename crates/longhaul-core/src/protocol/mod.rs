//! The task protocol. Pure: no clock, no I/O, no async, no logging.
//!
//! The ledger is the source of truth for every task: a compacted topic on which every entry that
//! the fold depends on has a write-once key. Claims and outcomes are ordinary publishes; the first
//! valid entry of an epoch in log order wins; a worker acts only on entries that it has read back.
//! `docs/protocol.md` describes the topics, `docs/register.md` the rest.

pub mod body;
pub mod claim;
pub mod config;
pub mod dead_letters;
pub mod digest;
pub mod entry;
pub mod entry_set;
pub mod fold;
pub mod gap;
pub mod hash;
pub mod invariants;
pub mod key;
pub mod limits;
pub mod next_attempt;
pub mod offer;
pub mod operator;
#[cfg(test)]
mod properties;
#[cfg(any(test, feature = "testing"))]
pub mod random;
pub mod rank;
pub mod register;
pub mod retry;
pub mod seal;
pub mod silence;
pub mod waits;

pub use longhaul_types::moment;

//! Continuous backup of an embedded broker: the pieces of its log go to a directory or to S3 as
//! they are written, and a data directory is made of them again.
//!
//! | module | content |
//! |---|---|
//! | `catalog` | what a store has, by the names of its objects, and what of it a restore takes |
//! | `store` | objects in a directory or in S3 |
//! | `pass` | one look at a data directory: stores what is new, removes what is too old |
//! | [`Backup`] | a thread that makes such passes |
//! | [`restore`] | makes a data directory |
//!
//! The broker does not take part: its files are read as [`longhaul_broker::rescue::snapshot`] reads
//! them. `docs/storage.md` describes the objects. The interface is not stable.

mod catalog;
mod clock;
mod complaint;
mod error;
mod pass;
mod restore;
mod run;
mod store;

pub use error::BackupError;
pub use restore::{Restored, restore};
pub use run::{Backup, BackupSettings};

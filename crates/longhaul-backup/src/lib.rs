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
//! | [`list`] | what a store has, and to which times it can be restored |
//!
//! The broker does not take part: its files are read while it writes them. `docs/storage.md`
//! describes the objects. The interface is not stable.

mod catalog;
mod clock;
mod complaint;
mod error;
mod list;
mod pass;
mod restore;
mod run;
mod store;

pub use error::BackupError;
pub use list::{StoredBackup, list};
pub use restore::{Restored, restore};
pub use run::{Backup, BackupSettings};

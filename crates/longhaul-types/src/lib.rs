//! Types that all layers of longhaul share: [`Message`]s, their [`Position`] in a log, their
//! [`Properties`], and points in time ([`moment`]).
//!
//! Pure data: no clock, no I/O, no async. Internal to longhaul: it may change at any time.

mod message;
pub mod moment;
mod position;
mod properties;

pub use message::{Message, OrderKey, Outgoing};
pub use position::{EntryId, Position};
pub use properties::{Properties, PropertyWriter};

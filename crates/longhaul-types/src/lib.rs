//! Types that all layers of longhaul share: [`Message`]s, their [`Position`] in a log, their
//! [`Properties`], points in time ([`moment`]), and the kinds of errors ([`error`]).
//!
//! Pure data: no clock, no I/O, no async. Internal to longhaul: it may change at any time.

pub mod error;
mod message;
pub mod moment;
mod position;
mod properties;

pub use message::{Message, OrderKey, Outgoing};
pub use position::{EntryId, Position};
pub use properties::{Properties, PropertyWriter};

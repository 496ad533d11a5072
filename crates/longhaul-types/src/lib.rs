//! What all layers of longhaul name alike: [`Message`]s, where they are stored on a log
//! ([`Position`]), what they carry ([`Properties`]), and when something happened ([`moment`]).
//!
//! Pure data: no clock, no I/O, no async. Internal to longhaul: it may change on any day.

mod message;
pub mod moment;
mod position;
mod properties;

pub use message::{Message, OrderKey, Outgoing};
pub use position::{EntryId, Position};
pub use properties::{Properties, PropertyWriter};

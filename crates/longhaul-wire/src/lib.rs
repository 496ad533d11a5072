//! The Apache Pulsar binary protocol, without I/O. The embedded broker and longhaul's own session
//! share it.
//!
//! - [`messages`]: the commands and the metadata of messages, as proto2 messages.
//! - [`frame`]: the framing of commands and messages in a byte stream, with limits.
//! - [`payload`]: a message as it is sent, stored and delivered, including its checksum.
//! - [`head`]: the part of the metadata that a consumer needs.
//! - [`summary`]: the part of the metadata that a broker needs.
//! - [`batch`]: several messages in one payload.
//! - [`compression`]: compression of payloads; only readers of a batch's messages must undo it.
//!
//! Numbers are big endian. Fields that this version does not know are skipped.

pub mod batch;
pub mod compression;
pub mod frame;
pub mod head;
pub mod messages;
pub mod payload;
pub mod summary;

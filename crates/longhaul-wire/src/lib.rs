//! The Apache Pulsar binary protocol, without I/O: what the embedded broker and longhaul's own
//! session share.
//!
//! - [`messages`]: the commands and the metadata of messages, as Protocol Buffers of the second
//!   version.
//! - [`frame`]: how commands and messages lie in a stream of bytes, with limits.
//! - [`payload`]: a message as it is sent, stored and delivered, checksum included.
//! - [`head`]: what a consumer needs to know of its metadata.
//! - [`summary`]: what a broker needs to know of a message.
//! - [`batch`]: several messages in one payload.
//! - [`compression`]: the payload's compression, which only who looks into a batch must undo.
//!
//! Numbers are big endian. Fields that this version does not know are skipped.

pub mod batch;
pub mod compression;
pub mod frame;
pub mod head;
pub mod messages;
pub mod payload;
pub mod summary;

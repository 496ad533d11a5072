//! Decodes the requests in a connection's bytes. Pure.

use crate::log::Facts;
use crate::machine::effect::{ClientRequest, IncomingMessage, RequestRefusal};
use bytes::BytesMut;
use longhaul_wire::frame::{self, Frame, FrameError};
use longhaul_wire::messages::{Command, MessageIdData, ServerError};
use longhaul_wire::payload::{Payload, PayloadDecodeError};

/// Requests that are passed on together.
pub(crate) const REQUESTS_MAX: usize = 1024;

/// Largest command without its message. Clients acknowledge, and ask for, some thousands of messages
/// at a time.
const COMMAND_BYTES_MAX: usize = 1024 * 1024;
/// A command grows by this factor when it is decoded: an empty message id takes 2 bytes.
const DECODED_FACTOR: usize = size_of::<MessageIdData>() / 2;
/// The command before a message is not larger, and has no lists.
const SEND_BYTES_MAX: usize = 256;

/// Size of the command of the first frame.
fn command_bytes(buffer: &[u8]) -> usize {
    let size = buffer.get(4..).and_then(<[u8]>::first_chunk);
    size.map_or(0, |size| u32::from_be_bytes(*size) as usize)
}

/// Bytes that the next [`REQUESTS_MAX`] requests of a buffer take when they are decoded; `None` if the
/// first one is incomplete.
pub(crate) fn decoded_bytes(buffer: &[u8], message_bytes_max: usize) -> Option<usize> {
    let (mut rest, mut bytes) = (buffer, None);
    for _ in 0..REQUESTS_MAX {
        let Some((size, frames)) = rest.split_first_chunk() else { break };
        let (size, command) = (u32::from_be_bytes(*size) as usize, command_bytes(rest));
        let is_refused = size > message_bytes_max.saturating_add(frame::FRAME_ALLOWANCE)
            || command > COMMAND_BYTES_MAX;
        if is_refused {
            return bytes.or(Some(0));
        }
        let Some((_, next)) = frames.split_at_checked(size) else { break };
        let is_send = size > command + 4 && command <= SEND_BYTES_MAX;
        let factor = if is_send { 1 } else { DECODED_FACTOR };
        let decoded = size + command.min(size) * factor + size_of::<ClientRequest>();
        bytes = Some(bytes.unwrap_or_default() + decoded);
        rest = next;
    }
    bytes
}

/// Decoded requests.
#[derive(Debug, Default)]
pub(crate) struct ParsedRequests {
    /// In order of arrival.
    pub(crate) requests: Vec<ClientRequest>,
    /// Whether invalid bytes follow: nothing after them can be read.
    pub(crate) is_broken: bool,
    /// Whether there may be more in the buffer.
    pub(crate) has_more: bool,
    /// Whether the last request may have a much larger answer.
    pub(crate) is_heavy: bool,
}

/// Decodes the next requests, at most so many.
pub(crate) fn requests(
    buffer: &mut BytesMut,
    is_connected: &mut bool,
    message_bytes_max: usize,
    most: usize,
) -> ParsedRequests {
    let requests = Vec::with_capacity((buffer.len() / 128).clamp(1, 64));
    let mut parsed = ParsedRequests { requests, ..ParsedRequests::default() };
    while !parsed.is_heavy {
        if parsed.requests.len() >= most {
            parsed.has_more = true;
            return parsed;
        }
        // Before CONNECT, a client must not send messages.
        let limit = if *is_connected { message_bytes_max } else { 0 };
        let command = command_bytes(buffer);
        let decoded = if command > COMMAND_BYTES_MAX {
            Err(FrameError::TooLarge { size: command, limit: COMMAND_BYTES_MAX })
        } else {
            frame::decode(buffer, limit)
        };
        match decoded {
            Ok(Some(Frame { command: Command::Send(send), payload })) => {
                let message = payload.ok_or_else(|| {
                    RequestRefusal::new(
                        ServerError::UnknownError,
                        "SEND needs a message, this one has none",
                    )
                });
                parsed.requests.push(ClientRequest::Publish(send, message.and_then(verified)));
            }
            Ok(Some(Frame { command, .. })) => {
                *is_connected |= matches!(command, Command::Connect(_));
                parsed.is_heavy = matches!(
                    command,
                    Command::GetTopicsOfNamespace(_)
                        | Command::WatchTopicList(_)
                        | Command::GetSchema(_)
                );
                parsed.requests.push(ClientRequest::Command(command));
            }
            Ok(None) => return parsed,
            Err(error) => {
                let code = match error {
                    FrameError::TooLarge { .. } => ServerError::NotAllowedError,
                    FrameError::Sizes
                    | FrameError::Command(_)
                    | FrameError::Type(_)
                    | FrameError::Payload(_) => ServerError::UnknownError,
                };
                parsed
                    .requests
                    .push(ClientRequest::Garbage(RequestRefusal::new(code, error.to_string())));
                parsed.is_broken = true;
                return parsed;
            }
        }
    }
    parsed.has_more = true;
    parsed
}

/// Validates a message: every consumer must be able to read stored messages.
pub(crate) fn verified(payload: Payload) -> Result<IncomingMessage, RequestRefusal> {
    let refuse = |cause: PayloadDecodeError| {
        let code = match cause {
            PayloadDecodeError::Checksum { .. } => ServerError::ChecksumError,
            PayloadDecodeError::Short | PayloadDecodeError::Metadata(_) => {
                ServerError::UnknownError
            }
        };
        RequestRefusal::new(code, cause.to_string())
    };
    payload.verify().map_err(refuse)?;
    let metadata = payload.summary().map_err(refuse)?;
    let batch =
        metadata.num_messages_in_batch.map(|count| u32::try_from(count).unwrap_or_default().max(1));
    if let Some(count) = batch {
        check_batch(count, &payload, metadata.uncompressed_size)?;
    }
    let chunks = metadata.num_chunks_from_msg.unwrap_or(1);
    let deliver_at = metadata.deliver_at_time.and_then(|at| u64::try_from(at).ok());
    let uuid = metadata.uuid.as_ref().filter(|_| chunks > 1);
    let facts = Facts {
        publish_time: metadata.publish_time,
        batch,
        deliver_at: deliver_at.filter(|&at| at > 0),
        chunk_of: uuid.map(|uuid| u64::from(crc32c::crc32c(uuid))),
        key_hash: crate::key_hash::of(&metadata),
    };
    let has_next_chunk = metadata.chunk_id.unwrap_or_default() + 1 < chunks;
    Ok(IncomingMessage { payload, facts, has_next_chunk })
}

/// Smallest size of a message in a batch, in bytes: the size of its metadata, and in it the size of
/// its body.
const BATCHED_BYTES_MIN: usize = 6;
/// Maximum number of messages in a batch. Clients batch a thousand messages by default.
const BATCH_MAX: u32 = 100_000;
/// No client unpacks more.
const UNPACKED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Refuses a batch that claims more messages than it can hold: an acknowledgement of one message
/// makes the broker keep a bit for each of the others.
fn check_batch(count: u32, payload: &Payload, unpacked: Option<u32>) -> Result<(), RequestRefusal> {
    let unpacked = unpacked.map_or(0, |size| size as usize).min(UNPACKED_BYTES_MAX);
    let size = payload.body().len().max(unpacked);
    if count > BATCH_MAX {
        let text = format!("a batch has at most {BATCH_MAX} messages, this one {count}");
        return Err(RequestRefusal::not_allowed(text));
    }
    if count as usize <= (size / BATCHED_BYTES_MIN).max(1) {
        return Ok(());
    }
    let text = format!("{size} bytes cannot hold a batch of {count} messages");
    Err(RequestRefusal::not_allowed(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_wire::messages::{
        CommandGetTopicsOfNamespace, CommandWatchTopicList, MessageMetadata,
    };

    /// Regression: a hundred watches of topics were processed at once. Each answer lists the topics,
    /// and together they took 2.5 GB.
    #[test]
    fn requests_with_large_answers_are_passed_on_one_by_one() {
        let list = |id| -> [Command; 2] {
            let watch = CommandWatchTopicList { request_id: id, ..Default::default() };
            let ask = CommandGetTopicsOfNamespace { request_id: id, ..Default::default() };
            [watch.into(), ask.into()]
        };
        let mut buffer = BytesMut::new();
        for command in list(1).into_iter().chain(list(2)) {
            frame::encode(command, &mut buffer);
        }
        for _ in 0..4 {
            let parsed = requests(&mut buffer, &mut true, 0, REQUESTS_MAX);
            assert_eq!((parsed.requests.len(), parsed.is_heavy, parsed.has_more), (1, true, true));
        }
        assert!(requests(&mut buffer, &mut true, 0, REQUESTS_MAX).requests.is_empty());
    }

    /// A message of a few bytes could claim to be a batch of two billion. The first acknowledgement
    /// of a part of it took 256 MiB.
    #[test]
    fn a_batch_cannot_claim_more_messages_than_it_has_room_for() {
        let batch = |count, unpacked, body: &[u8]| {
            let metadata = MessageMetadata {
                num_messages_in_batch: Some(count),
                uncompressed_size: unpacked,
                ..MessageMetadata::default()
            };
            verified(Payload::new(&metadata, body)).map(|message| message.facts.batch)
        };
        assert!(batch(i32::MAX, None, b"small").is_err());
        assert!(batch(i32::MAX, Some(u32::MAX), b"small").is_err());
        assert_eq!(batch(2, None, &[0; 12]), Ok(Some(2)));
        assert_eq!(batch(1000, Some(6000), b"compressed"), Ok(Some(1000)));
        assert_eq!(
            batch(-3, None, b""),
            Ok(Some(1)),
            "what claims to have none takes a permit too"
        );
    }
}

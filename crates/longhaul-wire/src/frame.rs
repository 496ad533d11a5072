//! Frames: `u32 total | u32 size of command | command | payload`. The total does not count its own
//! four bytes.

use crate::messages::{BaseCommand, Command, MessageMetadata};
use crate::payload::{self, Payload, PayloadDecodeError};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

/// Largest message when a broker states no limit: the default of Pulsar and of all its clients.
pub const MESSAGE_BYTES_MAX_DEFAULT: usize = 5 * 1024 * 1024;
/// Bytes that a frame may have besides its message: Pulsar's allowance for command and metadata.
pub const FRAME_ALLOWANCE: usize = 10 * 1024;

/// Commands up to this size are encoded on the stack. Numbers are written byte by byte, and a
/// growing buffer checks its room for each byte.
const SMALL_BYTES: usize = 256;

/// Why bytes are not a frame. The rest of the stream cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The declared size is above the limit.
    #[error("a frame of {size} bytes is above the limit of {limit}")]
    TooLarge {
        /// Declared size in bytes.
        size: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// Its sizes contradict each other.
    #[error("the frame's sizes contradict each other")]
    Sizes,
    /// The command is not a Protocol Buffers message, or lacks a required field.
    #[error("malformed command: {0}")]
    Command(String),
    /// The command's type is unknown, or contradicts its content.
    #[error("unknown command type {0}")]
    Type(i32),
    /// The bytes after the command are not a message.
    #[error(transparent)]
    Payload(#[from] PayloadDecodeError),
}

/// A command, with the message that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The command.
    pub command: Command,
    /// Present after SEND and MESSAGE. Its checksum is not verified.
    pub payload: Option<Payload>,
}

/// Removes the next frame from the front of the buffer; `None` when it is incomplete.
/// `message_bytes_max` is the agreed maximum size of a message.
///
/// # Errors
/// See [`FrameError`].
pub fn decode(
    buffer: &mut BytesMut,
    message_bytes_max: usize,
) -> Result<Option<Frame>, FrameError> {
    let Some(head) = buffer.get(..4) else { return Ok(None) };
    let (mut head, limit) = (head, message_bytes_max.saturating_add(FRAME_ALLOWANCE));
    let size = head.get_u32() as usize;
    if size > limit {
        return Err(FrameError::TooLarge { size, limit });
    }
    if buffer.len() < 4 + size {
        // Room for the rest of the frame, so that the buffer grows once.
        buffer.reserve(4 + size - buffer.len());
        return Ok(None);
    }
    buffer.advance(4);
    parse(buffer.split_to(size).freeze()).map(Some)
}

/// Reads a frame without its first four bytes.
fn parse(mut bytes: Bytes) -> Result<Frame, FrameError> {
    let size = bytes.try_get_u32().map_err(|_| FrameError::Sizes)? as usize;
    if bytes.len() < size {
        return Err(FrameError::Sizes);
    }
    let command = BaseCommand::decode(bytes.split_to(size))
        .map_err(|error| FrameError::Command(error.to_string()))?;
    let number = command.r#type;
    let command = command.command.filter(|it| it.number() == number);
    let command = command.ok_or(FrameError::Type(number))?;
    let payload = if bytes.is_empty() { None } else { Some(Payload::parse(bytes)?) };
    Ok(Frame { command, payload })
}

/// Appends a command without a message.
pub fn encode(command: impl Into<Command>, out: &mut BytesMut) {
    encode_head(command.into(), 0, out);
}

/// Appends a command and encodes its message directly into `out`, so each byte is written once.
pub fn encode_message(
    command: impl Into<Command>,
    metadata: &MessageMetadata,
    body: &[u8],
    out: &mut BytesMut,
) {
    let size = payload::encoded_len(metadata, body);
    encode_head(command.into(), size, out);
    out.reserve(size);
    payload::encode(metadata, body, out);
}

/// Appends a command and an encoded message.
pub fn encode_with(command: impl Into<Command>, payload: &Payload, out: &mut BytesMut) {
    encode_head(command.into(), payload.bytes().len(), out);
    out.put_slice(payload.bytes());
}

/// Appends the part of a frame before a message of this size, for a caller that writes the message
/// itself without copying it.
pub fn encode_head(command: Command, payload_size: usize, out: &mut BytesMut) {
    let command = BaseCommand::from(command);
    let size = command.encoded_len();
    let total = 4 + size + payload_size;
    let put = |out: &mut dyn BufMut| {
        out.put_u32(u32::try_from(total).unwrap_or(u32::MAX));
        out.put_u32(u32::try_from(size).unwrap_or(u32::MAX));
    };
    let mut small = [0; SMALL_BYTES];
    if let Some(space) = small.get_mut(..8 + size) {
        let mut rest = &mut *space;
        put(&mut rest);
        command.encode_raw(&mut rest);
        out.extend_from_slice(space);
        return;
    }
    out.reserve(8 + size);
    put(out);
    command.encode_raw(out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{CommandPing, CommandSend, MessageMetadata};
    use proptest::prelude::*;

    const LIMIT: usize = 1024;

    fn send() -> CommandSend {
        CommandSend { producer_id: 1, sequence_id: 2, ..CommandSend::default() }
    }

    fn two_frames() -> BytesMut {
        let mut out = BytesMut::new();
        encode(CommandPing {}, &mut out);
        let payload = Payload::new(&MessageMetadata::default(), b"body");
        encode_with(send(), &payload, &mut out);
        out
    }

    #[test]
    fn a_message_written_in_place_is_the_one_put_together_before() {
        for body in [Vec::new(), b"body".to_vec(), vec![7; 100_000]] {
            let metadata = MessageMetadata { sequence_id: 300, ..MessageMetadata::default() };
            // The checksum does not cover the bytes before the message in the buffer.
            let (mut written, mut copied) = (two_frames(), two_frames());
            encode_message(send(), &metadata, &body, &mut written);
            encode_with(send(), &Payload::new(&metadata, &body), &mut copied);
            assert_eq!(written, copied);
        }
    }

    #[test]
    fn frames_come_back_however_the_stream_is_cut() {
        let whole = two_frames();
        for cut in 0..whole.len() {
            let mut buffer = BytesMut::from(&whole[..cut]);
            let mut frames = Vec::new();
            while let Some(frame) = decode(&mut buffer, LIMIT).unwrap() {
                frames.push(frame);
            }
            buffer.extend_from_slice(&whole[cut..]);
            while let Some(frame) = decode(&mut buffer, LIMIT).unwrap() {
                frames.push(frame);
            }
            assert_eq!(frames.len(), 2, "cut at {cut}");
            assert_eq!(frames[0].command, Command::Ping(CommandPing {}));
            assert_eq!(frames[1].command, Command::Send(send()));
            assert_eq!(&frames[1].payload.as_ref().unwrap().body()[..], b"body");
        }
    }

    #[test]
    fn a_frame_above_the_limit_is_refused_by_its_head_alone() {
        let mut buffer = BytesMut::from(&(1024 * 1024_u32).to_be_bytes()[..]);
        let refused = decode(&mut buffer, LIMIT).unwrap_err();
        assert_eq!(
            refused,
            FrameError::TooLarge { size: 1024 * 1024, limit: LIMIT + FRAME_ALLOWANCE }
        );
    }

    #[test]
    fn sizes_that_contradict_each_other_are_refused() {
        let mut buffer = BytesMut::from(&[0, 0, 0, 4, 0, 0, 0, 9][..]);
        assert_eq!(decode(&mut buffer, LIMIT), Err(FrameError::Sizes));
        let mut buffer = BytesMut::from(&[0, 0, 0, 0][..]);
        assert_eq!(decode(&mut buffer, LIMIT), Err(FrameError::Sizes));
    }

    #[test]
    fn a_type_that_contradicts_its_content_is_refused() {
        let wrong = BaseCommand { r#type: 9, command: Some(Command::Ping(CommandPing {})) };
        let bytes = wrong.encode_to_vec();
        let mut buffer = BytesMut::new();
        buffer.put_u32(4 + u32::try_from(bytes.len()).unwrap());
        buffer.put_u32(u32::try_from(bytes.len()).unwrap());
        buffer.put_slice(&bytes);
        assert_eq!(decode(&mut buffer, LIMIT), Err(FrameError::Type(9)));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = decode(&mut buffer, LIMIT) {}
        }

        /// Random bytes after a plausible head reach deeper code.
        #[test]
        fn random_commands_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), size in 0..300_u32) {
            let mut buffer = BytesMut::new();
            buffer.put_u32(4 + u32::try_from(bytes.len()).unwrap());
            buffer.put_u32(size);
            buffer.put_slice(&bytes);
            drop(decode(&mut buffer, LIMIT));
        }

        #[test]
        fn a_damaged_frame_never_panics(at in 0..200_usize, with: u8) {
            let mut buffer = two_frames();
            let at = at % buffer.len();
            buffer[at] = with;
            while let Ok(Some(frame)) = decode(&mut buffer, LIMIT) {
                drop(frame.payload.map(|payload| (payload.verify(), payload.metadata())));
            }
        }
    }
}

//! Puts the forwarder's address into answers to lookups.

use bytes::{Buf, Bytes, BytesMut};
use longhaul_wire::frame::{FRAME_ALLOWANCE, MESSAGE_BYTES_MAX_DEFAULT, decode, encode};
use longhaul_wire::messages::Command;

/// A larger frame is a message and needs no check.
const ANSWER_BYTES_MAX: usize = 4 * 1024;
/// Frames to clients may be larger than those from clients: a batch is delivered with the broker's
/// additions.
const FRAME_BYTES_MAX: usize = 2 * (MESSAGE_BYTES_MAX_DEFAULT + FRAME_ALLOWANCE);

/// Splits the broker's bytes into frames.
#[derive(Debug)]
pub(super) struct Rewriter {
    service_url: String,
    buffer: BytesMut,
}

/// The bytes are not a stream of frames.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoFrame;

impl Rewriter {
    pub(super) fn new(service_url: &str) -> Self {
        Self { service_url: service_url.to_owned(), buffer: BytesMut::new() }
    }

    /// Adds bytes and returns the complete frames, joined; empty if there is none.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Bytes, NoFrame> {
        self.buffer.extend_from_slice(bytes);
        let mut out = BytesMut::new();
        loop {
            let Some(mut head) = self.buffer.get(..4) else { return Ok(out.freeze()) };
            let size = 4 + head.get_u32() as usize;
            if size > FRAME_BYTES_MAX {
                return Err(NoFrame);
            }
            if self.buffer.len() < size {
                return Ok(out.freeze());
            }
            let frame = self.buffer.split_to(size);
            match self.rewritten(&frame) {
                Some(answer) => out.extend_from_slice(&answer),
                None => out.extend_from_slice(&frame),
            }
        }
    }

    /// A lookup answer with our address; `None` for all other frames. Unreadable frames are left to
    /// the client.
    fn rewritten(&self, frame: &[u8]) -> Option<BytesMut> {
        if frame.len() > ANSWER_BYTES_MAX {
            return None;
        }
        let decoded = decode(&mut BytesMut::from(frame), ANSWER_BYTES_MAX).ok()??;
        let Command::LookupResponse(mut answer) = decoded.command else { return None };
        answer.broker_service_url.as_mut()?.clone_from(&self.service_url);
        let mut out = BytesMut::new();
        encode(Command::LookupResponse(answer), &mut out);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_wire::frame::encode_with;
    use longhaul_wire::messages::{
        CommandLookupTopicResponse, CommandMessage, CommandPing, MessageIdData, MessageMetadata,
    };
    use longhaul_wire::payload::Payload;

    fn lookup(url: &str) -> BytesMut {
        let answer = CommandLookupTopicResponse {
            broker_service_url: Some(url.to_owned()),
            request_id: 7,
            ..CommandLookupTopicResponse::default()
        };
        let mut out = BytesMut::new();
        encode(answer, &mut out);
        out
    }

    #[test]
    fn only_the_address_in_a_lookup_changes_however_the_stream_is_cut() {
        let mut others = BytesMut::new();
        encode(CommandPing {}, &mut others);
        let payload = Payload::new(&MessageMetadata::default(), &[0xff; 9_000]);
        let id = MessageIdData { ledger_id: 1, ..MessageIdData::default() };
        let message = CommandMessage { message_id: id, ..CommandMessage::default() };
        encode_with(message, &payload, &mut others);
        let whole = [&others[..], &lookup("pulsar://a:1"), &others].concat();
        let expected = [&others[..], &lookup("pulsar://127.0.0.1:12345"), &others].concat();
        for cut in [0, 1, 5, others.len() - 1, others.len() + 3, whole.len() - 1] {
            let mut rewriter = Rewriter::new("pulsar://127.0.0.1:12345");
            let mut out = rewriter.take(&whole[..cut]).unwrap().to_vec();
            out.extend_from_slice(&rewriter.take(&whole[cut..]).unwrap());
            assert!(out == expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_redirection_without_an_address_passes() {
        let mut answer = BytesMut::new();
        encode(CommandLookupTopicResponse::default(), &mut answer);
        assert_eq!(Rewriter::new("x").take(&answer), Ok(answer.clone().freeze()));
    }

    #[test]
    fn what_is_no_stream_of_frames_is_refused() {
        assert_eq!(Rewriter::new("x").take(b"HTTP/1.1 400 Bad Request"), Err(NoFrame));
    }
}

//! Frames of real clients and brokers, each kind of them once.
//!
//! A file has the frames as they were on the wire, each after a byte for its sender. It is
//! compressed, because a chunk of a message has a megabyte of little information.

use bytes::{Bytes, BytesMut};
use longhaul_wire::batch::Singles;
use longhaul_wire::frame::{self, Frame};
use longhaul_wire::payload::Payload;
use longhaul_wire::{compression, messages::MessageMetadata};
use std::collections::HashSet;
use std::io;

/// Largest message and largest unpacked body in a recording.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Messages above this size, in bytes, are called large.
const LARGE: usize = 1000;
/// zstd level; it runs once for each recording.
const LEVEL: i32 = 19;

/// Sender of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Side {
    Client,
    Broker,
}

impl Side {
    const fn mark(self) -> u8 {
        match self {
            Self::Client => b'>',
            Self::Broker => b'<',
        }
    }
}

/// Frames in order of arrival, of all connections together.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    frames: Vec<(Side, Bytes)>,
    shapes: HashSet<String>,
}

impl Recording {
    /// Adds a frame, unless one of the same shape exists.
    pub(crate) fn add(&mut self, side: Side, bytes: &Bytes) {
        if self.shapes.insert(shape(side, bytes)) {
            self.frames.push((side, bytes.clone()));
        }
    }

    /// Keeps only the frames of one side.
    pub(crate) fn retain(&mut self, side: Side) {
        self.frames.retain(|(it, _)| *it == side);
    }

    pub(crate) fn frames(&self) -> &[(Side, Bytes)] {
        &self.frames
    }

    /// The contents of a file.
    pub(crate) fn pack(&self) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        for (side, bytes) in &self.frames {
            plain.push(side.mark());
            plain.extend_from_slice(bytes);
        }
        zstd::stream::encode_all(&plain[..], LEVEL)
    }

    /// Reads the contents of a file.
    pub(crate) fn unpack(file: &[u8]) -> io::Result<Self> {
        let mut plain = Bytes::from(zstd::stream::decode_all(file)?);
        let mut recording = Self::default();
        while let Some((mark, rest)) = plain.split_first() {
            let sides = [Side::Client, Side::Broker];
            let side = sides.into_iter().find(|side| side.mark() == *mark).ok_or_else(corrupt)?;
            let head = rest.first_chunk::<4>().ok_or_else(corrupt)?;
            let end = 1 + 4 + u32::from_be_bytes(*head) as usize;
            if plain.len() < end {
                return Err(corrupt());
            }
            recording.frames.push((side, plain.split_to(end).slice(1..)));
        }
        Ok(recording)
    }
}

fn corrupt() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the recording is damaged")
}

/// The shape of a frame, for grouping: the command, the fields of the command and its metadata, and
/// the names and small numbers that describe the message. Other numbers and texts are left out.
fn shape(side: Side, bytes: &Bytes) -> String {
    let mut shape = format!("{side:?} ");
    match frame::decode(&mut BytesMut::from(&bytes[..]), MESSAGE_BYTES_MAX) {
        Ok(Some(Frame { command, payload })) => {
            // Only the size of unknown fields is visible.
            let mut again = BytesMut::new();
            frame::encode_head(command.clone(), 0, &mut again);
            let message = payload.as_ref().map_or(0, |it| it.bytes().len());
            let unknown = bytes.len() - message != again.len();
            shape += &format!("{unknown} {}", without_values(&format!("{command:?}")));
            shape + payload.map(|payload| shape_of(&payload)).as_deref().unwrap_or_default()
        }
        // Each invalid frame is kept.
        undecoded => format!("{shape} {undecoded:?} {bytes:?}"),
    }
}

fn shape_of(payload: &Payload) -> String {
    let Ok(metadata) = payload.metadata() else { return format!("{payload:?}") };
    let mut shape = without_values(&format!("{metadata:?}"));
    let MessageMetadata { num_messages_in_batch: count, chunk_id, num_chunks_from_msg, .. } =
        metadata;
    shape += &format!("{count:?} {chunk_id:?} {num_chunks_from_msg:?} ");
    let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
    let body = compression::kind(metadata.compression).and_then(|kind| {
        let size = metadata.uncompressed_size.unwrap_or_default();
        compression::unpack(kind, &payload.body(), size, MESSAGE_BYTES_MAX)
    });
    let body = body.unwrap_or_default();
    // The parts of a large message matter more than those of a small one.
    shape += &format!("large: {} ", body.len() > LARGE);
    let singles: HashSet<String> = Singles::new(body, count)
        .map(|single| without_values(&format!("{:?}", single.map(|single| single.metadata))))
        .collect();
    let mut singles: Vec<String> = singles.into_iter().collect();
    singles.sort();
    shape + &singles.concat()
}

/// Replaces texts by empty ones, and numbers by zero.
fn without_values(text: &str) -> String {
    let mut out = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '"' {
            while let Some(inner) = characters.next() {
                match inner {
                    '\\' => drop(characters.next()),
                    '"' => break,
                    _ => {}
                }
            }
            out.push('"');
        } else if character.is_ascii_digit() {
            while characters.next_if(|next| next.is_ascii_digit() || *next == '.').is_some() {}
            out.push('0');
        } else {
            out.push(character);
        }
    }
    out
}

//! Where fuzzing starts: inputs made of recorded frames, and those that earlier runs have found, one file for each target.

use bytes::{Bytes, BytesMut};
use longhaul_wire::{compression, frame};
use std::io;

/// Larger frames hold the same structures with more bytes in them, and make a fuzzer slow.
const SEED_BYTES_MAX: usize = 1024;
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// The corpus is compressed once and read often.
const LEVEL: i32 = 19;

/// Inputs for a target, made of whole frames.
pub fn seeds(target: &str, frames: &[Bytes]) -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = frames.iter().filter_map(|frame| seed(target, frame)).collect();
    seeds.retain(|seed| seed.len() <= SEED_BYTES_MAX);
    seeds.sort();
    seeds.dedup();
    seeds
}

fn seed(target: &str, bytes: &Bytes) -> Option<Vec<u8>> {
    if target == "frames" {
        return Some([&[6], &bytes[..]].concat());
    }
    let frame = frame::decode(&mut BytesMut::from(&bytes[..]), MESSAGE_BYTES_MAX).ok()??;
    let payload = frame.payload?;
    let metadata = payload.metadata().ok()?;
    let size = metadata.uncompressed_size.unwrap_or_default();
    match target {
        "payload" => Some(payload.bytes().to_vec()),
        "decompression" => {
            let kind = u8::try_from(metadata.compression.unwrap_or_default()).ok()?;
            let size = u16::try_from(size).ok()?.to_be_bytes();
            Some([&[kind], &size[..], &payload.body()].concat())
        }
        "batches" => {
            let count = u8::try_from(metadata.num_messages_in_batch?).ok()?;
            let kind = compression::kind(metadata.compression).ok()?;
            let body = compression::unpack(kind, &payload.body(), size, MESSAGE_BYTES_MAX).ok()?;
            Some([&[count], &body[..]].concat())
        }
        _ => None,
    }
}

/// The contents of a file.
pub fn pack(inputs: &[Vec<u8>]) -> io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    for input in inputs {
        let size = u32::try_from(input.len()).map_err(io::Error::other)?;
        plain.extend_from_slice(&size.to_be_bytes());
        plain.extend_from_slice(input);
    }
    zstd::stream::encode_all(&plain[..], LEVEL)
}

/// Reads the contents of a file.
pub fn unpack(file: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let plain = zstd::stream::decode_all(file)?;
    let (mut rest, mut inputs) = (&plain[..], Vec::new());
    while let Some((size, behind)) = rest.split_first_chunk::<4>() {
        let size = u32::from_be_bytes(*size) as usize;
        let cut = || io::Error::new(io::ErrorKind::InvalidData, "the corpus is cut short");
        let (input, behind) = behind.split_at_checked(size).ok_or_else(cut)?;
        inputs.push(input.to_vec());
        rest = behind;
    }
    Ok(inputs)
}

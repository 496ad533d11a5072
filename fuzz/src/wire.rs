//! What must hold of the wire crate for any bytes at all.

use bytes::{Bytes, BytesMut};
use longhaul_wire::batch::{BatchBuilder, Single, Singles};
use longhaul_wire::compression;
use longhaul_wire::frame::{self, Frame, FrameError};
use longhaul_wire::messages::CompressionType;
use longhaul_wire::payload::Payload;

/// Small, so that inputs reach it.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
const KINDS: [CompressionType; 5] = [
    CompressionType::None,
    CompressionType::Lz4,
    CompressionType::Zlib,
    CompressionType::Zstd,
    CompressionType::Snappy,
];

/// A stream, behind a byte that says into how large parts it is cut. Where it is cut must not matter, and what was read is read
/// again from what is written of it.
pub fn frames(input: &[u8]) {
    let Some((step, stream)) = input.split_first() else { return };
    let (whole, end) = read(stream, stream.len().max(1));
    let (cut, end_of_cut) = read(stream, usize::from(*step) + 1);
    assert_eq!(end, end_of_cut, "the end depends on where the stream is cut");
    // Frames with floats that are no numbers do not equal themselves; their bytes do.
    let written: Vec<Bytes> = whole.iter().map(write).collect();
    assert_eq!(written, cut.iter().map(write).collect::<Vec<_>>(), "frames depend on cuts");
    for (frame, bytes) in whole.iter().zip(written) {
        // Fields that must be there are written even where they were missing.
        let again = frame::decode(&mut BytesMut::from(&bytes[..]), 2 * MESSAGE_BYTES_MAX);
        let again = again.expect("what is written can be read").expect("and is whole");
        assert_eq!(write(&again), bytes, "{frame:?}");
    }
}

fn read(stream: &[u8], step: usize) -> (Vec<Frame>, Option<FrameError>) {
    let (mut buffer, mut frames) = (BytesMut::new(), Vec::new());
    for part in stream.chunks(step) {
        buffer.extend_from_slice(part);
        loop {
            match frame::decode(&mut buffer, MESSAGE_BYTES_MAX) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

fn write(frame: &Frame) -> Bytes {
    let mut out = BytesMut::new();
    match &frame.payload {
        Some(payload) => frame::encode_with(frame.command.clone(), payload, &mut out),
        None => frame::encode(frame.command.clone(), &mut out),
    }
    out.freeze()
}

/// A message. What was read of it is read again when it is put together anew, by whichever way.
pub fn payload(input: &[u8]) {
    let Ok(payload) = Payload::parse(Bytes::copy_from_slice(input)) else { return };
    let stored = Payload::parse(payload.bytes().clone()).expect("it has its checksum now");
    assert_eq!(stored, payload);
    drop(payload.verify());
    // What the broker lets through can be decoded by every consumer, and says the same.
    let summary = payload.metadata().ok().map(Into::into);
    assert_eq!(payload.summary().ok(), summary);
    let Ok(metadata) = payload.metadata() else { return };
    let anew = Payload::new(&metadata, &payload.body());
    assert_eq!(anew.verify(), Ok(()));
    assert_eq!((anew.metadata(), anew.body()), (Ok(metadata), payload.body()));
    assert_eq!(Payload::parse(anew.bytes().clone()), Ok(anew));
}

/// A batch, behind a byte that says how many messages it has. It never has more, ends at the first that is damaged, and those
/// before it make up a batch again.
pub fn batches(input: &[u8]) {
    let Some((count, body)) = input.split_first() else { return };
    let count = usize::from(*count);
    let found: Vec<_> = Singles::new(Bytes::copy_from_slice(body), count).collect();
    let is_damaged = found.last().is_some_and(Result::is_err);
    assert!(found.len() == count || is_damaged && found.len() < count.max(1) + 1);
    let singles: Vec<Single> = found.into_iter().filter_map(Result::ok).collect();
    let mut batch = BatchBuilder::default();
    for Single { metadata, body } in &singles {
        batch.push(metadata.clone(), body);
    }
    assert_eq!(batch.count(), singles.len());
    let again: Result<Vec<Single>, _> = Singles::new(batch.finish(), singles.len()).collect();
    assert_eq!(again, Ok(singles));
}

/// A packed body, behind a byte for the kind of compression and two for the size that it claims. It never unpacks to more, and
/// what it unpacks to comes back when it is packed again.
pub fn decompression(input: &[u8]) {
    let Some(([kind, high, low], body)) = input.split_first_chunk() else { return };
    let kind = KINDS[usize::from(*kind) % KINDS.len()];
    let size = u32::from(u16::from_be_bytes([*high, *low]));
    let body = Bytes::copy_from_slice(body);
    let Ok(unpacked) = compression::unpack(kind, &body, size, MESSAGE_BYTES_MAX) else { return };
    assert!(kind == CompressionType::None || unpacked.len() <= size as usize);
    let packed = compression::pack(kind, &unpacked).expect("nothing is refused");
    let size = u32::try_from(unpacked.len()).expect("below the limit");
    assert_eq!(compression::unpack(kind, &packed, size, MESSAGE_BYTES_MAX), Ok(unpacked));
}

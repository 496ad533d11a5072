//! Takes messages apart as far as the wire crate can, and puts them together again.

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use longhaul_wire::batch::{BatchBuilder, Singles};
use longhaul_wire::messages::{Command, CompressionType, MessageMetadata};
use longhaul_wire::payload::Payload;
use longhaul_wire::{compression, frame};

/// The limit of an unpacked body: more than the largest that clients send here.
const BODY_BYTES_MAX: usize = 16 << 20;

pub(crate) fn encode(command: Command, payload: &Payload, out: &mut BytesMut) -> Result<()> {
    payload.verify()?;
    let metadata = payload.metadata()?;
    let kind = compression::kind(metadata.compression)?;
    let body = payload.body();
    // A chunk is a part of a body that was packed as a whole.
    let is_part = metadata.num_chunks_from_msg.is_some_and(|chunks| chunks > 1);
    let body = if is_part || !metadata.encryption_keys.is_empty() {
        body
    } else {
        pack(kind, &metadata, &body)?
    };
    frame::encode_message(command, &metadata, &body, out);
    Ok(())
}

fn pack(kind: CompressionType, metadata: &MessageMetadata, body: &Bytes) -> Result<Bytes> {
    let size = metadata.uncompressed_size.unwrap_or_default();
    let mut unpacked = compression::unpack(kind, body, size, BODY_BYTES_MAX)?;
    if let Some(count) = metadata.num_messages_in_batch {
        let mut batch = BatchBuilder::with_capacity(unpacked.len());
        for single in Singles::new(unpacked, usize::try_from(count).context("negative count")?) {
            let single = single?;
            batch.push(single.metadata, &single.body);
        }
        unpacked = batch.finish();
    }
    Ok(compression::pack(kind, &unpacked)?)
}

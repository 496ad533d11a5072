//! Several messages in one body: a sequence of `u32 size of metadata | single metadata | body`.

use crate::head::read_single;
use crate::messages::SingleMessageMetadata;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

/// Why a body is no batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The batch ends before its last message does.
    #[error("the batch is cut short at message {0}")]
    Short(usize),
    /// A message's metadata cannot be read.
    #[error("malformed metadata of message {index} of a batch: {cause}")]
    Metadata {
        /// Index of the message, from 0.
        index: usize,
        /// The decoder's error.
        cause: String,
    },
}

/// One message of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Single {
    /// Its metadata; `payload_size` is the size of the body.
    pub metadata: SingleMessageMetadata,
    /// Its body.
    pub body: Bytes,
}

/// Reads the messages of an unpacked body in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Singles {
    rest: Bytes,
    index: usize,
    count: usize,
}

impl Singles {
    /// A batch of `count` messages.
    #[must_use]
    pub const fn new(body: Bytes, count: usize) -> Self {
        Self { rest: body, index: 0, count }
    }

    fn read(&mut self) -> Result<Single, BatchError> {
        let index = self.index;
        let short = || BatchError::Short(index);
        let size = self.rest.try_get_u32().map_err(|_| short())? as usize;
        if self.rest.len() < size {
            return Err(short());
        }
        let metadata = read_single(&self.rest.split_to(size))
            .map_err(|cause| BatchError::Metadata { index, cause: cause.to_string() })?;
        let size = usize::try_from(metadata.payload_size).map_err(|_| short())?;
        if self.rest.len() < size {
            return Err(short());
        }
        Ok(Single { metadata, body: self.rest.split_to(size) })
    }
}

impl Iterator for Singles {
    type Item = Result<Single, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.index == self.count {
            return None;
        }
        let single = self.read();
        self.index = if single.is_ok() { self.index + 1 } else { self.count };
        Some(single)
    }
}

/// Builds batches in one buffer, which is reused for the next batch.
#[derive(Clone, Debug, Default)]
pub struct BatchBuilder {
    bytes: BytesMut,
    count: usize,
}

impl BatchBuilder {
    /// Reserves room for this many bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: BytesMut::with_capacity(bytes), count: 0 }
    }

    /// Appends a message and sets its `payload_size`.
    pub fn push(&mut self, mut metadata: SingleMessageMetadata, body: &[u8]) {
        metadata.payload_size = payload_size(body.len());
        let size = metadata.encoded_len();
        self.bytes.reserve(4 + size + body.len());
        self.bytes.put_u32(u32::try_from(size).unwrap_or(u32::MAX));
        metadata.encode_raw(&mut self.bytes);
        self.bytes.put_slice(body);
        self.count += 1;
    }

    /// Number of messages.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The body so far, for a caller that writes it into a frame directly.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes the messages and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// The body, to be compressed as a whole.
    #[must_use]
    pub fn finish(self) -> Bytes {
        self.bytes.freeze()
    }
}

/// A body above 2 GiB exceeds the limits of every frame and is refused there.
fn payload_size(body_len: usize) -> i32 {
    i32::try_from(body_len).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Bytes {
        let mut batch = BatchBuilder::default();
        for key in ["a", "b", ""] {
            let metadata = SingleMessageMetadata {
                partition_key: Some(key.to_owned()),
                ..SingleMessageMetadata::default()
            };
            batch.push(metadata, key.as_bytes());
        }
        assert_eq!(batch.count(), 3);
        batch.finish()
    }

    #[test]
    fn a_batch_comes_back() {
        let singles: Vec<Single> = Singles::new(sample(), 3).map(Result::unwrap).collect();
        let keys: Vec<_> = singles.iter().map(|it| it.metadata.partition_key.as_deref()).collect();
        assert_eq!(keys, [Some("a"), Some("b"), Some("")]);
        assert_eq!(singles.iter().map(|it| it.body.len()).collect::<Vec<_>>(), [1, 1, 0]);
    }

    #[test]
    fn a_cleared_builder_begins_anew() {
        let mut batch = BatchBuilder::with_capacity(100);
        batch.push(SingleMessageMetadata::default(), b"before");
        batch.clear();
        assert_eq!((batch.count(), batch.size()), (0, 0));
        batch.push(SingleMessageMetadata::default(), b"after");
        let single = Singles::new(Bytes::copy_from_slice(batch.bytes()), 1).next().unwrap();
        assert_eq!(&single.unwrap().body[..], b"after");
    }

    #[test]
    fn a_batch_with_fewer_messages_than_it_says_ends_with_one_error() {
        let found: Vec<_> = Singles::new(sample(), 1_000_000_000).collect();
        assert_eq!(found.len(), 4);
        assert_eq!(found[3], Err(BatchError::Short(3)));
    }

    #[test]
    fn a_size_below_zero_is_refused() {
        let metadata =
            SingleMessageMetadata { payload_size: -1, ..SingleMessageMetadata::default() };
        let mut bytes = BytesMut::new();
        bytes.put_u32(u32::try_from(metadata.encoded_len()).unwrap());
        metadata.encode_raw(&mut bytes);
        let found: Vec<_> = Singles::new(bytes.freeze(), 1).collect();
        assert_eq!(found, [Err(BatchError::Short(0))]);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(body: Vec<u8>, count in 0..50_usize) {
            prop_assert!(Singles::new(body.into(), count).count() <= count);
        }
    }
}

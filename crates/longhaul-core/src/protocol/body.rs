//! The body of a ledger entry: one byte for its form, then the content.
//!
//! The byte is needed because compaction treats a keyed message with an empty payload as a
//! tombstone, whatever its properties, so it would remove a claim without a body. Only a tombstone
//! is empty.

use bytes::{BufMut, Bytes, BytesMut};

/// The rest of the body is the plain content: a result, a failure reason, a checkpoint, or nothing.
const RAW: u8 = 0x01;

/// Builds the body with this content, which may be empty.
#[must_use]
pub fn encode(content: &[u8]) -> Bytes {
    if content.is_empty() {
        return Bytes::from_static(&[RAW]);
    }
    let mut body = BytesMut::with_capacity(1 + content.len());
    body.put_u8(RAW);
    body.put_slice(content);
    body.freeze()
}

/// The content of a body; `None` if the body is empty or this version does not know its form.
#[must_use]
pub fn decode(body: &Bytes) -> Option<Bytes> {
    (*body.first()? == RAW).then(|| body.slice(1..))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Earlier, claims and results without bytes were published with an empty body: a compaction
    /// removed them, and every running task was started a second time.
    #[test]
    fn no_body_is_empty_and_what_is_empty_is_no_body() {
        for content in [b"".as_slice(), b"x", b"\x01"] {
            let body = encode(content);
            assert!(!body.is_empty());
            assert_eq!(decode(&body).as_deref(), Some(content));
        }
        assert_eq!(decode(&Bytes::new()), None);
        assert_eq!(decode(&Bytes::from_static(b"\x02x")), None);
    }
}

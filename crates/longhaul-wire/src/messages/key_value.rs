//! A property. A message has several, so reading one does not allocate.

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};

const KEY: u32 = 1;
const VALUE: u32 = 2;

/// Two texts that share the buffer they came in. Decoding accepts only UTF-8, as the format
/// requires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyValue {
    /// The name.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
}

impl KeyValue {
    /// Creates a property.
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { key: key.into(), value: value.into() }
    }

    /// The name as text; empty if the bytes are not UTF-8.
    #[must_use]
    pub fn key(&self) -> &str {
        std::str::from_utf8(&self.key).unwrap_or_default()
    }

    /// The value as text; empty if the bytes are not UTF-8.
    #[must_use]
    pub fn value(&self) -> &str {
        std::str::from_utf8(&self.value).unwrap_or_default()
    }
}

/// Both fields are required.
impl Message for KeyValue {
    fn encode_raw(&self, out: &mut impl BufMut) {
        encoding::bytes::encode(KEY, &self.key, out);
        encoding::bytes::encode(VALUE, &self.value, out);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        from: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let text = match tag {
            KEY => &mut self.key,
            VALUE => &mut self.value,
            _ => return encoding::skip_field(wire_type, tag, from, context),
        };
        encoding::bytes::merge(wire_type, text, from, context)?;
        if std::str::from_utf8(text).is_err() {
            text.clear();
            #[expect(deprecated, reason = "prost has no other way to say what is wrong")]
            return Err(DecodeError::new("a property is not UTF-8"));
        }
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        encoding::bytes::encoded_len(KEY, &self.key)
            + encoding::bytes::encoded_len(VALUE, &self.value)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_is_read_as_it_was_written_and_shares_its_buffer() {
        let property = KeyValue::new("key", "v\u{e4}lue");
        let bytes = Bytes::from(property.encode_to_vec());
        assert_eq!(bytes, &b"\x0a\x03key\x12\x06v\xc3\xa4lue"[..]);
        let read = KeyValue::decode(bytes.clone()).unwrap();
        assert_eq!(read, property);
        assert!(bytes.as_ptr_range().contains(&read.value.as_ptr()));
        assert_eq!((read.key(), read.value()), ("key", "v\u{e4}lue"));
    }

    #[test]
    fn what_is_no_text_is_no_property() {
        assert!(KeyValue::decode(&b"\x0a\x01\xff"[..]).is_err());
        assert!(KeyValue::decode(&b"\x0a\x05key"[..]).is_err(), "cut short");
        assert!(KeyValue::decode(&b"\x08\x05"[..]).is_err(), "a number");
        let later = KeyValue::decode(&b"\x18\x05\x0a\x03key"[..]).unwrap();
        assert_eq!(later, KeyValue::new("key", ""), "a field of a later version");
    }
}

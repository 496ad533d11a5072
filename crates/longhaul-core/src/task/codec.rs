//! Encodings of payloads and results in transit beyond the form of their types, for example
//! compression or encryption.

use super::payload::PayloadError;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Encodes the bytes of payloads, results and checkpoints, for example to compress or encrypt them.
///
/// ```
/// # mod longhaul { pub use longhaul_core::task::*; }
/// use longhaul::{Codec, PayloadError};
///
/// /// Flips all bits. Use a real cipher.
/// struct Flip;
///
/// impl Codec for Flip {
///     fn name(&self) -> &str {
///         "flip"
///     }
///
///     fn encode(&self, plain: &[u8]) -> Result<Vec<u8>, PayloadError> {
///         Ok(plain.iter().map(|byte| !byte).collect())
///     }
///
///     fn decode(&self, encoded: &[u8]) -> Result<Vec<u8>, PayloadError> {
///         self.encode(encoded)
///     }
/// }
/// ```
///
/// A client with `Client::builder(..).codec(Flip).encode_with("flip")` encodes each submission, and
/// its workers decode tasks.
///
/// The task's message names the codec in its property `TASK_CODEC`, so that any producer may use
/// one. A worker decodes the payload, passes it to the processor, and encodes the result and all
/// checkpoints by the same codec; entries on the metadata topic name it
/// ([`TaskMetadata::codec`](crate::task::TaskMetadata::codec)). A worker without a codec of that
/// name leaves the task to others, as it does when a payload cannot be decoded.
///
/// Plain text is not encoded: failure reasons, progress, log lines and the properties of the
/// message.
pub trait Codec: Send + Sync + 'static {
    /// Its name: text of 1 to 128 bytes, the same wherever the codec is used. Choose another one
    /// when its form changes.
    fn name(&self) -> &str;

    /// Encodes any bytes.
    ///
    /// # Errors
    /// If they cannot be encoded. The task is not submitted, or the attempt has failed for good.
    fn encode(&self, plain: &[u8]) -> Result<Vec<u8>, PayloadError>;

    /// Decodes the output of [`encode`](Self::encode).
    ///
    /// # Errors
    /// If the bytes are something else, or of another key.
    fn decode(&self, encoded: &[u8]) -> Result<Vec<u8>, PayloadError>;
}

/// The codecs of a client and its workers.
#[derive(Clone, Default)]
pub struct Codecs {
    by_name: BTreeMap<String, Arc<dyn Codec>>,
    /// The name of the codec for submissions, unless they name another.
    pub default: Option<String>,
}

impl Codecs {
    /// Adds a codec; replaces an earlier one of the same name.
    pub fn add(&mut self, codec: impl Codec) {
        self.by_name.insert(codec.name().to_owned(), Arc::new(codec));
    }

    /// The codec of this name.
    ///
    /// # Errors
    /// There is none of this name; the error lists the known ones.
    pub fn get(&self, name: &str) -> Result<&Arc<dyn Codec>, PayloadError> {
        self.by_name.get(name).ok_or_else(|| {
            let known: Vec<String> = self.by_name.keys().map(|name| format!("`{name}`")).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            PayloadError::new(format_args!("no codec `{name}` is known here, only {known}"))
        })
    }
}

impl fmt::Debug for Codecs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

/// Encodes by a codec. Errors name the codec.
///
/// # Errors
/// The codec refuses the bytes.
pub fn encode(codec: &dyn Codec, plain: &[u8]) -> Result<Bytes, PayloadError> {
    let encoded = codec.encode(plain);
    encoded.map(Bytes::from).map_err(|cause| by(codec, &cause))
}

/// Decodes by a codec. Errors name the codec.
///
/// # Errors
/// The codec refuses the bytes.
pub fn decode(codec: &dyn Codec, encoded: &[u8]) -> Result<Bytes, PayloadError> {
    let plain = codec.decode(encoded);
    plain.map(Bytes::from).map_err(|cause| by(codec, &cause))
}

fn by(codec: &dyn Codec, cause: &PayloadError) -> PayloadError {
    PayloadError::new(format_args!("codec `{}`: {cause}", codec.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Flip;

    #[test]
    fn errors_name_the_codec_and_those_that_are_known() {
        let mut codecs = Codecs::default();
        let missing = |codecs: &Codecs| codecs.get("zip").err().map(|error| error.to_string());
        assert_eq!(missing(&codecs).as_deref(), Some("no codec `zip` is known here, only none"));
        codecs.add(Flip("b"));
        codecs.add(Flip("a"));
        let told = "no codec `zip` is known here, only `a`, `b`";
        assert_eq!(missing(&codecs).as_deref(), Some(told));
        let codec = codecs.get("a").unwrap();
        let encoded = encode(&**codec, b"plain").unwrap();
        assert_eq!(decode(&**codec, &encoded).as_deref(), Ok(&b"plain"[..]));
        let error = decode(&**codec, b"plain").unwrap_err();
        assert_eq!(error.to_string(), "codec `a`: not what it has written");
    }
}

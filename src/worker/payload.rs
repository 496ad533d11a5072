//! How tasks and results travel as bytes.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw(pub Bytes);

/// UTF-8 text as it is, without the quotes that JSON would put around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(pub String);

/// A type that travels as the payload of a task or as a result: [`Raw`], [`Text`], or any `serde` type, as JSON.
pub trait Payload: Sized + Send + 'static {
    /// Writes the bytes.
    ///
    /// # Errors
    /// The cause in words.
    fn encode(&self) -> Result<Bytes, String>;

    /// Reads the bytes.
    ///
    /// # Errors
    /// The cause in words.
    fn decode(bytes: &Bytes) -> Result<Self, String>;
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Payload for T {
    fn encode(&self) -> Result<Bytes, String> {
        serde_json::to_vec(self).map(Bytes::from).map_err(|error| error.to_string())
    }

    fn decode(bytes: &Bytes) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}

impl Payload for Raw {
    fn encode(&self) -> Result<Bytes, String> {
        Ok(self.0.clone())
    }

    fn decode(bytes: &Bytes) -> Result<Self, String> {
        Ok(Self(bytes.clone()))
    }
}

impl Payload for Text {
    fn encode(&self) -> Result<Bytes, String> {
        Ok(Bytes::copy_from_slice(self.0.as_bytes()))
    }

    fn decode(bytes: &Bytes) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_not_quoted_and_a_string_is() {
        assert_eq!(Text("bar".to_owned()).encode().as_deref(), Ok(&b"bar"[..]));
        assert_eq!("bar".to_owned().encode().as_deref(), Ok(&b"\"bar\""[..]));
    }

    #[test]
    fn garbage_is_refused_with_its_cause() {
        let bytes = Bytes::from_static(b"\xff{");
        assert!(Text::decode(&bytes).is_err_and(|cause| cause.contains("invalid utf-8")));
        assert!(u32::decode(&bytes).is_err_and(|cause| cause.contains("line 1 column 1")));
        assert_eq!(Raw::decode(&bytes), Ok(Raw(bytes)));
    }
}

//! The encoding of tasks and results as bytes.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;

/// Plain bytes.
///
/// `client.submit("archives", &Raw(archive.into()))` submits bytes without encoding them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw(pub Bytes);

/// Plain UTF-8 text, without the quotes of JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(pub String);

/// A value that can be written as the payload of a task or as a result: [`Raw`], [`Text`], or any
/// type that `serde` can serialize, as JSON.
///
/// A type with another form implements this trait and [`FromPayload`] instead of `Serialize`.
pub trait ToPayload {
    /// Writes the bytes.
    ///
    /// # Errors
    /// If the value cannot be written as bytes.
    fn to_payload(&self) -> Result<Bytes, PayloadError>;
}

/// A value that can be read from the payload of a task or from a result: [`Raw`], [`Text`], or any
/// type that `serde` can deserialize, from JSON.
pub trait FromPayload: Sized + Send + 'static {
    /// Reads the bytes.
    ///
    /// # Errors
    /// If the bytes are something else.
    fn from_payload(bytes: &Bytes) -> Result<Self, PayloadError>;
}

/// A value cannot be written as bytes, or bytes are not the requested value. Its text is the cause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PayloadError(String);

impl PayloadError {
    /// An error with this cause.
    pub fn new(cause: impl Display) -> Self {
        Self(cause.to_string())
    }
}

impl<T: Serialize + ?Sized> ToPayload for T {
    fn to_payload(&self) -> Result<Bytes, PayloadError> {
        serde_json::to_vec(self).map(Bytes::from).map_err(PayloadError::new)
    }
}

impl<T: DeserializeOwned + Send + 'static> FromPayload for T {
    fn from_payload(bytes: &Bytes) -> Result<Self, PayloadError> {
        serde_json::from_slice(bytes).map_err(PayloadError::new)
    }
}

impl ToPayload for Raw {
    fn to_payload(&self) -> Result<Bytes, PayloadError> {
        Ok(self.0.clone())
    }
}

impl FromPayload for Raw {
    fn from_payload(bytes: &Bytes) -> Result<Self, PayloadError> {
        Ok(Self(bytes.clone()))
    }
}

impl ToPayload for Text {
    fn to_payload(&self) -> Result<Bytes, PayloadError> {
        Ok(Bytes::copy_from_slice(self.0.as_bytes()))
    }
}

impl FromPayload for Text {
    fn from_payload(bytes: &Bytes) -> Result<Self, PayloadError> {
        let text = std::str::from_utf8(bytes).map_err(PayloadError::new)?;
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_not_quoted_and_a_string_is() {
        assert_eq!(Text("bar".to_owned()).to_payload().as_deref(), Ok(&b"bar"[..]));
        assert_eq!("bar".to_owned().to_payload().as_deref(), Ok(&b"\"bar\""[..]));
        assert_eq!("bar".to_payload().as_deref(), Ok(&b"\"bar\""[..]));
    }

    #[test]
    fn garbage_is_refused_with_its_cause() {
        let bytes = Bytes::from_static(b"\xff{");
        let is = |error: PayloadError, cause| error.to_string().contains(cause);
        assert!(Text::from_payload(&bytes).is_err_and(|error| is(error, "invalid utf-8")));
        assert!(u32::from_payload(&bytes).is_err_and(|error| is(error, "line 1 column 1")));
        assert_eq!(Raw::from_payload(&bytes), Ok(Raw(bytes)));
    }
}

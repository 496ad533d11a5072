//! Values in bodies and queries.

use crate::core::ServiceError;
use crate::problem::ProblemDetails;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Words separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WordList(pub(crate) Vec<String>);

/// The bytes of a JSON value, as they were sent.
pub(crate) fn json_bytes(json: Box<RawValue>) -> Bytes {
    Bytes::from(Box::<str>::from(json).into_boxed_bytes())
}

/// The bytes in base64 of a field of this name.
fn decoded(name: &str, text: &str) -> Result<Bytes, ServiceError> {
    let decoded = STANDARD.decode(text).map(Bytes::from);
    decoded.map_err(|error| ServiceError::Unfit(format!("`{name}` is not base64: {error}")))
}

/// The bytes of a value that has three fields, of which one may be set: text, base64 and JSON.
/// `None` if none is.
pub(super) fn bytes_of(
    name: &str,
    text: Option<String>,
    base64: Option<String>,
    json: Option<Box<RawValue>>,
) -> Result<Option<Bytes>, ServiceError> {
    match (text, base64, json) {
        (None, None, None) => Ok(None),
        (Some(text), None, None) => Ok(Some(Bytes::from(text))),
        (None, Some(text), None) => decoded(&format!("{name}_base64"), &text).map(Some),
        (None, None, Some(json)) => Ok(Some(json_bytes(json))),
        _ => Err(ServiceError::Unfit(format!(
            "set only one of `{name}`, `{name}_base64` and `{name}_json`"
        ))),
    }
}

/// Refuses a request that names neither some nor all, or both: a forgotten filter would mean all.
pub(super) fn all_or_some(all: bool, is_narrow: bool, fields: &str) -> Result<(), ProblemDetails> {
    let detail = match (all, is_narrow) {
        (true, false) | (false, true) => return Ok(()),
        (false, false) => {
            format!(
                "nothing is selected, so nothing was done: give {fields}; or {{\"all\":true}} for \
                 all of the queue"
            )
        }
        (true, true) => format!("`all` cannot be used with {fields}: leave out one or the other"),
    };
    Err(ProblemDetails::bad_request("selection_unclear", detail))
}

/// The text of the error that ended a bulk request early. If nothing was done before, the error is
/// the answer.
pub(super) fn early_end(
    stopped: Option<ServiceError>,
    any_done: bool,
) -> Result<Option<String>, ProblemDetails> {
    match stopped.map(ProblemDetails::from) {
        Some(problem) if !any_done => Err(problem),
        stopped => Ok(stopped.map(|problem| problem.detail.into_owned())),
    }
}

impl WordList {
    /// Reads words separated by commas.
    pub(super) fn of(text: &str) -> Self {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        Self(words.map(str::to_owned).collect())
    }
}

impl<'de> Deserialize<'de> for WordList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::of(&String::deserialize(from)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a bulk request had done was lost with its error.
    #[test]
    fn what_was_done_before_an_error_is_told_with_it() {
        let failed = || Some(ServiceError::Unfit("it broke".to_owned()));
        assert_eq!(early_end(None, true).unwrap(), None);
        assert_eq!(early_end(failed(), true).unwrap().unwrap(), "it broke");
        assert_eq!(early_end(failed(), false).unwrap_err().detail, "it broke");
    }
}

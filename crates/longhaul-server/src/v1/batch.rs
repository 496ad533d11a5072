//! The entries of a batch: parsed one by one, when they are processed.

use crate::core::ServiceError;
use crate::shell::in_plain_words;
use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::fmt;

/// The JSON text of the first `MAX` entries, and the number of all entries. Small entries that are
/// all parsed at once take 80 times the memory of their text.
#[derive(Debug)]
pub(super) struct BatchEntries<'a, const MAX: usize> {
    kept: Vec<&'a RawValue>,
    count: usize,
}

impl<'a, const MAX: usize> BatchEntries<'a, MAX> {
    /// The entries, unless there are more than `MAX`. The texts name the entries, and say what a
    /// refusal means for them.
    pub(super) fn checked(
        self,
        entries: &str,
        refused: &str,
    ) -> Result<Vec<&'a RawValue>, ServiceError> {
        let Self { kept, count } = self;
        if count <= MAX {
            return Ok(kept);
        }
        let detail =
            format!("a batch has at most {MAX} {entries}, this one has {count}; {refused}");
        Err(ServiceError::Unfit(detail))
    }
}

impl<'de: 'a, 'a, const MAX: usize> Deserialize<'de> for BatchEntries<'a, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<const MAX: usize>;

        impl<'de, const MAX: usize> Visitor<'de> for Reader<MAX> {
            type Value = BatchEntries<'de, MAX>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
                let (mut kept, mut count) = (Vec::new(), 0);
                while let Some(entry) = from.next_element()? {
                    count += 1;
                    if count <= MAX {
                        kept.push(entry);
                    }
                }
                Ok(BatchEntries { kept, count })
            }
        }

        from.deserialize_seq(Reader)
    }
}

/// Parses an entry.
pub(super) fn entry<T: DeserializeOwned>(text: &RawValue) -> Result<T, ServiceError> {
    if !text.get().starts_with('{') {
        return Err(ServiceError::Unfit("an entry of a batch is an object".to_owned()));
    }
    let parsed = serde_json::from_str(text.get());
    parsed.map_err(|error| ServiceError::Unfit(in_plain_words(&error.to_string())))
}

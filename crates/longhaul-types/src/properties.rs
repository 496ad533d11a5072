//! Properties of a message.

use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Index;

/// Text values by name. There are few, so they are searched linearly, not sorted. Properties that
/// come from a broker share its buffer.
#[derive(Clone, Default)]
pub struct Properties(Vec<(Bytes, Bytes)>);

impl Properties {
    /// Creates an empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The value of this name, the last one if there are several. `None` if it is not UTF-8.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rfind(|(key, _)| key == name.as_bytes());
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    /// Whether this name has a value.
    #[must_use]
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Sets a value; replaces one of the same name.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (Bytes::from(name.into()), Bytes::from(value.into()));
        self.0.retain(|(key, _)| *key != name);
        self.0.push((name, value));
    }

    /// Number of properties.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no properties.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and values. Properties that are not UTF-8 are left out.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let text = |bytes| std::str::from_utf8(bytes).ok();
        self.0.iter().filter_map(move |(name, value)| Some((text(name)?, text(value)?)))
    }

    /// Converts to the wire form.
    #[must_use]
    pub fn into_bytes(self) -> Vec<(Bytes, Bytes)> {
        self.0
    }

    /// Converts from the wire form.
    #[must_use]
    pub const fn from_bytes(properties: Vec<(Bytes, Bytes)>) -> Self {
        Self(properties)
    }

    /// Size of all names and values, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Copies the properties to a sorted map.
    #[must_use]
    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

/// Writes properties into one buffer.
#[derive(Debug, Default)]
pub struct PropertyWriter {
    text: BytesMut,
    properties: Vec<(Bytes, Bytes)>,
}

impl PropertyWriter {
    /// Creates an empty writer.
    #[must_use]
    pub fn new() -> Self {
        Self { text: BytesMut::with_capacity(128), properties: Vec::with_capacity(8) }
    }

    /// Writes a value in its text form. Callers write each name once.
    pub fn put(&mut self, name: &'static str, value: impl fmt::Display) {
        use fmt::Write;
        // Writing to a `BytesMut` does not fail.
        let _infallible = write!(self.text, "{value}");
        let value = self.text.split().freeze();
        self.properties.push((Bytes::from_static(name.as_bytes()), value));
    }

    /// Writes a value if there is one.
    pub fn put_some(&mut self, name: &'static str, value: Option<impl fmt::Display>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    /// Writes a static value without allocating.
    pub fn put_word(&mut self, name: &'static str, word: &'static str) {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        self.properties.push((bytes(name), bytes(word)));
    }

    /// The written properties.
    #[must_use]
    pub fn finish(self) -> Properties {
        Properties(self.properties)
    }
}

/// Ignores the order.
impl PartialEq for Properties {
    fn eq(&self, other: &Self) -> bool {
        self.to_map() == other.to_map()
    }
}

impl Eq for Properties {}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Properties {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(properties: I) -> Self {
        let pair = |(name, value): (K, V)| (name.into(), value.into());
        properties.into_iter().map(pair).collect::<BTreeMap<String, String>>().into()
    }
}

impl<K: Into<String>, V: Into<String>, const N: usize> From<[(K, V); N]> for Properties {
    fn from(properties: [(K, V); N]) -> Self {
        properties.into_iter().collect()
    }
}

/// Takes the map without copying its texts: a task may have a hundred thousand properties.
impl From<BTreeMap<String, String>> for Properties {
    fn from(properties: BTreeMap<String, String>) -> Self {
        let pair = |(name, value)| (Bytes::from(name), Bytes::from(value));
        Self(properties.into_iter().map(pair).collect())
    }
}

impl Index<&str> for Properties {
    type Output = str;

    /// # Panics
    /// Panics when there is no such property, as maps do.
    fn index(&self, name: &str) -> &str {
        self.get(name).unwrap_or_else(|| panic!("no property `{name}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_name_counts() {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let twice =
            vec![(bytes("a"), bytes("1")), (bytes("b"), bytes("2")), (bytes("a"), bytes("3"))];
        let properties = Properties::from_bytes(twice);
        assert_eq!(
            (properties.get("a"), properties.get("b"), properties.get("c")),
            (Some("3"), Some("2"), None)
        );
        assert_eq!(properties, Properties::from([("b", "2"), ("a", "3")]));
        assert_eq!(properties.to_map().len(), 2);
    }

    #[test]
    fn what_is_no_text_is_not_there() {
        let properties =
            Properties::from_bytes(vec![(Bytes::from_static(b"a"), Bytes::from_static(b"\xff"))]);
        assert_eq!(properties.get("a"), None);
        assert_eq!(properties.iter().count(), 0);
    }

    #[test]
    fn written_in_one_buffer_they_are_told_apart() {
        let mut writer = PropertyWriter::new();
        writer.put("a", 12);
        writer.put("b", "");
        writer.put("c", "three");
        assert_eq!(writer.finish(), Properties::from([("a", "12"), ("b", ""), ("c", "three")]));
    }
}

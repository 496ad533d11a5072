//! Who a worker is: what it says of itself in its heartbeats, and what the entries on M say of the
//! worker that runs a task.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The most bytes of each text: every heartbeat and every entry of a running task carry them.
const TEXT_BYTES_MAX: usize = 128;

/// Who a worker is. In its heartbeats a worker says all of this; an entry on the metadata topic
/// names the worker that runs the task by `name`, `host` and `label`.
///
/// What a worker does not say is empty or `None`: workers of earlier versions say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct WorkerIdentity {
    /// What the broker's statistics call its consumers: see `WorkerBuilder::name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The name of its machine, container or pod, as the operating system gives it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The number of its process there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// Its version of longhaul.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// What its user calls it: see `WorkerConfig::label`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// 16 hexadecimal digits that are drawn anew at each start, whatever its name is: that by which
    /// it is drained from outside.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// It leases its tasks to others, as a gateway does: see `Client::leases`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub grants_leases: bool,
    /// How many tasks it runs at once: see `WorkerConfig::concurrency`. A gateway has no slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
}

impl WorkerIdentity {
    /// One that says its name alone.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The same with each text cut to 128 bytes: every heartbeat carries them.
    #[must_use]
    pub fn bounded(self) -> Self {
        let Self { name, host, version, label, instance, .. } = self;
        let texts = [name, host, version, label, instance];
        let [name, host, version, label, instance] = texts.map(|text| cut(&text));
        Self { name, host, version, label, instance, ..self }
    }

    /// What the entries on M say of it: enough to find it, for each task pays for it.
    pub fn shown(&self) -> Option<Self> {
        let shown = Self {
            name: self.name.clone(),
            host: self.host.clone(),
            label: self.label.clone(),
            ..Self::default()
        };
        (shown != Self::default()).then_some(shown)
    }

    /// The same as JSON, made once for all entries; empty if nothing is said.
    pub fn shown_json(&self) -> String {
        // Every field is a text: the encoder has nothing to refuse.
        self.shown().and_then(|shown| serde_json::to_string(&shown).ok()).unwrap_or_default()
    }

    /// What the body of a heartbeat holds: nothing, if nothing is said.
    pub fn content(&self) -> Bytes {
        if *self == Self::default() {
            return Bytes::new();
        }
        // Every field is a text or a number: the encoder has nothing to refuse.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Reads what a heartbeat says. Fields of a later version are passed over; so is what is no
    /// identity.
    pub fn read(content: &[u8]) -> Option<Self> {
        let read: Self = serde_json::from_slice(content).ok()?;
        let read = read.bounded();
        (read != Self::default()).then_some(read)
    }
}

/// The first bytes of a text, at the border of a character.
fn cut(text: &str) -> String {
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    end.and_then(|end| text.get(..end)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers of the last version and of the next one stand side by side.
    #[test]
    fn what_others_do_not_say_and_what_they_say_besides_is_passed_over() {
        assert_eq!(WorkerIdentity::read(b""), None);
        assert_eq!(WorkerIdentity::read(b"[]"), None);
        let later = WorkerIdentity::read(br#"{"name":"a","zone":"b","process":7}"#).unwrap();
        assert_eq!((later.name.as_str(), later.process), ("a", Some(7)));
        assert!(WorkerIdentity::default().content().is_empty());
        assert_eq!(WorkerIdentity::default().shown(), None);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = WorkerIdentity { name: "ä".repeat(100), ..WorkerIdentity::default() }.bounded();
        assert_eq!(long.name, "ä".repeat(64));
        let read = WorkerIdentity::read(format!(r#"{{"host":"{}"}}"#, "x".repeat(500)).as_bytes());
        assert_eq!(read.unwrap().host.len(), 128);
    }
}

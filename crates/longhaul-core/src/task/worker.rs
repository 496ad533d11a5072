//! The identity of a worker, in its heartbeats and in the metadata entries of the tasks that it
//! runs.

use super::text;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Maximum length of each text in bytes: every heartbeat and every entry of a running task carry
/// them.
const TEXT_BYTES_MAX: usize = 128;

/// Maximum number of waiting workers, for the same reason.
pub const WAITING_MAX: usize = 64;

/// The identity of a worker. Its heartbeats carry all fields; a metadata entry carries `name`,
/// `host` and `label` of the worker that runs the task.
///
/// A missing field is empty or `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct WorkerIdentity {
    /// The name of its consumers in the broker's statistics: see `WorkerBuilder::name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The name of its machine, container or pod, from the operating system.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Its process id there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// Its version of longhaul.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The user's label for it: see `WorkerConfig::label`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// 16 hexadecimal digits, drawn again at each start, whatever its name is: the handle for
    /// draining it from outside.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// Whether it leases its tasks to others, as a gateway does: see `Client::leases`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub grants_leases: bool,
    /// Whether it takes no new tasks and ends when those that run have ended. The first heartbeat
    /// after the drain has begun says so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// Number of tasks that it runs at once: see `WorkerConfig::concurrency`. A gateway has no
    /// slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Of a worker that leases its tasks to others: the name and the instance of those that wait
    /// for a lease from it, 64 at most, as far as they have said an instance.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Self>,
}

impl WorkerIdentity {
    /// An identity with only a name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The identity of a worker that leases its tasks.
    #[must_use]
    pub fn lessee(name: impl Into<String>, instance: impl Into<String>) -> Self {
        Self { instance: instance.into(), ..Self::named(name) }.bounded()
    }

    /// Cuts each text to 128 bytes, and those that wait to 64: every heartbeat carries them.
    #[must_use]
    pub fn bounded(self) -> Self {
        let Self { name, host, version, label, instance, waiting, .. } = self;
        let texts = [name, host, version, label, instance];
        let [name, host, version, label, instance] =
            texts.map(|it| text::start_of(&it, TEXT_BYTES_MAX).to_owned());
        let brief = |it: Self| Self::lessee(it.name, it.instance);
        let waiting = waiting.into_iter().take(WAITING_MAX).map(brief).collect();
        Self { name, host, version, label, instance, waiting, ..self }
    }

    /// The fields shown in metadata entries: enough to find the worker, and small, because each
    /// task carries them.
    pub fn shown(&self) -> Option<Self> {
        let shown = Self {
            name: self.name.clone(),
            host: self.host.clone(),
            label: self.label.clone(),
            ..Self::default()
        };
        (shown != Self::default()).then_some(shown)
    }

    /// The shown fields as JSON, encoded once for all entries; empty if there are none.
    pub fn shown_json(&self) -> String {
        // Every field is a text, so encoding cannot fail.
        self.shown().and_then(|shown| serde_json::to_string(&shown).ok()).unwrap_or_default()
    }

    /// The content of a heartbeat's body: empty if all fields are.
    pub fn content(&self) -> Bytes {
        if *self == Self::default() {
            return Bytes::new();
        }
        // Every field is a text or a number, so encoding cannot fail.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Reads the content of a heartbeat's body. Ignores fields of a later version and content that
    /// is no identity.
    pub fn read(content: &[u8]) -> Option<Self> {
        let read: Self = serde_json::from_slice(content).ok()?;
        let read = read.bounded();
        (read != Self::default()).then_some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers of the previous and of the next version run side by side.
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

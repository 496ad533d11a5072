//! Webhooks: a queue's settings name URLs that are called at the end of each of its tasks. A call
//! is a task of the queue [`WEBHOOKS_QUEUE`] in the same namespace. Pure.

use crate::protocol::key::Epoch;
use crate::protocol::register::Digest;
use crate::task::{Priority, PropertyWriter, TaskId, TaskMetadata, text};
use crate::topics::TopicParts;
use longhaul_types::Outgoing;
use serde::{Deserialize, Serialize};

/// The queue whose tasks are the calls of webhooks. It has no webhooks itself: each call would
/// cause another one.
pub const WEBHOOKS_QUEUE: &str = "webhooks";

/// The task type of a call.
pub const WEBHOOK_TYPE: &str = "webhook";

/// Maximum number of URLs of a queue: the end of a task is shown after the calls of all of them are
/// stored.
pub const URLS_MAX: usize = 8;

/// The longest URL, in bytes.
pub const URL_BYTES_MAX: usize = 2_048;

/// The payload of a call, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WebhookCall {
    /// The URL to call.
    pub url: String,
    /// The queue of the task, without its namespace and level.
    pub queue: String,
    /// The task, as HTTP names it: its id, with the level in front unless that is normal.
    pub task: String,
    /// The epoch in which the task ended.
    pub epoch: u32,
    /// The task's entry on the metadata topic.
    pub metadata: TaskMetadata,
}

/// The task of a call, without the URL.
#[derive(Clone, Copy, Debug)]
pub struct EndedTask<'a> {
    /// Full name of the task topic.
    pub topic: &'a str,
    /// The level of that topic in its queue.
    pub level: Priority,
    /// The id.
    pub id: TaskId,
    /// The epoch in which the task ended.
    pub epoch: Epoch,
}

impl EndedTask<'_> {
    /// The task topic of the calls, and the name of the queue; `None` for the queue of the calls
    /// itself.
    fn place(&self) -> Option<(String, &str)> {
        let TopicParts { tenant, namespace, local } = TopicParts::parse(self.topic).ok()?;
        let queue = local.strip_suffix(self.level.suffix()).unwrap_or(local);
        let calls = TopicParts { tenant, namespace, local: WEBHOOKS_QUEUE }.to_string();
        (queue != WEBHOOKS_QUEUE).then_some((calls, queue))
    }

    /// Whether the end of this task is told to webhooks.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        self.place().is_some()
    }

    /// The task topic of the calls, and the message of the call of each URL. `metadata` is the
    /// task's entry on the metadata topic, as JSON. Each message has an idempotency key of queue,
    /// task, epoch and URL: several messages about one end are one task.
    #[must_use]
    pub fn calls(&self, urls: &[String], metadata: &[u8]) -> Option<(String, Vec<Outgoing>)> {
        let (topic, queue) = self.place()?;
        let task = match self.level {
            Priority::Normal => self.id.to_string(),
            Priority::High | Priority::Low => format!("{}~{}", self.level, self.id),
        };
        let message = |url: &String| {
            let digest = Digest::of(format!("{queue} {url}").as_bytes()).0;
            let mut properties = PropertyWriter::new();
            properties.put(text::TASK_TYPE, WEBHOOK_TYPE);
            let key = format_args!("{task}/{}/{digest:032x}", self.epoch);
            properties.put(text::IDEMPOTENCY_KEY, key);
            Outgoing {
                properties: properties.finish(),
                payload: payload(url, queue, &task, self.epoch, metadata).into(),
                ..Outgoing::default()
            }
        };
        Some((topic, urls.iter().map(message).collect()))
    }
}

/// The JSON of a [`WebhookCall`], with the entry as it is on the metadata topic.
fn payload(url: &str, queue: &str, task: &str, epoch: Epoch, metadata: &[u8]) -> Vec<u8> {
    let head = serde_json::json!({ "url": url, "queue": queue, "task": task, "epoch": epoch.0 });
    let mut json = head.to_string().into_bytes();
    // The closing brace of the object.
    json.pop();
    for part in [&br#","metadata":"#[..], metadata, b"}"] {
        json.extend_from_slice(part);
    }
    json
}

/// Why the URL of a webhook is refused, if it is.
#[must_use]
pub fn url_problem(url: &str) -> Option<String> {
    if url.len() > URL_BYTES_MAX {
        return Some(format!("a URL has at most {URL_BYTES_MAX} bytes, one has {}", url.len()));
    }
    let shown = || url.escape_debug();
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let Some(rest) = rest else {
        return Some(format!("a URL begins with https:// or http://, this is `{}`", shown()));
    };
    if !url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return Some(format!(
            "a URL has no spaces, no `\\` and only ASCII characters, this is `{}`",
            shown()
        ));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        return Some(format!("the URL `{}` has no host", shown()));
    }
    authority.contains('@').then(|| {
        "a URL must not have a user or a password: the signature identifies the caller".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskState;

    const TASK: EndedTask<'_> = EndedTask {
        topic: "persistent://acme/shop/mails-high",
        level: Priority::High,
        id: TaskId { ledger: 12, entry: 0, partition: -1, batch_index: None },
        epoch: Epoch(3),
    };

    fn urls(urls: &[&str]) -> Vec<String> {
        urls.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_call_names_url_queue_and_task_and_has_the_entry_of_the_metadata_topic() {
        let entry = TaskMetadata::new("12:0:-1".to_owned(), TaskState::Completed, 1, (1, 2));
        let json = serde_json::to_vec(&entry).unwrap();
        let (topic, calls) = TASK.calls(&urls(&["https://a/b"]), &json).unwrap();
        assert_eq!(topic, "persistent://acme/shop/webhooks");
        let [call] = &calls[..] else { panic!("{calls:?}") };
        assert_eq!(&call.properties[text::TASK_TYPE], "webhook");
        let read: WebhookCall = serde_json::from_slice(&call.payload).unwrap();
        let named = (&*read.url, &*read.queue, &*read.task, read.epoch);
        assert_eq!(named, ("https://a/b", "mails", "high~12:0:-1", 3));
        assert_eq!(read.metadata, entry);
    }

    #[test]
    fn one_end_has_one_key_for_each_url() {
        let keys = |task: EndedTask<'_>, of: &[&str]| -> Vec<String> {
            let (_, calls) = task.calls(&urls(of), b"{}").unwrap();
            calls.iter().map(|call| call.properties[text::IDEMPOTENCY_KEY].to_owned()).collect()
        };
        let both = keys(TASK, &["https://a", "https://b"]);
        assert_eq!(both, keys(TASK, &["https://a", "https://b"]));
        let later = EndedTask { epoch: Epoch(4), ..TASK };
        let elsewhere = EndedTask { topic: "persistent://acme/shop/jobs-high", ..TASK };
        let normal = EndedTask { topic: "persistent://acme/shop/mails", ..TASK };
        let normal = EndedTask { level: Priority::Normal, ..normal };
        let mut all = both;
        for task in [later, elsewhere, normal] {
            all.extend(keys(task, &["https://a"]));
        }
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 5, "{all:?}");
        assert!(all.iter().all(|key| key.len() <= 256));
    }

    #[test]
    fn the_queue_of_the_calls_has_none() {
        for (topic, level) in [("webhooks", Priority::Normal), ("webhooks-low", Priority::Low)] {
            let task = EndedTask { topic, level, ..TASK };
            assert!(!task.has_calls() && task.calls(&urls(&["https://a"]), b"{}").is_none());
        }
        assert!(EndedTask { topic: "webhooks-low", level: Priority::Normal, ..TASK }.has_calls());
    }

    #[test]
    fn a_url_is_absolute_and_names_no_user() {
        for good in ["https://a", "http://a:8080/b?c=d#e", "https://[::1]/", "https://a?b=c@d"] {
            assert_eq!(url_problem(good), None, "{good}");
        }
        for bad in ["", "a", "//a", "ftp://a", "HTTPS://a", "https://", "https:///a", "https://?a"]
        {
            assert!(url_problem(bad).is_some(), "{bad}");
        }
        for bad in ["https://a b", "https://a\n", "https://ä", "https://u@a", "https://u:p@a/"] {
            assert!(url_problem(bad).is_some(), "{bad}");
        }
        assert!(url_problem("https://a\\@b").is_some(), "parsers disagree about its host");
        let long = |bytes: usize| format!("https://{}", "a".repeat(bytes - 8));
        assert_eq!(url_problem(&long(URL_BYTES_MAX)), None);
        assert!(url_problem(&long(URL_BYTES_MAX + 1)).is_some());
    }
}

//! Lists queues: task topics that have a ledger.

use super::admin::Admin;
use super::calls::call;
use super::http::AdminError;
use http::Method;
use longhaul_core::topics::DEFAULT_SUBSCRIPTION;
use std::collections::BTreeSet;

/// The task topics of a namespace (`public/default`) that were set up for a subscription, by name.
///
/// ```no_run
/// # mod longhaul { pub mod topics { pub use longhaul_admin::*; pub use longhaul_core::topics::*; } }
/// use longhaul::topics::{Admin, AdminOptions, DEFAULT_SUBSCRIPTION, queues};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let admin = Admin::new("http://localhost:8080", &AdminOptions::default())?;
/// for queue in queues(&admin, "public/default", DEFAULT_SUBSCRIPTION).await? {
///     println!("{queue}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The admin API cannot be reached, or refuses.
pub async fn queues(
    admin: &Admin,
    namespace: &str,
    subscription: &str,
) -> Result<Vec<String>, AdminError> {
    let topics = admin.topics(namespace).await?;
    Ok(task_topics(topics.iter().map(String::as_str), subscription))
}

impl Admin {
    /// All topics of a namespace, by full name; a partitioned topic is listed once, in addition to
    /// its partitions.
    async fn topics(&self, namespace: &str) -> Result<Vec<String>, AdminError> {
        let any = format!("{namespace}/any");
        let parts = self.parts(&Method::GET, &any)?;
        let mut path = vec!["persistent", parts.tenant, parts.namespace];
        let mut topics: Vec<String> = self.http.json(&call(Method::GET, &path)).await?;
        path.push("partitioned");
        let partitioned: Vec<String> = self.http.json(&call(Method::GET, &path)).await?;
        topics.extend(partitioned);
        Ok(topics)
    }
}

/// Filters the task topics among all topics of a namespace. Pure.
fn task_topics<'a>(topics: impl Iterator<Item = &'a str>, subscription: &str) -> Vec<String> {
    let all: BTreeSet<&str> = topics.collect();
    let infix = if subscription == DEFAULT_SUBSCRIPTION {
        String::new()
    } else {
        format!("-{subscription}")
    };
    let ending = format!("{infix}-ledger");
    let of_ledger = all.iter().filter_map(|topic| topic.strip_suffix(&ending));
    of_ledger.filter(|task| all.contains(task)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_a_topic_with_a_ledger() {
        let names = [
            "a",
            "a-ledger",
            "a-metadata",
            "b",
            "b-other-ledger",
            "b-ledger",
            "plain",
            "gone-ledger",
            "c-partition-0",
            "c-ledger-partition-0",
            "c",
            "c-ledger",
            "d",
            "d-other-ledger",
        ];
        let names = names.map(|name| format!("persistent://public/default/{name}"));
        let of = |subscription| {
            let found = task_topics(names.iter().map(String::as_str), subscription);
            found
                .iter()
                .map(|topic| topic.rsplit_once('/').unwrap().1.to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(of(DEFAULT_SUBSCRIPTION), ["a", "b", "c"]);
        assert_eq!(of("other"), ["b", "d"]);
    }
}

//! Which topics a namespace has: asked once, or watched.

use super::Machine;
use super::effect::Refusal;
use crate::name::TopicName;
use crate::pattern::{Pattern, hash_of};
use longhaul_wire::messages::{
    CommandGetTopicsOfNamespace, CommandGetTopicsOfNamespaceResponse, CommandWatchTopicList,
    CommandWatchTopicListClose, CommandWatchTopicListSuccess, CommandWatchTopicUpdate, ServerError,
    TopicsMode,
};
use std::collections::{BTreeMap, BTreeSet};

/// Watchers of one connection. Each of them has a compiled pattern.
const WATCHERS_MAX: usize = 100;

/// Clients that are told of topics that come and go.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    /// By connection, and what its client calls it.
    all: BTreeMap<(u64, u64), Watcher>,
    /// Topics that have come or gone since they were told.
    changed: BTreeSet<TopicName>,
}

#[derive(Debug)]
struct Watcher {
    namespace: String,
    pattern: Pattern,
}

impl Watchers {
    /// A topic has come or gone.
    pub(super) fn note(&mut self, name: &TopicName) {
        if !self.all.is_empty() {
            self.changed.insert(name.clone());
        }
    }

    /// Whether somebody is to be told something.
    pub(super) fn has_news(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Forgets those of a connection that has ended.
    pub(super) fn forget(&mut self, conn: u64) {
        self.all.retain(|it, _| it.0 != conn);
    }
}

impl Machine {
    pub(super) fn topics_of_namespace(&mut self, conn: u64, it: &CommandGetTopicsOfNamespace) {
        // What cannot be matched here is left to the client, which then gets all names.
        let pattern = it.topics_pattern.as_deref().and_then(|it| Pattern::parse(it).ok());
        let none = it.mode == Some(TopicsMode::NonPersistent.into());
        let found =
            if none { Vec::new() } else { self.seen_by(conn, &it.namespace, pattern.as_ref()) };
        let hash = hash_of(found.iter().map(String::as_str));
        let is_known = it.topics_hash.as_ref() == Some(&hash);
        self.send(
            conn,
            CommandGetTopicsOfNamespaceResponse {
                request_id: it.request_id,
                topics: if is_known { Vec::new() } else { found },
                filtered: Some(pattern.is_some()),
                topics_hash: Some(hash),
                changed: Some(!is_known),
            },
        );
    }

    /// The topics of a namespace that the connection's role may use, in order: those without partitions, and partitions.
    fn seen_by(&self, conn: u64, namespace: &str, pattern: Option<&Pattern>) -> Vec<String> {
        let start = TopicName::start_in(namespace);
        let topics = self.state.topics_named(&start).map(|it| &it.1.name);
        let seen = topics.filter(|it| {
            pattern.is_none_or(|pattern| pattern.matches(it)) && self.is_seen_by(conn, it)
        });
        seen.map(|it| it.as_str().to_owned()).collect()
    }

    /// Whoever may use nothing there does not learn what there is.
    fn is_seen_by(&self, conn: u64, name: &TopicName) -> bool {
        let role = self.sessions.get(&conn).and_then(|it| it.role.as_ref());
        role.is_some_and(|role| self.allows_any(role, name))
    }

    pub(super) fn watch(&mut self, conn: u64, it: CommandWatchTopicList) -> Result<(), Refusal> {
        let refused = |text| Refusal::new(ServerError::InvalidTopicName, text);
        let own = (conn, u64::MIN)..=(conn, u64::MAX);
        if self.watchers.all.range(own).count() >= WATCHERS_MAX {
            let text = format!("a connection has at most {WATCHERS_MAX} watchers of topics");
            return Err(Refusal::new(ServerError::TooManyRequests, text));
        }
        let pattern = Pattern::parse(&it.topics_pattern).map_err(refused)?;
        let found = self.seen_by(conn, &it.namespace, Some(&pattern));
        let topics_hash = hash_of(found.iter().map(String::as_str));
        let topic = if it.topics_hash.as_ref() == Some(&topics_hash) { Vec::new() } else { found };
        let watcher = Watcher { namespace: it.namespace, pattern };
        self.watchers.all.insert((conn, it.watcher_id), watcher);
        let (request_id, watcher_id) = (it.request_id, it.watcher_id);
        self.send_after_commit(
            conn,
            CommandWatchTopicListSuccess { request_id, watcher_id, topic, topics_hash },
        );
        Ok(())
    }

    pub(super) fn end_watch(&mut self, conn: u64, it: CommandWatchTopicListClose) {
        self.watchers.all.remove(&(conn, it.watcher_id));
        self.succeed(conn, it.request_id);
    }

    /// Tells the watchers of topics that have come and gone, all of them in one message each.
    pub(super) fn tell_watchers(&mut self) {
        let changed = std::mem::take(&mut self.watchers.changed);
        let mut told = Vec::new();
        for (&(conn, watcher_id), watcher) in &self.watchers.all {
            let concerns = |it: &&TopicName| {
                it.namespace() == watcher.namespace
                    && watcher.pattern.matches(it)
                    && self.is_seen_by(conn, it)
            };
            let (here, gone): (Vec<&TopicName>, Vec<&TopicName>) = changed
                .iter()
                .filter(concerns)
                .partition(|it| self.state.topic_id(it.as_str()).is_some());
            if here.is_empty() && gone.is_empty() {
                continue;
            }
            let all = self.seen_by(conn, &watcher.namespace, Some(&watcher.pattern));
            let names = |them: Vec<&TopicName>| them.iter().map(ToString::to_string).collect();
            let update = CommandWatchTopicUpdate {
                watcher_id,
                new_topics: names(here),
                deleted_topics: names(gone),
                topics_hash: hash_of(all.iter().map(String::as_str)),
            };
            told.push((conn, update));
        }
        for (conn, update) in told {
            self.send_after_commit(conn, update);
        }
    }
}

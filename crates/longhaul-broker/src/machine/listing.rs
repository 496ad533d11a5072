//! Lists the topics of a namespace, once or by a watch.

use super::BrokerMachine;
use super::effect::RequestRefusal;
use crate::name::{BYTES_MAX, TopicName};
use crate::pattern::{Pattern, hash_of};
use longhaul_wire::messages::{
    CommandGetTopicsOfNamespace, CommandGetTopicsOfNamespaceResponse, CommandWatchTopicList,
    CommandWatchTopicListClose, CommandWatchTopicListSuccess, CommandWatchTopicUpdate, ServerError,
    TopicsMode,
};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Watchers per connection, and in total. Each pattern is compiled once.
const WATCHERS_MAX: usize = 100;
const WATCHERS_MAX_IN_ALL: usize = 1000;
/// After this many names were matched or sent, the other watchers are told in the next turn, so
/// that publishers do not wait for all of them.
const NAMES_IN_A_TURN: usize = 20_000;

/// Clients that are told of created and deleted topics.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    /// By connection and by the client's id.
    all: BTreeMap<(u64, u64), TopicListWatcher>,
    /// Topics created or deleted since the watchers were last told.
    changed: BTreeSet<TopicName>,
    /// The current notification, if it takes several turns.
    telling: Option<Telling>,
}

#[derive(Debug)]
struct TopicListWatcher {
    namespace: String,
    pattern: Arc<Pattern>,
}

#[derive(Debug)]
struct Telling {
    changed: BTreeSet<TopicName>,
    /// The last watcher that was told.
    after: (u64, u64),
}

/// Watchers with the same namespace, pattern and role, which get the same content.
type WatcherKind<'a> = (&'a str, &'a str, Option<(&'a str, bool)>);

/// Created topics, deleted topics, and the hash of the existing ones.
type TopicListChange = (Vec<String>, Vec<String>, String);

impl Watchers {
    /// Notes that a topic was created or deleted.
    pub(super) fn note(&mut self, name: &TopicName) {
        if !self.all.is_empty() {
            self.changed.insert(name.clone());
        }
    }

    /// Whether there is something to tell.
    pub(super) fn has_news(&self) -> bool {
        !self.changed.is_empty() || self.telling.is_some()
    }

    /// The compiled pattern, shared with other watchers.
    fn pattern(&self, text: &str) -> Result<Arc<Pattern>, String> {
        let known = self
            .all
            .values()
            .map(|watcher| &watcher.pattern)
            .find(|pattern| pattern.text() == text);
        known.map_or_else(|| Pattern::parse(text).map(Arc::new), |pattern| Ok(Arc::clone(pattern)))
    }

    /// Number of compiled patterns.
    #[cfg(test)]
    pub(super) fn patterns(&self) -> usize {
        let compiled: BTreeSet<_> =
            self.all.values().map(|watcher| Arc::as_ptr(&watcher.pattern)).collect();
        compiled.len()
    }

    /// Checks that a connection may have another watcher.
    fn check_room(&self, conn: u64) -> Result<(), RequestRefusal> {
        let own = self.all.range((conn, u64::MIN)..=(conn, u64::MAX)).count();
        let text = if own >= WATCHERS_MAX {
            format!("a connection has at most {WATCHERS_MAX} watchers of topics")
        } else if self.all.len() >= WATCHERS_MAX_IN_ALL {
            format!(
                "the broker has {WATCHERS_MAX_IN_ALL} watchers of topics, its limit: poll the list of topics instead, or close some"
            )
        } else {
            return Ok(());
        };
        Err(RequestRefusal::new(ServerError::TooManyRequests, text))
    }

    /// Removes the watchers of a connection that has ended.
    pub(super) fn forget(&mut self, conn: u64) {
        self.all.retain(|key, _| key.0 != conn);
    }
}

impl BrokerMachine {
    pub(super) fn topics_of_namespace(&mut self, conn: u64, command: &CommandGetTopicsOfNamespace) {
        // A pattern that cannot be compiled here is matched by the client, which then gets all
        // names.
        let pattern = command.topics_pattern.as_deref().and_then(|text| Pattern::parse(text).ok());
        let none = command.mode == Some(TopicsMode::NonPersistent.into());
        let found = if none {
            Vec::new()
        } else {
            self.seen_by(conn, &command.namespace, pattern.as_ref())
        };
        let hash = hash_of(found.iter().map(String::as_str));
        let is_known = command.topics_hash.as_ref() == Some(&hash);
        self.send(
            conn,
            CommandGetTopicsOfNamespaceResponse {
                request_id: command.request_id,
                topics: if is_known { Vec::new() } else { found },
                filtered: Some(pattern.is_some()),
                topics_hash: Some(hash),
                changed: Some(!is_known),
            },
        );
    }

    /// The topics of a namespace that the connection's role may use, in order: unpartitioned ones
    /// and partitions.
    fn seen_by(&self, conn: u64, namespace: &str, pattern: Option<&Pattern>) -> Vec<String> {
        let start = TopicName::start_in(namespace);
        let topics = self.state.topics_named(&start).map(|(_, topic)| &topic.name);
        let seen = topics.filter(|name| {
            pattern.is_none_or(|pattern| pattern.matches(name)) && self.is_seen_by(conn, name)
        });
        seen.map(|name| name.as_str().to_owned()).collect()
    }

    /// Hides topics from roles that may not use them.
    fn is_seen_by(&self, conn: u64, name: &TopicName) -> bool {
        let role = self.sessions.get(&conn).and_then(|session| session.role.as_ref());
        role.is_some_and(|role| self.allows_any(role, name))
    }

    pub(super) fn watch(
        &mut self,
        conn: u64,
        command: CommandWatchTopicList,
    ) -> Result<(), RequestRefusal> {
        let refused = |text| RequestRefusal::new(ServerError::InvalidTopicName, text);
        self.watchers.check_room(conn)?;
        self.check_watcher(conn, &command.namespace)?;
        let pattern = self.watchers.pattern(&command.topics_pattern).map_err(refused)?;
        let found = self.seen_by(conn, &command.namespace, Some(&pattern));
        let topics_hash = hash_of(found.iter().map(String::as_str));
        let topic =
            if command.topics_hash.as_ref() == Some(&topics_hash) { Vec::new() } else { found };
        let watcher = TopicListWatcher { namespace: command.namespace, pattern };
        self.watchers.all.insert((conn, command.watcher_id), watcher);
        let (request_id, watcher_id) = (command.request_id, command.watcher_id);
        self.send_after_commit(
            conn,
            CommandWatchTopicListSuccess { request_id, watcher_id, topic, topics_hash },
        );
        Ok(())
    }

    /// Refuses roles without permissions in the namespace, and names that are too long.
    fn check_watcher(&self, conn: u64, namespace: &str) -> Result<(), RequestRefusal> {
        if namespace.len() > BYTES_MAX {
            let text = format!("the name of a namespace has less than {BYTES_MAX} bytes");
            return Err(RequestRefusal::new(ServerError::InvalidTopicName, text));
        }
        let role = self.sessions.get(&conn).and_then(|session| session.role.as_ref());
        if role.is_some_and(|role| self.allows_some(role, namespace)) {
            return Ok(());
        }
        let name = role.map_or("", |role| role.name.as_str());
        let text = format!(
            "role {name} may not use or watch any topic of {namespace}: ask a superuser for a grant"
        );
        Err(RequestRefusal::new(ServerError::AuthorizationError, text))
    }

    pub(super) fn end_watch(&mut self, conn: u64, command: CommandWatchTopicListClose) {
        self.watchers.all.remove(&(conn, command.watcher_id));
        self.succeed(conn, command.request_id);
    }

    /// Tells the watchers of created and deleted topics, in one message per watcher, for as many
    /// watchers as fit one turn.
    pub(super) fn tell_watchers(&mut self) {
        let telling = self.watchers.telling.take();
        let (changed, start) = match telling {
            Some(telling) => (telling.changed, Bound::Excluded(telling.after)),
            None => (std::mem::take(&mut self.watchers.changed), Bound::Unbounded),
        };
        let (mut told, mut known) =
            (Vec::new(), BTreeMap::<WatcherKind<'_>, Option<TopicListChange>>::new());
        let (mut names, mut last) = (0, None);
        for (&key, watcher) in self.watchers.all.range((start, Bound::Unbounded)) {
            if names >= NAMES_IN_A_TURN {
                break;
            }
            last = Some(key);
            let news = match known.entry(self.kind_of(key.0, watcher)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(entry) => {
                    entry.insert(self.news(key.0, watcher, &changed, &mut names))
                }
            };
            let Some((here, gone, topics_hash)) = news.clone() else { continue };
            names += here.len() + gone.len();
            let update = CommandWatchTopicUpdate {
                watcher_id: key.1,
                new_topics: here,
                deleted_topics: gone,
                topics_hash,
            };
            told.push((key.0, update));
        }
        let after = last.filter(|key| self.watchers.all.keys().next_back() != Some(key));
        self.watchers.telling = after.map(|after| Telling { changed, after });
        for (conn, update) in told {
            self.send_after_commit(conn, update);
        }
    }

    fn kind_of<'a>(&'a self, conn: u64, watcher: &'a TopicListWatcher) -> WatcherKind<'a> {
        let role = self.sessions.get(&conn).and_then(|session| session.role.as_ref());
        let role = role.map(|role| (role.name.as_str(), role.superuser));
        (&watcher.namespace, watcher.pattern.text(), role)
    }

    /// The message for a watcher, if there is one. Counts the names that are matched for it.
    fn news(
        &self,
        conn: u64,
        watcher: &TopicListWatcher,
        changed: &BTreeSet<TopicName>,
        names: &mut usize,
    ) -> Option<TopicListChange> {
        let concerns = |name: &&TopicName| {
            name.namespace() == watcher.namespace
                && watcher.pattern.matches(name)
                && self.is_seen_by(conn, name)
        };
        *names += changed.len();
        let (here, gone): (Vec<&TopicName>, Vec<&TopicName>) = changed
            .iter()
            .filter(concerns)
            .partition(|name| self.state.topic_id(name.as_str()).is_some());
        if here.is_empty() && gone.is_empty() {
            return None;
        }
        let start = TopicName::start_in(&watcher.namespace);
        let all = self.state.topics_named(&start).map(|(_, topic)| &topic.name);
        let all = all
            .inspect(|_| *names += 1)
            .filter(|name| watcher.pattern.matches(name) && self.is_seen_by(conn, name));
        let hash = hash_of(all.map(TopicName::as_str));
        let text = |them: Vec<&TopicName>| them.iter().map(ToString::to_string).collect();
        Some((text(here), text(gone), hash))
    }
}

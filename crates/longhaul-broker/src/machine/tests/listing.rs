//! Lists the topics of a namespace, once and by a watch.

use super::support::{refusal, sent, with_roles};
use super::*;
use crate::pattern::hash_of;
use crate::policies::{AuthAction, Grants};
use longhaul_wire::messages::{
    CommandGetTopicsOfNamespace, CommandGetTopicsOfNamespaceResponse, CommandWatchTopicList,
    CommandWatchTopicListClose, CommandWatchTopicListSuccess, CommandWatchTopicUpdate, TopicsMode,
};

const NAMESPACE: &str = "public/default";

fn full(name: &str) -> String {
    format!("persistent://{NAMESPACE}/{name}")
}

fn make(machine: &mut BrokerMachine, name: &TopicName) -> Result<(), AdminCallError> {
    machine.make_topic(name)
}

impl Rig {
    fn about(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut BrokerMachine, &TopicName) -> Result<(), AdminCallError>,
    ) -> Vec<MachineEffect> {
        self.asked(&full(name), work).1
    }

    fn listed(
        &mut self,
        asked: CommandGetTopicsOfNamespace,
    ) -> CommandGetTopicsOfNamespaceResponse {
        let command = CommandGetTopicsOfNamespace { namespace: NAMESPACE.to_owned(), ..asked };
        let found = sent(&self.ask(1, command), |command| match command {
            Command::GetTopicsOfNamespaceResponse(response) => Some((**response).clone()),
            _ => None,
        });
        found[0].1.clone()
    }

    fn watch(&mut self, watcher_id: u64, pattern: &str, hash: Option<&str>) -> Vec<MachineEffect> {
        self.watch_on(1, watcher_id, pattern, hash)
    }

    fn watch_on(
        &mut self,
        conn: u64,
        watcher_id: u64,
        pattern: &str,
        hash: Option<&str>,
    ) -> Vec<MachineEffect> {
        let command = CommandWatchTopicList {
            request_id: 6,
            watcher_id,
            namespace: NAMESPACE.to_owned(),
            topics_pattern: pattern.to_owned(),
            topics_hash: hash.map(str::to_owned),
        };
        self.ask(conn, command)
    }
}

fn began(effects: &[MachineEffect]) -> CommandWatchTopicListSuccess {
    let found = sent(effects, |command| match command {
        Command::WatchTopicListSuccess(success) => Some((**success).clone()),
        _ => None,
    });
    found[0].1.clone()
}

/// Notifications of watchers: the watcher, created topics, deleted topics.
fn news(effects: &[MachineEffect]) -> Vec<(u64, Vec<String>, Vec<String>)> {
    let told = sent(effects, |command| match command {
        Command::WatchTopicUpdate(update) => Some(CommandWatchTopicUpdate::clone(update)),
        _ => None,
    });
    told.into_iter()
        .map(|(_, update)| (update.watcher_id, update.new_topics, update.deleted_topics))
        .collect()
}

#[test]
fn topics_are_listed_by_pattern_and_not_twice() {
    let mut rig = Rig::new();
    rig.about("b", make);
    rig.about("a", make);
    rig.about("p", |machine, name| machine.make_partitioned(name, 2));
    let all = ["a", "b", "p-partition-0", "p-partition-1"].map(full);
    for mode in [None, Some(TopicsMode::Persistent), Some(TopicsMode::All)] {
        let mode = mode.map(Into::into);
        let listed = rig.listed(CommandGetTopicsOfNamespace { mode, ..Default::default() });
        assert_eq!(
            (&listed.topics[..], listed.filtered, listed.changed),
            (&all[..], Some(false), Some(true))
        );
        assert_eq!(listed.topics_hash, Some(hash_of(all.iter().map(String::as_str))));
    }
    let none = Some(TopicsMode::NonPersistent.into());
    let listed = rig.listed(CommandGetTopicsOfNamespace { mode: none, ..Default::default() });
    assert!(listed.topics.is_empty());
    for (pattern, found, filtered) in [
        ("persistent://public/default/[ab]", &all[..2], true),
        ("public/default/p", &all[2..], true),
        ("persistent://public/default/a(?=x)", &all[..], false),
    ] {
        let topics_pattern = Some(pattern.to_owned());
        let asked = CommandGetTopicsOfNamespace { topics_pattern, ..Default::default() };
        let listed = rig.listed(asked.clone());
        assert_eq!((&listed.topics[..], listed.filtered), (found, Some(filtered)), "{pattern}");
        let topics_hash = listed.topics_hash;
        let unchanged = rig.listed(CommandGetTopicsOfNamespace { topics_hash, ..asked });
        assert_eq!((unchanged.topics.len(), unchanged.changed), (0, Some(false)), "{pattern}");
    }
}

#[test]
fn watchers_are_told_of_what_comes_and_goes() {
    let mut rig = Rig::new();
    rig.about("a", make);
    let success = began(&rig.watch(3, "persistent://public/default/[ap].*", None));
    assert_eq!((success.request_id, success.watcher_id, &success.topic), (6, 3, &vec![full("a")]));
    let known = began(&rig.watch(4, "public/default/a", Some(&success.topics_hash)));
    assert_eq!(known.topic, [""; 0], "the client has them already");
    assert!(news(&rig.about("b", make)).is_empty());
    let parts = ["p-partition-0", "p-partition-1"].map(full).to_vec();
    let effects = rig.about("p", |machine, name| machine.make_partitioned(name, 2));
    assert_eq!(news(&effects), [(3, parts, vec![])], "one message for both");
    let effects = rig.about("a", |machine, name| machine.remove_topic(name, true));
    let gone = vec![full("a")];
    assert_eq!(news(&effects), [(3, vec![], gone.clone()), (4, vec![], gone)]);
    rig.ask(1, CommandWatchTopicListClose { request_id: 7, watcher_id: 3 });
    assert!(
        news(&rig.about("p", |machine, name| machine.remove_partitioned(name, true))).is_empty()
    );
    rig.machine.closed(1);
    assert!(!rig.machine.watchers.has_news());
}

/// Watchers are not told of a topic before it is on disk.
#[test]
fn watchers_hear_of_what_is_on_disk() {
    let mut rig = Rig::new();
    rig.watch(3, ".*", None);
    let name = full("a");
    let made = TopicName::parse(&name).unwrap();
    rig.machine.call(1, |machine| make(machine, &made)).unwrap();
    rig.machine.dispatch();
    assert!(news(&rig.machine.take_effects()).is_empty());
    assert_eq!(news(&rig.settle()), [(3, vec![name], vec![])]);
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let mut rig = Rig::new();
    let invalid = Some(i32::from(ServerError::InvalidTopicName));
    assert_eq!(refusal(&rig.watch(3, "(", None)), invalid);
    for watcher in 0..100 {
        assert_eq!(refusal(&rig.watch(watcher, ".*", None)), None);
    }
    let too_many = Some(i32::from(ServerError::TooManyRequests));
    assert_eq!(refusal(&rig.watch(100, ".*", None)), too_many);
}

/// Any client could have a hundred patterns compiled on each of ten thousand connections.
#[test]
fn all_watchers_have_one_limit_and_a_pattern_is_compiled_once() {
    let mut rig = Rig::new();
    for conn in 3..13 {
        rig.machine.opened(conn, "/test".to_owned());
        rig.ask(conn, CommandConnect { protocol_version: Some(21), ..CommandConnect::default() });
        for watcher in 0..100 {
            let pattern = format!("public/default/{}.*", watcher % 3);
            assert_eq!(refusal(&rig.watch_on(conn, watcher, &pattern, None)), None);
        }
    }
    assert_eq!(rig.machine.watchers.patterns(), 3);
    let too_many = Some(i32::from(ServerError::TooManyRequests));
    assert_eq!(refusal(&rig.watch(1, ".*", None)), too_many);
    rig.machine.closed(3);
    assert_eq!(refusal(&rig.watch(1, ".*", None)), None);
}

#[test]
fn whoever_may_use_nothing_in_a_namespace_watches_nothing() {
    let mut rig = with_roles();
    assert_eq!(refusal(&rig.watch(1, ".*", None)), None);
    support::grants(&mut rig, |grants| grants.revoke("producer"));
    let denied = Some(i32::from(ServerError::AuthorizationError));
    assert_eq!(refusal(&rig.watch(2, ".*", None)), denied);
    rig.call(|machine, name| machine.make_topic(name));
    assert_eq!(refusal(&rig.watch(2, ".*", None)), denied);
    let grant = |grants: &mut Grants| grants.grant("producer", vec![AuthAction::Produce]);
    rig.call(|machine, name| machine.set_grants(name, grant));
    assert_eq!(began(&rig.watch(2, ".*", None)).topic, [TOPIC], "one topic is enough");
    let long = CommandWatchTopicList {
        namespace: "x".repeat(300),
        topics_pattern: ".*".to_owned(),
        ..CommandWatchTopicList::default()
    };
    let invalid = Some(i32::from(ServerError::InvalidTopicName));
    assert_eq!(refusal(&rig.ask(2, long)), invalid);
}

/// A hundred watchers of ten thousand partitions were told in one turn, which delayed everything
/// else.
#[test]
fn watchers_are_told_in_turns_when_there_is_much_to_tell() {
    let mut rig = Rig::new();
    for (watcher, pattern) in [(3, ".*"), (4, "public/default/p"), (5, ".*"), (6, ".*/other")] {
        rig.watch(watcher, pattern, None);
    }
    let name = TopicName::parse(&full("p")).unwrap();
    rig.machine.call(1, |machine| machine.make_partitioned(&name, 10_000)).unwrap();
    let mut turns = 0;
    while rig.machine.watchers.has_news() {
        rig.machine.dispatch();
        turns += 1;
    }
    assert_eq!(turns, 4, "one for each watcher");
    let told: Vec<_> = news(&rig.settle())
        .iter()
        .map(|(watcher, new, deleted)| (*watcher, new.len(), deleted.len()))
        .collect();
    assert_eq!(told, [(3, 10_000, 0), (4, 10_000, 0), (5, 10_000, 0)]);
}

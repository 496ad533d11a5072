//! Removes files. A start that needs the file names it, and a start that continues lacks nothing.

use super::check::same;
use super::node::{options, read};
use super::world::SimulatedWorld;
use crate::compaction::views;
use crate::log::{self, OpenError, SimulatedStorage, Storage, spoiled};
use crate::state::BrokerState;
use crate::state::entry::EntryHead;
use std::sync::Arc;

impl SimulatedWorld {
    /// Starts on a copy without one file. `found` is the result with all files.
    pub(super) fn lose_a_file(&mut self, found: &BrokerState) {
        let copy = self.storage.fork();
        let files = files(&copy);
        let Some(name) = self.random.choice(&files) else { return };
        copy.remove(name).unwrap();
        let what = format!("seed {}: without {name}", self.seed);
        let opened = read(&copy, options()).map_err(|error| error.to_string());
        let opened = opened.and_then(|(_, without)| {
            let views = views::open(&without.state, &copy).map_err(|error| error.to_string());
            views.map(|_| without.state)
        });
        match opened {
            // Without a checkpoint, a log needs the segments that were removed because of it.
            Err(error) => {
                let is_named = error.contains(name.as_str()) || name == "checkpoint";
                assert!(is_named && !error.is_empty(), "{what}: {error}");
                self.missed += 1;
            }
            Ok(mut state) => {
                let mut found = found.clone();
                found.close_ledgers();
                state.close_ledgers();
                same(&state, &found, true, &what);
                lacks_nothing(&state, &found, &what);
            }
        }
    }
}

impl SimulatedWorld {
    /// Starts on a copy with a lost, torn, damaged or foreign index: the result must not differ.
    pub(super) fn spoil_an_index(&mut self, found: &BrokerState) {
        let copy = self.storage.fork();
        let done = spoiled::spoil(&copy, &mut self.random, &mut self.former);
        spoiled::remember(&self.storage, &mut self.former);
        let Some(done) = done else { return };
        let what = format!("seed {}: {done}", self.seed);
        let (log, without) =
            read(&copy, options()).unwrap_or_else(|error| panic!("{what}: {error}"));
        same(&without.state, found, true, &what);
        lacks_nothing(&without.state, found, &what);
        self.spoiled += 1;
        // The index is built again, and equals the original.
        let mut log = log;
        log.prepare();
        drop(log);
        let storage: Arc<dyn Storage> = Arc::new(copy);
        let survey = log::survey(&storage, EntryHead::facts, &mut |_| Ok(())).unwrap();
        assert!(survey.findings.is_empty(), "{what}: {:?}", survey.findings);
    }
}

impl SimulatedWorld {
    /// Starts on a copy whose disk has lost the end of the log, which was confirmed and noted when
    /// the log was idle: this is not an unfinished group.
    pub(super) fn lose_the_end(&mut self) {
        let copy = self.storage.fork();
        let Some((name, at)) = spoiled::zero_end(&copy, &mut self.random) else { return };
        let opened = read(&copy, options()).map(|_| ());
        let is_refused =
            matches!(&opened, Err(OpenError::Damaged { file, .. }) if file.ends_with(&name));
        assert!(is_refused, "seed {}: without what follows {at:?}: {opened:?}", self.seed);
        self.ends_lost += 1;
    }
}

/// Files whose loss must be noticed. Without an inventory, a start knows nothing of old segments.
/// It knows of the newest segment only when the inventory lists it, or the log was idle in it.
fn files(storage: &SimulatedStorage) -> Vec<String> {
    let list = |folder: &str, end: &str| {
        let mut names = storage.list(folder).unwrap();
        names.retain(|name| name.ends_with(end));
        names.sort();
        names
    };
    let mut segments = list("log", ".seg");
    let newest = segments.pop();
    if storage.file("segments").is_none() {
        segments.clear();
    }
    // A segment in which the log was idle is known.
    let confirmed = spoiled::confirmed(storage).map(|at| format!("{:010}.seg", at.segment));
    segments.extend(newest.filter(|newest| confirmed.as_ref() == Some(newest)));
    let mut files: Vec<String> = segments.iter().map(|name| format!("log/{name}")).collect();
    files.extend(list("compact", ".seg").iter().map(|name| format!("compact/{name}")));
    files.extend(storage.file("checkpoint").map(|_| "checkpoint".to_owned()));
    files
}

/// Missing entries were acknowledged by all subscriptions: a removed segment may exist again after
/// a crash.
fn lacks_nothing(without: &BrokerState, found: &BrokerState, what: &str) {
    for (id, topic) in found.topics() {
        let left = without.topic(id).unwrap();
        for (ordinal, _) in topic.entries.iter() {
            let is_here = left.entries.get(ordinal).is_some();
            let mut cursors = topic.durable().peekable();
            let is_dead = cursors.peek().is_some()
                && cursors.all(|subscription| subscription.cursor.is_acked(ordinal));
            assert!(is_here || is_dead, "{what}: {ordinal} of {} is lost", topic.name.as_str());
        }
    }
}

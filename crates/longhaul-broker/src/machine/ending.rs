//! The end of connections.

use super::BrokerMachine;
use super::dispatcher::ConsumerKey;
use super::effect::MachineEffect;
use std::collections::{BTreeMap, BTreeSet};

impl BrokerMachine {
    /// Closes everything that is open on a connection. [`BrokerMachine::retry_freed`] then retries
    /// the requests that waited for it.
    pub(super) fn end(&mut self, conn: u64) {
        // The machine may have ended the connection itself.
        let Some(session) = self.sessions.remove(&conn) else { return };
        // Sorted, so that the result does not depend on the order of a hash table.
        for (id, handle) in session.producers.into_iter().collect::<BTreeMap<_, _>>() {
            self.drop_producer(handle.topic, conn, id);
        }
        let mut ended: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (id, handle) in session.consumers {
            let key = (handle.topic, handle.subscription);
            ended.entry(key).or_default().insert(ConsumerKey { conn, id });
        }
        for (key, consumers) in ended {
            self.drop_consumers(&consumers, key, false);
        }
        self.drop_readers_of(conn, &session.orphans);
        self.watchers.forget(conn);
        self.freed.retain(|(newcomer, _)| *newcomer != conn);
        let waiting = self.take_waiting_for(conn);
        self.freed.extend(waiting);
    }

    /// Ends the connections of holders that did not answer in time.
    pub(super) fn end_silent_holders(&mut self) {
        for holder in self.silent_holders() {
            self.effects.push(MachineEffect::Close(holder));
            self.end(holder);
        }
    }

    /// Reports contradictions to the operator, and ends the connections concerned.
    pub(super) fn follow_broken_invariants(&mut self) {
        let Some((news, ending)) = self.invariants.take_news(self.up) else { return };
        self.effects.extend(news.into_iter().map(MachineEffect::Warn));
        for conn in ending {
            self.effects.push(MachineEffect::Close(conn));
            self.end(conn);
            // Other contradictions there were found during the end of the connection.
            self.invariants.forget_connection(conn);
        }
    }
}

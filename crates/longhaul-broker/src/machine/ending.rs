//! Connections that end, whoever ends them.

use super::BrokerMachine;
use super::dispatcher::ConsumerKey;
use super::effect::MachineEffect;
use std::collections::BTreeMap;

impl BrokerMachine {
    /// Lets go of all that a connection had open. What others wait for because of it is tried again
    /// by [`BrokerMachine::retry_freed`].
    pub(super) fn end(&mut self, conn: u64) {
        // The machine may have ended it itself.
        let Some(session) = self.sessions.remove(&conn) else { return };
        // In order, so that what follows does not depend on how a table happens to lie in memory.
        for (id, handle) in session.producers.into_iter().collect::<BTreeMap<_, _>>() {
            self.drop_producer(handle.topic, conn, id);
        }
        for (id, handle) in session.consumers.into_iter().collect::<BTreeMap<_, _>>() {
            self.drop_consumer(ConsumerKey { conn, id }, handle.topic, handle.subscription, false);
        }
        self.drop_readers_of(conn, &session.orphans);
        self.watchers.forget(conn);
        self.freed.retain(|(newcomer, _)| *newcomer != conn);
        let waiting = self.take_waiting_for(conn);
        self.freed.extend(waiting);
    }

    /// Ends the connections of holders that have said nothing in time.
    pub(super) fn end_silent_holders(&mut self) {
        for holder in self.silent_holders() {
            self.effects.push(MachineEffect::Close(holder));
            self.end(holder);
        }
    }

    /// Tells the operator what is wrong, and ends the connections concerned.
    pub(super) fn follow_broken_invariants(&mut self) {
        let Some((news, ending)) = self.invariants.take_news(self.up) else { return };
        self.effects.extend(news.into_iter().map(MachineEffect::Warn));
        for conn in ending {
            self.effects.push(MachineEffect::Close(conn));
            self.end(conn);
            // What else is missing there was found on the way out.
            self.invariants.forget_connection(conn);
        }
    }
}

//! Faults between one process and the broker: cut, frozen, killed.

use super::Freezer;
use super::agenda::{ConnectionId, PlannedEffect, SessionId};
use super::faults::{Loss, Sessions};
use super::session::{MemoryConnection, MemorySession, SessionRole, SessionStatus};
use super::state::{MemoryBrokerState, lost};
use longhaul_transport::clock::Clock;
use std::sync::Arc;
use std::time::Duration;

impl MemoryBrokerState {
    pub(super) fn connect(&mut self, name: &str, clock: Clock, freezer: Freezer) -> ConnectionId {
        let id = self.id();
        let connection = MemoryConnection {
            name: Arc::from(name),
            clock,
            freezer,
            cut: false,
            killed: false,
            frozen: false,
            freeze: 0,
            held: Vec::new(),
            missing: None,
        };
        self.connections.insert(id, connection);
        self.note(format!("{name} connects"));
        id
    }

    /// Blocks all traffic in both directions. Messages in flight to the broker arrive; after a
    /// while the broker ends the sessions.
    pub(super) fn freeze(&mut self, id: ConnectionId, what: &str) -> Option<u32> {
        let connection = self.connections.get_mut(&id)?;
        if connection.frozen || connection.killed {
            return None;
        }
        connection.frozen = true;
        connection.freeze += 1;
        let (freeze, name) = (connection.freeze, Arc::clone(&connection.name));
        self.note(format!("{name} is {what}"));
        let keep_alive = self.draw(self.faults.keep_alive);
        self.after(keep_alive, PlannedEffect::KeepAlive { connection: id, freeze });
        Some(freeze)
    }

    pub(super) fn keep_alive_over(&mut self, id: ConnectionId, freeze: u32) {
        let connection = self.connections.get(&id);
        let Some(connection) = connection.filter(|it| it.frozen && it.freeze == freeze) else {
            return;
        };
        let name = Arc::clone(&connection.name);
        self.note(format!("the broker gives {name} up"));
        for session in self.attached(|session| session.connection == id) {
            self.give_up_session(session);
        }
    }

    /// Unblocks the traffic: first the waiting messages, then the news of ended sessions.
    pub(super) fn thaw(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id).filter(|it| it.frozen) else { return };
        connection.frozen = false;
        let held = std::mem::take(&mut connection.held);
        let name = Arc::clone(&connection.name);
        self.note(format!("{name} is back"));
        // If the broker hangs, they wait for it again, in front of later ones.
        let later = std::mem::take(&mut self.hung);
        for effect in held {
            self.release(effect);
        }
        self.hung.extend(later);
        for session in self.sessions_of(id) {
            let void = self.sessions.get(&session).is_some_and(|it| it.is_open() && it.given_up);
            if void {
                self.lose(session, None, "the broker had given the client up");
            } else {
                self.refill(session);
            }
        }
        self.signals.changed.notify_waiters();
    }

    /// Releases an effect that waited for the thaw. It is lost if the broker has ended its session.
    fn release(&mut self, effect: PlannedEffect) {
        let PlannedEffect::Up(up) = effect else {
            self.perform(effect);
            return;
        };
        let link = up.link();
        let delay = self.draw(self.faults.publish_delay);
        let at = self.now() + delay;
        let session = self.sessions.get_mut(&link.session);
        if let Some(session) = session.filter(|session| session.link(link.session) == link) {
            let at = session.outbound_at(at);
            self.at(at, PlannedEffect::Up(up));
        } else {
            self.note(format!("session {}: never sent", link.session));
        }
    }

    /// Stops a process together with its connections, as SIGSTOP does.
    pub(super) fn suspend(&mut self, id: ConnectionId) -> Option<u32> {
        let freeze = self.freeze(id, "suspended")?;
        if let Some(connection) = self.connections.get(&id) {
            connection.freezer.freeze();
        }
        Some(freeze)
    }

    /// Returns false if it is frozen already; the earlier duration then applies.
    pub(super) fn freeze_for(&mut self, connection: ConnectionId, time: Duration) -> bool {
        let freeze = self.freeze(connection, "in a black hole");
        self.resume_in(connection, freeze, time)
    }

    /// Returns false if it is frozen already; the earlier duration then applies.
    pub(super) fn suspend_for(&mut self, connection: ConnectionId, time: Duration) -> bool {
        let freeze = self.suspend(connection);
        self.resume_in(connection, freeze, time)
    }

    fn resume_in(&mut self, connection: ConnectionId, freeze: Option<u32>, time: Duration) -> bool {
        if let Some(freeze) = freeze {
            self.after(time, PlannedEffect::Resume { connection, freeze });
        }
        freeze.is_some()
    }

    /// A killed process does not come back.
    pub(super) fn resume(&mut self, id: ConnectionId) {
        self.thaw(id);
        if let Some(connection) = self.connections.get(&id).filter(|it| !it.killed) {
            connection.freezer.thaw();
        }
    }

    pub(super) fn resume_after(&mut self, id: ConnectionId, freeze: u32) {
        if self.connections.get(&id).is_some_and(|connection| connection.freeze == freeze) {
            self.resume(id);
        }
    }

    /// Without a given loss, each session's is drawn.
    pub(super) fn cut(&mut self, id: ConnectionId, loss: Option<Loss>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.cut = true;
        let name = Arc::clone(&connection.name);
        self.note(format!("{name} is cut off"));
        self.lose_some(id, Sessions::All, loss);
        self.signals.changed.notify_waiters();
    }

    pub(super) fn restore(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.cut = false;
        let name = Arc::clone(&connection.name);
        self.note(format!("{name} is restored"));
        self.signals.changed.notify_waiters();
    }

    /// Kills the process: nothing behind its gate runs on, and the broker learns of it at once.
    /// Messages in flight may or may not be stored.
    pub(super) fn kill(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.killed = true;
        connection.frozen = false;
        connection.held.clear();
        let (name, freezer) = (Arc::clone(&connection.name), connection.freezer.clone());
        self.note(format!("{name} is killed"));
        for session in self.sessions_of(id) {
            self.lose(session, Some(Loss::Error), "the process is gone");
            let error = lost(&name, "the process is gone");
            if let Some(session) = self.sessions.get_mut(&session) {
                session.inbox.clear();
                session.verdict = SessionStatus::Failed(error);
            }
        }
        freezer.freeze();
        self.signals.changed.notify_waiters();
    }

    /// Ends some of the sessions of a process.
    pub(super) fn lose_some(&mut self, id: ConnectionId, which: Sessions, loss: Option<Loss>) {
        let chosen = |session: &MemorySession| match session.role {
            SessionRole::Publisher(_) => matches!(which, Sessions::All | Sessions::Publishers),
            SessionRole::Consumer(_) => matches!(which, Sessions::All | Sessions::Consumers),
            SessionRole::Follower(_) => matches!(which, Sessions::All | Sessions::Followers),
        };
        for session in self.attached(|session| session.connection == id && chosen(session)) {
            self.lose(session, loss, "the connection was lost");
        }
    }

    fn sessions_of(&self, id: ConnectionId) -> Vec<SessionId> {
        let of_connection = |session: &MemorySession| session.connection == id;
        let sessions = self.sessions.iter().filter(|(_, session)| of_connection(session));
        sessions.map(|(id, _)| *id).collect()
    }
}

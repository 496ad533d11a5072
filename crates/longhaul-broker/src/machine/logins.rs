//! Periodic checks of open connections: whether the token is still valid, and whether the role
//! still has its permissions.

use super::BrokerMachine;
use super::dispatcher::ConsumerKey;
use super::effect::{MachineEffect, RequestRefusal};
use super::invariants::Invariant;
use super::session::ClientSession;
use crate::auth::AuthError;
use crate::policies::AuthAction;
use longhaul_wire::messages::{
    AuthData, CommandAuthChallenge, CommandAuthResponse, CommandCloseConsumer, ServerError,
};
use std::collections::{BTreeMap, BTreeSet};

/// Time for a client to show a new token after its token has expired, in ms in which answers are
/// read.
const PATIENCE_MS: u64 = 30_000;
/// The marker by which Pulsar's clients recognize a request for a new token.
const REFRESH: &[u8] = b"PulsarAuthRefresh";

impl BrokerMachine {
    /// Closes the producers and consumers in a namespace whose roles have lost their permission.
    /// When their clients open them again, they get the reason.
    pub(super) fn end_unpermitted(&mut self, namespace: &str) {
        let (mut producers, mut consumers) = (BTreeSet::new(), BTreeSet::new());
        for (&conn, session) in &self.sessions {
            // Before CONNECT, nothing is open on the connection.
            let Some(role) = &session.role else { continue };
            let ends = |topic, action| {
                let topic = self.state.topic(topic).map(|kept| &kept.name);
                topic.is_some_and(|topic| {
                    topic.namespace() == namespace && !self.allows(role, topic, action)
                })
            };
            let found = session
                .producers
                .iter()
                .filter(|(_, producer)| ends(producer.topic, AuthAction::Produce));
            producers.extend(found.map(|(&id, producer)| (conn, id, producer.topic)));
            let found = session
                .consumers
                .iter()
                .filter(|(_, consumer)| ends(consumer.topic, AuthAction::Consume));
            consumers.extend(
                found.map(|(&id, consumer)| (conn, id, consumer.topic, consumer.subscription)),
            );
        }
        for (conn, id, topic) in producers {
            self.end_producer(conn, topic, id);
        }
        let mut ended: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for &(conn, id, topic, subscription) in &consumers {
            if let Some(session) = self.session(conn) {
                session.consumers.remove(&id);
            }
            ended.entry((topic, subscription)).or_default().insert(ConsumerKey { conn, id });
        }
        for (key, gone) in ended {
            self.drop_consumers(&gone, key, false);
        }
        for (conn, id, ..) in consumers {
            self.send_after_commit(conn, CommandCloseConsumer::new(id, u64::MAX));
        }
    }

    /// Closes connections whose token is revoked, or whose role has other rights than before.
    /// Requests new tokens for expired ones, and closes connections that showed none in time or
    /// cannot show another one.
    pub(super) fn check_logins(&mut self) {
        let Some(auth) = self.auth.clone() else { return };
        let changed = self.sessions.iter().filter_map(|(&conn, session)| {
            let role = session.role.as_ref()?;
            match auth.present(role) {
                Err(cause) => Some((conn, cause)),
                // What is open on it was opened with other rights.
                Ok(present) => (present != *role).then_some((conn, AuthError::Changed)),
            }
        });
        for (conn, cause) in changed.collect::<Vec<_>>() {
            self.end_login(conn, cause);
        }
        let now_s = self.now / 1000;
        let has_ended = |session: &ClientSession| {
            session.role.as_ref().is_some_and(|role| role.expires.is_some_and(|end| end <= now_s))
        };
        let ended =
            self.sessions.iter().filter(|(_, session)| has_ended(session)).map(|(&conn, _)| conn);
        for conn in ended.collect::<BTreeSet<u64>>() {
            let (now, deadline) = (self.heard.ms(), self.heard.deadline(PATIENCE_MS));
            let session = self.sessions.get_mut(&conn);
            let session = self.invariants.need(session, Invariant::SessionOpen, Some(conn));
            let Some(session) = session else { continue };
            match session.asked {
                Some(deadline) if now < deadline => {}
                None if session.renews => {
                    session.asked = Some(deadline);
                    self.challenge(conn);
                }
                Some(_) | None => self.end_login(conn, AuthError::Expired),
            }
        }
    }

    fn challenge(&mut self, conn: u64) {
        let challenge = AuthData {
            auth_method_name: Some("token".to_owned()),
            auth_data: Some(REFRESH.into()),
        };
        let challenge =
            CommandAuthChallenge { challenge: Some(challenge), ..CommandAuthChallenge::default() };
        self.send(conn, challenge);
    }

    /// A client has shown a new token.
    pub(super) fn renew(&mut self, conn: u64, response: CommandAuthResponse) {
        let shown = response.response.unwrap_or_default();
        let method = shown.auth_method_name.unwrap_or_default();
        let data = shown.auth_data.unwrap_or_default();
        // Without authentication there is nothing to renew.
        let Some(auth) = &self.auth else { return };
        let role = auth.authenticate(&method, &data, self.now / 1000);
        let session = self.sessions.get_mut(&conn);
        let session = self.invariants.need(session, Invariant::SessionOpen, Some(conn));
        let Some(session) = session else { return };
        match role {
            Ok(role) if session.role.as_ref().is_some_and(|known| known.name == role.name) => {
                session.role = Some(role);
                session.asked = None;
            }
            // Its producers and consumers belong to the role that opened them.
            Ok(_) => self.end_login(conn, AuthError::OtherRole),
            Err(cause) => self.end_login(conn, cause),
        }
    }

    /// Sends the reason, and ends the connection with everything open on it.
    fn end_login(&mut self, conn: u64, cause: AuthError) {
        self.refuse_login(conn, cause);
        self.end(conn);
    }

    /// Sends the reason of a refused login, and closes the connection.
    pub(super) fn refuse_login(&mut self, conn: u64, cause: AuthError) {
        let peer = self.sessions.get(&conn).map_or("", |session| session.peer.as_str());
        let told = self.refused.note(peer, cause, self.now / 1000);
        self.effects.extend(told.map(MachineEffect::Warn));
        let refusal = RequestRefusal::new(ServerError::AuthenticationError, cause.to_string());
        self.refuse_connection(conn, &refusal);
    }
}

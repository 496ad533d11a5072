//! Connections: what is open on them, what is sent to them, and the permissions of their roles.

use super::BrokerMachine;
use super::dispatcher::ConsumerKey;
use super::dues::SubscriptionKey;
use super::effect::{MachineEffect, PendingCommit, RequestRefusal};
use crate::auth::{AuthRefusalReason, AuthRole};
use crate::name::TopicName;
use crate::policies::AuthAction;
use longhaul_wire::messages::{Command, CommandError, CommandSuccess, KeyValue, ServerError};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A connection.
#[derive(Debug, Default)]
pub(super) struct ClientSession {
    /// `/host:port`.
    pub(super) peer: String,
    /// Client version from CONNECT.
    pub(super) client: String,
    /// `None` before CONNECT.
    pub(super) role: Option<AuthRole>,
    /// Whether the client can show a new token when its token expires.
    pub(super) renews: bool,
    /// Deadline for a new token, if one was requested, by the clock for the answers of clients.
    pub(super) asked: Option<u64>,
    pub(super) producers: HashMap<u64, ProducerHandle>,
    /// Producers that the broker has closed. Messages that their clients sent before they learned
    /// it get no answer.
    pub(super) closed: HashSet<u64>,
    pub(super) consumers: HashMap<u64, ConsumerHandle>,
    /// Subscriptions of readers that lost their consumers by SEEK; the connection will come back to
    /// them.
    pub(super) orphans: BTreeSet<SubscriptionKey>,
    /// Bytes of unsent deliveries.
    pub(super) under_way: u64,
    /// How many there may be.
    pub(super) window: u64,
}

/// Closed producers that are remembered. A client with more closed producers has already learned of
/// the older ones.
const CLOSED_MAX: usize = 10_000;

impl ClientSession {
    /// Removes a producer that the broker closes, and remembers it.
    pub(super) fn record_closed(&mut self, id: u64) {
        self.producers.remove(&id);
        if self.closed.len() >= CLOSED_MAX {
            self.closed.clear();
        }
        self.closed.insert(id);
    }
}

/// A producer of a connection.
#[derive(Clone, Debug)]
pub(super) struct ProducerHandle {
    pub(super) topic: u32,
    pub(super) name: Arc<str>,
    /// Whether it waits for exclusive access.
    pub(super) is_waiting: bool,
}

/// A consumer of a connection.
#[derive(Clone, Debug)]
pub(super) struct ConsumerHandle {
    pub(super) topic: u32,
    pub(super) subscription: u32,
    /// Metadata from its client.
    pub(super) metadata: BTreeMap<String, String>,
}

/// Maximum size of the metadata of a producer or consumer, names and values together. Statistics
/// show it.
const METADATA_BYTES_MAX: usize = 16 * 1024;

/// The metadata of a client's producer or consumer.
pub(super) fn metadata_of(given: &[KeyValue]) -> Result<BTreeMap<String, String>, RequestRefusal> {
    check_metadata(given.iter().map(|pair| (pair.key(), pair.value())))?;
    Ok(given.iter().map(|pair| (pair.key().to_owned(), pair.value().to_owned())).collect())
}

/// Refuses metadata that is too large.
pub(super) fn check_metadata<'a>(
    pairs: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), RequestRefusal> {
    let bytes: usize = pairs.map(|(key, value)| key.len() + value.len()).sum();
    if bytes <= METADATA_BYTES_MAX {
        return Ok(());
    }
    let text = format!(
        "the properties of a producer, consumer or subscription have at most {METADATA_BYTES_MAX} bytes, these have {bytes}"
    );
    Err(RequestRefusal::not_allowed(text))
}

impl BrokerMachine {
    /// Lets the consumers of a connection have more, which may have room again.
    pub(super) fn wake(&mut self, conn: u64) {
        let consumers = self.sessions.get(&conn).into_iter().flat_map(|it| &it.consumers);
        let keys = consumers.map(|(&id, consumer)| (id, (consumer.topic, consumer.subscription)));
        for (id, key) in keys.collect::<Vec<_>>() {
            self.dirty.insert(key);
            if let Some(dispatcher) = self.dispatcher(key.0, key.1) {
                dispatcher.may_be_ready(ConsumerKey { conn, id });
            }
        }
    }

    /// Sends a command at once.
    pub(super) fn send(&mut self, conn: u64, command: impl Into<Command>) {
        self.effects.push(MachineEffect::Send(conn, command.into()));
    }

    /// Sends a command when everything that was recorded so far is on disk.
    pub(super) fn send_after_commit(&mut self, conn: u64, command: impl Into<Command>) {
        self.after_commit(PendingCommit::Then(Box::new(MachineEffect::Send(conn, command.into()))));
    }

    /// Confirms a request when everything that was recorded so far is on disk.
    pub(super) fn succeed(&mut self, conn: u64, request_id: u64) {
        self.send_after_commit(conn, CommandSuccess { request_id, schema: None });
    }

    pub(super) fn error(&mut self, conn: u64, request_id: u64, refusal: &RequestRefusal) {
        let (error, message) = (refusal.code.into(), refusal.text.clone());
        self.send(conn, CommandError { request_id, error, message });
    }

    /// Checks that the connection's role may do this with the topic.
    pub(super) fn authorize(
        &mut self,
        conn: u64,
        topic: &TopicName,
        action: AuthAction,
    ) -> Result<(), RequestRefusal> {
        let what = if action == AuthAction::Produce { "produce" } else { "consume" };
        self.authorize_one_of(conn, topic, &[action], what)
    }

    /// Checks that the role may produce or consume on the topic.
    pub(super) fn authorize_any(
        &mut self,
        conn: u64,
        topic: &TopicName,
    ) -> Result<(), RequestRefusal> {
        let any = [AuthAction::Consume, AuthAction::Produce];
        self.authorize_one_of(conn, topic, &any, "produce or consume")
    }

    /// Refusals are also logged: only an operator can resolve them.
    fn authorize_one_of(
        &mut self,
        conn: u64,
        topic: &TopicName,
        actions: &[AuthAction],
        what: &str,
    ) -> Result<(), RequestRefusal> {
        let refuse = |text: String| Err(RequestRefusal::new(ServerError::AuthorizationError, text));
        let session = self.sessions.get(&conn);
        let Some((session, role)) =
            session.and_then(|session| Some((session, session.role.as_ref()?)))
        else {
            return refuse("not connected".to_owned());
        };
        let namespace = topic.namespace();
        if actions.iter().any(|&action| self.allows(role, topic, action)) {
            return Ok(());
        }
        let name = &role.name;
        let text =
            format!("role {name} may not {what} in {namespace}: ask a superuser for a grant");
        let told = self.refused.note(
            &session.peer,
            AuthRefusalReason::Request(text.clone()),
            self.now / 1000,
        );
        self.effects.extend(told.map(MachineEffect::Warn));
        refuse(text)
    }

    /// Sends the reason, and closes the connection.
    pub(super) fn refuse_connection(&mut self, conn: u64, refusal: &RequestRefusal) {
        self.totals.connections_refused += 1;
        self.error(conn, u64::MAX, refusal);
        self.effects.push(MachineEffect::Close(conn));
    }
}

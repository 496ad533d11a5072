//! Connections: what each of them has open, what is said to it, and what its role may do.

use super::BrokerMachine;
use super::dues::SubscriptionKey;
use super::effect::{MachineEffect, PendingCommit, RequestRefusal};
use crate::admin::policies::AuthAction;
use crate::auth::{AuthRefusalReason, AuthRole};
use crate::name::TopicName;
use longhaul_wire::messages::{Command, CommandError, CommandSuccess, KeyValue, ServerError};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A connection.
#[derive(Debug)]
pub(super) struct ClientSession {
    /// `/host:port`.
    pub(super) peer: String,
    /// What the client says that it is.
    pub(super) client: String,
    /// `None` before CONNECT.
    pub(super) role: Option<AuthRole>,
    /// The client can show a new token when its token ends.
    pub(super) renews: bool,
    /// It was asked for one, and has until then.
    pub(super) asked: Option<u64>,
    pub(super) producers: HashMap<u64, ProducerHandle>,
    /// Producers that the broker has closed. What their clients had sent before they knew is not
    /// answered.
    pub(super) closed: HashSet<u64>,
    pub(super) consumers: HashMap<u64, ConsumerHandle>,
    /// Subscriptions of readers that lost their consumers by SEEK, and to which the connection will
    /// come back.
    pub(super) orphans: BTreeSet<SubscriptionKey>,
    /// Bytes of deliveries that are under way.
    pub(super) under_way: u64,
}

/// Producers that were closed and are remembered. Clients that have seen so many come and go know
/// of the older ones.
const CLOSED_MAX: usize = 10_000;

impl ClientSession {
    /// Remembers a producer that the broker has closed.
    pub(super) fn note_closed(&mut self, id: u64) {
        if self.closed.len() >= CLOSED_MAX {
            self.closed.clear();
        }
        self.closed.insert(id);
    }
}

/// Where a producer of a connection publishes.
#[derive(Clone, Debug)]
pub(super) struct ProducerHandle {
    pub(super) topic: u32,
    pub(super) name: Arc<str>,
    /// It waits to be the only one.
    pub(super) is_waiting: bool,
}

/// What a consumer of a connection reads.
#[derive(Clone, Debug)]
pub(super) struct ConsumerHandle {
    pub(super) topic: u32,
    pub(super) subscription: u32,
    /// What its client says about it.
    pub(super) metadata: BTreeMap<String, String>,
}

/// Names and values that a client gives a producer or a consumer, together. Statistics show them.
const METADATA_BYTES_MAX: usize = 16 * 1024;

/// What a client says about its producer or consumer.
pub(super) fn metadata_of(given: &[KeyValue]) -> Result<BTreeMap<String, String>, RequestRefusal> {
    check_metadata(given.iter().map(|pair| (pair.key(), pair.value())))?;
    Ok(given.iter().map(|pair| (pair.key().to_owned(), pair.value().to_owned())).collect())
}

/// Refuses names and values that are too many or too long together.
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
    Err(RequestRefusal::new(ServerError::NotAllowedError, text))
}

impl BrokerMachine {
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

    /// Whether the connection's role may do this to the topic.
    pub(super) fn authorize(
        &mut self,
        conn: u64,
        topic: &TopicName,
        action: AuthAction,
    ) -> Result<(), RequestRefusal> {
        let what = if action == AuthAction::Produce { "produce" } else { "consume" };
        self.authorize_one_of(conn, topic, &[action], what)
    }

    /// Whether the role may do anything at all with the topic.
    pub(super) fn authorize_any(
        &mut self,
        conn: u64,
        topic: &TopicName,
    ) -> Result<(), RequestRefusal> {
        let any = [AuthAction::Consume, AuthAction::Produce];
        self.authorize_one_of(conn, topic, &any, "produce or consume")
    }

    /// A refusal is told to the log as well: only an operator can do something about it.
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
            format!("role {name} may not {what} in {namespace}: a superuser may grant it that");
        let told = self.refused.note(
            &session.peer,
            AuthRefusalReason::Request(text.clone()),
            self.now / 1000,
        );
        self.effects.extend(told.map(MachineEffect::Warn));
        refuse(text)
    }

    /// Says why, and closes.
    pub(super) fn refuse_connection(&mut self, conn: u64, refusal: &RequestRefusal) {
        self.totals.connections_refused += 1;
        self.error(conn, u64::MAX, refusal);
        self.effects.push(MachineEffect::Close(conn));
    }
}

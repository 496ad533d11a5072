//! The handshake, and the dispatch of client commands.

use super::BrokerMachine;
use super::effect::{ClientRequest, MachineEffect, RequestRefusal};
use super::invariants::Invariant;
use super::session::ClientSession;
use crate::auth::AuthRole;
use longhaul_wire::messages::{
    Command, CommandConnect, CommandConnected, CommandLookupTopic, CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata, CommandPartitionedTopicMetadataResponse, CommandPong,
    FeatureFlags, LookupType, MetadataType,
};

/// The newest protocol that the broker speaks: that of Pulsar 4.0.
const PROTOCOL_VERSION: i32 = 21;

impl BrokerMachine {
    /// A client has connected.
    pub fn opened(&mut self, conn: u64, peer: String) {
        self.totals.connections_accepted += 1;
        let window = self.settings.window_bytes;
        self.sessions.insert(conn, ClientSession { peer, window, ..ClientSession::default() });
    }

    /// Notes that deliveries of this many bytes were sent on the connection.
    pub fn written(&mut self, conn: u64, bytes: u64) {
        self.totals.bytes_out += bytes;
        // The connection may have ended meanwhile.
        let Some(session) = self.session(conn) else { return };
        let was_full = session.under_way >= session.window;
        session.under_way = session.under_way.saturating_sub(bytes);
        if was_full {
            self.wake(conn);
        }
    }

    /// A connection has ended.
    pub fn closed(&mut self, conn: u64) {
        self.end(conn);
        self.retry_freed();
    }

    /// Retries requests that waited for the end of a connection.
    pub(super) fn retry_freed(&mut self) {
        while let Some((newcomer, command)) = self.freed.pop_front() {
            self.command(newcomer, command);
        }
    }

    /// Handles a client's request.
    pub fn request(&mut self, conn: u64, request: ClientRequest) {
        // The client may have sent this before it learned that its connection has ended.
        let Some(session) = self.sessions.get(&conn) else { return };
        let is_connected = session.role.is_some();
        self.heard_of(conn);
        match request {
            ClientRequest::Command(Command::Connect(connect)) if !is_connected => {
                self.connect(conn, &connect)
            }
            ClientRequest::Command(Command::Ping(_)) => self.send(conn, CommandPong {}),
            ClientRequest::Garbage(_) if !is_connected => {
                // The client may not speak this protocol at all.
                self.totals.connections_refused += 1;
                self.effects.push(MachineEffect::Close(conn));
            }
            _ if !is_connected => {
                let text = "the first command must be CONNECT";
                self.refuse_connection(conn, &RequestRefusal::not_allowed(text));
            }
            ClientRequest::Publish(send, message) => self.publish(conn, send, message),
            ClientRequest::Garbage(refusal) => self.refuse_connection(conn, &refusal),
            ClientRequest::Command(command) => self.command(conn, command),
        }
        self.retry_freed();
    }

    fn connect(&mut self, conn: u64, connect: &CommandConnect) {
        let version = connect.protocol_version.unwrap_or_default();
        let role = match &self.auth {
            None => Ok(AuthRole::trusted()),
            Some(auth) => {
                let method = connect.auth_method_name.as_deref().unwrap_or_default();
                let data = connect.auth_data.as_deref().unwrap_or_default();
                auth.authenticate(method, data, self.now / 1000)
            }
        };
        let role = match role {
            Ok(role) => role,
            Err(cause) => return self.refuse_login(conn, cause),
        };
        let max_message_size = i32::try_from(self.settings.message_bytes_max).ok();
        let session = self.sessions.get_mut(&conn);
        let session = self.invariants.need(session, Invariant::SessionOpen, Some(conn));
        let Some(session) = session else { return };
        session.role = Some(role);
        let flags = connect.feature_flags.as_ref();
        session.renews = flags.is_some_and(|flags| flags.supports_auth_refresh());
        session.client = connect.client_version.chars().take(100).collect();
        self.set_window(conn);
        self.send(
            conn,
            CommandConnected {
                server_version: concat!("Pulsar Server (longhaul ", env!("CARGO_PKG_VERSION"), ")")
                    .to_owned(),
                protocol_version: Some(version.min(PROTOCOL_VERSION)),
                max_message_size,
                feature_flags: Some(FeatureFlags {
                    supports_auth_refresh: Some(false),
                    supports_broker_entry_metadata: Some(false),
                    supports_partial_producer: Some(true),
                    supports_topic_watchers: Some(true),
                    supports_get_partitioned_metadata_without_auto_creation: Some(true),
                    supports_repl_dedup_by_lid_and_eid: None,
                }),
            },
        );
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "whatever a client does not send is refused"
    )]
    pub(super) fn command(&mut self, conn: u64, command: Command) {
        match command {
            // The request itself has already proved that the client is alive.
            Command::Pong(_) => {}
            Command::AuthResponse(request) if self.auth.is_some() => self.renew(conn, *request),
            Command::PartitionedMetadata(request) => self.partitioned_metadata(conn, &request),
            Command::Lookup(request) => self.lookup(conn, &request),
            Command::GetTopicsOfNamespace(request) => self.topics_of_namespace(conn, &request),
            Command::Producer(request) => {
                let id = request.request_id;
                if let Err(refusal) = self.create_producer(conn, &request) {
                    self.refuse_or_probe(conn, id, Command::Producer(request), refusal);
                }
            }
            Command::CloseProducer(closed) => {
                self.probes_end(conn, |command| matches!(command, Command::Producer(asked) if asked.producer_id == closed.producer_id));
                self.close_producer(conn, &closed);
            }
            Command::Subscribe(request) => {
                let id = request.request_id;
                if let Err(refusal) = self.subscribe(conn, &request) {
                    self.refuse_or_probe(conn, id, Command::Subscribe(request), refusal);
                }
            }
            Command::Flow(request) => self.flow(conn, request),
            Command::Ack(request) => self.ack(conn, &request),
            Command::Redeliver(request) => self.redeliver(conn, &request),
            Command::Unsubscribe(request) => {
                self.answer(conn, request.request_id, |machine| machine.unsubscribe(conn, request))
            }
            Command::CloseConsumer(closed) => {
                self.probes_end(conn, |command| matches!(command, Command::Subscribe(asked) if asked.consumer_id == closed.consumer_id));
                self.close_consumer(conn, &closed);
            }
            Command::Seek(request) => {
                self.answer(conn, request.request_id, |machine| machine.seek(conn, &request))
            }
            Command::GetLastMessageId(request) => {
                self.answer(conn, request.request_id, |machine| {
                    machine.last_message_id(conn, request)
                });
            }
            Command::ConsumerStats(request) => self.consumer_stats(conn, request),
            Command::GetSchema(request) => self.get_schema(conn, &request),
            Command::GetOrCreateSchema(request) => self.get_or_create_schema(conn, &request),
            Command::NewTxn(request)
            | Command::AddPartitionToTxn(request)
            | Command::AddSubscriptionToTxn(request)
            | Command::EndTxn(request)
            | Command::EndTxnOnPartition(request)
            | Command::EndTxnOnSubscription(request)
            | Command::TcClientConnect(request) => {
                self.error(conn, request.request_id, &RequestRefusal::no_transactions());
            }
            Command::WatchTopicList(request) => {
                self.answer(conn, request.request_id, |machine| machine.watch(conn, *request))
            }
            Command::WatchTopicListClose(request) => self.end_watch(conn, request),
            other => self.unexpected(conn, &other),
        }
    }

    /// Refuses commands that only a broker sends, a second CONNECT, or SEND without a message: the
    /// client violates the protocol.
    fn unexpected(&mut self, conn: u64, command: &Command) {
        let text = format!("command {} is not one that a client sends here", command.number());
        self.refuse_connection(conn, &RequestRefusal::not_allowed(text));
    }

    /// Executes a request. An error is sent as its answer.
    fn answer(
        &mut self,
        conn: u64,
        request_id: u64,
        act: impl FnOnce(&mut Self) -> Result<(), RequestRefusal>,
    ) {
        if let Err(refusal) = act(self) {
            self.error(conn, request_id, &refusal);
        }
    }

    fn partitioned_metadata(&mut self, conn: u64, command: &CommandPartitionedTopicMetadata) {
        let may_create = command.metadata_auto_creation_enabled.unwrap_or(true);
        let found = self.topic_name(&command.topic).and_then(|name| {
            self.authorize_any(conn, &name)?;
            self.partitions_of(&name, may_create)
        });
        let mut response = CommandPartitionedTopicMetadataResponse {
            partitions: Some(0),
            request_id: command.request_id,
            response: Some(MetadataType::Success.into()),
            error: None,
            message: None,
        };
        match found {
            Ok(partitions) => response.partitions = Some(partitions),
            Err(refusal) => {
                response.partitions = None;
                response.response = Some(MetadataType::Failed.into());
                response.error = Some(refusal.code.into());
                response.message = Some(refusal.text);
            }
        }
        self.send_after_commit(conn, response);
    }

    fn lookup(&mut self, conn: u64, command: &CommandLookupTopic) {
        let found = self.topic_name(&command.topic).and_then(|name| {
            self.authorize_any(conn, &name)?;
            self.check_namespace(&name)
        });
        let mut response = CommandLookupTopicResponse {
            request_id: command.request_id,
            response: Some(LookupType::Connect.into()),
            authoritative: Some(true),
            proxy_through_service_url: Some(false),
            ..CommandLookupTopicResponse::default()
        };
        match found {
            Ok(()) => {
                response.broker_service_url = Some(self.settings.service_url.clone());
                response.broker_service_url_tls = self.settings.service_url_tls.clone();
            }
            Err(refusal) => {
                response.response = Some(LookupType::Failed.into());
                response.error = Some(refusal.code.into());
                response.message = Some(refusal.text);
            }
        }
        self.send(conn, response);
    }
}

//! The start of a connection: handshake, acceptance by the broker, and later challenges.

use super::call::{ConnectionEvent, SecretBytes};
use super::{ConnectionMachine, ConnectionPhase, MESSAGE_BYTES_MAX, error};
use longhaul_transport::{TransportError, TransportErrorKind};
use longhaul_types::moment::Moment;
use longhaul_wire::frame::MESSAGE_BYTES_MAX_DEFAULT;
use longhaul_wire::messages::{
    AuthData, Command, CommandAuthResponse, CommandConnect, CommandConnected, FeatureFlags,
};
use std::time::Duration;

/// Protocol version of this client: that of Pulsar 2.11 and later, with migration and without
/// transactions.
const PROTOCOL_VERSION: i32 = 20;
/// Acks have receipts from this version on: Pulsar 2.8.
const PROTOCOL_VERSION_MIN: i32 = 17;

/// How often credentials are requested for one challenge while none can be obtained. The broker
/// waits for a minute.
const CHALLENGE_TRIES_MAX: u32 = 5;
/// Pause after the first try; it doubles with each try.
const CHALLENGE_WAIT: Duration = Duration::from_secs(1);

/// Time limits for the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionTimeouts {
    /// Silence after which we ping the broker. After twice this time the connection is dead.
    pub keep_alive: Duration,
    /// How long the broker may take to answer a question, or to confirm a publish. Later answers
    /// are ignored; what they opened is closed again.
    pub answer: Duration,
}

impl Default for ConnectionTimeouts {
    /// The defaults of Pulsar's own clients.
    fn default() -> Self {
        Self { keep_alive: Duration::from_secs(30), answer: Duration::from_secs(30) }
    }
}

/// Identity of a connection's client.
#[derive(Clone, Debug, Default)]
pub struct Greeting {
    /// The method of authentication; "none" where there are no credentials.
    pub auth_method: &'static str,
    /// Credentials in bytes, if the method uses bytes.
    pub auth_data: Option<SecretBytes>,
    /// The broker behind the proxy, if the connection goes to a proxy: `host:port`.
    pub behind_proxy: Option<String>,
    /// Name of the client in the broker's statistics, if known.
    pub name: String,
    /// Time limits for the broker.
    pub times: ConnectionTimeouts,
}

/// A challenge of the broker that is not answered yet.
#[derive(Debug, Default)]
pub(super) struct Challenge {
    /// Failed attempts to get credentials.
    failed: u32,
    /// Time of the next attempt.
    retry_at: Option<Moment>,
}

/// The CONNECT command.
pub(super) fn introduction(greeting: &Greeting) -> CommandConnect {
    CommandConnect {
        client_version: concat!("longhaul ", env!("CARGO_PKG_VERSION")).to_owned(),
        auth_method_name: Some(greeting.auth_method.to_owned()),
        auth_data: greeting.auth_data.clone().map(SecretBytes::reveal),
        protocol_version: Some(PROTOCOL_VERSION),
        proxy_to_broker_url: greeting.behind_proxy.clone(),
        feature_flags: Some(FeatureFlags {
            supports_auth_refresh: Some(true),
            ..FeatureFlags::default()
        }),
        ..CommandConnect::default()
    }
}

impl<A, P> ConnectionMachine<A, P> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else answers a greeting")]
    pub(super) fn handle_greeting(&mut self, command: Command) {
        match command {
            Command::Connected(connected) => self.handle_connected(&connected),
            Command::AuthChallenge(_) => self.challenge(),
            Command::Error(refusal) => {
                let mut cause = error::server(&self.address, refusal.error, &refusal.message);
                let without =
                    matches!(self.phase, ConnectionPhase::Greeting { with_credentials: false });
                if cause.kind == TransportErrorKind::Unauthorized && without {
                    // The broker sends the same text for missing and for wrong credentials.
                    cause.cause.push_str("; no token was given");
                }
                self.fail(cause);
            }
            other => {
                let number = other.number();
                let cause = format_args!("unexpected command {number} in answer to the greeting");
                self.fail(error::refused(&self.address, cause));
            }
        }
    }

    fn handle_connected(&mut self, connected: &CommandConnected) {
        if connected.protocol_version() < PROTOCOL_VERSION_MIN {
            let cause = "the broker is too old for receipts of acks: Pulsar 2.8 or newer is needed";
            return self.fail(error::refused(&self.address, cause));
        }
        let stated = connected.max_message_size.and_then(|bytes| usize::try_from(bytes).ok());
        let stated = stated.filter(|bytes| *bytes > 0).unwrap_or(MESSAGE_BYTES_MAX_DEFAULT);
        self.message_bytes_max = stated.min(MESSAGE_BYTES_MAX);
        self.phase = ConnectionPhase::Open;
    }

    pub(super) fn challenge(&mut self) {
        if self.challenge.is_none() {
            self.challenge = Some(Challenge::default());
            self.events.push_back(ConnectionEvent::Challenged);
        }
    }

    pub(super) fn authenticate(
        &mut self,
        data: Result<Option<SecretBytes>, TransportError>,
        now: Moment,
    ) {
        match data {
            Ok(data) => {
                self.challenge = None;
                let response = AuthData {
                    auth_method_name: Some(self.auth_method.to_owned()),
                    auth_data: data.map(SecretBytes::reveal),
                };
                let response = CommandAuthResponse {
                    response: Some(response),
                    protocol_version: Some(PROTOCOL_VERSION),
                    ..CommandAuthResponse::default()
                };
                self.handshake.retain(|command| !matches!(command, Command::AuthResponse(_)));
                self.handshake.push_back(response.into());
            }
            // During the handshake there are no other credentials to fall back to.
            Err(cause) if !self.is_open() => self.fail(cause),
            Err(_) => self.try_again_later(now),
        }
    }

    /// A file that is being replaced, or a busy issuer, must not end a working connection: the
    /// broker decides how long it waits.
    fn try_again_later(&mut self, now: Moment) {
        let Some(challenge) = &mut self.challenge else { return };
        challenge.retry_at = Some(now + CHALLENGE_WAIT * 2_u32.pow(challenge.failed));
        challenge.failed += 1;
        if challenge.failed >= CHALLENGE_TRIES_MAX {
            self.challenge = None;
        }
    }

    pub(super) fn challenge_is_due(&self) -> Option<Moment> {
        self.challenge.as_ref().and_then(|challenge| challenge.retry_at)
    }

    /// Asks for credentials again, when due.
    pub(super) fn challenge_again(&mut self, now: Moment) {
        if let Some(challenge) = &mut self.challenge
            && challenge.retry_at.is_some_and(|at| at <= now)
        {
            challenge.retry_at = None;
            self.events.push_back(ConnectionEvent::Challenged);
        }
    }
}

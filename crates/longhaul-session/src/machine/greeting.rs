//! How a connection begins: whom it introduces, who is taken in, and what proves it later on.

use super::call::{ConnectionEvent, SecretBytes};
use super::{ConnectionMachine, ConnectionPhase, MESSAGE_BYTES_MAX, error};
use longhaul_transport::{TransportError, TransportErrorKind};
use longhaul_types::moment::Moment;
use longhaul_wire::frame::MESSAGE_BYTES_MAX_DEFAULT;
use longhaul_wire::messages::{
    AuthData, Command, CommandAuthResponse, CommandConnect, CommandConnected, FeatureFlags,
};
use std::time::Duration;

/// Protocol version that we speak: that of Pulsar 2.11 and later, with migration and without
/// transactions.
const PROTOCOL_VERSION: i32 = 20;
/// Acks have receipts from this version on: Pulsar 2.8.
const PROTOCOL_VERSION_MIN: i32 = 17;

/// How often fresh credentials are asked for in answer to a challenge, when there are none to be
/// had. The broker waits for a minute.
const CHALLENGE_TRIES_MAX: u32 = 5;
/// The wait after the first try; it doubles with each.
const CHALLENGE_WAIT: Duration = Duration::from_secs(1);

/// How long a broker is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionTimeouts {
    /// Silence after which we ask whether the broker is there. After twice that the connection is
    /// dead.
    pub keep_alive: Duration,
    /// How long the broker may take to answer a question, or to confirm a publish. Later answers
    /// are ignored; what they opened is closed again.
    pub answer: Duration,
}

impl Default for ConnectionTimeouts {
    /// As Pulsar's own clients have them.
    fn default() -> Self {
        Self { keep_alive: Duration::from_secs(30), answer: Duration::from_secs(30) }
    }
}

/// Whom a connection introduces.
#[derive(Clone, Debug, Default)]
pub struct Greeting {
    /// The method of authentication; "none" where there are no credentials.
    pub auth_method: &'static str,
    /// The credentials, as far as bytes prove them.
    pub auth_data: Option<SecretBytes>,
    /// The broker behind the proxy that we are connected to: `host:port`.
    pub behind_proxy: Option<String>,
    /// What the broker's statistics call us, where that is known.
    pub name: String,
    /// How long the broker is waited for.
    pub times: ConnectionTimeouts,
}

/// The broker has asked for credentials, and has none yet.
#[derive(Debug, Default)]
pub(super) struct Challenge {
    /// How often there were none to be had.
    failed: u32,
    /// When they are asked for again.
    retry_at: Option<Moment>,
}

/// What introduces us.
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
                    // The broker's words are the same for credentials that are missing and ones
                    // that are wrong.
                    cause.cause.push_str("; no token was given");
                }
                self.fail(cause);
            }
            other => {
                let number = other.number();
                let cause = format_args!("command {number} in answer to the greeting");
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
            // Nothing else is there to be shown to a broker that does not know us yet.
            Err(cause) if !self.is_open() => self.fail(cause),
            Err(_) => self.try_again_later(now),
        }
    }

    /// A file that is being replaced, or an issuer that is busy, is no reason to end what works:
    /// the broker decides how long it waits.
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

    /// Asks for credentials once more, when it is time to.
    pub(super) fn challenge_again(&mut self, now: Moment) {
        if let Some(challenge) = &mut self.challenge
            && challenge.retry_at.is_some_and(|at| at <= now)
        {
            challenge.retry_at = None;
            self.events.push_back(ConnectionEvent::Challenged);
        }
    }
}

//! What guards a broker: tokens on all its ports, and a second service port with TLS.
//!
//! The keys are the test's: it makes them, gives the broker its half here, and keeps the other.

use super::broker::Ports;

/// Where the broker finds the files below, seen from its working folder.
pub(super) const FOLDER: &str = "conf";
const CERTIFICATE: &str = "broker.pem";
const KEY: &str = "broker.key.pem";

/// Keys of a guarded broker. Clients authenticate by token (HS256), and need permissions on what they use.
#[derive(Clone, Debug)]
pub struct Security {
    /// The broker's certificate in PEM.
    pub certificate_pem: String,
    /// Its private key in PEM (PKCS #8).
    pub key_pem: String,
    /// The secret that signs tokens, in Base64.
    pub token_secret_base64: String,
    /// A token of the role [`SUPERUSER`](Self::SUPERUSER): for the broker's own clients and for admin calls.
    pub superuser_token: String,
}

impl Security {
    /// The role that may do everything.
    pub const SUPERUSER: &str = "superuser";

    pub(super) fn settings(&self, ports: Ports) -> Vec<(String, String)> {
        let plugin = "org.apache.pulsar.client.impl.auth.AuthenticationToken";
        let provider = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken";
        let mut settings = vec![
            ("authenticationEnabled", "true".to_owned()),
            ("authenticationProviders", provider.to_owned()),
            ("tokenSecretKey", format!("data:;base64,{}", self.token_secret_base64)),
            ("authorizationEnabled", "true".to_owned()),
            ("superUserRoles", Self::SUPERUSER.to_owned()),
            // The broker is a client of its own: it keeps topic policies on a topic.
            ("brokerClientAuthenticationPlugin", plugin.to_owned()),
            ("brokerClientAuthenticationParameters", format!("token:{}", self.superuser_token)),
            ("tlsCertificateFilePath", format!("{FOLDER}/{CERTIFICATE}")),
            ("tlsKeyFilePath", format!("{FOLDER}/{KEY}")),
        ];
        settings.extend(ports.service_tls.map(|port| ("brokerServicePortTls", port.to_string())));
        settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// The same for the embedded broker.
    pub(super) fn arguments(&self, ports: Ports) -> Vec<String> {
        let mut arguments = vec![
            format!("--token-secret-key=data:;base64,{}", self.token_secret_base64),
            format!("--superuser={}", Self::SUPERUSER),
            format!("--tls-certificates={FOLDER}/{CERTIFICATE}"),
            format!("--tls-key={FOLDER}/{KEY}"),
        ];
        arguments.extend(ports.service_tls.map(|port| format!("--listen-tls=127.0.0.1:{port}")));
        arguments
    }

    /// Files that the broker finds in [`FOLDER`]: name and contents.
    pub(super) fn files(&self) -> [(&'static str, &str); 2] {
        [(CERTIFICATE, &self.certificate_pem), (KEY, &self.key_pem)]
    }
}

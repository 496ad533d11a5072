//! The security of a broker: tokens on all ports, and a second service port with TLS. Apache Pulsar
//! also accepts passwords and, with TLS, client certificates; the embedded broker accepts only
//! tokens.
//!
//! The test creates all keys: it gives the broker its part here, and keeps the other.

use super::broker::Ports;

/// The folder of the files below, relative to the broker's working folder.
pub(super) const FOLDER: &str = "conf";
const CERTIFICATE: &str = "broker.pem";
const KEY: &str = "broker.key.pem";
const CLIENT_AUTHORITY: &str = "clients.pem";
const PASSWORDS: &str = "passwords";

/// The keys of a secured broker. Clients authenticate by token (HS256), password or certificate,
/// and need permissions on the topics that they use.
#[derive(Clone, Debug)]
pub struct Security {
    /// The broker's certificate in PEM.
    pub certificate_pem: String,
    /// Its private key in PEM (PKCS #8).
    pub key_pem: String,
    /// The secret that signs tokens, in Base64.
    pub token_secret_base64: String,
    /// A token of the role [`SUPERUSER`](Self::SUPERUSER): for the broker's own clients and for
    /// admin calls.
    pub superuser_token: String,
    /// The authority of clients' certificates in PEM; their common names are roles.
    pub client_authority_pem: String,
    /// Users with their hashed passwords, in the format of `htpasswd`. A user is a role.
    pub passwords: String,
}

impl Security {
    /// The role that may do everything.
    pub const SUPERUSER: &str = "superuser";

    pub(super) fn settings(&self, ports: Ports) -> Vec<(String, String)> {
        let plugin = "org.apache.pulsar.client.impl.auth.AuthenticationToken";
        let providers = ["Token", "Basic", "Tls"].map(|name| {
            format!("org.apache.pulsar.broker.authentication.AuthenticationProvider{name}")
        });
        let mut settings = vec![
            ("authenticationEnabled", "true".to_owned()),
            ("authenticationProviders", providers.join(",")),
            ("basicAuthConf", format!("{FOLDER}/{PASSWORDS}")),
            ("tokenSecretKey", format!("data:;base64,{}", self.token_secret_base64)),
            ("authorizationEnabled", "true".to_owned()),
            ("superUserRoles", Self::SUPERUSER.to_owned()),
            // The broker is its own client: it stores topic policies on a topic.
            ("brokerClientAuthenticationPlugin", plugin.to_owned()),
            ("brokerClientAuthenticationParameters", format!("token:{}", self.superuser_token)),
            ("tlsCertificateFilePath", format!("{FOLDER}/{CERTIFICATE}")),
            ("tlsKeyFilePath", format!("{FOLDER}/{KEY}")),
            ("tlsTrustCertsFilePath", format!("{FOLDER}/{CLIENT_AUTHORITY}")),
        ];
        settings.extend(ports.service_tls.map(|port| ("brokerServicePortTls", port.to_string())));
        settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// As `settings`, for the embedded broker.
    pub(super) fn arguments(&self, ports: Ports) -> Vec<String> {
        let mut arguments = vec![
            format!("--broker-token-secret=data:;base64,{}", self.token_secret_base64),
            format!("--broker-superusers={}", Self::SUPERUSER),
            format!("--broker-certificate-file={FOLDER}/{CERTIFICATE}"),
            format!("--broker-key-file={FOLDER}/{KEY}"),
        ];
        arguments.extend(ports.service_tls.map(|port| format!("--broker-tls=127.0.0.1:{port}")));
        arguments
    }

    /// The files in [`FOLDER`]: name and contents.
    pub(super) fn files(&self) -> [(&'static str, &str); 4] {
        [
            (CERTIFICATE, &self.certificate_pem),
            (KEY, &self.key_pem),
            (CLIENT_AUTHORITY, &self.client_authority_pem),
            (PASSWORDS, &self.passwords),
        ]
    }
}

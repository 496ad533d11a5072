//! Tokens: who a client is.
//!
//! Pulsar's tokens are JSON Web Tokens, signed with a secret (HS256, HS384, HS512) or a private key
//! (RS256, RS384, RS512, ES256). The claim `sub` is the client's role; `exp` and `nbf` are
//! honoured. The kind of key decides which algorithms are taken, never the token alone. Neither
//! tokens nor keys appear in errors or in `Debug`.

mod der;
mod refused;
mod sign;

use crate::admin::policies::{AuthAction, Grants};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
pub(crate) use refused::{AuthRefusalReason, AuthRefusals};
use ring::{hmac, signature};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// Longest token: above what any server's headers would take.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Shortest secret that HS256 allows.
const SECRET_BYTES_MIN: usize = 32;
/// Keys of RSA whose signatures are verified.
const RSA_BITS_MIN: usize = 2048;
const RSA_BITS_MAX: usize = 8192;
/// Largest file that a key is read from.
const KEY_BYTES_MAX: u64 = 64 * 1024;

/// Who may use the broker.
///
/// ```
/// use longhaul_broker::{AuthConfig, BrokerConfig, TokenKey};
///
/// let key = TokenKey::Secret(TokenKey::new_secret()?);
/// let token = key.create_token("admin", None)?;
/// let auth = AuthConfig::new(key, ["admin".to_owned()].into());
/// let config = BrokerConfig { auth: Some(auth), ..BrokerConfig::default() };
/// # drop((token, config));
/// # Ok::<(), longhaul_broker::AuthConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AuthConfig {
    /// What tokens are verified with.
    pub key: TokenKey,
    /// Roles that may do everything, administration included. Others may do in a namespace what
    /// they were granted there.
    pub superusers: BTreeSet<String>,
    /// Roles that may see the figures of the whole broker, and the statistics of all topics. Others
    /// see those of namespaces where they may do something.
    pub monitors: BTreeSet<String>,
    /// Whether every role may publish and consume in a namespace where nobody was ever granted
    /// anything.
    pub open_namespaces: bool,
}

impl AuthConfig {
    /// With these superusers, and no monitors. Other roles need grants.
    #[must_use]
    pub const fn new(key: TokenKey, superusers: BTreeSet<String>) -> Self {
        Self { key, superusers, monitors: BTreeSet::new(), open_namespaces: false }
    }
}

/// What tokens are verified with.
#[derive(Clone)]
#[non_exhaustive]
pub enum TokenKey {
    /// The secret that also signs them: at least 32 bytes.
    Secret(Vec<u8>),
    /// The public half of the key pair that signs them, of RSA or of the elliptic curve P-256: as
    /// PEM or DER.
    Public(Vec<u8>),
}

impl TokenKey {
    /// Takes a secret as Pulsar's `tokenSecretKey` does: `file:///path`, a bare path, or
    /// `data:;base64,…`.
    ///
    /// # Errors
    /// When there is nothing to read, or no Base64 where it has to be.
    pub fn secret(location: &str) -> Result<Self, AuthConfigError> {
        read(location).map(Self::Secret)
    }

    /// Takes a public key as Pulsar's `tokenPublicKey` does: see [`TokenKey::secret`].
    ///
    /// # Errors
    /// As for a secret.
    pub fn public(location: &str) -> Result<Self, AuthConfigError> {
        read(location).map(Self::Public)
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret(_) => "Secret(…)",
            Self::Public(_) => "Public(…)",
        })
    }
}

/// Why tokens could not be verified with what is configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthConfigError {
    /// The file with the key.
    #[error("cannot read the key for tokens from {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The text after `data:;base64,`.
    #[error("the key for tokens is not Base64")]
    Base64,
    /// An attacker could guess it.
    #[error("the secret for tokens has {0} bytes: at least {SECRET_BYTES_MIN} are needed")]
    Short(usize),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers for a secret")]
    NoRandomness,
    /// A public key verifies tokens and cannot sign them.
    #[error("a secret is needed to sign tokens, not a public key")]
    NotASecret,
    /// Without it the broker lets nobody in.
    #[error("a token needs a role (claim `sub`)")]
    NoRole,
    /// Neither PEM nor DER of a key that is supported.
    #[error(
        "the public key for tokens is neither PEM nor DER of a key of RSA or P-256 (uncompressed)"
    )]
    Key,
    /// No signature of such a key would be taken.
    #[error(
        "the public key for tokens is of RSA with {0} bits: {RSA_BITS_MIN} to {RSA_BITS_MAX} are taken. `openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048` makes a key pair"
    )]
    RsaBits(usize),
}

/// Why a client is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// It showed none.
    #[error("a token is needed")]
    Missing,
    /// It showed something else.
    #[error("only tokens are taken (authentication method `token`)")]
    Method,
    /// It is not a JSON Web Token, or too long.
    #[error("what was given is not a token")]
    Malformed,
    /// It is signed in a way that does not go with the broker's key.
    #[error("the token is signed with an algorithm that does not go with the broker's key")]
    Algorithm,
    /// Somebody else signed it.
    #[error("the token's signature is wrong")]
    Signature,
    /// It was valid once.
    #[error("the token has expired")]
    Expired,
    /// It will be valid.
    #[error("the token is not valid yet")]
    Early,
    /// It does not say whose it is.
    #[error("the token names no role (claim `sub`)")]
    NoRole,
    /// A connection belongs to the role that has opened it.
    #[error("the new token is that of another role")]
    OtherRole,
}

/// Somebody who was let in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AuthRole {
    /// Subject of the token.
    pub name: String,
    /// May do everything.
    pub superuser: bool,
    /// May see all figures.
    pub monitor: bool,
    /// End of the token, in seconds since 1970.
    pub expires: Option<u64>,
}

impl AuthRole {
    /// Anybody, where no tokens are asked for.
    pub(crate) const fn trusted() -> Self {
        Self { name: String::new(), superuser: true, monitor: true, expires: None }
    }
}

/// Verifies tokens.
pub struct Authenticator {
    key: VerificationKey,
    superusers: BTreeSet<String>,
    monitors: BTreeSet<String>,
    open_namespaces: bool,
}

enum VerificationKey {
    Secret(Vec<u8>),
    Rsa(Vec<u8>),
    P256(Vec<u8>),
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator")
            .field("superusers", &self.superusers)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
}

#[derive(Deserialize)]
struct Claims {
    sub: Option<String>,
    /// Seconds since 1970; some issuers write fractions.
    exp: Option<f64>,
    nbf: Option<f64>,
}

impl Authenticator {
    /// Prepares the key.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn new(config: &AuthConfig) -> Result<Self, AuthConfigError> {
        let key = match &config.key {
            TokenKey::Secret(secret) if secret.len() < SECRET_BYTES_MIN => {
                return Err(AuthConfigError::Short(secret.len()));
            }
            TokenKey::Secret(secret) => VerificationKey::Secret(secret.clone()),
            TokenKey::Public(key) => public_key(key)?,
        };
        let superusers = config.superusers.clone();
        let (monitors, open_namespaces) = (config.monitors.clone(), config.open_namespaces);
        Ok(Self { key, superusers, monitors, open_namespaces })
    }

    /// Finds out who shows this: the method and the data of CONNECT.
    ///
    /// # Errors
    /// See [`AuthError`].
    pub fn authenticate(
        &self,
        method: &str,
        data: &[u8],
        now_s: u64,
    ) -> Result<AuthRole, AuthError> {
        let token = data.trim_ascii();
        match method {
            "token" => {}
            "" | "none" if token.is_empty() => return Err(AuthError::Missing),
            _ => return Err(AuthError::Method),
        }
        if token.is_empty() {
            return Err(AuthError::Missing);
        }
        let claims = self.verify(token)?;
        if claims.exp.is_some_and(|end| seconds(end) <= now_s) {
            return Err(AuthError::Expired);
        }
        if claims.nbf.is_some_and(|start| seconds(start) > now_s) {
            return Err(AuthError::Early);
        }
        let name = claims.sub.filter(|name| !name.is_empty()).ok_or(AuthError::NoRole)?;
        let superuser = self.superusers.contains(&name);
        let monitor = superuser || self.monitors.contains(&name);
        Ok(AuthRole { name, superuser, monitor, expires: claims.exp.map(seconds) })
    }

    /// Whether the role may do this where these are the grants: of the namespace, and of the topic
    /// alone.
    pub(crate) fn allows(
        &self,
        role: &AuthRole,
        grants: [Option<&Grants>; 2],
        action: AuthAction,
    ) -> bool {
        let granted =
            grants.into_iter().flatten().filter_map(|grants| grants.allow(&role.name, action));
        role.superuser || granted.max().unwrap_or(self.open_namespaces)
    }

    /// Whether the role may do anything at all there.
    pub(crate) fn allows_any(&self, role: &AuthRole, grants: [Option<&Grants>; 2]) -> bool {
        [AuthAction::Produce, AuthAction::Consume]
            .iter()
            .any(|&action| self.allows(role, grants, action))
    }

    /// The claims, which are not looked at before the signature.
    fn verify(&self, token: &[u8]) -> Result<Claims, AuthError> {
        let malformed = AuthError::Malformed;
        if token.len() > TOKEN_BYTES_MAX {
            return Err(malformed);
        }
        let text = std::str::from_utf8(token).map_err(|_| malformed)?;
        let (signed, signature) = text.rsplit_once('.').ok_or(malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(malformed)?;
        let decode = |part: &str| BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed);
        let signature = decode(signature)?;
        let header: TokenHeader =
            serde_json::from_slice(&decode(header)?).map_err(|_| malformed)?;
        let claims = decode(claims)?;
        self.key.verify(&header.alg, signed.as_bytes(), &signature)?;
        serde_json::from_slice(&claims).map_err(|_| malformed)
    }
}

impl VerificationKey {
    fn verify(&self, algorithm: &str, signed: &[u8], given: &[u8]) -> Result<(), AuthError> {
        let verified = match (self, algorithm) {
            // ring compares in constant time.
            (Self::Secret(secret), "HS256") => {
                hmac_verify(hmac::HMAC_SHA256, secret, signed, given)
            }
            (Self::Secret(secret), "HS384") => {
                hmac_verify(hmac::HMAC_SHA384, secret, signed, given)
            }
            (Self::Secret(secret), "HS512") => {
                hmac_verify(hmac::HMAC_SHA512, secret, signed, given)
            }
            (Self::Rsa(key), "RS256") => {
                public_verify(&signature::RSA_PKCS1_2048_8192_SHA256, key, signed, given)
            }
            (Self::Rsa(key), "RS384") => {
                public_verify(&signature::RSA_PKCS1_2048_8192_SHA384, key, signed, given)
            }
            (Self::Rsa(key), "RS512") => {
                public_verify(&signature::RSA_PKCS1_2048_8192_SHA512, key, signed, given)
            }
            (Self::P256(key), "ES256") => {
                public_verify(&signature::ECDSA_P256_SHA256_FIXED, key, signed, given)
            }
            _ => return Err(AuthError::Algorithm),
        };
        if verified { Ok(()) } else { Err(AuthError::Signature) }
    }
}

fn hmac_verify(algorithm: hmac::Algorithm, secret: &[u8], signed: &[u8], given: &[u8]) -> bool {
    hmac::verify(&hmac::Key::new(algorithm, secret), signed, given).is_ok()
}

fn public_verify(
    algorithm: &'static dyn signature::VerificationAlgorithm,
    key: &[u8],
    signed: &[u8],
    given: &[u8],
) -> bool {
    signature::UnparsedPublicKey::new(algorithm, key).verify(signed, given).is_ok()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion ends at the limits, which is what a time out of range means"
)]
const fn seconds(time: f64) -> u64 {
    time as u64
}

fn public_key(bytes: &[u8]) -> Result<VerificationKey, AuthConfigError> {
    let der = match SubjectPublicKeyInfoDer::from_pem_slice(bytes) {
        Ok(key) => key.to_vec(),
        Err(_) => bytes.to_vec(),
    };
    match der::public_key(&der).ok_or(AuthConfigError::Key)? {
        (der::PublicKeyKind::Rsa, key) => {
            let bits = der::rsa_bits(key).ok_or(AuthConfigError::Key)?;
            if !(RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) {
                return Err(AuthConfigError::RsaBits(bits));
            }
            Ok(VerificationKey::Rsa(key.to_vec()))
        }
        (der::PublicKeyKind::P256, key) => Ok(VerificationKey::P256(key.to_vec())),
    }
}

fn read(location: &str) -> Result<Vec<u8>, AuthConfigError> {
    if let Some(text) = location.strip_prefix("data:;base64,") {
        return BASE64_STANDARD.decode(text.trim()).map_err(|_| AuthConfigError::Base64);
    }
    let path = Path::new(location.strip_prefix("file://").unwrap_or(location));
    let fail = |source| AuthConfigError::File { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(fail)?.len();
    if size > KEY_BYTES_MAX {
        return Err(fail(std::io::Error::other("the file is too large for a key")));
    }
    std::fs::read(path).map_err(fail)
}

#[cfg(test)]
mod rsa_tests;
#[cfg(test)]
pub(crate) mod tests;

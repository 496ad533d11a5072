//! Why settings or clients are refused.

use super::{RSA_BITS_MAX, RSA_BITS_MIN, SECRET_BYTES_MIN};
use std::path::PathBuf;

/// Why the authentication settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthConfigError {
    /// The key file cannot be read.
    #[error("cannot read the key for tokens from {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file of roles cannot be read.
    #[error("cannot read the file of roles, {}", path.display())]
    RolesFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file of roles is not JSON with the known fields.
    #[error(
        "the file of roles, {}, must be JSON with the lists of strings `superusers`, `monitors` and `revoked`, and nothing else",
        path.display()
    )]
    Roles {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// The text after `data:;base64,` is not Base64.
    #[error("the key for tokens is not Base64")]
    Base64,
    /// The secret is too short: an attacker could guess it.
    #[error("the secret for tokens has {0} bytes: at least {SECRET_BYTES_MIN} are needed")]
    Short(usize),
    /// The system provides no random numbers.
    #[error("cannot get random numbers for a secret from the system")]
    NoRandomness,
    /// A public key verifies tokens and cannot sign them.
    #[error("a secret is needed to sign tokens, not a public key")]
    NotASecret,
    /// A token without a role is never accepted.
    #[error("a token needs a role (claim `sub`)")]
    NoRole,
    /// The key is neither PEM nor DER of a supported kind.
    #[error(
        "the public key for tokens is neither PEM nor DER of a key of RSA or P-256 (uncompressed)"
    )]
    Key,
    /// The RSA key has a size whose signatures are not accepted.
    #[error(
        "the public key for tokens is of RSA with {0} bits: expected {RSA_BITS_MIN} to {RSA_BITS_MAX}. `openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048` makes a key pair"
    )]
    RsaBits(usize),
}

/// Why a client is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The client showed no token.
    #[error("a token is needed")]
    Missing,
    /// The client used another authentication method.
    #[error("only tokens are accepted (authentication method `token`)")]
    Method,
    /// The token is not a JSON Web Token, or is too long.
    #[error("the given text is not a token")]
    Malformed,
    /// The token's algorithm does not match the broker's key.
    #[error("the token's signing algorithm does not match the broker's key")]
    Algorithm,
    /// The signature does not verify with the broker's key.
    #[error("the token's signature is wrong")]
    Signature,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    Early,
    /// The token is for another audience, or for none.
    #[error("the token is not for this broker (claim `aud`)")]
    Audience,
    /// The token or its role is revoked.
    #[error("the token or its role is revoked")]
    Revoked,
    /// The role of an open connection is or is not a superuser or a monitor any more.
    #[error("the rights of the role have changed: connect again")]
    Changed,
    /// The token names no role.
    #[error("the token names no role (claim `sub`)")]
    NoRole,
    /// A connection belongs to the role that opened it.
    #[error("the new token belongs to another role")]
    OtherRole,
}

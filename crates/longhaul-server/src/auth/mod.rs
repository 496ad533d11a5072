//! Authentication and authorization: bearer tokens with scopes, optionally bound to queues.

mod token_file;
mod tokens;

pub use token_file::{TokenEntry, TokenFile, TokenFileError};

use crate::config::ServerConfig;
use crate::problem::ProblemDetails;
use crate::reload::Reloaded;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use tokens::{TokenLookup, Tokens};

/// A permission of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenScope {
    /// Submit tasks.
    Submit,
    /// Lease tasks and report on them.
    Work,
    /// Read everything, including payloads and results unless they are hidden.
    Read,
    /// Change queues, schedules and limits, and act on tasks: cancel, delete, replay, purge.
    /// Includes the other scopes.
    Admin,
}

impl TokenScope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Submit, Self::Work, Self::Read, Self::Admin];

    /// Its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Work => "work",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

/// An identified caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The operator in the log of actions; `None` keeps the client's operator.
    pub(crate) name: Option<String>,
    scopes: BTreeSet<TokenScope>,
    /// The queues that the token is bound to; `None` for all.
    queues: Option<BTreeSet<String>>,
}

impl Identity {
    /// The identity of all callers without authentication: it has every scope.
    fn everybody() -> Self {
        Self { name: None, scopes: TokenScope::ALL.into(), queues: None }
    }

    pub(crate) fn may(&self, scope: TokenScope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&TokenScope::Admin)
    }

    /// Whether the token is bound to queues.
    pub(crate) const fn is_bound(&self) -> bool {
        self.queues.is_some()
    }

    pub(crate) fn may_use(&self, queue: &str) -> bool {
        self.queues.as_ref().is_none_or(|queues| queues.contains(queue))
    }
}

/// Authenticates callers.
#[derive(Debug)]
pub(crate) struct GatewayAuth {
    /// The identity of callers without authentication, and of all callers of open routes.
    pub(crate) everybody: Arc<Identity>,
    tokens: Option<(PathBuf, Reloaded<Tokens>)>,
}

/// Without authentication.
impl Default for GatewayAuth {
    fn default() -> Self {
        Self { everybody: Arc::new(Identity::everybody()), tokens: None }
    }
}

impl GatewayAuth {
    /// Reads the token file, if there is one.
    pub(crate) fn open(config: &ServerConfig) -> Result<Self, TokenFileError> {
        let open = |path: &PathBuf| {
            let tokens = Reloaded::open(vec![path.clone()], || Tokens::read(path))?;
            Ok((path.clone(), tokens))
        };
        let tokens = config.token_file.as_ref().map(open).transpose()?;
        Ok(Self { tokens, ..Self::default() })
    }

    /// The caller, by the header `Authorization`.
    pub(crate) fn identify(&self, headers: &HeaderMap) -> Result<Arc<Identity>, ProblemDetails> {
        let Some((path, tokens)) = &self.tokens else { return Ok(Arc::clone(&self.everybody)) };
        let refused = |code, detail| ProblemDetails::new(StatusCode::UNAUTHORIZED, code, detail);
        let Some(header) = headers.get(AUTHORIZATION) else {
            let detail = "the request has no token; send the header `Authorization: Bearer TOKEN`";
            return Err(refused("token_missing", detail));
        };
        let token = header
            .as_bytes()
            .split_at_checked(7)
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
        let Some((_, token)) = token else {
            let detail = "the header `Authorization` is malformed: expected `Bearer TOKEN`";
            return Err(refused("token_malformed", detail));
        };
        match tokens.get(|| Tokens::read(path)).find(token) {
            TokenLookup::Known(identity) => Ok(identity),
            TokenLookup::Expired => {
                Err(refused("token_expired", "the token has expired; ask for a new one"))
            }
            TokenLookup::Unknown => {
                Err(refused("token_unknown", "the gateway does not know the token"))
            }
        }
    }
}

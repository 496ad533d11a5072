//! Who asks, and what they may do: bearer tokens with scopes, perhaps bound to queues.

mod token_file;
mod tokens;

pub use token_file::{TokenEntry, TokenFile, TokenFileError};

use crate::config::ServerConfig;
use crate::problem::ProblemDetails;
use crate::reload::Reloaded;
use crate::route::RouteAccess;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use tokens::{TokenLookup, Tokens};

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenScope {
    /// To submit tasks.
    Submit,
    /// To lease tasks and to report on them.
    Work,
    /// To look at everything, payloads and results included unless they are hidden.
    Read,
    /// To change queues, schedules and limits, and to act upon tasks: cancel, delete, replay,
    /// purge. It includes the other scopes.
    Admin,
}

impl TokenScope {
    /// Each of them.
    pub const ALL: [Self; 4] = [Self::Submit, Self::Work, Self::Read, Self::Admin];

    /// How it is written.
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

/// A caller that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Who acts, as the log of actions names it; `None` leaves the name that the client has.
    pub(crate) name: Option<String>,
    scopes: BTreeSet<TokenScope>,
    /// The queues that the token is bound to; `None` for all.
    queues: Option<BTreeSet<String>>,
}

impl Identity {
    /// Somebody who may do everything.
    fn everybody() -> Self {
        Self { name: None, scopes: TokenScope::ALL.into(), queues: None }
    }

    /// Somebody with this name, who may do nothing.
    #[cfg(test)]
    pub(crate) fn named(name: Option<&str>) -> Self {
        let name = name.map(str::to_owned);
        Self { name, scopes: BTreeSet::new(), queues: None }
    }

    pub(crate) fn may(&self, scope: TokenScope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&TokenScope::Admin)
    }

    pub(crate) fn may_use(&self, queue: &str) -> bool {
        self.queues.as_ref().is_none_or(|queues| queues.contains(queue))
    }
}

/// Tells callers apart.
#[derive(Debug)]
pub(crate) struct GatewayAuth {
    everybody: Arc<Identity>,
    tokens: Option<(PathBuf, Reloaded<Tokens>)>,
}

impl GatewayAuth {
    /// Reads the file of the tokens, if there is one.
    pub(crate) fn open(config: &ServerConfig) -> Result<Self, TokenFileError> {
        let open = |path: &PathBuf| {
            let tokens = Reloaded::open(vec![path.clone()], || Tokens::read(path))?;
            Ok((path.clone(), tokens))
        };
        let tokens = config.token_file.as_ref().map(open).transpose()?;
        Ok(Self { everybody: Arc::new(Identity::everybody()), tokens })
    }

    /// Who asks for a route; open ones are for everybody, whatever token comes with them.
    pub(crate) fn identify_for(
        &self,
        access: RouteAccess,
        headers: &HeaderMap,
    ) -> Result<Arc<Identity>, ProblemDetails> {
        match access {
            RouteAccess::Open => Ok(Arc::clone(&self.everybody)),
            RouteAccess::Needs(_) => self.identify(headers),
        }
    }

    /// Who asks, by the header `Authorization`.
    fn identify(&self, headers: &HeaderMap) -> Result<Arc<Identity>, ProblemDetails> {
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
            let detail = "the header `Authorization` has another form than `Bearer TOKEN`";
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

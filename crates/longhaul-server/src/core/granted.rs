//! Granted leases on their way to their worker. If their request ends before the answer is written,
//! they are given back, which costs no attempt.

use super::desks::Desk;
use crate::shell::tracked;
use axum::response::Response;
use longhaul::lease::{Lease, LeaseToken};

/// Leases that were granted to a request.
#[derive(Default)]
pub(crate) struct GrantedLeases {
    leases: Vec<Lease>,
    unsent: UnsentLeases,
}

/// The leases of an answer that is not written yet.
#[derive(Default)]
pub(crate) struct UnsentLeases {
    tokens: Vec<LeaseToken>,
    desk: Option<Desk>,
}

impl GrantedLeases {
    pub(super) fn of(leases: Vec<Lease>, desk: Desk) -> Self {
        let tokens = leases.iter().map(|lease| lease.token).collect();
        Self { leases, unsent: UnsentLeases { tokens, desk: Some(desk) } }
    }

    /// The leases, and the guard that gives them back unless they are written.
    pub(crate) fn into_parts(self) -> (Vec<Lease>, UnsentLeases) {
        (self.leases, self.unsent)
    }
}

impl UnsentLeases {
    /// The answer that contains these leases. Its body is one piece.
    pub(crate) fn in_answer(mut self, answer: Response) -> Response {
        answer.map(|body| {
            tracked(body, move |_, is_written| {
                if is_written {
                    self.sent();
                }
            })
        })
    }

    /// They are the worker's from now on.
    pub(crate) fn sent(&mut self) {
        self.tokens.clear();
    }
}

impl Drop for UnsentLeases {
    fn drop(&mut self) {
        if let Some(desk) = self.desk.as_ref().filter(|_| !self.tokens.is_empty()) {
            desk.give_back(&self.tokens);
        }
    }
}

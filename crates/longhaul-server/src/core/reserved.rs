//! Keys whose first request is in progress in this gateway. The binding of a key is in the log, for
//! all gateways and for long.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// The reserved keys. A request in progress holds each of them, so the limit on requests bounds
/// them.
#[derive(Debug, Default)]
pub(crate) struct Reserved(Mutex<HashSet<String>>);

/// Reserves a key until it is dropped, however the request ends.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    of: &'a Reserved,
    key: &'a str,
}

impl Reserved {
    /// Reserves a key; `None` if another request has it.
    pub(crate) fn reserve<'a>(&'a self, key: &'a str) -> Option<Reservation<'a>> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Create the guard only on success: dropping one would free another request's key.
        keys.insert(key.to_owned()).then(|| Reservation { of: self, key })
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.of.0.lock().unwrap_or_else(PoisonError::into_inner).remove(self.key);
    }
}

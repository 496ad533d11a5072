//! Keys whose first request is in progress in this gateway. What the key stands for is bound in the
//! log, for all gateways and for long.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// The keys. Each is held by a request that is served, so that the limit on those bounds them.
#[derive(Debug, Default)]
pub(crate) struct Reserved(Mutex<HashSet<String>>);

/// A key is reserved until this is dropped, however the request ends.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    of: &'a Reserved,
    key: &'a str,
}

impl Reserved {
    /// Reserves a key; `None` if another request has it.
    pub(crate) fn reserve<'a>(&'a self, key: &'a str) -> Option<Reservation<'a>> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is made and not given out would free the key of the other request.
        keys.insert(key.to_owned()).then(|| Reservation { of: self, key })
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.of.0.lock().unwrap_or_else(PoisonError::into_inner).remove(self.key);
    }
}

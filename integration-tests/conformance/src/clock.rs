//! The only place where this program reads the time.

use std::time::Instant;

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "this is the program's clock")]
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}

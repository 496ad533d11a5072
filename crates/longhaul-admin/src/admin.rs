//! The handle to Pulsar's admin API.

use super::http::{AdminError, AdminOptions, Http};
use std::time::Duration;

/// How long [`setup`](super::setup) and [`check`](super::check) retry calls that brokers cannot
/// answer during a failover ([`AdminErrorKind::Unavailable`](super::AdminErrorKind::Unavailable)),
/// for all calls together. Pulsar detects a dead broker by its session, after 30 s by default.
pub const FAILOVER_TIME_MAX: Duration = Duration::from_secs(60);

/// Handle to Pulsar's admin API, for [`setup`](super::setup), [`check`](super::check) and
/// [`dry_run`](super::dry_run). Cheap to clone.
///
/// ```no_run
/// # mod longhaul { pub mod topics { pub use longhaul_admin::*; pub use longhaul_core::topics::*; } }
/// use longhaul::topics::{Admin, AdminOptions, TopicNames, TopicSettings, check};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let admin = Admin::new("http://broker-1:8080,broker-2:8080", &AdminOptions::default())?;
/// let topics: TopicNames = "tasks".parse()?;
/// for finding in check(&admin, &topics, &TopicSettings::default()).await? {
///     println!("{finding:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Admin {
    pub(super) http: Http,
}

impl Admin {
    /// Creates a handle to the admin API at `url`, for example `http://localhost:8080`. Does not
    /// connect yet.
    ///
    /// Further hosts follow after commas, `http://one:8080,two:8080`: they are tried in turn until
    /// one answers.
    ///
    /// # Errors
    /// [`AdminErrorKind::Invalid`](super::AdminErrorKind::Invalid) when the URL, the token or the
    /// certificates are unusable.
    pub fn new(url: &str, options: &AdminOptions) -> Result<Self, AdminError> {
        Ok(Self { http: Http::new(url, options)? })
    }

    /// A copy whose calls are retried during a failover, for [`FAILOVER_TIME_MAX`] together.
    pub(super) fn retrying(&self) -> Self {
        Self { http: self.http.retrying(FAILOVER_TIME_MAX) }
    }
}

//! A worker's check of its topics before it starts, without the feature `admin`: none.

use super::handle::WorkerError;
use crate::config::WorkerConfig;
use crate::topics::TopicNames;
use longhaul_session::ConnectOptions;

/// Topics are used as they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preflight {}

impl Preflight {
    #[expect(clippy::unused_async, reason = "with the feature `admin` it asks a broker")]
    pub(super) async fn look(
        &self,
        _: &ConnectOptions,
        _: &TopicNames,
        _: Option<&TopicNames>,
        _: &WorkerConfig,
    ) -> Result<(), WorkerError> {
        Ok(())
    }
}

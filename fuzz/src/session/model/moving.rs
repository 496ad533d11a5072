//! Topics that go elsewhere.

use super::{Context, Step};
use longhaul_session::machine::call::TopicRedirect;
use longhaul_wire::messages::{Command, CommandTopicMigrated};

/// Longest address that is believed.
const URL_BYTES: usize = 1_024;

impl Context {
    /// Whether what migrates has ended.
    fn is_over_of(&self, migrated: &CommandTopicMigrated) -> bool {
        if migrated.resource_type == 0 {
            self.producers_over.contains(&migrated.resource_id)
        } else {
            self.consumers_over.contains(&migrated.resource_id)
        }
    }
}

/// Where a topic goes is told when it is said of what was open on it, and nothing else is.
pub(super) fn check_moved(step: &Step, context: &Context, moved: Option<&TopicRedirect>) {
    let known =
        |url: &Option<String>| url.clone().filter(|it| it.len() <= URL_BYTES).unwrap_or_default();
    let said = match step {
        // It was not what the connection waited for, and ended that with all that was on it.
        _ if context.is_over => None,
        Step::Heard(frame) => match &frame.command {
            Command::CloseProducer(it) if context.producers_over.contains(&it.producer_id) => {
                let (url, url_tls) =
                    (&it.assigned_broker_service_url, &it.assigned_broker_service_url_tls);
                Some((known(url), known(url_tls), false))
            }
            Command::CloseConsumer(it) if context.consumers_over.contains(&it.consumer_id) => {
                let (url, url_tls) =
                    (&it.assigned_broker_service_url, &it.assigned_broker_service_url_tls);
                Some((known(url), known(url_tls), false))
            }
            Command::TopicMigrated(it) if context.is_over_of(it) => {
                Some((known(&it.broker_service_url), known(&it.broker_service_url_tls), true))
            }
            _ => None,
        },
        _ => None,
    };
    let said = said.filter(|(url, url_tls, _)| !url.is_empty() || !url_tls.is_empty());
    let told = moved.map(|it| (it.url.clone(), it.url_tls.clone(), it.migrated));
    assert_eq!(told, said, "where the topic goes");
}

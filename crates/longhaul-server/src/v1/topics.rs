//! The route of a queue's topics.

use super::JsonAnswer;
use super::at::{QueryParams, QueueAt};
use crate::auth::TokenScope::Read;
use crate::clock;
use crate::route::ApiRoute;
use crate::route::Method::Get;
use axum::Json;
use longhaul::topics::{TopicFinding, TopicStorage};
use longhaul_api::topics::{FindingBody, TopicBody, TopicsBody};
use longhaul_api::values::Length;
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
struct TopicsQuery {
    /// The ledger retention with which the queue was created (1 h by default). The topics are checked against it.
    ledger_retention: Option<Length>,
}

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Get, "/v1/queues/{queue}/topics", Read, topics)
            .does(
                "get_topics",
                "Returns the topics of a queue: their bytes, their retention, and their faults. The gateway sends some fifty requests to the admin API for it.",
            )
            .query::<TopicsQuery>()
            .answers::<TopicsBody>(200, "The topics."),
    ]
}

async fn topics(
    QueueAt { queue, caller }: QueueAt,
    QueryParams(TopicsQuery { ledger_retention }): QueryParams<TopicsQuery>,
) -> JsonAnswer<TopicsBody> {
    let found = caller.service.topics(&queue, ledger_retention.map(|it| it.0)).await?;
    let topic = |it: TopicStorage| TopicBody {
        name: it.topic,
        partitions: it.partitions,
        stored_bytes: it.stored_bytes,
        retention: it.retention,
        compacted: it.is_compacted,
    };
    let finding = |it: TopicFinding| FindingBody {
        severity: it.severity.to_string(),
        topic: it.topic,
        what: it.what,
        risk: it.risk,
        remedy: it.remedy,
    };
    Ok(Json(TopicsBody {
        topics: found.topics.into_iter().map(topic).collect(),
        findings: found.findings.into_iter().map(finding).collect(),
        broker_version: found.broker_version,
        gateway_version: env!("CARGO_PKG_VERSION").to_owned(),
        now: clock::wall_ms(),
    }))
}

//! Paths of topics and subscriptions.

use super::super::names;
use super::super::policy_json::{Level, Spec};
use super::super::request::{
    AdminError, AdminRequest, Position, Start, SubscriptionCall, TopicCall,
};
use super::super::target::Target;
use super::{
    Asked, Routed, Show, Work, as_is, json_body, number, parse, superuser, unknown, user, viewer,
};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) fn topics(
    asked: Asked<'_>,
    [tenant, namespace, local]: [&str; 3],
    path: &[&str],
) -> Routed {
    let topic = names::topic(tenant, namespace, local)?;
    let target = asked.target;
    let force = target.flag("force");
    let mut show = Show::AsIs;
    let call = match (asked.method, path) {
        ("GET", ["partitions"]) => {
            let allow_auto_creation = target.flag("checkAllowAutoCreation");
            let call = TopicCall::Partitions { allow_auto_creation };
            return user(topic.clone(), as_is(AdminRequest::Topic { topic, call }));
        }
        ("PUT", []) => TopicCall::Create,
        ("DELETE", []) => TopicCall::Delete { force },
        ("PUT", ["partitions"]) => {
            TopicCall::CreatePartitioned { partitions: partitions(asked.body)? }
        }
        ("POST", ["partitions"]) => {
            TopicCall::GrowPartitioned { partitions: partitions(asked.body)? }
        }
        ("DELETE", ["partitions"]) => TopicCall::DeletePartitioned { force },
        ("POST", ["createMissedPartitions"]) => TopicCall::CreateMissingPartitions,
        ("GET", ["stats"]) => TopicCall::Stats,
        ("GET", ["partitioned-stats"]) => {
            show = Show::PartitionedStats {
                per_partition: target.value("perPartition") != Some("false"),
            };
            TopicCall::PartitionedStats
        }
        ("GET", ["internalStats"]) => TopicCall::InternalStats,
        ("GET", ["subscriptions"]) => TopicCall::Subscriptions,
        ("PUT", ["compaction"]) => TopicCall::Compact,
        ("GET", ["compaction"]) => TopicCall::Compaction,
        ("GET", ["lastMessageId"]) => TopicCall::LastMessageId,
        ("PUT", ["unload"]) => TopicCall::Unload,
        ("DELETE", ["truncate"]) => TopicCall::Truncate,
        ("POST", ["all_subscription", "expireMessages", age]) => {
            TopicCall::ExpireMessages { age_s: number(age)? }
        }
        ("GET", ["ledger", ledger, "entry", entry]) => {
            TopicCall::Message(Position { ledger: number(ledger)?, entry: number(entry)? })
        }
        ("POST", ["terminate"]) => TopicCall::Terminate,
        ("POST", ["terminate", "partitions"]) => TopicCall::TerminatePartitions,
        ("GET", ["messageid", moment]) => TopicCall::MessageIdAt { timestamp_ms: number(moment)? },
        ("GET", ["examinemessage"]) => examine(target)?,
        ("GET", ["properties"]) => TopicCall::Properties,
        ("PUT", ["properties"]) => TopicCall::SetProperties(parse(asked.body)?),
        ("DELETE", ["properties"]) => match target.value("key") {
            Some(key) => TopicCall::RemoveProperty(key.to_owned()),
            None => return Err(AdminError::BadRequest("the query names no `key`".to_owned())),
        },
        ("GET", ["permissions"]) => TopicCall::Grants,
        ("POST", ["permissions", role]) => {
            TopicCall::Grant { role: names::role(role)?, actions: parse(asked.body)? }
        }
        ("DELETE", ["permissions", role]) => TopicCall::Revoke { role: names::role(role)? },
        (_, ["subscription", name, path @ ..]) => return subscription(asked, topic, name, path),
        (_, [segment]) => {
            let (call, shown) = policy(asked, segment)?;
            show = shown;
            call
        }
        _ => return Err(unknown(asked)),
    };
    let is_figure =
        matches!(call, TopicCall::Stats | TopicCall::PartitionedStats | TopicCall::InternalStats);
    let work = Work::Ask(AdminRequest::Topic { topic: topic.clone(), call }, show);
    if is_figure { viewer(topic, work) } else { superuser(work) }
}

/// Counts from the last message on, as Pulsar does, unless it is told otherwise.
fn examine(target: &Target) -> Result<TopicCall, AdminError> {
    let from_last = target.value("initialPosition") != Some("earliest");
    let nth = target.value("messagePosition").map_or(Ok(1), number::<i64>)?;
    Ok(TopicCall::Examine { from_last, nth: u64::try_from(nth).unwrap_or_default().max(1) })
}

fn subscription(asked: Asked<'_>, topic: String, name: &str, path: &[&str]) -> Routed {
    let subscription = names::subscription(name)?;
    let call = match (asked.method, path) {
        ("PUT", []) => {
            let Place { at, properties } = place(asked.body)?;
            SubscriptionCall::Create { at: at.unwrap_or(Start::Latest), properties }
        }
        ("DELETE", []) => SubscriptionCall::Delete { force: asked.target.flag("force") },
        ("POST", ["skip_all"]) => SubscriptionCall::SkipAll,
        ("POST", ["skip", entries]) => SubscriptionCall::Skip { entries: number(entries)? },
        ("POST", ["resetcursor", moment]) => {
            SubscriptionCall::ResetToTime { timestamp_ms: number(moment)? }
        }
        ("POST", ["resetcursor"]) => {
            let missing = || AdminError::BadRequest("the body names no message id".to_owned());
            SubscriptionCall::Reset { to: place(asked.body)?.at.ok_or_else(missing)? }
        }
        ("POST", ["expireMessages", age]) => {
            SubscriptionCall::ExpireMessages { age_s: number(age)? }
        }
        ("GET", ["position", nth]) => SubscriptionCall::Peek { nth: number::<u64>(nth)?.max(1) },
        _ => return Err(unknown(asked)),
    };
    superuser(as_is(AdminRequest::Subscription { topic, subscription, call }))
}

fn policy(asked: Asked<'_>, segment: &str) -> Result<(TopicCall, Show), AdminError> {
    let spec = Spec::find(Level::Topic, segment).ok_or_else(|| unknown(asked))?;
    let spec = spec.of_quota_type(asked.target.value("backlogQuotaType"));
    let value = match asked.method {
        "GET" => {
            let applied = asked.target.flag("applied");
            return Ok((TopicCall::Policies, Show::Policy { spec, applied }));
        }
        "POST" | "PUT" => match spec.value_in_query(Level::Topic) {
            Some(name) => match asked.target.value(name) {
                Some(text) => Value::from(number::<i64>(text)?),
                None => Value::Null,
            },
            None => json_body(asked.body)?,
        },
        "DELETE" => Value::Null,
        _ => return Err(unknown(asked)),
    };
    Ok((TopicCall::SetPolicy(spec.read(value)?), Show::AsIs))
}

/// A number, the same as a JSON string, or an object that holds one of both. What is none of them is 0, which the core refuses.
fn partitions(body: &[u8]) -> Result<u32, AdminError> {
    let value: Value = parse(body)?;
    let given = value.get("partitions").unwrap_or(&value);
    let number = given.as_u64().or_else(|| given.as_str()?.trim().parse().ok());
    Ok(number.map_or(0, |it| u32::try_from(it).unwrap_or(u32::MAX)))
}

struct Place {
    at: Option<Start>,
    properties: BTreeMap<String, String>,
}

/// A message id as tools send it: an object, or a word.
fn place(body: &[u8]) -> Result<Place, AdminError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Given {
        ledger_id: i64,
        entry_id: i64,
        #[serde(default)]
        excluded: bool,
        #[serde(default)]
        properties: Option<BTreeMap<String, String>>,
    }
    let value = json_body(body)?;
    let none = BTreeMap::new();
    match value.as_str() {
        Some("latest") => return Ok(Place { at: Some(Start::Latest), properties: none }),
        Some("earliest") => return Ok(Place { at: Some(Start::Earliest), properties: none }),
        _ if value.is_null() => return Ok(Place { at: None, properties: none }),
        _ => {}
    }
    let given: Given = serde_json::from_value(value)
        .map_err(|error| AdminError::BadRequest(format!("no message id: {error}")))?;
    let position = Position { ledger: given.ledger_id, entry: given.entry_id };
    let at = match position.ledger {
        i64::MIN..0 => Start::Earliest,
        i64::MAX => Start::Latest,
        _ if given.excluded => Start::After(position),
        _ => Start::At(position),
    };
    Ok(Place { at: Some(at), properties: given.properties.unwrap_or_default() })
}

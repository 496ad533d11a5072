//! Routes of topics and subscriptions.

use super::super::answer::{AdminResponse, Advertised, host_of};
use super::super::names;
use super::super::policy_table::PolicyScope;
use super::super::stats::TopicStats;
use super::super::summary::PartitionedStats;
use super::super::unobeyed::refuse_properties;
use super::super::values::{AdminCallError, AdminPosition, SubscriptionStart};
use super::{
    AdminRequest, Routed, Work, administrator, ask, done, json, json_body, number, parse,
    policy_row, read, unknown, user, viewer,
};
use crate::name::TopicName;
use crate::policies::{AuthAction, ResourceProperties};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub(super) fn topics(asked: AdminRequest<'_>, topic: TopicName, path: &[&str]) -> Routed {
    let force = asked.target.flag("force");
    let tenant = topic.tenant().to_owned();
    let work = match (asked.method, path) {
        ("GET", _) => return look(asked, topic, path),
        ("PUT", []) => {
            refuse_properties(&json_body(asked.body)?, "topics")?;
            done(move |machine| machine.make_topic(&topic))
        }
        ("DELETE", []) => done(move |machine| machine.remove_topic(&topic, force)),
        ("PUT", ["partitions"]) => {
            let count = partitions(asked.body)?;
            done(move |machine| machine.make_partitioned(&topic, count))
        }
        ("POST", ["partitions"]) => {
            let count = partitions(asked.body)?;
            done(move |machine| machine.grow(&topic, count))
        }
        ("DELETE", ["partitions"]) => {
            done(move |machine| machine.remove_partitioned(&topic, force))
        }
        ("POST", ["createMissedPartitions"]) => {
            done(move |machine| machine.make_missing_partitions(&topic))
        }
        ("PUT", ["compaction"]) => done(move |machine| machine.start_compaction(&topic)),
        ("PUT", ["unload"]) => done(move |machine| machine.unload_topic(&topic)),
        ("DELETE", ["truncate"]) => done(move |machine| machine.truncate_topic(&topic)),
        ("POST", ["all_subscription", "expireMessages", age]) => {
            let age_s = number(age)?;
            done(move |machine| machine.expire_topic(&topic, age_s))
        }
        ("POST", ["terminate"]) => ask(
            move |machine| machine.terminate_topic(&topic),
            |position, _| AdminResponse::json(&message_id(position)),
        ),
        ("POST", ["terminate", "partitions"]) => ask(
            move |machine| machine.terminate_partitions(&topic),
            |positions, _| {
                let shown = positions.into_iter();
                let shown = shown.map(|(index, last)| (index.to_string(), message_id(last)));
                AdminResponse::json(&shown.collect::<Map<_, _>>())
            },
        ),
        (_, ["permissions", role]) => permissions(asked, topic, names::role(role)?)?,
        (_, ["subscription", name, path @ ..]) => {
            subscription(asked, topic, names::subscription(name)?, path)?
        }
        (_, [segment]) => policy(asked, topic, segment)?,
        _ => return Err(unknown(asked)),
    };
    administrator(&tenant, work)
}

fn look(asked: AdminRequest<'_>, topic: TopicName, path: &[&str]) -> Routed {
    let name = topic.clone();
    let work = match path {
        ["partitions"] => {
            let may_create = asked.target.flag("checkAllowAutoCreation");
            return user(name, json(move |machine| machine.partitions(&topic, may_create)));
        }
        ["stats"] => {
            let show =
                |stats, advertised: &Advertised| AdminResponse::json(&owned(stats, advertised));
            return viewer(name, ask(move |machine| machine.stats(&topic), show));
        }
        ["partitioned-stats"] => {
            let each = asked.target.value("perPartition") != Some("false");
            let show = move |(metadata, stats): (_, BTreeMap<_, _>), advertised: &Advertised| {
                let stats = stats.into_iter();
                let stats = stats.map(|(name, stats)| (name, owned(stats, advertised)));
                AdminResponse::json(&PartitionedStats::new(metadata, stats.collect(), each))
            };
            return viewer(name, ask(move |machine| machine.partitioned_stats(&topic), show));
        }
        ["internalStats"] => {
            return viewer(name, json(move |machine| machine.stats_of_ledgers(&topic)));
        }
        ["subscriptions"] => json(move |machine| machine.subscriptions(&topic)),
        ["compaction"] => json(move |machine| machine.compaction_status(&topic)),
        ["lastMessageId"] => ask(
            move |machine| machine.last_position(&topic),
            |position, _| AdminResponse::json(&message_id(position)),
        ),
        ["messageid", moment] => {
            let timestamp_ms = number(moment)?;
            ask(
                move |machine| machine.message_id_at(&topic, timestamp_ms),
                |position, _| AdminResponse::json(&message_id(position)),
            )
        }
        ["ledger", ledger, "entry", entry] => {
            let position = AdminPosition { ledger: number(ledger)?, entry: number(entry)? };
            read(move |machine| machine.find_message(&topic, position))
        }
        ["examinemessage"] => {
            // Counts from the last message on by default, as Pulsar does.
            let from_last = asked.target.value("initialPosition") != Some("earliest");
            let nth = asked.target.value("messagePosition").map_or(Ok(1), number::<i64>)?;
            let nth = u64::try_from(nth).unwrap_or_default().max(1);
            read(move |machine| machine.find_nth(&topic, from_last, nth))
        }
        ["permissions"] => json(move |machine| Ok(machine.grants(&topic)?.shown())),
        _ => look_closer(asked, topic, path)?,
    };
    administrator(name.tenant(), work)
}

/// Routes of a topic's subscriptions and policies.
fn look_closer(
    asked: AdminRequest<'_>,
    topic: TopicName,
    path: &[&str],
) -> Result<Work, AdminCallError> {
    Ok(match path {
        ["subscription", name, "properties"] => {
            let name = names::subscription(name)?;
            json(move |machine| machine.subscription_properties(&topic, &name))
        }
        ["subscription", name, "position", nth] => {
            let (name, nth) = (names::subscription(name)?, number::<u64>(nth)?.max(1));
            read(move |machine| machine.find_nth_open(&topic, &name, nth))
        }
        [segment] => policy(asked, topic, segment)?,
        _ => return Err(unknown(asked)),
    })
}

fn permissions(
    asked: AdminRequest<'_>,
    topic: TopicName,
    role: String,
) -> Result<Work, AdminCallError> {
    Ok(match asked.method {
        "POST" => {
            let actions: Vec<AuthAction> = parse(asked.body)?;
            done(move |machine| machine.set_grants(&topic, |grants| grants.grant(&role, actions)))
        }
        "DELETE" => done(move |machine| machine.set_grants(&topic, |grants| grants.revoke(&role))),
        _ => return Err(unknown(asked)),
    })
}

fn subscription(
    asked: AdminRequest<'_>,
    topic: TopicName,
    name: String,
    path: &[&str],
) -> Result<Work, AdminCallError> {
    Ok(match (asked.method, path) {
        ("PUT", []) => {
            let (at, properties) = message_position(asked.body)?;
            let at = at.unwrap_or(SubscriptionStart::Latest);
            done(move |machine| machine.make_subscription(&topic, &name, at, &properties))
        }
        ("DELETE", []) => {
            let force = asked.target.flag("force");
            done(move |machine| machine.remove_subscription(&topic, &name, force))
        }
        ("PUT", ["properties"]) => {
            let new = properties(json_body(asked.body)?)?;
            done(move |machine| machine.set_subscription_properties(&topic, &name, &new))
        }
        ("POST", ["skip_all"]) => done(move |machine| machine.skip_all(&topic, &name)),
        ("POST", ["skip", entries]) => {
            let entries = number(entries)?;
            done(move |machine| machine.skip(&topic, &name, entries))
        }
        ("POST", ["resetcursor", moment]) => {
            let timestamp_ms = number(moment)?;
            done(move |machine| machine.reset_to_time(&topic, &name, timestamp_ms))
        }
        ("POST", ["resetcursor"]) => {
            let missing = || AdminCallError::BadRequest("the body names no message id".to_owned());
            let at = message_position(asked.body)?.0.ok_or_else(missing)?;
            done(move |machine| machine.reset(&topic, &name, at))
        }
        ("POST", ["expireMessages"]) => {
            let missing = || AdminCallError::BadRequest("the body names no message id".to_owned());
            let last = message_position(asked.body)?.0.ok_or_else(missing)?;
            done(move |machine| machine.expire_up_to(&topic, &name, last))
        }
        ("POST", ["expireMessages", age]) => {
            let age_s = number(age)?;
            done(move |machine| machine.expire_subscription(&topic, &name, age_s))
        }
        _ => return Err(unknown(asked)),
    })
}

fn policy(
    asked: AdminRequest<'_>,
    topic: TopicName,
    segment: &str,
) -> Result<Work, AdminCallError> {
    let policy = policy_row(asked, PolicyScope::Topic, segment)?;
    let value = match asked.method {
        "GET" => {
            let applied = asked.target.flag("applied");
            return Ok(ask(
                move |machine| machine.policies(&topic),
                move |levels, _| {
                    let policies = if applied { levels.applied() } else { levels.topic };
                    AdminResponse::maybe(policy.value(&policies))
                },
            ));
        }
        "POST" | "PUT" => match policy.value_in_query() {
            Some(name) => match asked.target.value(name) {
                Some(text) => Value::from(number::<i64>(text)?),
                None => Value::Null,
            },
            None => json_body(asked.body)?,
        },
        "DELETE" => Value::Null,
        _ => return Err(unknown(asked)),
    };
    let change = policy.read(value)?;
    Ok(done(move |machine| machine.set_policy(&topic, change)))
}

fn owned(stats: TopicStats, advertised: &Advertised) -> TopicStats {
    TopicStats { owner_broker: host_of(&advertised.http_url).to_owned(), ..stats }
}

fn message_id(AdminPosition { ledger, entry }: AdminPosition) -> Value {
    json!({"ledgerId": ledger, "entryId": entry, "partitionIndex": -1})
}

fn properties(value: Value) -> Result<ResourceProperties, AdminCallError> {
    let given: Option<ResourceProperties> = serde_json::from_value(value).map_err(|error| {
        AdminCallError::BadRequest(format!("the properties cannot be read: {error}"))
    })?;
    Ok(given.unwrap_or_default())
}

/// A number, a number as a JSON string, or an object with one of them. Anything else counts as 0,
/// which the machine refuses.
fn partitions(body: &[u8]) -> Result<u32, AdminCallError> {
    let value: Value = parse(body)?;
    refuse_properties(value.get("properties").unwrap_or(&Value::Null), "topics")?;
    let given = value.get("partitions").unwrap_or(&value);
    let count = given.as_u64().or_else(|| given.as_str()?.trim().parse().ok());
    Ok(count.map_or(0, |count| u32::try_from(count).unwrap_or(u32::MAX)))
}

/// A message id as tools send it, and the properties beside it: an object, or a word.
fn message_position(
    body: &[u8],
) -> Result<(Option<SubscriptionStart>, ResourceProperties), AdminCallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct MessageIdJson {
        ledger_id: i64,
        entry_id: i64,
        #[serde(default)]
        excluded: bool,
        #[serde(default)]
        properties: Option<ResourceProperties>,
    }
    let value = json_body(body)?;
    let none = ResourceProperties::new();
    match value.as_str() {
        Some("latest") => return Ok((Some(SubscriptionStart::Latest), none)),
        Some("earliest") => return Ok((Some(SubscriptionStart::Earliest), none)),
        _ if value.is_null() => return Ok((None, none)),
        _ => {}
    }
    let given: MessageIdJson = serde_json::from_value(value)
        .map_err(|error| AdminCallError::BadRequest(format!("no message id: {error}")))?;
    let position = AdminPosition { ledger: given.ledger_id, entry: given.entry_id };
    let at = match position.ledger {
        i64::MIN..0 => SubscriptionStart::Earliest,
        i64::MAX => SubscriptionStart::Latest,
        _ if given.excluded => SubscriptionStart::After(position),
        _ => SubscriptionStart::At(position),
    };
    Ok((Some(at), given.properties.unwrap_or_default()))
}

//! `longhaul queue limits` and `longhaul queue settings`.

use crate::commands::task::submitting::retry;
use crate::context::CommandContext;
use crate::exit::CommandFailure;
use crate::service::gateway::GatewayClient;
use crate::times;
use clap::{Args, Subcommand};
use longhaul_api::new_task::RetryBody;
use longhaul_api::queue::{LimitUseBody, QueueBody};
use longhaul_api::settings::{LimitBody, RateBody};
use longhaul_api::values::Length;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum QueueLimitsCommand {
    /// Show the limits of a queue and their use.
    #[command(after_help = "\
Examples:
  longhaul queue limits get tasks
  longhaul queue limits get tasks -o json")]
    Get {
        /// Name of the queue (its task topic).
        queue: String,
    },
    /// Set limits of the queue, of each key, or of one key; `none` removes a limit.
    #[command(after_help = "\
Examples:
  longhaul queue limits set tasks --max-in-flight 20 --rate 100/1m
  longhaul queue limits set tasks --each-key --max-in-flight 1
  longhaul queue limits set tasks --key acme --rate none --expected-version 7")]
    Set(SetLimits),
}

#[derive(Debug, Args)]
pub(crate) struct SetLimits {
    /// Name of the queue (its task topic).
    queue: String,
    /// Set the limits of each key that has no limits of its own.
    #[arg(long)]
    each_key: bool,
    /// Set the limits of this key.
    #[arg(long, conflicts_with = "each_key")]
    key: Option<String>,
    /// Run at most this many tasks at once.
    #[arg(long, value_name = "COUNT|none", value_parser = or_none(count))]
    max_in_flight: Option<Value>,
    /// Start at most this many tasks per time, such as 100/1m.
    #[arg(long, value_name = "RATE|none", value_parser = or_none(rate))]
    rate: Option<Value>,
    /// Change nothing if the settings have another version.
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SettingsCommand {
    /// Show all settings of a queue, as JSON.
    #[command(after_help = "\
Examples:
  longhaul queue settings get tasks
  longhaul queue settings get tasks -o json > settings.json")]
    Get {
        /// Name of the queue (its task topic).
        queue: String,
    },
    /// Change settings of a queue; `none` removes a setting.
    #[command(after_help = "\
Examples:
  longhaul queue settings set tasks --max-attempts 5 --retry 1s..5m
  longhaul queue settings set tasks --patch '{\"dead_letters\": {\"max_size\": 1000}}'
  longhaul queue settings set tasks --order key
  longhaul queue settings set tasks --webhooks https://hooks.example.com/longhaul
  longhaul queue settings set tasks --expires-after none --expected-version 7")]
    Set(Box<SetSettings>),
}

#[derive(Debug, Args)]
pub(crate) struct SetSettings {
    /// Name of the queue (its task topic).
    queue: String,
    /// Allow this many attempts for tasks that set no number.
    #[arg(long, value_name = "COUNT|none", value_parser = or_none(count))]
    max_attempts: Option<Value>,
    /// Pause between attempts: 1s..5m, or a list such as 1s,10s,1m.
    #[arg(long, value_name = "PAUSES|none", value_parser = or_none(pauses))]
    retry: Option<Value>,
    /// Start no attempt later than this time after the submit.
    #[arg(long, value_name = "TIME|none", value_parser = or_none(time))]
    expires_after: Option<Value>,
    /// Fail an attempt that reports nothing for this time.
    #[arg(long, value_name = "TIME|none", value_parser = or_none(time))]
    no_progress_timeout: Option<Value>,
    /// Order of tasks: `key` runs the tasks of each order key one at a time, in order.
    #[arg(long, value_name = "key|none", value_parser = or_none(order))]
    order: Option<Value>,
    /// Describe what the queue is for, in at most 1,024 characters.
    #[arg(long, value_name = "TEXT|none", value_parser = or_none(|it| Ok(it.to_owned())))]
    description: Option<Value>,
    /// Call these URLs at the end of each task: at most 8, separated by commas. The gateway must
    /// allow their origins.
    #[arg(long, value_name = "URLS|none", value_parser = or_none(|it| Ok(listed(it))))]
    webhooks: Option<Value>,
    /// Apply this JSON merge patch to the settings that `get` shows.
    #[arg(long, value_name = "JSON", value_parser = object)]
    patch: Option<Value>,
    /// Apply the JSON merge patch in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "patch")]
    patch_file: Option<PathBuf>,
    /// Change nothing if the settings have another version.
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
}

/// Parses a value, or `none`, which removes the setting.
fn or_none<T: Serialize>(
    read: fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<Value, String> + Clone {
    move |text| if text == "none" { Ok(Value::Null) } else { Ok(json!(read(text)?)) }
}

fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected a number, or none".to_owned())
}

fn time(text: &str) -> Result<Length, String> {
    times::duration(text).map(Length)
}

/// Parses `100/1m` or `100/m`.
fn rate(text: &str) -> Result<RateBody, String> {
    let help = "expected tokens and a time, such as 100/1m, or none";
    let (tokens, per) = times::rate(text).ok_or(help)??;
    Ok(RateBody { tokens, per: Length(per) })
}

fn order(text: &str) -> Result<&'static str, String> {
    if text == "key" { Ok("key") } else { Err("expected key, or none".to_owned()) }
}

fn listed(text: &str) -> Vec<String> {
    text.split(',').map(|it| it.trim().to_owned()).collect()
}

fn pauses(text: &str) -> Result<RetryBody, String> {
    Ok(RetryBody::from(&retry(text)?))
}

fn object(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(patch @ Value::Object(_)) => Ok(patch),
        Ok(_) => Err("expected a JSON object".to_owned()),
        Err(error) => Err(format!("expected a JSON object: {error}")),
    }
}

/// # Errors
/// When the command fails.
pub(super) async fn run_limits(
    service: &GatewayClient,
    command: QueueLimitsCommand,
    context: &CommandContext,
) -> anyhow::Result<()> {
    match command {
        QueueLimitsCommand::Get { queue } => limits(service, &queue, context).await,
        QueueLimitsCommand::Set(it) => set_limits(service, it, context).await,
    }
}

/// # Errors
/// When the command fails.
pub(super) async fn run(
    service: &GatewayClient,
    command: SettingsCommand,
    context: &CommandContext,
) -> anyhow::Result<()> {
    match command {
        SettingsCommand::Get { queue } => settings(service, &queue, context).await,
        SettingsCommand::Set(it) => set_settings(service, *it, context).await,
    }
}

/// Prints the current version of the settings.
pub(super) fn told(version: u64, context: &CommandContext) -> anyhow::Result<()> {
    Ok(context.output.one(&json!({ "version": version }), &[("version", version.to_string())])?)
}

async fn limits(
    service: &GatewayClient,
    queue: &str,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let QueueBody { version, settings, limits, now, .. } = service.settings(queue).await?;
    let shown = |limit: &LimitBody| {
        let running = limit.max_in_flight.map(|it| format!("{it} at once"));
        let rate = limit.rate.map(|it| format!("{} per {}", it.tokens, times::human(it.per.0)));
        let parts: Vec<_> = [running, rate].into_iter().flatten().collect();
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    };
    let whole = LimitBody { max_in_flight: settings.max_in_flight, rate: settings.rate };
    let per_key = settings.per_key.unwrap_or_default();
    let keys = settings.keys.iter().map(|(key, limit)| format!("{key}: {}", shown(limit)));
    let fields = [
        ("version", version.to_string()),
        ("paused", if settings.paused { "yes" } else { "no" }.to_owned()),
        ("queue", shown(&whole)),
        ("each key", shown(&per_key)),
        ("keys", keys.collect::<Vec<_>>().join("\n")),
        ("in use", limits.iter().map(|it| usage(it, now)).collect::<Vec<_>>().join("\n")),
    ];
    let record = json!({
        "version": version,
        "paused": settings.paused,
        "queue": whole,
        "per_key": per_key,
        "keys": settings.keys,
        "in_use": limits,
    });
    Ok(context.output.one(&record, &fields)?)
}

/// The use of a limit, on one line.
fn usage(it: &LimitUseBody, now: u64) -> String {
    let name = it.key.as_deref().map_or_else(|| "queue".to_owned(), |key| format!("key {key}"));
    let slots = it.limit.max_in_flight.map(|most| format!("{} of {most} run", it.running));
    let opens = it.opens_at.map(|at| {
        let pause = Duration::from_millis(at.saturating_sub(now));
        format!("the next begins in {}", times::human(pause))
    });
    let waiting = (it.waiting > 0).then(|| format!("{} in line", it.waiting));
    let parts: Vec<_> = [slots, waiting, opens].into_iter().flatten().collect();
    format!("{name}: {}", if parts.is_empty() { "free".to_owned() } else { parts.join(", ") })
}

async fn set_limits(
    service: &GatewayClient,
    it: SetLimits,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let limits = [("max_in_flight", it.max_in_flight), ("rate", it.rate)];
    let limits: Map<_, _> =
        limits.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it?))).collect();
    if limits.is_empty() {
        return Err(CommandFailure::usage("no limit is given")
            .help("set --max-in-flight or --rate")
            .into());
    }
    let patch = match (it.each_key, it.key) {
        (true, _) => json!({ "per_key": limits }),
        (false, Some(key)) => json!({ "keys": { key: limits } }),
        (false, None) => Value::Object(limits),
    };
    told(service.change(&it.queue, it.expected_version, &patch, context.reason()).await?, context)
}

async fn settings(
    service: &GatewayClient,
    queue: &str,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let stands = service.settings(queue).await?;
    let shown = serde_json::to_string_pretty(&stands.settings)?;
    let fields = [("version", stands.version.to_string()), ("settings", shown)];
    Ok(context.output.one(&stands, &fields)?)
}

async fn set_settings(
    service: &GatewayClient,
    it: SetSettings,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let mut patch = match (it.patch, it.patch_file) {
        (Some(patch), _) => patch,
        (None, Some(path)) => {
            let failed =
                |problem: String| CommandFailure::usage(format!("{}: {problem}", path.display()));
            let text = std::fs::read_to_string(&path).map_err(|it| failed(it.to_string()))?;
            object(&text).map_err(failed)?
        }
        (None, None) => json!({}),
    };
    let named = [
        ("max_attempts", it.max_attempts),
        ("retry", it.retry),
        ("expires_after", it.expires_after),
        ("no_progress_timeout", it.no_progress_timeout),
        ("order", it.order),
        ("description", it.description),
        ("webhooks", it.webhooks),
    ];
    let Some(fields) = patch.as_object_mut() else {
        return Err(CommandFailure::usage("the patch is not a JSON object").into());
    };
    // The output of `get -o json` is accepted as it is.
    if let Some(Value::Object(settings)) = fields.remove("settings") {
        for told in ["name", "version", "levels", "limits", "now"] {
            fields.remove(told);
        }
        fields.extend(settings);
    }
    fields.extend(named.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it?))));
    if fields.is_empty() {
        return Err(CommandFailure::usage("no setting is given")
            .help("`longhaul queue settings set --help` lists the settings")
            .into());
    }
    told(service.change(&it.queue, it.expected_version, &patch, context.reason()).await?, context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_people_write_them() {
        let rate_or_none = or_none(rate);
        assert_eq!(rate_or_none("100/1m"), Ok(json!({"tokens": 100, "per": "PT1M"})));
        assert_eq!(rate_or_none("5/s"), Ok(json!({"tokens": 5, "per": "PT1S"})));
        assert_eq!(rate_or_none("none"), Ok(Value::Null));
        assert_eq!((count("20"), order("key")), (Ok(20), Ok("key")));
        assert!(order("id").is_err());
        assert_eq!(listed("https://a, https://b"), ["https://a", "https://b"]);
        let pauses = or_none(pauses);
        assert_eq!(pauses("1s..1m"), Ok(json!({"base": "PT1S", "max": "PT1M"})));
        assert_eq!(pauses("1s,2s"), Ok(json!({"intervals": ["PT1S", "PT2S"]})));
        for wrong in ["", "100", "/1m", "x/1m", "100/soon"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        assert!(object("[]").is_err() && object("{").is_err() && count("-1").is_err());
    }
}

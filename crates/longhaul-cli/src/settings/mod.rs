//! All settings, with their sources.
//!
//! The first source that has a value wins: flag, `LONGHAUL_*`, the context, the top of the file,
//! then for the service URL `PULSAR_SERVICE_URL`, then the default.
//!
//! Invariant: of two ways to authenticate, the more specific source wins.

pub(crate) mod file;
mod source;

use crate::commands::ports;
use crate::exit::CommandFailure;
use crate::times;
use clap::ArgMatches;
use clap::parser::ValueSource;
use file::File;
pub(crate) use source::SettingSource;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// A setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its name as a flag and in the file; the variable is `LONGHAUL_` and the name in capitals.
    pub(crate) name: &'static str,
    /// Never shown. It may also be in a file named by the variable with the suffix `_FILE`.
    pub(crate) is_secret: bool,
    /// The default.
    pub(crate) default: Option<&'static str>,
}

const fn plain(name: &'static str) -> Setting {
    Setting { name, is_secret: false, default: None }
}

const fn defaulting(name: &'static str, default: &'static str) -> Setting {
    Setting { name, is_secret: false, default: Some(default) }
}

const fn secret(name: &'static str) -> Setting {
    Setting { name, is_secret: true, default: None }
}

/// All settings, in display order.
pub(crate) const SETTINGS: &[Setting] = &[
    plain("gateway"),
    plain("service-url"),
    plain("admin-url"),
    defaulting("subscription", longhaul::topics::DEFAULT_SUBSCRIPTION),
    plain("auth-plugin"),
    secret("auth-params"),
    secret("token"),
    plain("token-file"),
    plain("tls-trust-certs-file"),
    plain("tls-certificate-file"),
    plain("tls-key-file"),
    plain("listener-name"),
    defaulting("output", "table"),
    defaulting("color", "auto"),
    plain("log"),
    defaulting("log-format", "text"),
    defaulting("quiet", "false"),
    defaulting("yes", "false"),
    plain("reason"),
    plain("operator"),
    plain("timeout"),
    defaulting("reconnect-timeout", "5m"),
    defaulting("engine", "embedded"),
    plain("data"),
    defaulting("http", ports::HTTP),
    defaulting("broker", ports::BROKER),
    defaulting("admin", ports::ADMIN),
    plain("admin-tls"),
    plain("admin-hosts"),
    plain("broker-host"),
    secret("broker-token-secret"),
    plain("broker-token-public-key"),
    plain("broker-token-audience"),
    plain("broker-superusers"),
    plain("broker-monitors"),
    plain("broker-roles"),
    defaulting("broker-open-namespaces", "false"),
    plain("broker-tls"),
    plain("broker-certificate-file"),
    plain("broker-key-file"),
    plain("broker-client-authorities"),
    plain("broker-backup"),
    defaulting("broker-backup-keep", "1d"),
    defaulting("broker-scrub-every", "7d"),
    plain("broker-disk-bytes-max"),
    plain("broker-message-bytes-max"),
    plain("broker-connections-max"),
    defaulting("namespace", "public/default"),
    plain("dialect"),
    defaulting("dialect-queue", "default"),
    plain("http-tokens"),
    plain("http-certificate-file"),
    plain("http-key-file"),
    plain("http-client-authorities"),
    plain("http-hosts"),
    plain("http-origins"),
    defaulting("insecure", "false"),
    plain("rate-limit"),
    defaulting("broker-grace", "2s"),
    defaulting("http-idle-time", "10s"),
    plain("http-connections-per-address"),
    defaulting("hide-payloads", "false"),
    plain("measure"),
    plain("webhook-allow"),
    plain("webhook-secret-file"),
    defaulting("dashboard", "on"),
    defaulting("drain", "30s"),
];

/// The variable of Pulsar's own tools.
const PULSAR_SERVICE_URL: &str = "PULSAR_SERVICE_URL";

/// A value and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingValue {
    pub(crate) text: String,
    pub(crate) source: SettingSource,
}

/// All settings with their values.
#[derive(Debug)]
pub(crate) struct CliSettings {
    values: BTreeMap<&'static str, SettingValue>,
    /// The context of these settings.
    pub(crate) context: Option<String>,
    /// The file of contexts.
    pub(crate) file: File,
}

/// The options of the command line that are settings, and the context. An option has the name of its
/// setting.
pub(crate) fn flags(matches: &ArgMatches) -> Vec<(&'static str, String)> {
    let mut command = matches;
    while let Some((_, below)) = command.subcommand() {
        command = below;
    }
    let mut flags = Vec::new();
    for name in SETTINGS.iter().map(|it| it.name).chain(["context"]) {
        let id = name.replace('-', "_");
        // A command has only some of these options.
        let Ok(Some(values)) = command.try_get_raw(&id) else { continue };
        // Other values are defaults, and values of variables.
        if command.value_source(&id) == Some(ValueSource::CommandLine) {
            flags.extend(values.filter_map(|text| Some((name, text.to_str()?.to_owned()))));
        }
    }
    flags
}

/// The variable of a setting.
pub(crate) fn variable(name: &str) -> String {
    format!("LONGHAUL_{}", name.replace('-', "_").to_uppercase())
}

impl CliSettings {
    /// Reads all settings, from these flags and environment variables, and the files.
    ///
    /// # Errors
    /// When the file or a secret's file cannot be read, or the context does not exist.
    pub(crate) fn read(
        flags: &[(&'static str, String)],
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, CommandFailure> {
        let environment = |name: &str| environment(name).filter(|it| !it.is_empty());
        // A repeatable flag joins its values.
        let flag = |name: &str| {
            let said = flags.iter().filter(|it| it.0 == name).map(|it| it.1.as_str());
            let said: Vec<&str> = said.collect();
            (!said.is_empty()).then(|| said.join(","))
        };
        let file = File::open(&environment)?;
        let named = flag("context").or_else(|| environment("LONGHAUL_CONTEXT"));
        let context = named.or_else(|| file.selected.clone());
        if let Some(name) = &context {
            file.require(name)?;
        }
        let mut values = BTreeMap::new();
        for setting in SETTINGS {
            let value = match flag(setting.name) {
                Some(text) => Some(SettingValue { text, source: SettingSource::Flag }),
                None => from_environment(setting, &environment)?
                    .or_else(|| file.value(context.as_deref(), setting.name)),
            };
            values.extend(value.map(|value| (setting.name, value)));
        }
        if let Some(text) = environment(PULSAR_SERVICE_URL) {
            let source = SettingSource::Environment(PULSAR_SERVICE_URL.to_owned());
            values.entry("service-url").or_insert(SettingValue { text, source });
        }
        settle_gateway(&mut values);
        settle_credentials(&mut values)?;
        take_defaults(&mut values);
        Ok(Self { values, context, file })
    }

    /// The settings of another cluster: those of this context, or these values, and nothing else.
    /// No other flag, no variable and no other part of the file counts, so that no credentials and no
    /// address of the source take effect at the target.
    ///
    /// # Errors
    /// When the context does not exist.
    pub(crate) fn of_target(
        file: &File,
        context: Option<&str>,
        flags: &[(&'static str, String)],
    ) -> Result<Self, CommandFailure> {
        let said = |name| flags.iter().find(|it| it.0 == name).map(|it| it.1.clone());
        let mut values = BTreeMap::new();
        if let Some(context) = context {
            file.require(context)?;
        }
        for setting in SETTINGS {
            let value = match context {
                Some(context) => file.of_context(context, setting.name),
                None => said(setting.name)
                    .map(|text| SettingValue { text, source: SettingSource::Flag }),
            };
            values.extend(value.map(|value| (setting.name, value)));
        }
        settle_gateway(&mut values);
        settle_credentials(&mut values)?;
        let context = context.map(str::to_owned);
        Ok(Self { values, context, file: file.clone() })
    }

    /// The text of a setting.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.value(name).map(|it| it.text.as_str())
    }

    /// A setting with its source.
    pub(crate) fn value(&self, name: &str) -> Option<&SettingValue> {
        debug_assert!(SETTINGS.iter().any(|it| it.name == name), "no setting {name}");
        self.values.get(name)
    }

    /// Whether the setting has a value other than the default.
    pub(crate) fn is_said(&self, name: &str) -> bool {
        self.value(name).is_some_and(|value| value.source != SettingSource::Default)
    }

    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    /// A setting that is `true` or `false`.
    pub(crate) fn is(&self, name: &'static str) -> Result<bool, CommandFailure> {
        self.parsed(name, |text| match text {
            "true" | "1" | "yes" => Ok(true),
            "false" | "0" | "no" => Ok(false),
            _ => Err("expected true or false".to_owned()),
        })
        .map(Option::unwrap_or_default)
    }

    /// A setting that is a duration.
    pub(crate) fn duration(&self, name: &'static str) -> Result<Option<Duration>, CommandFailure> {
        self.parsed(name, times::duration)
    }

    /// A parsed setting; an error names the setting and its source.
    pub(crate) fn parsed<T>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, CommandFailure> {
        let Some(SettingValue { text, source }) = self.value(name) else { return Ok(None) };
        let failed = |problem| {
            CommandFailure::usage(format!("{name} is `{text}`, from {source}: {problem}"))
        };
        parse(text).map(Some).map_err(failed)
    }
}

fn from_environment(
    setting: &Setting,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<SettingValue>, CommandFailure> {
    let variable = variable(setting.name);
    if let Some(text) = environment(&variable) {
        return Ok(Some(SettingValue { text, source: SettingSource::Environment(variable) }));
    }
    // A token's file is a setting of its own: it is read again for each connection.
    if !setting.is_secret || setting.name == "token" {
        return Ok(None);
    }
    let variable = format!("{variable}_FILE");
    let Some(path) = environment(&variable) else { return Ok(None) };
    let text = std::fs::read_to_string(&path).map_err(|error| {
        CommandFailure::usage(format!("cannot read {path}, the file in {variable}: {error}"))
    })?;
    let source = SettingSource::SecretFile(variable, path.into());
    Ok(Some(SettingValue { text: text.trim().to_owned(), source }))
}

/// The more specific of `--service-url` and `--gateway` wins.
fn settle_gateway(values: &mut BTreeMap<&'static str, SettingValue>) {
    let rank = |name| values.get(name).map(|value: &SettingValue| value.source.rank());
    if let (Some(broker), Some(gateway)) = (rank("service-url"), rank("gateway"))
        && broker < gateway
    {
        values.remove("gateway");
    }
}

/// Of two ways to authenticate, the more specific source wins.
fn settle_credentials(
    values: &mut BTreeMap<&'static str, SettingValue>,
) -> Result<(), CommandFailure> {
    let rank = |values: &BTreeMap<&'static str, SettingValue>, names: &[&str]| {
        names.iter().filter_map(|name| Some(values.get(name)?.source.rank())).min()
    };
    let ways: [&[&str]; 3] = [&["auth-plugin", "auth-params"], &["token"], &["token-file"]];
    let all = ways.concat();
    let Some(best) = rank(values, &all) else { return Ok(()) };
    let best_ways: Vec<_> = ways.iter().filter(|way| rank(values, way) == Some(best)).collect();
    let [way] = best_ways.as_slice() else {
        return Err(CommandFailure::usage(
            "two ways to authenticate are set in the same place; set only one: a token, a token \
             file, or a plugin with its parameters",
        ));
    };
    values.retain(|name, _| !all.contains(name) || way.contains(name));
    Ok(())
}

fn take_defaults(values: &mut BTreeMap<&'static str, SettingValue>) {
    let is_dev = !values.contains_key("service-url");
    let mut put = |name, text: String| {
        values.entry(name).or_insert(SettingValue { text, source: SettingSource::Default });
    };
    for setting in SETTINGS {
        if let Some(default) = setting.default {
            put(setting.name, default.to_owned());
        }
    }
    // The addresses of `longhaul dev`.
    if is_dev {
        put("service-url", format!("pulsar://{}", ports::BROKER));
        put("admin-url", format!("http://{}", ports::ADMIN));
    }
}

#[cfg(test)]
mod tests;

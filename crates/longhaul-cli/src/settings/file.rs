//! The file of settings and contexts: TOML, such as
//!
//! ```toml
//! context = "prod"
//! output = "json"
//!
//! [contexts.prod]
//! service-url = "pulsar+ssl://pulsar.example.com:6651"
//! token-file = "/run/secrets/pulsar"
//! ```
//!
//! It is written to a temporary file and then moved into place, readable only by its owner, since
//! it may contain credentials.

use super::{SETTINGS, SettingSource, SettingValue};
use crate::exit::CommandFailure;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use toml::Table;

/// The maximum size of the file.
const BYTES_MAX: usize = 1024 * 1024;

/// The content of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    /// The default context.
    pub(crate) selected: Option<String>,
    top: BTreeMap<String, String>,
    /// The settings of each context.
    pub(crate) contexts: BTreeMap<String, BTreeMap<String, String>>,
}

impl File {
    /// Reads the file in `LONGHAUL_CONFIG`, or `longhaul/config.toml` in the configuration folder.
    /// A missing file counts as empty, unless it was named.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn open(
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, CommandFailure> {
        let named = environment("LONGHAUL_CONFIG").map(PathBuf::from);
        let home = || Some(Path::new(&environment("HOME")?).join(".config"));
        let folder = || environment("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
        let usual = || Some(folder()?.join("longhaul").join("config.toml"));
        let Some(path) = named.or_else(usual) else { return Ok(Self::default()) };
        let failed =
            |problem: String| CommandFailure::usage(format!("{}: {problem}", path.display()));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(error.to_string())),
        };
        if text.len() > BYTES_MAX {
            return Err(failed(format!("the file has more than {BYTES_MAX} bytes")));
        }
        let table: Table = text.parse().map_err(|it: toml::de::Error| failed(it.to_string()))?;
        Self { path: path.clone(), ..Self::default() }.take(table).map_err(failed)
    }

    fn take(mut self, table: Table) -> Result<Self, String> {
        for (key, value) in table {
            match (key.as_str(), value) {
                ("context", toml::Value::String(name)) => self.selected = Some(name),
                ("contexts", toml::Value::Table(contexts)) => {
                    for (name, settings) in contexts {
                        let toml::Value::Table(settings) = settings else {
                            return Err(format!("contexts.{name} is not a table"));
                        };
                        let settings = settings.into_iter().map(|(key, value)| setting(key, value));
                        self.contexts.insert(name, settings.collect::<Result<_, _>>()?);
                    }
                }
                (_, value) => {
                    let (name, text) = setting(key, value)?;
                    self.top.insert(name, text);
                }
            }
        }
        Ok(self)
    }

    /// Checks that a context exists.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn require(&self, name: &str) -> Result<(), CommandFailure> {
        if self.contexts.contains_key(name) {
            return Ok(());
        }
        let names: Vec<_> = self.contexts.keys().map(String::as_str).collect();
        let help = if names.is_empty() {
            "there are no contexts yet; add one with `longhaul context add NAME --service-url URL`"
                .to_owned()
        } else {
            format!("choose one of: {}", names.join(", "))
        };
        Err(CommandFailure::not_found(format!("there is no context `{name}`")).help(help))
    }

    /// The value of a setting: from the context, or else from the top of the file.
    pub(super) fn value(&self, context: Option<&str>, name: &str) -> Option<SettingValue> {
        let of_context = context.and_then(|context| self.of_context(context, name));
        let of_top = || {
            let text = self.top.get(name)?.clone();
            Some(SettingValue { text, source: SettingSource::File(self.path.clone()) })
        };
        of_context.or_else(of_top)
    }

    /// The value of a setting, from the context alone.
    pub(super) fn of_context(&self, context: &str, name: &str) -> Option<SettingValue> {
        let text = self.contexts.get(context)?.get(name)?.clone();
        Some(SettingValue { text, source: SettingSource::Context(context.to_owned()) })
    }

    /// Removes a context, and deselects it.
    pub(crate) fn remove(&mut self, name: &str) {
        self.contexts.remove(name);
        self.selected.take_if(|selected| selected == name);
    }

    /// Writes the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(&self) -> Result<(), CommandFailure> {
        let failed = |problem: &dyn std::fmt::Display| {
            let what = format!("cannot write {}: {problem}", self.path.display());
            CommandFailure::usage(what).help("choose another file with LONGHAUL_CONFIG")
        };
        let folder = self.path.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new("."));
        if self.path.as_os_str().is_empty() {
            return Err(failed(&"neither HOME nor LONGHAUL_CONFIG is set"));
        }
        std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        // Temporary files are created readable only by their owner.
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|error| failed(&error))?;
        file.write_all(self.text().as_bytes()).map_err(|error| failed(&error))?;
        file.as_file().sync_all().map_err(|error| failed(&error))?;
        file.persist(&self.path).map_err(|error| failed(&error))?;
        Ok(())
    }

    fn text(&self) -> String {
        let table = |settings: &BTreeMap<String, String>| -> Table {
            settings.iter().map(|(key, text)| (key.clone(), text.clone().into())).collect()
        };
        let mut whole = table(&self.top);
        whole.extend(self.selected.clone().map(|name| ("context".to_owned(), name.into())));
        let contexts: Table =
            self.contexts.iter().map(|(name, it)| (name.clone(), table(it).into())).collect();
        if !contexts.is_empty() {
            whole.insert("contexts".to_owned(), contexts.into());
        }
        whole.to_string()
    }
}

/// Parses one setting: a text, or a value with an obvious text form.
fn setting(key: String, value: toml::Value) -> Result<(String, String), String> {
    if !SETTINGS.iter().any(|setting| setting.name == key) {
        let names: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
        return Err(format!("`{key}` is not a setting; expected one of {}", names.join(", ")));
    }
    match value {
        toml::Value::String(text) => Ok((key, text)),
        toml::Value::Boolean(_) | toml::Value::Integer(_) => {
            let text = value.to_string();
            Ok((key, text))
        }
        toml::Value::Float(_)
        | toml::Value::Datetime(_)
        | toml::Value::Array(_)
        | toml::Value::Table(_) => Err(format!("`{key}` is not a string")),
    }
}

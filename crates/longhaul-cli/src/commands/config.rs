//! `longhaul config`: the current settings, with their sources.

use crate::context::CommandContext;
use crate::output::TableRow;
use crate::settings::SETTINGS;
use clap::Subcommand;
use serde::Serialize;

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Show each setting with its value and its source; secrets are hidden.
    #[command(after_help = "\
Examples:
  longhaul config show
  longhaul config show --context prod -o json")]
    Show,
}

#[derive(Debug, Serialize)]
struct SettingRow {
    name: &'static str,
    value: Option<String>,
    from: Option<String>,
}

impl TableRow for SettingRow {
    const HEADS: &'static [&'static str] = &["SETTING", "VALUE", "FROM"];

    fn cells(&self) -> Vec<String> {
        let text = |it: &Option<String>| it.clone().unwrap_or_else(|| "-".to_owned());
        vec![self.name.to_owned(), text(&self.value), text(&self.from)]
    }
}

/// The text shown in place of a secret.
pub(crate) const HIDDEN: &str = "(hidden)";

/// # Errors
/// When standard output is closed.
pub(crate) fn run(config: &Config, context: &CommandContext) -> anyhow::Result<()> {
    let Config::Show = config;
    let shown = SETTINGS.iter().map(|setting| {
        let value = context.settings.value(setting.name);
        let text = |it: &crate::settings::SettingValue| match setting.is_secret {
            true => HIDDEN.to_owned(),
            false => it.text.clone(),
        };
        SettingRow {
            name: setting.name,
            value: value.map(text),
            from: value.map(|it| it.source.to_string()),
        }
    });
    let name = &context.settings.context;
    let selected = SettingRow { name: "context", value: name.clone(), from: None };
    Ok(context.output.list(&std::iter::once(selected).chain(shown).collect::<Vec<_>>())?)
}

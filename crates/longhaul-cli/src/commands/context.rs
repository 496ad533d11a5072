//! `longhaul context`: the settings of several clusters under names.

use super::config::HIDDEN;
use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure};
use crate::output::{TableRow, Tone};
use crate::settings::SETTINGS;
use clap::Subcommand;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Create a context from the settings on this command line.
    #[command(after_help = "\
Examples:
  longhaul context add prod --service-url pulsar+ssl://pulsar.example.com:6651 \
    --token-file /run/secrets/pulsar
  longhaul context add here --service-url pulsar://127.0.0.1:6650 --select")]
    Add {
        /// Name of the context.
        name: String,
        /// Select the context as well.
        #[arg(long)]
        select: bool,
        /// Overwrite an existing context of this name.
        #[arg(long)]
        replace: bool,
    },
    /// List the contexts.
    #[command(
        visible_alias = "ls",
        after_help = "\
Examples:
  longhaul context list
  longhaul context list -o json"
    )]
    List,
    /// Select the context to use from now on, or none.
    #[command(after_help = "\
Examples:
  longhaul context select prod
  longhaul context select --none")]
    Select {
        /// Name of the context.
        #[arg(required_unless_present = "none")]
        name: Option<String>,
        /// Select no context.
        #[arg(long, conflicts_with = "name")]
        none: bool,
    },
    /// Show the settings of a context.
    #[command(after_help = "\
Examples:
  longhaul context show prod
  longhaul context show prod -o json")]
    Show {
        /// Name of the context.
        name: String,
    },
    /// Delete a context.
    #[command(
        name = "rm",
        after_help = "\
Examples:
  longhaul context rm prod
  longhaul context rm old -q"
    )]
    Remove {
        /// Name of the context.
        name: String,
    },
}

#[derive(Debug, Serialize)]
struct ContextRow {
    name: String,
    selected: bool,
    service_url: Option<String>,
}

impl TableRow for ContextRow {
    const HEADS: &'static [&'static str] = &["NAME", "SELECTED", "SERVICE URL"];

    fn cells(&self) -> Vec<String> {
        let selected = if self.selected { "yes" } else { "" };
        let url = self.service_url.clone().unwrap_or_default();
        vec![self.name.clone(), selected.to_owned(), url]
    }

    fn tone(&self) -> Tone {
        if self.selected { Tone::Good } else { Tone::Plain }
    }
}

/// # Errors
/// When the context does not exist, or the file cannot be written.
pub(crate) fn run(command: ContextCommand, context: &CommandContext) -> anyhow::Result<()> {
    let mut file = context.settings.file.clone();
    match command {
        ContextCommand::Add { name, select, replace } => {
            check_name(&name)?;
            if file.contexts.contains_key(&name) && !replace {
                let what = format!("the context `{name}` exists already");
                return Err(CommandFailure::new(Code::Conflict, what)
                    .help("overwrite it with --replace")
                    .into());
            }
            file.contexts.insert(name.clone(), of_command_line(context)?);
            if select {
                file.selected = Some(name.clone());
            }
            file.write()?;
            context.output.note(&format!("wrote the context {name} to {}", file.path.display()));
        }
        ContextCommand::List => {
            let listed = file.contexts.iter().map(|(name, settings)| ContextRow {
                name: name.clone(),
                selected: file.selected.as_ref() == Some(name),
                service_url: settings.get("service-url").cloned(),
            });
            context.output.list(&listed.collect::<Vec<_>>())?;
        }
        ContextCommand::Select { name, .. } => {
            if let Some(name) = &name {
                file.require(name)?;
            }
            file.selected = name;
            file.write()?;
        }
        ContextCommand::Show { name } => {
            file.require(&name)?;
            show(file.contexts.remove(&name).unwrap_or_default(), context)?;
        }
        ContextCommand::Remove { name } => {
            file.require(&name)?;
            file.remove(&name);
            file.write()?;
        }
    }
    Ok(())
}

/// The settings from the command line that a context may have.
fn of_command_line(context: &CommandContext) -> Result<BTreeMap<String, String>, CommandFailure> {
    const NOT_KEPT: [&str; 4] = ["context", "yes", "reason", "quiet"];
    let kept = context.flags.iter().filter(|(name, _)| !NOT_KEPT.contains(name));
    // The context is used from other folders, too.
    let absolute = |text: &String| std::path::absolute(text).map(|path| path.display().to_string());
    let meant = |name: &str, text: &String| {
        let is_path = name.ends_with("-file") && !text.is_empty();
        is_path.then(|| absolute(text).ok()).flatten().unwrap_or_else(|| text.clone())
    };
    let kept: BTreeMap<_, _> =
        kept.map(|(name, text)| ((*name).to_owned(), meant(name, text))).collect();
    if kept.is_empty() {
        return Err(CommandFailure::usage("the command line has no setting for the context")
            .help("give at least --service-url"));
    }
    Ok(kept)
}

fn show(mut settings: BTreeMap<String, String>, context: &CommandContext) -> anyhow::Result<()> {
    for setting in SETTINGS.iter().filter(|it| it.is_secret) {
        if let Some(text) = settings.get_mut(setting.name) {
            HIDDEN.clone_into(text);
        }
    }
    let fields: Vec<_> =
        settings.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
    Ok(context.output.one(&settings, &fields)?)
}

fn check_name(name: &str) -> Result<(), CommandFailure> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    if (1..=64).contains(&name.len()) && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(CommandFailure::usage("a context name has 1 to 64 letters, digits, `-`, `_` and `.`"))
}

//! `longhaul token`: tokens of the gateway and of the embedded broker.

use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure};
use crate::output::{Output, TableRow, Tone};
use crate::{clock, times};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use longhaul_api::{Priority, QueueLevel};
use longhaul_broker::TokenKey;
use longhaul_server::{TokenEntry, TokenFile, TokenScope};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token for callers of the gateway and print it once; the file keeps only its hash.
    #[command(after_help = "\
Examples:
  longhaul token create ci --scopes submit,read --queues mails --expires 90d --file tokens.json
  longhaul token create ops --scopes admin > ops.token

Scopes: submit (submit tasks), work (lease tasks and report on them), read (see everything, \
including payloads), admin (all of these, and change queues). Running gateways read the file \
again. To replace a token, create a second one of the same name, give it to the callers, and \
revoke the first one by its id.")]
    Create(TokenCreateArgs),
    /// List the tokens of the gateway by name and id, without the secrets.
    #[command(
        visible_alias = "ls",
        after_help = "\
Examples:
  longhaul token list --file tokens.json
  longhaul token list -o json"
    )]
    List(InFile),
    /// Revoke a token of the gateway: the next request with it is refused.
    #[command(after_help = "\
Examples:
  longhaul token revoke ci --file tokens.json
  longhaul token revoke 9f86d081")]
    Revoke {
        /// Name of the token, or its id as `longhaul token list` shows it.
        // Its name is not that of the setting `token`, which it would set.
        #[arg(value_name = "NAME|ID")]
        name_or_id: String,
        #[command(flatten)]
        file: InFile,
    },
    /// Create the secret that signs tokens of the embedded broker, in a file that only its owner
    /// can read.
    #[command(after_help = "\
Examples:
  longhaul token secret broker.key
  longhaul token secret /etc/longhaul/broker.key")]
    Secret {
        /// File to create. It must not exist.
        file: PathBuf,
    },
    /// Print a token for clients of the embedded broker, signed with its secret.
    #[command(after_help = "\
Examples:
  longhaul token sign --secret broker.key --role admin --expires 30d > admin.token
  longhaul token sign --secret broker.key --role transcoder

Roles in --broker-superusers may do everything; other roles need grants.")]
    Sign {
        /// Sign with this secret: a file, or data:;base64,…
        #[arg(long, value_name = "KEY")]
        secret: String,
        /// Role of the client that uses the token.
        #[arg(long, value_name = "ROLE")]
        role: String,
        /// Audience of the token, if the broker has one (--broker-token-audience).
        #[arg(long, value_name = "NAME")]
        audience: Option<String>,
        /// Let the token expire after this time, such as 12h or 30d. Default: never.
        #[arg(long, value_name = "TIME", value_parser = times::duration)]
        expires: Option<Duration>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreateArgs {
    /// Name of the caller, as the log of actions shows it.
    name: String,
    /// Allow these scopes, separated by commas: submit, work, read, admin.
    #[arg(long, required = true, value_delimiter = ',', value_name = "SCOPES", value_parser = scope)]
    scopes: Vec<TokenScope>,
    /// Restrict the token to these queues, separated by commas. Default: all queues.
    #[arg(long, value_delimiter = ',', value_name = "QUEUES", value_parser = queue)]
    queues: Vec<String>,
    /// Let the token expire after this time, such as 12h or 90d. Default: never.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    expires: Option<Duration>,
    #[command(flatten)]
    file: InFile,
}

#[derive(Debug, Args)]
pub(crate) struct InFile {
    /// File of the tokens, as in --http-tokens of gateways. Default: that of the settings.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// A token in a list.
#[derive(Debug, Serialize)]
struct TokenRow {
    name: String,
    id: String,
    scopes: Vec<&'static str>,
    /// `None` for all.
    queues: Option<Vec<String>>,
    expires: Option<String>,
    is_expired: bool,
}

/// A created token.
#[derive(Debug, Serialize)]
struct Made {
    token: String,
    #[serde(flatten)]
    shown: TokenRow,
}

impl TableRow for TokenRow {
    const HEADS: &'static [&'static str] = &["NAME", "ID", "SCOPES", "QUEUES", "EXPIRES"];

    fn cells(&self) -> Vec<String> {
        let queues = self.queues.as_ref().map_or_else(|| "all".to_owned(), |it| it.join(","));
        let expires = self.expires.clone().unwrap_or_else(|| "never".to_owned());
        let expires = if self.is_expired { format!("{expires} (over)") } else { expires };
        vec![self.name.clone(), self.id.clone(), self.scopes.join(","), queues, expires]
    }

    fn tone(&self) -> Tone {
        if self.is_expired { Tone::Faint } else { Tone::Plain }
    }
}

impl TokenRow {
    fn of(entry: &TokenEntry) -> Self {
        let expires = entry.expires.clone();
        let at: Option<Timestamp> = expires.as_ref().and_then(|it| it.parse().ok());
        let now = Timestamp::try_from(clock::wall()).unwrap_or(Timestamp::MAX);
        Self {
            name: entry.name.clone(),
            id: entry.id().to_owned(),
            scopes: entry.scopes.iter().map(|it| it.word()).collect(),
            queues: entry.queues.as_ref().map(|it| it.iter().cloned().collect()),
            is_expired: at.is_some_and(|at| at <= now),
            expires,
        }
    }
}

impl InFile {
    fn path(&self, context: &CommandContext) -> anyhow::Result<PathBuf> {
        let of_settings = || context.settings.path("http-tokens");
        self.file.clone().or_else(of_settings).ok_or_else(|| {
            let what = "the file of the gateway's tokens is not set";
            let help = "set it with --file FILE, or the setting http-tokens (LONGHAUL_HTTP_TOKENS)";
            CommandFailure::usage(what).help(help).into()
        })
    }
}

fn scope(text: &str) -> Result<TokenScope, String> {
    let words = TokenScope::ALL.map(TokenScope::word).join(", ");
    let found = TokenScope::ALL.into_iter().find(|it| it.word() == text);
    found.ok_or_else(|| format!("expected one or more of {words}, separated by commas"))
}

/// # Errors
/// When the file or the secret cannot be used.
pub(crate) fn run(command: TokenCommand, context: &CommandContext) -> anyhow::Result<()> {
    match command {
        TokenCommand::Create(it) => create(it, context),
        TokenCommand::List(file) => {
            let file = TokenFile::open(&file.path(context)?).map_err(usage)?;
            let shown: Vec<_> = file.entries().iter().map(TokenRow::of).collect();
            Ok(context.output.list(&shown)?)
        }
        TokenCommand::Revoke { name_or_id, file } => {
            revoke(&name_or_id, &file.path(context)?, &context.output)
        }
        TokenCommand::Secret { file } => write_secret(&file, &TokenKey::new_secret()?),
        TokenCommand::Sign { secret, role, audience, expires } => {
            let key = TokenKey::secret(&secret).map_err(usage)?;
            let token = key.create_token(&role, audience.as_deref(), expires).map_err(usage)?;
            context.output.lines(&token)?;
            if let Some(id) = TokenKey::token_id(&token) {
                context.output.note(&format!(
                    "its id is {id}; to revoke it, add the id to `revoked` in the file of \
                     --broker-roles"
                ));
            }
            Ok(())
        }
    }
}

/// The name of a queue. A token for another name could never be used.
fn queue(text: &str) -> Result<String, String> {
    match text.parse::<QueueLevel>() {
        Ok(named) if named.level() == Priority::Normal => Ok(text.to_owned()),
        Ok(named) => {
            Err(format!("`{text}` is a level of the queue `{}`: name the queue", named.queue()))
        }
        Err(error) => Err(error.to_string()),
    }
}

fn create(it: TokenCreateArgs, context: &CommandContext) -> anyhow::Result<()> {
    let path = it.file.path(context)?;
    let mut entry = TokenEntry::new(it.name, it.scopes.into_iter().collect());
    entry.queues = Some(it.queues.into_iter().collect())
        .filter(|it: &std::collections::BTreeSet<_>| !it.is_empty());
    entry.expires = it.expires.map(instant_after).transpose()?;
    let mut file = TokenFile::open_or_new(&path).map_err(usage)?;
    let token = file.create(entry).map_err(usage)?;
    file.write().map_err(usage)?;
    let Some(shown) = file.entries().last().map(TokenRow::of) else { return Ok(()) };
    if !context.output.is_for_people() {
        return Ok(context.output.one(&Made { token, shown }, &[])?);
    }
    context.output.lines(&token)?;
    let namesakes = file.entries().iter().filter(|it| it.name == shown.name).count();
    let file = path.display();
    context.output.note(&format!("wrote its hash to {file}; the token is not shown again"));
    if namesakes > 1 {
        let name = &shown.name;
        context.output.note(&format!(
            "{namesakes} tokens are named {name} now; to revoke one, use its id from `longhaul \
             token list`"
        ));
    }
    Ok(())
}

fn instant_after(time: Duration) -> anyhow::Result<String> {
    let now = Timestamp::try_from(clock::wall())?;
    let time = SignedDuration::try_from(time)?;
    let at = now.checked_add(time).map_err(|_| {
        CommandFailure::usage("--expires is too far in the future")
            .help("leave it out for a token that never expires")
    })?;
    Ok(at.round(jiff::Unit::Second)?.to_string())
}

fn revoke(token: &str, path: &Path, output: &Output) -> anyhow::Result<()> {
    let mut file = TokenFile::open(path).map_err(usage)?;
    let revoked = file.revoke(token);
    if revoked.is_empty() {
        let what = format!("{} has no token with the name or id `{token}`", path.display());
        return Err(CommandFailure::not_found(what)
            .help("`longhaul token list` lists its tokens")
            .into());
    }
    if let [first, _, ..] = &*revoked
        && first.name == token
    {
        let ids: Vec<_> = revoked.iter().map(TokenEntry::id).collect();
        let what = format!("{} tokens are named `{token}`: {}", ids.len(), ids.join(", "));
        let help = "revoke each by its id";
        return Err(CommandFailure::new(Code::Conflict, what).help(help).into());
    }
    file.write().map_err(usage)?;
    output.note(&format!("the token {token} is refused from now on"));
    Ok(())
}

fn usage(error: impl std::error::Error) -> CommandFailure {
    CommandFailure::usage(error.to_string())
}

fn write_secret(file: &Path, secret: &[u8]) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    // Readers of the secret can take any role at the broker.
    options.write(true).create_new(true).mode(0o600);
    let written =
        options.open(file).and_then(|mut it| it.write_all(secret).and_then(|()| it.sync_all()));
    written.with_context(|| format!("cannot write the secret to {}", file.display()))
}

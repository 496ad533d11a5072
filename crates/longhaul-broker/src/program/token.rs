//! Makes secrets and tokens: `longhaul-broker token …`.

use super::units;
use anyhow::Context;
use clap::Subcommand;
use longhaul_broker::TokenKey;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What can be done about tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Writes a new secret into a file that only its owner may read. The broker takes it with --token-secret-key.
    Secret {
        /// The file, which must not exist.
        file: PathBuf,
    },
    /// Prints a token that is signed with a secret.
    Create {
        /// The secret: a file, or data:;base64,…
        #[arg(long, env = "LONGHAUL_BROKER_TOKEN_SECRET", value_name = "KEY")]
        secret_key: String,
        /// Whose token it is: the role that --superuser names, and that permissions are granted to.
        #[arg(long, value_name = "ROLE")]
        subject: String,
        /// How long the token is valid, such as 12h or 30d. Without it: for ever.
        #[arg(long, value_name = "TIME", value_parser = units::time)]
        expires: Option<Duration>,
    },
}

impl Token {
    /// Does it.
    #[expect(clippy::print_stdout, reason = "the token is what was asked for")]
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Secret { file } => write(&file, &TokenKey::new_secret()?),
            Self::Create { secret_key, subject, expires } => {
                println!("{}", TokenKey::secret(&secret_key)?.create_token(&subject, expires)?);
                Ok(())
            }
        }
    }
}

fn write(file: &Path, secret: &[u8]) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    // Whoever reads it may be anybody to the broker.
    options.write(true).create_new(true).mode(0o600);
    let written = options
        .open(file)
        .and_then(|mut opened| opened.write_all(secret).and_then(|()| opened.sync_all()));
    written.with_context(|| format!("cannot write the secret to {}", file.display()))
}

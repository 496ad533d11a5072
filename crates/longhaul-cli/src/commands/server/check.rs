//! `longhaul server check`: whether the gateway of this machine is ready.

use super::engine;
use crate::clock;
use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure};
use crate::settings::CliSettings;
use crate::times;
use anyhow::Context as _;
use clap::Args;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The time limit of the answer. Container health checks time out after 30 s by default.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// The pause between two questions.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// The most characters shown of the answer.
const SHOWN_CHARS: usize = 300;

#[derive(Debug, Args)]
pub(crate) struct ServerCheckArgs {
    // Read as a setting, by its name.
    /// Address of the gateway. Default: 127.0.0.1:7070.
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// Check whether the gateway is alive, not whether it is ready. It is alive even if its broker
    /// is away.
    #[arg(long)]
    live: bool,
    /// Wait up to this time until the check succeeds, such as 30s.
    #[arg(long, value_name = "TIME", value_parser = times::duration, default_value = "0s")]
    wait: Duration,
}

/// # Errors
/// When the gateway is not ready, or does not answer.
pub(super) async fn run(check: &ServerCheckArgs, context: &CommandContext) -> anyhow::Result<()> {
    let settings = &context.settings;
    let address = reached(engine::address(settings, "http")?);
    let scheme = if settings.text("http-certificate-file").is_some() { "https" } else { "http" };
    let path = if check.live { "livez" } else { "readyz" };
    let url = format!("{scheme}://{address}/{path}");
    let client = client(settings)?;
    let begun = clock::monotonic();
    loop {
        match ask(&client, &url).await {
            Ok(()) => break context.output.note("ready"),
            Err(refused) if begun.elapsed() >= check.wait => return Err(refused.into()),
            Err(_) => tokio::time::sleep(ASK_AGAIN).await,
        }
    }
    Ok(())
}

/// Asks once.
async fn ask(client: &reqwest::Client, url: &str) -> Result<(), CommandFailure> {
    let asked = client.get(url).send().await;
    let lost = |error: reqwest::Error| {
        let what = format!("{url}: {:#}", anyhow::Error::from(error));
        CommandFailure::new(Code::Unreachable, what)
            .help("set --http to the address where the gateway listens")
    };
    let answer = asked.map_err(lost)?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let text = answer.text().await.unwrap_or_default();
    let shown: String =
        text.chars().filter(|letter| !letter.is_control()).take(SHOWN_CHARS).collect();
    Err(CommandFailure::new(Code::Unreachable, format!("{url}: {status}: {shown}")))
}

/// The address to connect to for a listening address: loopback in place of the wildcard address.
fn reached(listens: SocketAddr) -> SocketAddr {
    let ip = match listens.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, listens.port())
}

/// A client that accepts any certificate: it sends no secret, and connects to an address of this
/// machine, which certificates do not name. If the gateway needs client certificates, it presents
/// the one in the settings.
fn client(settings: &CliSettings) -> anyhow::Result<reqwest::Client> {
    let mut client = reqwest::Client::builder()
        .timeout(ANSWER_TIME)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .tls_danger_accept_invalid_certs(true)
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")));
    let files = (settings.path("tls-certificate-file"), settings.path("tls-key-file"));
    if let (Some(certificate), Some(key)) = files {
        let mut pem = std::fs::read(&certificate).context("tls-certificate-file")?;
        pem.extend(std::fs::read(&key).context("tls-key-file")?);
        client =
            client.identity(reqwest::Identity::from_pem(&pem).context("tls-certificate-file")?);
    }
    Ok(client.build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_listens_everywhere_is_reached_by_loopback() {
        for (listens, asked) in [
            ("0.0.0.0:7070", "127.0.0.1:7070"),
            ("[::]:7070", "[::1]:7070"),
            ("10.1.2.3:80", "10.1.2.3:80"),
        ] {
            assert_eq!(reached(listens.parse().unwrap()), asked.parse().unwrap());
        }
    }
}

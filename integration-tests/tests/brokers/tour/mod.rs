//! Follows `docs/tour.md` and `docs/start.md` as their readers do: each command is typed into a
//! shell, and each answer is compared with that of the page. On `README.md` and on the pages about
//! HTTP and order only the marked blocks are typed.
//!
//! The test runs once with the embedded broker, which the program starts itself, and once with a
//! gateway and the broker of `LONGHAUL_TEST_BROKER`. Ports differ from those on the page, which may
//! be in use. Where Pulsar's client for Python is missing (`LONGHAUL_TEST_CLIENTS=python` fetches
//! it), its part is reported as skipped, and the program `longhaul` submits that task.

mod answer;
mod page;

use answer::Run;
use anyhow::{Context, Result, anyhow, ensure};
use integration_tests::example::{self, Process};
use integration_tests::sandbox::{Broker, BrokerConfig, free_port};
use integration_tests::{clients, skip};
use page::{Blocks, Step, Typed, steps};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

/// The pages, from the top of the repository.
const TOUR: &str = "docs/tour.md";
const START: &str = "docs/start.md";
const README: &str = "README.md";

/// Pages with some typed blocks; each starts with the state that those before it have left.
const HTTP: [&str; 3] = ["docs/http.md", "docs/leases.md", "docs/order.md"];

fn read(page: &str) -> Result<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    Ok(std::fs::read_to_string(std::path::Path::new(path).join(page))?)
}

/// The limit for everything that is expected to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// The text that a terminal prints after a command has ended, before its exit status.
const ENDED: &str = "-- ended:";

/// The command in place of Python's client where that is missing.
const WITHOUT_PYTHON: &str = "longhaul task submit prints 2 --key from-python -q";

/// A reader at a desk with several terminals.
struct Reader {
    run: Run,
    terminals: BTreeMap<String, Process>,
    variables: Vec<(&'static str, OsString)>,
    has_python: bool,
    /// The limit for an answer.
    patience: Duration,
    folder: TempDir,
}

impl Reader {
    /// A reader with these addresses in place of those of the page.
    async fn new(
        replaced: Vec<(&'static str, String)>,
        mut variables: Vec<(&'static str, OsString)>,
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let programs = folder.path().join("programs");
        std::fs::create_dir(&programs)?;
        example::binary("longhaul", &programs).await?;
        let mut path = vec![programs];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        variables.push(("PATH", std::env::join_paths(path)?));
        variables.push(("LONGHAUL_CONFIG", folder.path().join("config.toml").into()));
        let packages = clients::python_packages().await?;
        let has_python = packages.is_some();
        variables.extend(packages.map(|it| ("PYTHONPATH", it.into_os_string())));
        let (run, terminals) = (Run::new(replaced)?, BTreeMap::new());
        Ok(Self { run, terminals, variables, has_python, patience: PATIENCE, folder })
    }

    /// A shell of the reader.
    fn terminal(&self) -> Result<Process> {
        let desk = self.folder.path().join("desk");
        std::fs::create_dir_all(&desk)?;
        let mut shell = Command::new("sh");
        // The machine's own settings are not used.
        let own = |(name, _): &(OsString, OsString)| {
            let name = name.to_string_lossy();
            name.starts_with("LONGHAUL_") || name.starts_with("PULSAR_") || name == "RUST_LOG"
        };
        for (name, _) in std::env::vars_os().filter(own) {
            shell.env_remove(name);
        }
        shell.args(["-c", "exec sh 2>&1"]).current_dir(desk).stdout(Stdio::piped());
        Process::start_typing(shell.envs(self.variables.iter().cloned()))
    }

    async fn follow(&mut self, name: &str, page: &str, engine: &str) -> Result<()> {
        self.take(name, steps(name, page, Blocks::All, engine)?).await
    }

    async fn take(&mut self, name: &str, steps: Vec<Step>) -> Result<()> {
        for step in steps {
            match step {
                Step::Write { name: file, contents } => {
                    let desk = self.folder.path().join("desk");
                    std::fs::create_dir_all(&desk)?;
                    std::fs::write(desk.join(file), self.run.typed(&contents)?)?;
                }
                Step::Type(typed) => {
                    let shown = format!("{name}:{}: `{}`", typed.line, typed.command);
                    self.type_one(typed).await.context(shown)?;
                }
            }
        }
        Ok(())
    }

    async fn type_one(&mut self, typed: Typed) -> Result<()> {
        let has_to_do_without = typed.needs_python && !self.has_python;
        let command = if has_to_do_without { WITHOUT_PYTHON } else { &typed.command };
        let command = self.run.typed(command)?;
        let name = typed.terminal.clone().unwrap_or_default();
        if !self.terminals.contains_key(&name) {
            let terminal = self.terminal()?;
            self.terminals.insert(name.clone(), terminal);
        }
        let terminal = self.terminals.get_mut(&name).context("it was opened")?;
        terminal.type_line(&command).await?;
        if typed.terminal.is_some() {
            return goes_on(terminal, &mut self.run, &typed.answer, self.patience).await;
        }
        terminal.type_line(&format!("printf '\\n{ENDED} %s\\n' $?")).await?;
        let (lines, status) = ended(terminal).await?;
        let checked = self.run.check(&typed.answer, &lines);
        checked.with_context(|| format!("the whole answer is\n{}", lines.join("\n")))?;
        // A command that ends with an error has printed it.
        let has_failed = typed.answer.iter().any(|line| line.starts_with("error: "));
        ensure!(has_failed == (status != "0"), "the exit status is {status}");
        Ok(())
    }
}

/// The output of a command and its exit status.
async fn ended(terminal: &mut Process) -> Result<(Vec<String>, String)> {
    let mut lines = Vec::new();
    let read = async {
        while let Some(line) = terminal.line().await? {
            if let Some(status) = line.strip_prefix(ENDED) {
                return Ok(status.trim().to_owned());
            }
            lines.push(line);
        }
        Err(anyhow!("the terminal has ended"))
    };
    let status = timeout(PATIENCE, read).await;
    let status = status.with_context(|| format!("it does not end, after {lines:#?}"))??;
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    Ok((lines, status))
}

/// Waits until a program that continues to run prints the answer of the page, after the output that
/// it, or one before it, has printed already.
async fn goes_on(
    terminal: &mut Process,
    run: &mut Run,
    answer: &[String],
    patience: Duration,
) -> Result<()> {
    let answer = [&["...".to_owned()], answer].concat();
    let (mut lines, mut missing) = (Vec::new(), None);
    let read = async {
        while let Err(why) = run.check(&answer, &lines) {
            missing = Some(why);
            lines.push(terminal.line().await?.context("the terminal has ended")?);
        }
        anyhow::Ok(())
    };
    let read = timeout(patience, read).await.map_err(anyhow::Error::from).flatten();
    read.with_context(|| format!("{missing:?}, after {lines:#?}"))
}

/// Whether the reader has `curl`.
fn has_curl() -> bool {
    let found = std::process::Command::new("curl").arg("--version").stdout(Stdio::null()).status();
    let has = found.is_ok_and(|status| status.success());
    if !has {
        skip("the tour: `curl` is not installed");
    }
    has
}

/// A reader with the broker that `longhaul dev` starts.
async fn with_the_embedded_broker() -> Result<Reader> {
    let [http, broker, admin] =
        [free_port()?, free_port()?, free_port()?].map(|port| format!("127.0.0.1:{port}"));
    let variables = vec![
        ("LONGHAUL_HTTP", OsString::from(&http)),
        ("LONGHAUL_BROKER", OsString::from(&broker)),
        ("LONGHAUL_ADMIN", OsString::from(&admin)),
        ("LONGHAUL_SERVICE_URL", OsString::from(format!("pulsar://{broker}"))),
        ("LONGHAUL_ADMIN_URL", OsString::from(format!("http://{admin}"))),
    ];
    let replaced = vec![
        ("127.0.0.1:7070", http.clone()),
        ("localhost:7070", http),
        ("127.0.0.1:6650", broker.clone()),
        ("localhost:6650", broker),
        ("127.0.0.1:7071", admin),
    ];
    Reader::new(replaced, variables).await
}

#[tokio::test]
async fn the_tour_with_the_embedded_broker() -> Result<()> {
    if !has_curl() {
        return Ok(());
    }
    let page = read(TOUR)?;
    with_the_embedded_broker().await?.follow(TOUR, &page, "embedded").await
}

#[tokio::test]
async fn the_start_in_five_minutes() -> Result<()> {
    with_the_embedded_broker().await?.follow(START, &read(START)?, "embedded").await
}

#[tokio::test]
async fn the_three_commands_of_the_readme() -> Result<()> {
    let steps = steps(README, &read(README)?, Blocks::Marked, "embedded")?;
    ensure!(steps.len() == 3, "the README has {} commands with a mark", steps.len());
    with_the_embedded_broker().await?.take(README, steps).await
}

#[tokio::test]
async fn what_the_pages_about_http_say_is_typed() -> Result<()> {
    if !has_curl() {
        return Ok(());
    }
    let mut reader = with_the_embedded_broker().await?;
    for page in HTTP {
        let steps = steps(page, &read(page)?, Blocks::Marked, "embedded")?;
        ensure!(!steps.is_empty(), "{page} has no marks");
        reader.take(page, steps).await?;
    }
    Ok(())
}

/// The test has the broker for itself: its gateway looks after all queues.
#[tokio::test]
async fn the_tour_before_a_pulsar() -> Result<()> {
    if !has_curl() {
        return Ok(());
    }
    let Some(broker) = Broker::from_env(BrokerConfig::default()).await? else { return Ok(()) };
    let http = format!("127.0.0.1:{}", free_port()?);
    let of = |url: &str| url.rsplit('/').next().unwrap_or_default().to_owned();
    let (service, admin) = (of(broker.service_url()), of(broker.admin().url()));
    let replaced = vec![
        ("127.0.0.1:7070", http.clone()),
        ("localhost:7070", http.clone()),
        ("localhost:6650", service),
        ("localhost:8080", admin),
    ];
    let variables = vec![("LONGHAUL_HTTP", OsString::from(http))];
    let page = read(TOUR)?;
    Reader::new(replaced, variables).await?.follow(TOUR, &page, "pulsar").await
}

/// A page that differs from what happens makes the test fail.
#[tokio::test]
async fn a_page_that_is_out_of_date_is_told() -> Result<()> {
    if !has_curl() {
        return Ok(());
    }
    let page = read(TOUR)?;
    for (is, was) in [
        ("\nlonghaul is ready after ", "\nlonghaul is up after "),
        ("$ longhaul task submit prints 3 --wait\n", "$ longhaul submit prints 3 --wait\n"),
        ("\n3 pages\n", "\n4 pages\n"),
    ] {
        let old = page.replacen(is, was, 1);
        ensure!(old != page, "the page does not say `{is}` any more");
        let mut reader = with_the_embedded_broker().await?;
        // For answers that do not come.
        reader.patience = Duration::from_secs(10);
        let told = reader.follow(TOUR, &old, "embedded").await.err();
        let told = format!("{:#}", told.with_context(|| format!("`{was}` was passed over"))?);
        let names_it = told.contains(was.trim().trim_start_matches("$ "));
        ensure!(told.contains("docs/tour.md:") && names_it, "{told}");
    }
    Ok(())
}

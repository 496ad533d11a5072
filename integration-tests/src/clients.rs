//! Programs that use a broker like users do, through the stock clients of other languages, and
//! print their observations.
//!
//! They are in `java/clients`, `python` and `go`, are built on first use, and kept in the cache.
//! Each takes the service URL, the admin URL, and a name that makes its topics unique. It runs all
//! its steps and prints for each a line `# step` and its observations, without parts that differ
//! between runs.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;
use tokio::time::timeout;

use crate::cache::{Project, Tool};
use crate::skip::skip;

/// The variable with the languages other than Java whose programs run.
const CLIENTS: &str = "LONGHAUL_TEST_CLIENTS";
/// The folder of a Python program's packages, beside it.
const PACKAGES: &str = "packages";
/// The time limit of a program.
const LIMIT: Duration = Duration::from_secs(180);

macro_rules! sources {
    ($folder:literal: $($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../", $folder, "/", $path)))),*]
    };
}

const JAVA: Project = Project {
    name: "java-clients",
    sources: sources!("java/clients":
        "pom.xml",
        "src/main/java/longhaul/clients/Acknowledging.java",
        "src/main/java/longhaul/clients/Consuming.java",
        "src/main/java/longhaul/clients/KeyShared.java",
        "src/main/java/longhaul/clients/Main.java",
        "src/main/java/longhaul/clients/Producing.java",
        "src/main/java/longhaul/clients/Reading.java",
        "src/main/java/longhaul/clients/Stage.java",
        "src/main/java/longhaul/clients/Step.java",
        "src/main/java/longhaul/clients/Topics.java",
    ),
    tool: Tool::Maven,
    goals: &["package"],
};

const PYTHON: Project = Project {
    name: "python-clients",
    sources: sources!("python":
        "acknowledging.py", "consuming.py", "main.py", "producing.py", "reading.py", "stage.py", "topics.py",
    ),
    tool: Tool::Pip,
    goals: &["install", "--quiet", "--target", PACKAGES, "pulsar-client==3.13.0"],
};

const GO: Project = Project {
    name: "go-clients",
    sources: sources!("go":
        "acknowledging.go", "consuming.go", "go.mod", "go.sum", "main.go", "producing.go", "reading.go", "stage.go",
        "topics.go",
    ),
    tool: Tool::Go,
    goals: &["build", "-o", "clients", "."],
};

/// A language that has a stock client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// `pulsar-client` 4.0.7 from Maven's central repository.
    Java,
    /// `pulsar-client` 3.13.0 from the Python package index, on the C++ client.
    Python,
    /// `pulsar-client-go` 0.19.0.
    Go,
}

impl Language {
    /// The name in variables, records and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Java => "java",
            Self::Python => "python",
            Self::Go => "go",
        }
    }

    fn project(self) -> Project {
        match self {
            Self::Java => JAVA,
            Self::Python => PYTHON,
            Self::Go => GO,
        }
    }

    /// Why the program does not run on this machine, if so.
    fn is_skipped(self) -> Option<String> {
        if self == Self::Java {
            return java_is_missing();
        }
        (!self.is_asked_for()).then(|| format!("{CLIENTS} does not name {}", self.name()))
    }

    fn is_asked_for(self) -> bool {
        std::env::var(CLIENTS).is_ok_and(|all| all.split(',').any(|it| it == self.name()))
    }
}

/// Why Java programs cannot be built here; `None` if they can, or must be.
pub(crate) fn java_is_missing() -> Option<String> {
    let must = Language::Java.is_asked_for() || std::env::var_os("CI").is_some();
    let is_there = |program: PathBuf| {
        let mut command = std::process::Command::new(program);
        command.arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let is_complete = is_there(crate::sandbox::java()) && is_there("mvn".into());
    (!must && !is_complete).then(|| "Java or Maven is missing".to_owned())
}

/// The output lines of a program that succeeds.
pub(crate) async fn lines_of(name: &str, command: &mut Command) -> Result<Vec<String>> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(LIMIT, command.output())
        .await
        .with_context(|| format!("the {name} client does not end within {LIMIT:?}"))?
        .with_context(|| format!("cannot run the {name} client"))?;
    if !output.status.success() {
        let complaints = String::from_utf8_lossy(&output.stderr);
        bail!("the {name} client: {}\n{complaints}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

/// Python's path to the stock client; `None` if it is unavailable, with a skip message.
///
/// # Errors
/// It cannot be fetched.
pub async fn python_packages() -> Result<Option<PathBuf>> {
    let program = ClientProgram::prepare(Language::Python).await?;
    Ok(program.map(|it| it.folder.join(PACKAGES)))
}

/// A program ready to run.
#[derive(Debug)]
pub struct ClientProgram {
    language: Language,
    folder: PathBuf,
}

impl ClientProgram {
    /// Builds the program if necessary; `None` if it does not run here, with a skip message.
    ///
    /// # Errors
    /// The build fails.
    pub async fn prepare(language: Language) -> Result<Option<Self>> {
        if let Some(why) = language.is_skipped() {
            skip(&format!("the {} client: {why}", language.name()));
            return Ok(None);
        }
        let project = language.project();
        let folder = tokio::task::spawn_blocking(move || project.install()).await??;
        Ok(Some(Self { language, folder }))
    }

    /// Runs all steps and returns the lines.
    ///
    /// # Errors
    /// The program fails, or does not end.
    pub async fn play(&self, service_url: &str, admin_url: &str) -> Result<Vec<String>> {
        let run = format!("{:012x}", fastrand::u64(..) >> 16);
        let mut command = self.command();
        command.args([service_url, admin_url, &run]);
        lines_of(self.language.name(), &mut command).await
    }

    fn command(&self) -> Command {
        match self.language {
            Language::Java => {
                let mut command = Command::new(crate::sandbox::java());
                // A short run gains nothing from the optimising compiler and parallel collection.
                command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-cp"]);
                command.arg(self.folder.join("target").join("*")).arg("longhaul.clients.Main");
                command
            }
            Language::Python => {
                let mut command = Command::new("python3");
                command.env("PYTHONPATH", self.folder.join(PACKAGES));
                // Do not write files beside its sources.
                command.arg("-B").arg(self.folder.join("main.py"));
                command
            }
            Language::Go => Command::new(self.folder.join("clients")),
        }
    }
}

//! Programs that do with a broker what users do, through the stock clients of other languages, and
//! say what they saw.
//!
//! They are in `java/clients`, `python` and `go`, are built when they are first needed, and kept in
//! the cache. Each takes the service URL, the admin URL, and a name that makes its topics differ
//! from those of other runs; it plays all its steps and prints for each a line `# step` and what it
//! saw, without what differs from run to run.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;
use tokio::time::timeout;

use crate::cache::{Project, Tool};
use crate::skip::skip;

/// Names the languages other than Java whose programs are played.
const CLIENTS: &str = "LONGHAUL_TEST_CLIENTS";
/// The folder of what a Python program needs, beside it.
const PACKAGES: &str = "packages";
/// How long a program may take for all its steps.
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
    /// Name in variables, records and messages.
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

    /// Why the program is not played on this machine, if it is not.
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

/// That a program in Java cannot be built here, unless it has to be.
pub(crate) fn java_is_missing() -> Option<String> {
    let must = Language::Java.is_asked_for() || std::env::var_os("CI").is_some();
    let is_there = |program: PathBuf| {
        let mut command = std::process::Command::new(program);
        command.arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let is_complete = is_there(crate::sandbox::java()) && is_there("mvn".into());
    (!must && !is_complete).then(|| "Java or Maven is missing".to_owned())
}

/// The lines that a program prints which ends well.
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

/// Where Python finds the stock client; none where it is not to be had, which is said as skipped.
///
/// # Errors
/// It cannot be fetched.
pub async fn python_packages() -> Result<Option<PathBuf>> {
    let program = ClientProgram::prepare(Language::Python).await?;
    Ok(program.map(|it| it.folder.join(PACKAGES)))
}

/// A program that is ready to be played.
#[derive(Debug)]
pub struct ClientProgram {
    language: Language,
    folder: PathBuf,
}

impl ClientProgram {
    /// Builds the program, or finds it built; none where it is not to be played, which is said as
    /// skipped.
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

    /// Plays all steps and returns the lines.
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
                // What it would write beside its sources is nobody's.
                command.arg("-B").arg(self.folder.join("main.py"));
                command
            }
            Language::Go => Command::new(self.folder.join("clients")),
        }
    }
}

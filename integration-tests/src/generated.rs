//! Two clients of the gateway, generated from its OpenAPI document by a common generator, and a
//! program for each.
//!
//! All are in `java/gateway`: Maven downloads the generator, generates the clients and compiles them
//! with the programs. The result is cached until the document or a program changes.

use crate::cache::{Project, Tool};
use crate::clients::{java_is_missing, lines_of};
use crate::skip::skip;
use anyhow::Result;
use std::path::PathBuf;
use tokio::process::Command;

const PROJECT: Project = Project {
    name: "java-gateway",
    sources: &[
        ("pom.xml", include_str!("../java/gateway/pom.xml")),
        ("openapi.json", include_str!("../../crates/longhaul-server/openapi.json")),
        (
            "src/main/java/longhaul/gateway/Main.java",
            include_str!("../java/gateway/src/main/java/longhaul/gateway/Main.java"),
        ),
        (
            "src/main/java/longhaul/gateway/Native.java",
            include_str!("../java/gateway/src/main/java/longhaul/gateway/Native.java"),
        ),
    ],
    tool: Tool::Maven,
    goals: &["package"],
};

/// Maven's messages when it cannot download something.
const OFFLINE: [&str; 4] =
    ["Could not transfer artifact", "Cannot access ", "Unknown host", "could not be resolved"];

/// The library of the generator that a client is made with.
#[derive(Clone, Copy, Debug)]
pub enum GeneratorLibrary {
    /// `okhttp-gson`: the client refuses answers that are not as the document says.
    OkHttp,
    /// `native`: the client uses the HTTP client of the JDK.
    Native,
}

/// The built programs.
#[derive(Debug)]
pub struct GeneratedClients {
    folder: PathBuf,
}

impl GeneratedClients {
    /// Generates and compiles them if necessary; `None`, with a skip message, if that is not
    /// possible: Java is missing, or the generator cannot be downloaded.
    ///
    /// # Errors
    /// No client can be generated from the document, or it does not compile.
    pub async fn prepare() -> Result<Option<Self>> {
        if let Some(why) = java_is_missing() {
            skip(&format!("the generated clients: {why}"));
            return Ok(None);
        }
        match tokio::task::spawn_blocking(|| PROJECT.install()).await? {
            Ok(folder) => Ok(Some(Self { folder })),
            Err(error) if std::env::var_os("CI").is_none() && is_offline(&format!("{error:#}")) => {
                skip("the generated clients: Maven cannot fetch the generator");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Runs the program of a client on its own queue, and returns the printed lines.
    ///
    /// # Errors
    /// It fails, or does not end.
    pub async fn work(
        &self,
        library: GeneratorLibrary,
        gateway: &str,
        queue: &str,
    ) -> Result<Vec<String>> {
        let class = match library {
            GeneratorLibrary::OkHttp => "longhaul.gateway.Main",
            GeneratorLibrary::Native => "longhaul.gateway.Native",
        };
        let mut command = Command::new(crate::sandbox::java());
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp"]);
        command.arg(self.folder.join("target").join("*")).arg(class);
        lines_of("generated", command.args([gateway, queue])).await
    }
}

fn is_offline(told: &str) -> bool {
    OFFLINE.iter().any(|words| told.contains(words))
}

#[test]
fn a_client_that_does_not_compile_is_no_lack_of_a_network() {
    let offline = "[ERROR] Plugin org.openapitools:openapi-generator-maven-plugin:7.13.0 or one of its dependencies could not be resolved: \
        Cannot access central in offline mode";
    assert!(is_offline(offline));
    assert!(!is_offline("[ERROR] COMPILATION ERROR : cannot find symbol, class ModelNull"));
}

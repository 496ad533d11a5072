//! A client of the gateway, generated from its OpenAPI document by a common generator, and a
//! program that uses it.
//!
//! Both are in `java/gateway`: Maven downloads the generator, generates the client and compiles it
//! with the program. The result is cached until the document or the program changes.

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
    ],
    tool: Tool::Maven,
    goals: &["package"],
};

/// Maven's messages when it cannot download something.
const OFFLINE: [&str; 4] =
    ["Could not transfer artifact", "Cannot access ", "Unknown host", "could not be resolved"];

/// The built program.
#[derive(Debug)]
pub struct GeneratedClient {
    folder: PathBuf,
}

impl GeneratedClient {
    /// Generates and compiles it if necessary; `None`, with a skip message, if that is not
    /// possible: Java is missing, or the generator cannot be downloaded.
    ///
    /// # Errors
    /// No client can be generated from the document, or it does not compile.
    pub async fn prepare() -> Result<Option<Self>> {
        if let Some(why) = java_is_missing() {
            skip(&format!("the generated client: {why}"));
            return Ok(None);
        }
        match tokio::task::spawn_blocking(|| PROJECT.install()).await? {
            Ok(folder) => Ok(Some(Self { folder })),
            Err(error) if std::env::var_os("CI").is_none() && is_offline(&format!("{error:#}")) => {
                skip("the generated client: Maven cannot fetch the generator");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Uses a gateway on its own queue, and returns the printed lines.
    ///
    /// # Errors
    /// It fails, or does not end.
    pub async fn work(&self, gateway: &str, queue: &str) -> Result<Vec<String>> {
        let mut command = Command::new(crate::sandbox::java());
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp"]);
        command.arg(self.folder.join("target").join("*")).arg("longhaul.gateway.Main");
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

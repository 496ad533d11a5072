//! Pulsar's `client.conf`, as read by Pulsar's own tools: a file of Java properties.

use crate::exit::CommandFailure;
use std::collections::BTreeMap;
use std::path::Path;

/// The content of a `client.conf`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientConf {
    /// By the names of our settings.
    pub(crate) settings: Vec<(&'static str, String)>,
    /// Its entries that are ignored.
    pub(crate) notes: Vec<String>,
}

/// The keys, and the corresponding settings.
const KEYS: [(&str, &str); 7] = [
    ("brokerServiceUrl", "service-url"),
    ("webServiceUrl", "admin-url"),
    ("authPlugin", "auth-plugin"),
    ("authParams", "auth-params"),
    ("tlsTrustCertsFilePath", "tls-trust-certs-file"),
    ("tlsCertificateFilePath", "tls-certificate-file"),
    ("tlsKeyFilePath", "tls-key-file"),
];

impl ClientConf {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read, or requires certificates in a Java key store.
    pub(crate) fn open(path: &str) -> Result<Self, CommandFailure> {
        let failed = |problem: String| {
            CommandFailure::usage(format!("PULSAR_CLIENT_CONF: {path}: {problem}"))
        };
        let text = std::fs::read_to_string(Path::new(path)).map_err(|it| failed(it.to_string()))?;
        Self::read(&text).map_err(failed)
    }

    fn read(text: &str) -> Result<Self, String> {
        let properties = properties(text);
        let get = |key: &str| properties.get(key).map(String::as_str).filter(|it| !it.is_empty());
        if get("useKeyStoreTls") == Some("true") {
            return Err("useKeyStoreTls=true: key stores of Java are not supported; set \
                 tlsTrustCertsFilePath, tlsCertificateFilePath and tlsKeyFilePath to PEM files"
                .to_owned());
        }
        let mut found = Self::default();
        for (key, name) in KEYS {
            let Some(value) = get(key) else { continue };
            // The URLs in the file shipped with Pulsar end with a slash.
            let value = if key.ends_with("Url") { value.trim_end_matches('/') } else { value };
            found.settings.push((name, value.to_owned()));
        }
        if get("tlsAllowInsecureConnection") == Some("true") {
            found.notes.push(
                "tlsAllowInsecureConnection=true in client.conf is ignored: certificates are \
                 always checked. Set tlsTrustCertsFilePath to your authority"
                    .to_owned(),
            );
        }
        Ok(found)
    }
}

/// Parses Java properties: `key=value`, `key: value` or `key value`, comments with `#` or `!`, and
/// lines continued by a backslash.
fn properties(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut whole = line.to_owned();
        while ends_open(&whole) {
            whole.pop();
            let Some(next) = lines.next() else { break };
            whole.push_str(next.trim_start());
        }
        let end = whole.find(|it: char| it == '=' || it == ':' || it.is_whitespace());
        let (key, rest) = whole.split_at(end.unwrap_or(whole.len()));
        let rest = rest.trim_start();
        let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim();
        found.insert(key.to_owned(), value.replace("\\\\", "\\"));
    }
    found
}

/// Whether a line ends with an unescaped backslash.
fn ends_open(line: &str) -> bool {
    line.chars().rev().take_while(|it| *it == '\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file in the `conf` folder of Pulsar 4, without its comments.
    const STOCK: &str = "# Configuration for pulsar-client and pulsar-admin CLI tools\n\n\
        webServiceUrl=http://localhost:8080/\n\
        brokerServiceUrl=pulsar://localhost:6650/\n\
        authPlugin=\nauthParams=\ntlsAllowInsecureConnection=false\n\
        tlsEnableHostnameVerification=false\ntlsTrustCertsFilePath=\nuseKeyStoreTls=false\n";

    #[test]
    fn the_file_that_comes_with_pulsar_says_two_addresses() {
        let found = ClientConf::read(STOCK).unwrap();
        let expected = [
            ("service-url", "pulsar://localhost:6650".to_owned()),
            ("admin-url", "http://localhost:8080".to_owned()),
        ];
        assert_eq!((found.settings, found.notes), (expected.to_vec(), Vec::new()));
    }

    #[test]
    fn properties_are_read_as_java_reads_them() {
        let text = "! a\n  a=1\nb : 2\nc 3\nd=x\\\n   y\ne=\nf=token:a=b:c\ng=c:\\\\d\n";
        let found = properties(text);
        let get = |key: &str| found[key].as_str();
        assert_eq!(["a", "b", "c", "d", "e"].map(get), ["1", "2", "3", "xy", ""]);
        assert_eq!((get("f"), get("g")), ("token:a=b:c", "c:\\d"));
    }

    #[test]
    fn what_is_not_followed_is_said() {
        let found = ClientConf::read("tlsAllowInsecureConnection=true").unwrap();
        assert!(found.notes[0].contains("certificates are always checked"));
        assert!(ClientConf::read("useKeyStoreTls=true").unwrap_err().contains("PEM files"));
    }
}

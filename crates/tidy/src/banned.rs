//! Words that some parts of the code must not have: the pure core, the library beside its clock,
//! the gateway, and the places that decide the protocol.

use crate::tree::{Tree, assert_none, is_in, repository, tree};

/// Modules that are pure, each with everything below it. The model and the simulation replay them,
/// and a replay is worth nothing if they can look at the world.
const PURE: &[&str] = &[
    "crates/longhaul-broker/src/compaction/plan",
    "crates/longhaul-broker/src/log/segments/composer",
    "crates/longhaul-broker/src/machine",
    "crates/longhaul-broker/src/state",
    "crates/longhaul-core/src/agenda",
    "crates/longhaul-core/src/lease",
    "crates/longhaul-core/src/ledger",
    "crates/longhaul-core/src/machine",
    "crates/longhaul-core/src/metadata",
    "crates/longhaul-core/src/partition",
    "crates/longhaul-core/src/protocol",
    "crates/longhaul-core/src/register",
    "crates/longhaul-core/src/schedule/firing",
    "crates/longhaul-core/src/schedule/when",
    "crates/longhaul-core/src/settings",
    "crates/longhaul-core/src/task",
    "crates/longhaul-core/src/topics",
    "crates/longhaul-core/src/wanted",
    "crates/longhaul-session/src/machine",
    "crates/longhaul-types/src",
    "crates/longhaul-wire/src",
];

/// The library. Only its clock reads time: another reader would escape the simulated clock.
const CLOCKED: &[&str] = &[
    "crates/longhaul-admin/src",
    "crates/longhaul-session/src",
    "crates/longhaul-transport/src",
    "src",
];
const CLOCK: &str = "crates/longhaul-transport/src/clock";

/// The gateway, which fetches no address that a caller names. `.deny.toml` keeps HTTP clients away.
const GATEWAY: &[&str] = &["crates/longhaul-server/src"];

/// The part of the gateway that calls webhooks, at origins that its operator allows.
const WEBHOOKS: &[&str] = &["crates/longhaul-server/src/webhooks"];

/// The modules that decide the protocol.
const DECIDING: &[&str] = &[
    "crates/longhaul-core/src/machine",
    "crates/longhaul-core/src/partition",
    "crates/longhaul-core/src/protocol",
];

struct Ban {
    modules: &'static [&'static str],
    /// Parts of these modules where the words are allowed.
    except: &'static [&'static str],
    /// Parts of paths; with `()` behind it, a call without arguments.
    words: &'static [&'static str],
    why: &'static str,
}

const BANS: [Ban; 4] = [
    Ban {
        modules: PURE,
        except: &[],
        words: &[
            "async",
            "await",
            "fastrand",
            "getrandom",
            "now()",
            "rand",
            "std::env",
            "std::fs",
            "std::net",
            "std::process",
            "std::thread",
            "std::time::*",
            "SystemTime",
            "time::Instant",
            "tokio",
            "tracing",
        ],
        why: "pure code gets it as a value",
    },
    Ban {
        modules: CLOCKED,
        except: &[],
        words: &[
            "clock_gettime",
            "elapsed()",
            "Instant::now",
            "Local::now",
            "OffsetDateTime::now",
            "SystemTime::now",
            "Timestamp::now",
            "Utc::now",
            "Zoned::now",
        ],
        why: "the clock alone reads time",
    },
    Ban {
        modules: GATEWAY,
        except: WEBHOOKS,
        words: &[
            "client::legacy",
            "hyper::client",
            "hyper_rustls",
            "hyper_util::client",
            "lookup_host",
            "reqwest",
            "TcpSocket::connect",
            "TcpStream::connect",
            "to_socket_addrs",
            "UdpSocket",
            "UnixStream::connect",
        ],
        why: "the gateway opens no connection, except to allowed webhooks",
    },
    Ban {
        modules: DECIDING,
        except: &[],
        words: &["debug_assert", "debug_assert_eq", "debug_assert_ne"],
        why: "it guards nothing in production: check an invariant",
    },
];

fn violations(tree: &Tree) -> Vec<String> {
    let mut violations = Vec::new();
    for (path, file) in tree.iter().filter(|(path, file)| !file.is_test && !is_in(path, CLOCK)) {
        let holds = |ban: &&Ban| {
            let any = |modules: &[&str]| modules.iter().any(|module| is_in(path, module));
            any(ban.modules) && !any(ban.except)
        };
        for ban in BANS.iter().filter(holds) {
            let words = file.code.iter().flat_map(|code| &code.words).filter(|word| !word.is_test);
            for word in words {
                let parts = format!("::{}::", word.path);
                let banned = ban.words.iter().find(|banned| match banned.strip_suffix("()") {
                    Some(name) => word.is_bare_call && parts.ends_with(&format!("::{name}::")),
                    None => parts.contains(&format!("::{banned}::")),
                });
                if let Some(banned) = banned {
                    violations.push(format!("{path}:{}: `{banned}`: {}", word.line, ban.why));
                }
            }
        }
    }
    violations
}

#[test]
fn no_module_has_words_that_are_banned_there() {
    let tree = repository();
    for module in BANS.iter().flat_map(|ban| ban.modules.iter().chain(ban.except)) {
        assert!(tree.keys().any(|path| is_in(path, module)), "{module} is not there");
    }
    assert_none(&violations(tree));
}

#[track_caller]
fn check(path: &str, code: &str, is_caught: bool) {
    let violations = violations(&tree([(path, code)]));
    assert_eq!(violations.len(), usize::from(is_caught), "{path}: {code}: {violations:?}");
}

#[test]
fn planted_words_are_found() {
    for code in [
        "async fn a() {}",
        "let a = b.await;",
        "use tokio::sync::watch;",
        "tracing::debug!(a);",
        "use std::{collections::BTreeMap, time::{Duration, Instant}};",
        "use std::time::*;",
        "fn a(now: std::time::SystemTime) {}",
        "let now = self.clock.now();",
        "let a = fastrand::f64();",
        "format!(\"{}\", rand::random());",
        "std::fs::read(a);",
        "debug_assert!(true);",
    ] {
        check("crates/longhaul-core/src/protocol/fold.rs", code, true);
    }
    for code in ["let read = Instant::now;", "start.elapsed()", "rustix::time::clock_gettime(id)"] {
        check("src/worker/driver.rs", code, true);
    }
    check("crates/longhaul-server/src/a.rs", "tokio::net::TcpStream::connect(a)", true);
    check("crates/longhaul-server/src/a.rs", "reqwest::get(a)", true);
}

#[test]
fn other_words_pass() {
    for code in [
        "use std::{collections::BTreeMap, time::Duration};",
        "fn a(now: Millis, operand: u8) -> Millis { self.now(b) }",
        "// the tokio task calls now() and awaits",
        "let a = \"async .await tokio::time std::time::Instant now()\";",
        "#[cfg(test)] mod tests { async fn a() { tokio::time::Instant::now(); rand::random() } }",
    ] {
        check("crates/longhaul-core/src/protocol/fold.rs", code, false);
    }
    check("src/worker/driver.rs", "record.elapsed(now); Clock::now(&clock)", false);
    check("crates/longhaul-transport/src/clock.rs", "Instant::now()", false);
    check("crates/longhaul-session/src/machinery.rs", "tokio::spawn(a)", false);
    check("crates/longhaul-core/src/ledger.rs", "debug_assert!(true);", false);
    check("crates/longhaul-server/src/webhooks/calling.rs", "reqwest::get(a)", false);
}

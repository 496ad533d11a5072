//! Another task queue, measured by a command of its own.

use crate::meter::Figures;
use anyhow::{Result, ensure};
use integration_tests::example::Process;
use std::process::Stdio;
use tokio::process::Command;

/// Runs a shell command and returns the figures in what it has printed. It finds our broker by the
/// variables that other programs know.
pub(crate) async fn run(command: &str, service_url: &str) -> Result<Figures> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdout(Stdio::piped());
    shell.env("PULSAR_SERVICE_URL", service_url).env("PULSAR_URL", service_url);
    let printed = Process::start(&mut shell)?.finished().await?;
    let figures = figures(&printed);
    ensure!(!figures.0.is_empty(), "it prints no figure: {printed:#?}");
    Ok(figures)
}

/// The figures in these lines; of those that come several times the last.
fn figures(lines: &[String]) -> Figures {
    let mut figures = Figures::default();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        for (at, word) in words.iter().enumerate() {
            let before = || at.checked_sub(1).and_then(|at| words.get(at));
            let number = |word: Option<&&str>| word.and_then(|it| it.parse::<f64>().ok());
            let found = match (*word, word.strip_suffix("/s")) {
                (_, Some("")) => number(before()).map(|it| ("tasks/s".to_owned(), it)),
                // A pace that was set, and not a figure.
                (_, Some(_)) if before() == Some(&"at") => None,
                (_, Some(rate)) => rate.parse().ok().map(|it| ("tasks/s".to_owned(), it)),
                ("p50" | "p90" | "p99" | "max", None) => {
                    number(words.get(at + 1)).map(|it| (format!("{word} ms"), it))
                }
                ("VmHWM", None) => {
                    number(words.get(at + 1)).map(|it| ("peak RSS MiB".to_owned(), it))
                }
                _ => None,
            };
            if let Some((name, value)) = found {
                figures.0.retain(|(it, _)| *it != name);
                figures.0.push((name, value));
            }
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_lines_for_people() {
        let lines = [
            "queue enqueue, 1 caller(s)      812/s  n=3000 3.69s  VmHWM 10.0 MiB",
            "queue drain, concurrency 100    19804/s  n=20000 1.01s  VmHWM 24.5 MiB",
            "queue latency at 100/s  p50 1.10 ms  p99 3.60 ms  max 9.00 ms  n=2000, in all 5 /s",
            "rates of n/s and p50 of nothing",
        ];
        let found = figures(&lines.map(str::to_owned));
        let mut found: Vec<(&str, f64)> = found.0.iter().map(|(it, n)| (it.as_str(), *n)).collect();
        found.sort_by_key(|(name, _)| *name);
        let expected = [
            ("max ms", 9.0),
            ("p50 ms", 1.1),
            ("p99 ms", 3.6),
            ("peak RSS MiB", 24.5),
            ("tasks/s", 5.0),
        ];
        assert_eq!(found, expected);
    }
}

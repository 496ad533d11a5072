//! Compares an answer with that of the page, except for values that differ from run to run. Pure.
//!
//! Such values are recognized by their form: ids of tasks and leases, instants, durations, the
//! progress of a task, names of workers and people, and the space between columns. An id means the
//! same task on the whole page: its first appearance determines the task, and commands with that id
//! are typed with the real one. `...` alone on a line matches any lines.

use anyhow::{Context, Result, bail, ensure};
use regex::{Captures, Regex};
use std::collections::BTreeMap;

/// The forms of values that may differ in another run.
const VARYING: &str = r"(?x)
    (?<id>\b\d+:\d+:-1(?:~\d+~[0-9a-f]+)?\b)
    | (?<instant>\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)
    | (?<ms>\b\d{13}\b)
    | (?<duration>\b\d+(?:\.\d+)?(?:ms|s|m)\b(?:\ \d+s\b)?)
    | (?<progress>\b\d+/1000\b)
    | (?<worker>\blonghaul-[0-9]+-[0-9a-f]+-[0-9a-f]+\b)
    | (?<somebody>\bann@desk\b)
    | (?<room>\ {2,})";

/// An id of a task, and one of a lease.
const TASK: &str = r"(\d+:\d+:-1)";
const LEASE: &str = r"(\d+:\d+:-1~\d+~[0-9a-f]+)";

/// Texts of the page, and their replacements in this run.
pub(super) struct Run {
    varying: Regex,
    /// Addresses.
    replaced: Vec<(&'static str, String)>,
    /// Ids of tasks and leases, by those of the page.
    tasks: BTreeMap<String, String>,
}

impl Run {
    pub(super) fn new(replaced: Vec<(&'static str, String)>) -> Result<Self> {
        Ok(Self { varying: Regex::new(VARYING)?, replaced, tasks: BTreeMap::new() })
    }

    fn at_home(&self, text: &str) -> String {
        let replace = |text: String, (page, own): &(&str, String)| text.replace(page, own);
        self.replaced.iter().fold(text.to_owned(), replace)
    }

    /// A command or a file of the page, as it is typed in this run.
    pub(super) fn typed(&self, text: &str) -> Result<String> {
        let text = self.at_home(text);
        let is_unknown = |it: &Captures<'_>| {
            it.name("id").is_some_and(|id| !self.tasks.contains_key(id.as_str()))
        };
        if let Some(unknown) = self.varying.captures_iter(&text).find(is_unknown) {
            bail!("no answer before has shown the task {:?}", unknown.get(0));
        }
        let own = |it: &Captures<'_>| {
            let whole = it.get(0).map_or("", |it| it.as_str());
            self.tasks.get(whole).map_or(whole, String::as_str).to_owned()
        };
        Ok(self.varying.replace_all(&text, own).into_owned())
    }

    /// Whether these lines are the answer of the page: all of them, unless that ends with `...`.
    pub(super) fn check(&mut self, answer: &[String], lines: &[String]) -> Result<()> {
        let mut rest = lines.iter();
        let mut skips = false;
        for expected in answer {
            if expected == "..." {
                skips = true;
                continue;
            }
            loop {
                let line = rest.next().with_context(|| format!("`{expected}` is missing"))?;
                if self.take(expected, line)? {
                    break;
                }
                ensure!(skips, "the page says `{expected}`, and the answer is `{line}`");
            }
            skips = false;
        }
        let more = rest.next();
        ensure!(
            skips || more.is_none(),
            "the answer goes on with `{}`",
            more.map_or("", String::as_str)
        );
        Ok(())
    }

    /// Whether a line is as on the page; if so, records the tasks that appear in it for the first
    /// time.
    fn take(&mut self, expected: &str, line: &str) -> Result<bool> {
        let expected = self.at_home(expected);
        let (mut pattern, mut at, mut new) = ("^".to_owned(), 0, Vec::new());
        for found in self.varying.captures_iter(&expected) {
            let whole = found.get(0).context("it is there")?;
            pattern.push_str(&regex::escape(expected.get(at..whole.start()).unwrap_or_default()));
            at = whole.end();
            let id = found.name("id").map(|it| it.as_str().to_owned());
            match id {
                Some(id) => match self.tasks.get(&id) {
                    Some(own) => pattern.push_str(&regex::escape(own)),
                    None => {
                        let is_lease = id.contains('~');
                        pattern.push_str(if is_lease { LEASE } else { TASK });
                        new.push(id);
                    }
                },
                None => pattern.push_str(varied(&found)),
            }
        }
        pattern.push_str(&regex::escape(expected.get(at..).unwrap_or_default()));
        pattern.push('$');
        let Some(matched) = Regex::new(&pattern)?.captures(line.trim_end()) else {
            return Ok(false);
        };
        for (id, own) in new.into_iter().zip(matched.iter().skip(1).flatten()) {
            let own = own.as_str().to_owned();
            if let Some(known) = self.tasks.get(&id) {
                // The id is twice in the line.
                ensure!(*known == own, "the page's {id} is both {known} and {own}");
                continue;
            }
            ensure!(
                !self.tasks.values().any(|it| *it == own),
                "two tasks of the page are both {own}"
            );
            self.tasks.insert(id, own);
        }
        Ok(true)
    }
}

/// The pattern for a value of this kind.
fn varied(found: &Captures<'_>) -> &'static str {
    let patterns = [
        ("instant", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"),
        ("ms", r"\d{13}"),
        ("duration", r"\d+(?:\.\d+)?(?:ms|s|m)(?: \d+s)?"),
        ("progress", r"\d+/1000"),
        ("worker", r"longhaul-\d+-[0-9a-f]+-[0-9a-f]+"),
        ("somebody", r"[^\s@]+@[^\s@]+"),
    ];
    let named = patterns.iter().find(|(name, _)| found.name(name).is_some());
    named.map_or(" {2,}", |(_, pattern)| pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    fn run() -> Run {
        Run::new(vec![("127.0.0.1:7070", "127.0.0.1:4711".to_owned())]).unwrap()
    }

    fn fits(page: &str, answer: &str) -> bool {
        run().check(&lines(page), &lines(answer)).is_ok()
    }

    #[test]
    fn what_differs_from_run_to_run_may_differ() {
        let page = "TASK          CHANGED\nprints@4:0:-1  2026-11-22T09:30:00.123Z  3s ago";
        assert!(fits(page, "TASK     CHANGED\nprints@17:93:-1    2027-01-02T00:00:00Z  1m 5s ago"));
        assert!(fits("at http://127.0.0.1:7070\n...\nend", "at http://127.0.0.1:4711\na\nb\nend"));
        assert!(fits(
            "by longhaul-97-1f-2e of ann@desk after 41ms\n...",
            "by longhaul-1-2-3 of bob@hut after 1.5s"
        ));
    }

    #[test]
    fn what_does_not_differ_may_not() {
        for (page, answer) in [
            ("completed", "failed"),
            ("one\ntwo", "one"),
            ("one", "one\ntwo"),
            ("attempts  1", "attempts  2"),
            ("prints@4:0:-1 is 4:0:-1", "prints@17:0:-1 is 18:0:-1"),
            ("4:0:-1\n4:1:-1", "17:0:-1\n17:0:-1"),
            ("4:0:-1~1~9f", "17:0:-1"),
            ("...\nend", "a\nb"),
            ("HELLO", "HELLO there"),
        ] {
            assert!(!fits(page, answer), "{page:?} is no {answer:?}");
        }
    }

    #[test]
    fn a_task_is_the_same_on_the_whole_page() {
        let mut run = run();
        assert!(run.typed("cancel 4:2:-1").is_err(), "nobody has seen it");
        run.check(&lines("task  prints@4:2:-1"), &lines("task  prints@17:5:-1")).unwrap();
        assert_eq!(run.typed("curl 127.0.0.1:7070/4:2:-1").unwrap(), "curl 127.0.0.1:4711/17:5:-1");
        assert!(run.check(&lines("4:2:-1"), &lines("17:6:-1")).is_err());
    }
}

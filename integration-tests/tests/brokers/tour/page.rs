//! The blocks of a page: commands, their answers, and files that the reader writes. Pure.
//!
//! A block of `console` is typed line by line: a line that begins with `$ ` is a command, one with
//! `> ` its continuation, and the rest is the answer. A comment directly above a block marks it
//! with words:
//!
//! | word | meaning |
//! |---|---|
//! | `terminal=NAME` | for another terminal with a running program: the first lines are compared |
//! | `everywhere` | it is typed in all terminals |
//! | `here` | nothing: it is typed in the reader's own terminal |
//! | `only=embedded`, `only=pulsar` | it is for this engine |
//! | `file=NAME` | it is a file, and not commands |
//! | `python` | it needs Pulsar's client for Python |

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;

/// A step of the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Writes a file.
    Write {
        name: String,
        contents: String,
    },
    Type(Typed),
}

/// A command and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Typed {
    /// The line of the page.
    pub(super) line: usize,
    /// The terminal of the command, if it is not the reader's own.
    pub(super) terminal: Option<String>,
    pub(super) needs_python: bool,
    pub(super) command: String,
    pub(super) answer: Vec<String>,
}

/// The mark of a block.
#[derive(Default)]
struct Mark<'a> {
    words: BTreeMap<&'a str, &'a str>,
}

impl<'a> Mark<'a> {
    fn read(name: &str, line: &'a str) -> Result<Self> {
        let Some(words) = line.strip_prefix("<!-- tour: ").and_then(|it| it.strip_suffix(" -->"))
        else {
            return Ok(Self::default());
        };
        let words: BTreeMap<_, _> =
            words.split(' ').map(|word| word.split_once('=').unwrap_or((word, ""))).collect();
        let known = ["terminal", "everywhere", "here", "only", "file", "python"];
        let unknown = words.keys().find(|word| !known.contains(word));
        ensure!(unknown.is_none(), "a mark of {name} has the word {unknown:?}");
        Ok(Self { words })
    }

    fn get(&self, word: &str) -> Option<&'a str> {
        self.words.get(word).copied()
    }
}

/// The blocks of a page that are for readers at a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocks {
    All,
    /// Only the blocks with a mark.
    Marked,
}

/// The steps of a reader with this engine on the page with this name, in order.
pub(super) fn steps(name: &str, page: &str, blocks: Blocks, engine: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut lines = page.lines().enumerate();
    let mut above = "";
    while let Some((at, line)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            above = line;
            continue;
        };
        let mark = Mark::read(name, above).with_context(|| format!("{name}:{at}"))?;
        let block: Vec<_> = lines.by_ref().take_while(|(_, line)| *line != "```").collect();
        let is_meant = mark.get("only").is_none_or(|only| only == engine)
            && (blocks == Blocks::All || !mark.words.is_empty());
        match (mark.get("file"), language) {
            _ if !is_meant => {}
            (Some(file), _) => {
                let contents = block.iter().map(|(_, line)| format!("{line}\n")).collect();
                steps.push(Step::Write { name: file.to_owned(), contents });
            }
            (None, "console") if mark.get("everywhere").is_some() => {
                for terminal in [Some("server"), Some("worker"), None] {
                    type_block(name, &block, terminal, &mark, &mut steps)?;
                }
            }
            (None, "console") => {
                type_block(name, &block, mark.get("terminal"), &mark, &mut steps)?;
            }
            // A reader runs every block.
            (None, _) => bail!("{name}:{}: a block is `console`, or a file", at + 1),
        }
    }
    Ok(steps)
}

fn type_block(
    name: &str,
    block: &[(usize, &str)],
    terminal: Option<&str>,
    mark: &Mark<'_>,
    steps: &mut Vec<Step>,
) -> Result<()> {
    let mut typed: Vec<Typed> = Vec::new();
    for (at, line) in block {
        if let Some(command) = line.strip_prefix("$ ") {
            typed.push(Typed {
                line: at + 1,
                terminal: terminal.map(str::to_owned),
                needs_python: mark.get("python").is_some(),
                command: command.to_owned(),
                answer: Vec::new(),
            });
            continue;
        }
        let last = typed.last_mut();
        let last = last.with_context(|| format!("{name}:{}: no command", at + 1))?;
        match line.strip_prefix("> ") {
            Some(more) if last.answer.is_empty() => {
                last.command.push('\n');
                last.command.push_str(more);
            }
            _ => last.answer.push((*line).to_owned()),
        }
    }
    // Empty lines between two commands are no part of the answer.
    for it in &mut typed {
        while it.answer.last().is_some_and(String::is_empty) {
            it.answer.pop();
        }
    }
    steps.extend(typed.into_iter().map(Step::Type));
    Ok(())
}

#[test]
fn blocks_are_commands_files_and_for_one_engine() {
    let page = "Text.\n\n<!-- tour: only=pulsar -->\n```console\n$ other\n```\n\n<!-- tour: file=a.sh -->\n```sh\none\ntwo\n```\n\n\
        <!-- tour: terminal=worker python -->\n```console\n$ run \\\n> it\nhere\n\nand here\n\n$ next\n```\n";
    let typed = |line, command: &str, answer: &[&str]| {
        let answer = answer.iter().map(|it| (*it).to_owned()).collect();
        let (terminal, command) = (Some("worker".to_owned()), command.to_owned());
        Step::Type(Typed { line, terminal, needs_python: true, command, answer })
    };
    let expected = [
        Step::Write { name: "a.sh".to_owned(), contents: "one\ntwo\n".to_owned() },
        typed(16, "run \\\nit", &["here", "", "and here"]),
        typed(22, "next", &[]),
    ];
    let steps = |page, engine| steps("page", page, Blocks::All, engine);
    assert_eq!(steps(page, "embedded").unwrap(), expected);
    assert_eq!(steps(page, "pulsar").unwrap().len(), 4);
    let everywhere = "<!-- tour: everywhere -->\n```console\n$ export A=1\n```\n";
    assert_eq!(steps(everywhere, "pulsar").unwrap().len(), 3);
    for wrong in
        ["```console\nanswer\n```", "<!-- tour: fiel=x -->\n```console\n```", "```sh\nx\n```"]
    {
        assert!(steps(wrong, "embedded").is_err(), "{wrong}");
    }
}

#[test]
fn of_other_pages_the_marked_blocks_are_typed() {
    let page = "```json\n{}\n```\n\n```console\n$ one\n```\n\n<!-- tour: here -->\n```console\n$ two\n```\n";
    let steps = steps("page", page, Blocks::Marked, "embedded").unwrap();
    let [Step::Type(typed)] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!((typed.command.as_str(), &typed.terminal), ("two", &None));
}

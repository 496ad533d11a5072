//! The command line of a program: its words, and whether the program exists.

use anyhow::{Context, bail, ensure};
use rustix::fs::{Access, access};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    pub(crate) words: Vec<String>,
}

impl CommandLine {
    /// Splits a command line into words. Only quotes and backslashes are interpreted, as by a
    /// shell: no variables, no globs, no pipes.
    ///
    /// # Errors
    /// When it has no words, or an unterminated quote.
    pub(crate) fn split(text: &str) -> anyhow::Result<Self> {
        let words = shlex::split(text).with_context(|| {
            format!("`{text}` ends within a quote: close it, or escape it with a backslash")
        })?;
        ensure!(!words.is_empty(), "the command line is empty: name a program");
        Ok(Self { words })
    }

    /// A command line for the shell.
    ///
    /// # Errors
    /// When it is empty.
    pub(crate) fn of_shell(text: &str) -> anyhow::Result<Self> {
        ensure!(!text.trim().is_empty(), "the command line is empty: name a program");
        Ok(Self { words: vec!["sh".to_owned(), "-c".to_owned(), text.to_owned()] })
    }

    /// The short name of the program.
    pub(crate) fn name(&self) -> &str {
        let program = self.words.first().map_or("", String::as_str);
        program.rsplit('/').next().unwrap_or(program)
    }

    /// Checks at the start that the program exists, since otherwise each task would fail.
    ///
    /// # Errors
    /// When it is not found, or not executable.
    pub(crate) fn check(&self, path: Option<&OsStr>) -> anyhow::Result<()> {
        let program = self.words.first().context("the command line is empty")?;
        if program.contains('/') {
            let file = Path::new(program);
            ensure!(
                is_executable(file),
                "cannot execute `{program}`: the file does not exist, or is not executable (chmod \
                 +x)"
            );
            return Ok(());
        }
        let folders: Vec<PathBuf> = std::env::split_paths(path.unwrap_or_default()).collect();
        if folders.iter().any(|folder| is_executable(&folder.join(program))) {
            return Ok(());
        }
        bail!(
            "there is no program `{program}` in the folders of PATH: install it, or give its path"
        )
    }
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_without_a_shell() {
        let split = |text| CommandLine::split(text).unwrap().words;
        assert_eq!(split("zstd -19 -c"), ["zstd", "-19", "-c"]);
        assert_eq!(
            split(r#"echo 'a b' "c  d" e\ f $HOME * | wc"#),
            ["echo", "a b", "c  d", "e f", "$HOME", "*", "|", "wc"]
        );
        assert_eq!(CommandLine::split("/usr/bin/env -i x").unwrap().name(), "env");
    }

    #[test]
    fn a_command_line_that_names_no_program_is_refused() {
        for (text, told) in [("", "is empty"), ("  ", "is empty"), ("a 'b", "ends within a quote")]
        {
            let error = CommandLine::split(text).unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
        assert!(CommandLine::of_shell(" ").is_err());
    }

    #[test]
    fn a_program_that_is_not_there_is_told_at_once() {
        let path = std::env::var_os("PATH");
        let check = |text| CommandLine::split(text).unwrap().check(path.as_deref());
        check("sh -c true").unwrap();
        check("/bin/sh").unwrap();
        let error = check("no-such-program-here -x").unwrap_err().to_string();
        assert!(error.contains("`no-such-program-here`") && error.contains("PATH"), "{error}");
        for not_executable in ["/etc/passwd", "/etc", "./no/such"] {
            assert!(check(not_executable).is_err(), "{not_executable}");
        }
        assert!(CommandLine::split("sh").unwrap().check(None).is_err(), "without a PATH");
    }
}

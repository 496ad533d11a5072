//! Cleans up after a process that died: a small shell waits for the other end of a pipe to close.
//!
//! The kernel closes the pipe however the process ends, so this also works after `kill -9` and for
//! statics, which are never dropped. Linux's parent-death signal does not work: it fires when the
//! *thread* that spawned the child ends, and each test has its own thread.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Runs a command when this process dies, unless the guard was dropped before.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
}

impl Guard {
    /// Arms the guard with a shell script and its `$1`, `$2`, ….
    pub(crate) fn arm<S: AsRef<OsStr>>(
        script: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        let shell = Command::new("sh")
            .arg("-c")
            .arg(format!("read -r released && exit\n{script}"))
            .arg("guard")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C goes to the whole foreground group, and the guard must survive it.
            .process_group(0)
            .spawn()
            .context("cannot run sh")?;
        Ok(Self { shell })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            // Without this line the end of the pipe counts as our death. If the shell is gone, the
            // guard is not armed either.
            pipe.write_all(b"released\n").ok();
        }
        self.shell.wait().ok();
    }
}

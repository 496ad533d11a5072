//! The process of a broker, which ends with ours.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal as Number, WaitId, WaitIdOptions, kill_process, waitid};

use super::broker::Signal;
use super::guard::Guard;

/// Runs after our death: kills the process and, once it no longer writes, removes its folder.
const AFTERMATH: &str = r#"
kill -KILL "$1"
rounds=0
while kill -0 "$1" && [ $rounds -lt 50 ]; do sleep 0.1; rounds=$((rounds + 1)); done
rm -rf -- "$2""#;

/// A process. Dropping it kills it.
#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Child,
    _guard: Guard,
}

impl ServerProcess {
    /// Starts a command in a folder that is removed if we die.
    pub(super) fn start(command: &mut Command, folder: &Path) -> Result<Self> {
        let mut child = command
            .current_dir(folder)
            .stdin(Stdio::null())
            // Ctrl-C is for us: we stop the broker ourselves.
            .process_group(0)
            .spawn()?;
        let pid = child.id().to_string();
        match Guard::arm(AFTERMATH, [pid.as_ref(), folder.as_os_str()]) {
            Ok(guard) => Ok(Self { child, _guard: guard }),
            Err(cause) => {
                child.kill()?;
                child.wait()?;
                Err(cause)
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let number = match signal {
            Signal::Terminate => Number::TERM,
            Signal::Kill => Number::KILL,
            Signal::Pause => Number::STOP,
            Signal::Resume => Number::CONT,
        };
        let pid = Pid::from_child(&self.child);
        kill_process(pid, number).context("the broker has ended")?;
        if signal == Signal::Pause {
            // The signal reaches the threads one by one: until then a fast broker still answers.
            let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(pid), stopped).context("the broker does not stop")?;
        }
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Both fail only if the process is already gone.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Whether the process runs; an ended one is forgotten.
pub(super) fn is_running(process: &mut Option<ServerProcess>) -> Result<bool> {
    if let Some(running) = process
        && running.child.try_wait()?.is_some()
    {
        *process = None;
    }
    Ok(process.is_some())
}

/// Last few kilobytes of a log.
pub(super) fn tail(path: &Path) -> String {
    read_tail(path).unwrap_or_else(|cause| format!("{}: {cause}", path.display()))
}

fn read_tail(path: &Path) -> std::io::Result<String> {
    const TAIL_BYTES: u64 = 8 * 1024;
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

//! The processes of one program: signalling all of them, and waiting for them.

use super::link::SupervisorMessage;
use anyhow::Context;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpgid, kill_process,
    kill_process_group, wait, waitid,
};
use std::process::Child;

/// A program's first process, which leads a process group, and its descendants.
pub(crate) struct Family {
    leader: Pid,
    /// The exit status of the leader, once waited for.
    status: Option<WaitStatus>,
    /// No process is left to wait for.
    is_gone: bool,
}

impl Family {
    /// Orphaned descendants become children of this process, whatever their group.
    pub(crate) const ADOPTS: bool = cfg!(target_os = "linux");

    /// Must be called before the program is started.
    pub(crate) fn adopt_strays() {
        // If this fails, processes that leave the program's group are not killed with it.
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).ok();
    }

    /// The family of a program started in its own process group.
    pub(crate) fn of(child: &Child) -> anyhow::Result<Self> {
        let leader = Pid::from_raw(child.id().cast_signed()).context("a process has a number")?;
        Ok(Self { leader, status: None, is_gone: false })
    }

    /// The process id of the leader, which is also that of the group.
    pub(crate) fn leader(&self) -> i32 {
        self.leader.as_raw_nonzero().get()
    }

    /// Whether the leader has ended, without waiting for it: until it is waited for, its id is not
    /// reused.
    pub(crate) fn leader_has_ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.status.is_some() || matches!(waitid(WaitId::Pid(self.leader), look), Ok(Some(_)))
    }

    /// Signals all processes found.
    pub(crate) fn signal(&self, signal: Signal) {
        let adopted: Vec<Pid> = children().into_iter().filter(|pid| *pid != self.leader).collect();
        let in_group = |pid: &Pid| getpgid(Some(*pid)) == Ok(self.leader);
        // The group keeps the leader's id until its last member is gone; then the id may be reused.
        if self.status.is_none() || adopted.iter().any(in_group) {
            // The group may be empty, or belong to other users.
            kill_process_group(self.leader, signal).ok();
        }
        for stray in adopted.iter().filter(|pid| !in_group(pid)) {
            kill_process(*stray, signal).ok();
        }
    }

    /// Waits for the processes that have ended.
    pub(crate) fn reap(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.leader => self.status = Some(status),
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(error) => {
                    self.is_gone |= error == rustix::io::Errno::CHILD;
                    return;
                }
            }
        }
    }

    /// Whether all processes have ended.
    pub(crate) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The report to the worker.
    pub(crate) fn ended(&self, left_behind: bool) -> SupervisorMessage {
        let code = self.status.and_then(WaitStatus::exit_status);
        let signal = self.status.and_then(WaitStatus::terminating_signal);
        SupervisorMessage::Ended { code, signal, left_behind }
    }
}

/// Kills the processes left by a killed supervisor: those of its session, if Linux lists them.
pub(crate) fn end_session(session: Pid) {
    // A process may start another one while the list is read.
    const SWEEPS: usize = 5;
    for _ in 0..SWEEPS {
        let members = members_of(session);
        if members.is_empty() {
            return;
        }
        for member in members {
            kill_process(member, Signal::KILL).ok();
        }
    }
}

/// The running processes of a session.
fn members_of(session: Pid) -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let member = |entry: std::fs::DirEntry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // `PID (NAME) STATE PARENT GROUP SESSION …`; the name may contain anything.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X");
        let is_member = fields.nth(2)?.parse() == Ok(session.as_raw_nonzero().get());
        (is_member && !has_ended).then_some(pid)
    };
    processes.flatten().filter_map(member).collect()
}

/// The children of this process, from Linux's lists.
fn children() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| {
        // A thread may have ended meanwhile.
        std::fs::read_to_string(thread.path().join("children")).ok()
    });
    let numbers = |list: String| -> Vec<Pid> {
        list.split_whitespace().filter_map(|it| Pid::from_raw(it.parse().ok()?)).collect()
    };
    lists.flat_map(numbers).collect()
}

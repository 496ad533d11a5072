//! The processes of one program: signalled and waited for, all of them.

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
    /// How the leader has ended, once it is waited for.
    status: Option<WaitStatus>,
    /// There is nobody left to wait for.
    is_gone: bool,
}

impl Family {
    /// Descendants whose parents have ended become children of this process, whatever group they
    /// are in.
    pub(crate) const ADOPTS: bool = cfg!(target_os = "linux");

    /// Before the program is started.
    pub(crate) fn adopt_strays() {
        // Without it, what leaves the program's group is not ended with it.
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).ok();
    }

    /// The family of a program that was started in a process group of its own.
    pub(crate) fn of(child: &Child) -> anyhow::Result<Self> {
        let leader = Pid::from_raw(child.id().cast_signed()).context("a process has a number")?;
        Ok(Self { leader, status: None, is_gone: false })
    }

    /// Its number, and that of the group.
    pub(crate) fn leader(&self) -> i32 {
        self.leader.as_raw_nonzero().get()
    }

    /// It need not be waited for: as long as it is not, its number is nobody else's.
    pub(crate) fn leader_has_ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.status.is_some() || matches!(waitid(WaitId::Pid(self.leader), look), Ok(Some(_)))
    }

    /// Sends a signal to all that can be found.
    pub(crate) fn signal(&self, signal: Signal) {
        let adopted: Vec<Pid> = children().into_iter().filter(|pid| *pid != self.leader).collect();
        let in_group = |pid: &Pid| getpgid(Some(*pid)) == Ok(self.leader);
        // The group has the leader's number until its last member is gone, and then anybody may get
        // it.
        if self.status.is_none() || adopted.iter().any(in_group) {
            // It may be empty, or of other users.
            kill_process_group(self.leader, signal).ok();
        }
        for stray in adopted.iter().filter(|pid| !in_group(pid)) {
            kill_process(*stray, signal).ok();
        }
    }

    /// Waits for those that have ended.
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

    /// All have ended.
    pub(crate) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// What the worker is told.
    pub(crate) fn ended(&self, left_behind: bool) -> SupervisorMessage {
        let code = self.status.and_then(WaitStatus::exit_status);
        let signal = self.status.and_then(WaitStatus::terminating_signal);
        SupervisorMessage::Ended { code, signal, left_behind }
    }
}

/// Ends what a supervisor that was killed has left behind: the processes of its session, as far as
/// Linux lists them.
pub(crate) fn end_session(session: Pid) {
    // A process may have started another one while the list was read.
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

/// The processes of a session that have not ended.
fn members_of(session: Pid) -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let member = |entry: std::fs::DirEntry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // `PID (NAME) STATE PARENT GROUP SESSION …`, and a name may hold anything.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X");
        let is_member = fields.nth(2)?.parse() == Ok(session.as_raw_nonzero().get());
        (is_member && !has_ended).then_some(pid)
    };
    processes.flatten().filter_map(member).collect()
}

/// The children of this process, as Linux lists them.
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

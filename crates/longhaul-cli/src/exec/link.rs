//! The protocol between a worker and the supervisor of one program, on a socket that is the
//! supervisor's standard input.
//!
//! First the worker sends the program's ends of four pipes as file descriptors, with the length of
//! what follows, and then the [`Spec`]. The supervisor answers in lines, each a
//! [`SupervisorMessage`]. Later a [`TERMINATE`] byte asks for the program's end. The end of the
//! stream, which also comes when the worker is killed, kills the program at once.
//!
//! Passing descriptors over a socket needs no `unsafe`, unlike inheriting them by number, and no
//! program gets the descriptors of another.

use anyhow::{Context, bail, ensure};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// The byte that asks for the program's end.
pub(crate) const TERMINATE: u8 = b't';

/// A specification contains a checkpoint of 64 KiB in Base64, and an environment of limited size.
const SPEC_BYTES_MAX: u32 = 4 * 1024 * 1024;

/// A program to run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) words: Vec<String>,
    /// Its environment in addition to the worker's.
    pub(crate) environment: Vec<(String, String)>,
    /// In Base64.
    pub(crate) checkpoint: Option<String>,
    pub(crate) nice: Option<i32>,
    /// The time between SIGTERM and SIGKILL.
    pub(crate) grace_ms: u64,
}

/// The messages of the supervisor, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SupervisorMessage {
    /// The program runs, as the leader of a process group.
    Started { pid: i32 },
    /// The program could not be started: nothing follows.
    Refused { cause: String },
    /// This machine has no room for the checkpoint of the task, so the program was not started.
    NoRoom { cause: String },
    /// The program and all its descendants have ended.
    Ended { code: Option<i32>, signal: Option<i32>, left_behind: bool },
}

/// The program's ends of its pipes.
#[derive(Debug)]
pub(crate) struct ProgramPipes {
    /// First, so that it gets the first free number in the supervisor, which is 3.
    pub(crate) reports: OwnedFd,
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// Sends the pipe ends, and the number of bytes that follow.
///
/// # Errors
/// When the other side is gone.
pub(crate) fn send_ends(socket: impl AsFd, ends: &ProgramPipes, length: u32) -> anyhow::Result<()> {
    let fds = [&ends.reports, &ends.stdin, &ends.stdout, &ends.stderr].map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ensure!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)), "no room for four descriptors");
    let announced = length.to_le_bytes();
    let sent = sendmsg(socket, &[IoSlice::new(&announced)], &mut ancillary, SendFlags::NOSIGNAL)?;
    ensure!(sent == announced.len(), "the socket took {sent} bytes of {}", announced.len());
    Ok(())
}

/// Receives the pipe ends, and the number of bytes that follow. Started programs inherit none of
/// them.
///
/// # Errors
/// When the other side is gone, or is not a worker.
pub(crate) fn receive_ends(socket: impl AsFd) -> anyhow::Result<(ProgramPipes, u32)> {
    let mut announced = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut announced)];
    let received = recvmsg(socket, &mut buffers, &mut ancillary, RecvFlags::empty())?;
    ensure!(received.bytes == 4, "only workers may start this command");
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    for fd in &fds {
        fcntl_setfd(fd, FdFlags::CLOEXEC).context("cannot hide a descriptor from programs")?;
    }
    let Ok([reports, stdin, stdout, stderr]) = <[OwnedFd; 4]>::try_from(fds) else {
        bail!("only workers may start this command: they send four descriptors");
    };
    let length = u32::from_le_bytes(announced);
    ensure!(
        length <= SPEC_BYTES_MAX,
        "{length} bytes were announced; the limit is {SPEC_BYTES_MAX}"
    );
    Ok((ProgramPipes { reports, stdin, stdout, stderr }, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn ends_of_pipes_travel_over_a_socket() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (_reader, stdin_writer) = std::io::pipe().unwrap();
        let (mut stdout_reader, stdout) = std::io::pipe().unwrap();
        let (stdin, reports) = (std::io::pipe().unwrap().0, std::io::pipe().unwrap().1);
        let stderr = OwnedFd::from(stdin_writer);
        let ends = ProgramPipes {
            reports: reports.into(),
            stdin: stdin.into(),
            stdout: stdout.into(),
            stderr,
        };
        send_ends(&ours, &ends, 77).unwrap();
        drop(ends);
        let (received, length) = receive_ends(&theirs).unwrap();
        assert_eq!(length, 77);
        let mut file = std::fs::File::from(received.stdout);
        file.write_all(b"result").unwrap();
        drop(file);
        let mut text = String::new();
        stdout_reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "result");
    }

    #[test]
    fn what_no_worker_has_sent_is_refused() {
        for bytes in [&b""[..], b"xx", b"xxxx"] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            ours.write_all(bytes).unwrap();
            drop(ours);
            let told = receive_ends(&theirs).unwrap_err().to_string();
            assert!(told.contains("only workers"), "{told}");
        }
    }
}

//! Names of signals.

use rustix::process::Signal;

/// The name of the signal with this number.
pub(crate) fn name(number: i32) -> String {
    const NAMES: &[(Signal, &str)] = &[
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::SYS, "SIGSYS"),
    ];
    let known = NAMES.iter().find(|(signal, _)| signal.as_raw() == number);
    known.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn signals_are_named() {
        let names: Vec<_> = [9, 11, 15, 64].map(super::name).into();
        assert_eq!(names, ["SIGKILL", "SIGSEGV", "SIGTERM", "signal 64"]);
    }
}

//! The identity of a worker in this process.

use crate::chance::system_random;
use longhaul_core::task::WorkerIdentity;

/// The identity of a worker in this process, with a random instance.
pub(crate) fn of_this_process(name: &str, label: &str) -> WorkerIdentity {
    let mut identity = WorkerIdentity::named(name);
    identity.host = host_name();
    identity.process = Some(std::process::id());
    env!("CARGO_PKG_VERSION").clone_into(&mut identity.version);
    identity.label = label.to_owned();
    identity.instance = format!("{:016x}", system_random() >> 64);
    identity.bounded()
}

/// The machine's name from the kernel, or from the environment if there is no such file.
fn host_name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let environment =
        || ["HOSTNAME", "COMPUTERNAME"].iter().find_map(|name| std::env::var(name).ok());
    let name = kernel.filter(|name| !name.trim().is_empty()).or_else(environment);
    name.unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Earlier, the process and machine of a task were unknown: heartbeats and entries named a
    /// random number.
    #[test]
    fn a_worker_says_who_it_is_and_is_read_back() {
        let identity = of_this_process("mailer-1", "blue");
        assert_eq!(identity.process, Some(std::process::id()));
        assert_eq!((identity.name.as_str(), identity.label.as_str()), ("mailer-1", "blue"));
        assert_eq!(identity.instance.len(), 16);
        let restarted = of_this_process("mailer-1", "blue");
        assert_ne!(identity.instance, restarted.instance, "it has the same name, and is another");
        assert_eq!(WorkerIdentity::read(&identity.content()), Some(identity.clone()));
        let shown = identity.shown().unwrap();
        assert_eq!((shown.process, shown.version.as_str()), (None, ""));
        assert_eq!(
            (shown.name, shown.host, shown.label),
            (identity.name, identity.host, identity.label)
        );
    }
}

//! A shell that starts and kills the broker, on a small volume of its own if the system allows
//! that.

use crate::broker::RUN;
use crate::broker::client::PATIENCE;
use crate::support::skip;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// Large enough for a round's writes, small enough to be filled quickly.
const VOLUME_MB: u32 = 64;

/// A shell that executes lines, and the output of the shell and the broker.
pub(crate) struct Ground {
    shell: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
    volume: PathBuf,
    /// Whether it has its own volume, which may be filled.
    pub(crate) is_small: bool,
}

/// A running broker.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) admin: String,
    /// The log before it was ready.
    pub(crate) said: String,
}

impl Ground {
    /// Mounts the volume on this directory. It lives as long as the shell, in a name space of its
    /// own.
    pub(crate) fn new(volume: &Path) -> Self {
        let script = format!("mount -t tmpfs -o size={VOLUME_MB}m none \"$0\" && exec sh");
        let mut own = Command::new("unshare");
        own.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).arg(volume);
        let mut ground = Self::spawn(own, volume, true).unwrap_or_else(|| {
            skip("the disk is not filled, because no volume can be made here");
            Self::spawn(Command::new("sh"), volume, false).expect("a shell")
        });
        // Merge all output into one stream of lines.
        ground.order("exec 2>&1 && cd \"$HERE\"");
        ground
    }

    fn spawn(mut command: Command, volume: &Path, is_small: bool) -> Option<Self> {
        command.env("HERE", volume).env("NO_COLOR", "1").env("RUST_LOG", "info");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut shell = command.spawn().ok()?;
        let orders = shell.stdin.take()?;
        let (sender, lines) = channel();
        let said: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(shell.stdout.take()?), Box::new(shell.stderr.take()?)];
        for stream in said {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let lines = BufReader::new(stream).lines().map_while(Result::ok);
                // Sending fails when the receiver is gone.
                lines.take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
            });
        }
        let mut ground = Self { shell, orders, lines, volume: volume.to_owned(), is_small };
        writeln!(ground.orders, "echo here").ok()?;
        loop {
            match ground.lines.recv_timeout(PATIENCE) {
                Ok(line) if line == "here" => return Some(ground),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    /// Executes a command in the shell, and returns the output up to its end.
    pub(crate) fn order(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}\necho done-with-it").expect("a shell that listens");
        self.until(|line| line == "done-with-it")
    }

    fn until(&self, mut is_last: impl FnMut(&str) -> bool) -> String {
        let mut said = String::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|error| panic!("{error} after: {said}"));
            if is_last(&line) {
                return said;
            }
            said.push_str(&line);
            said.push('\n');
        }
    }

    /// Starts the broker with these options of `ulimit`.
    pub(crate) fn start(&mut self, limits: &str) -> Running {
        let program = env!("CARGO_BIN_EXE_longhaul");
        let options = format!("{} --data data", RUN.join(" "));
        writeln!(self.orders, "(ulimit {limits} && exec '{program}' {options}) & pid=$!")
            .expect("a shell that listens");
        let mut ready = None;
        let said = self.until(|line| {
            ready = addresses(line);
            assert!(!line.starts_with("error:"), "{line}");
            ready.is_some()
        });
        let (address, admin) = ready.expect("the line that ended the wait");
        Running { address, admin, said }
    }

    /// Sends `KILL` or `TERM`, and waits for the end. Returns the output and the exit status.
    pub(crate) fn end(&mut self, signal: &str) -> (String, String) {
        writeln!(self.orders, "kill -{signal} $pid; wait $pid; echo ended-with $?")
            .expect("a shell that listens");
        let mut status = String::new();
        let said = self.until(|line| {
            status = line.strip_prefix("ended-with ").unwrap_or_default().to_owned();
            !status.is_empty()
        });
        (said, status)
    }

    /// Fills the rest of the volume, if it is its own.
    pub(crate) fn fill(&mut self) {
        if self.is_small {
            self.order("cat /dev/zero > ballast 2> /dev/null");
        }
    }

    /// Frees the space.
    pub(crate) fn drain(&mut self) {
        self.order("rm -f ballast");
    }

    /// A second process on the same directory would overwrite confirmed data.
    pub(crate) fn refuses_a_second(&mut self) {
        let program = env!("CARGO_BIN_EXE_longhaul");
        let options = format!("{} --data data", RUN.join(" "));
        let said = self.order(&format!("'{program}' {options}; echo status $?"));
        assert!(said.contains("is in use by process") && !said.contains("status 0"), "{said}");
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // The recent output helps to find out why a test failed, and no broker is left behind.
        if std::thread::panicking() {
            writeln!(
                self.orders,
                "df -k .; ls -l . data data/log; ls /proc/$pid/fd | wc -l; echo that-is-all"
            )
            .ok();
            let said = std::iter::from_fn(|| self.lines.recv_timeout(PATIENCE).ok());
            said.take_while(|line| line != "that-is-all").for_each(|line| println!("{line}"));
        }
        writeln!(self.orders, "kill -KILL $pid; exit").ok();
        self.shell.wait().ok();
        std::fs::remove_dir_all(&self.volume).ok();
    }
}

/// The addresses in the line that reports readiness.
pub(crate) fn addresses(line: &str) -> Option<(SocketAddr, String)> {
    let after = |prefix: &str| line.split_once(prefix)?.1.split('"').next();
    let (clients, admin) = (after("broker=\"pulsar://")?, after("admin=\"http://")?);
    Some((clients.parse().ok()?, admin.to_owned()))
}

/// Calls the admin interface. Returns the status; 0 without an answer.
pub(crate) fn call(admin: &str, method: &str, path: &str, body: &[u8]) -> u16 {
    let answer = ask(admin, method, path, body).unwrap_or_default();
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
}

/// Gets JSON from this path.
pub(crate) fn get(admin: &str, path: &str) -> serde_json::Value {
    let answer = ask(admin, "GET", path, b"").unwrap();
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
    serde_json::from_str(body.unwrap_or_default()).unwrap_or_else(|_| panic!("{answer}"))
}

fn ask(admin: &str, method: &str, path: &str, body: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(admin)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n")?;
    write!(stream, "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n")?;
    stream.write_all(body)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

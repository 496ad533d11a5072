//! Where the broker runs: a shell that starts and kills it, on a small volume of its own where the
//! system lets a test make one.

use crate::broker::RUN;
use crate::broker::client::PATIENCE;
use crate::support::skip;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// Large enough for what a round writes, small enough to be filled in a moment.
const VOLUME_MB: u32 = 64;

/// A shell that obeys line by line, and everything that it and the broker say.
pub(crate) struct Ground {
    shell: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
    volume: PathBuf,
    /// Whether its volume is one of its own, so that it may be filled.
    pub(crate) is_small: bool,
}

/// A broker that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) admin: String,
    /// What it said before it was ready.
    pub(crate) said: String,
}

impl Ground {
    /// Makes the volume in this directory. It lives as long as the shell, which has a name space
    /// for it.
    pub(crate) fn new(volume: &Path) -> Self {
        let script = format!("mount -t tmpfs -o size={VOLUME_MB}m none \"$0\" && exec sh");
        let mut own = Command::new("unshare");
        own.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).arg(volume);
        let mut ground = Self::spawn(own, volume, true).unwrap_or_else(|| {
            skip("the disk is not filled, because no volume can be made here");
            Self::spawn(Command::new("sh"), volume, false).expect("a shell")
        });
        // What is said comes in one line after the other, whoever says it.
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
                // Whoever listened has gone when nothing can be sent.
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

    /// Has the shell do this, and says what was said until it was done.
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

    /// Starts the broker, with these options of `ulimit`.
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

    /// `KILL` or `TERM`, and the end of the process. Says what it said, and its exit status.
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

    /// Takes all that is left of the volume. One that is no volume of its own is left alone.
    pub(crate) fn fill(&mut self) {
        if self.is_small {
            self.order("cat /dev/zero > ballast 2> /dev/null");
        }
    }

    /// Gives it back.
    pub(crate) fn drain(&mut self) {
        self.order("rm -f ballast");
    }

    /// Another process in the same directory would write over what the first one confirmed.
    pub(crate) fn refuses_a_second(&mut self) {
        let program = env!("CARGO_BIN_EXE_longhaul");
        let options = format!("{} --data data", RUN.join(" "));
        let said = self.order(&format!("'{program}' {options}; echo status $?"));
        assert!(said.contains("is in use by process") && !said.contains("status 0"), "{said}");
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // What it has said since helps whoever reads why a test failed, which leaves no broker
        // behind.
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

/// From the line that says that it is ready.
fn addresses(line: &str) -> Option<(SocketAddr, String)> {
    let after = |prefix: &str| line.split_once(prefix)?.1.split('"').next();
    let (clients, admin) = (after("broker=\"pulsar://")?, after("admin=\"http://")?);
    Some((clients.parse().ok()?, admin.to_owned()))
}

/// A call of the admin interface. Its status; 0 when there was no answer.
pub(crate) fn call(admin: &str, method: &str, path: &str, body: &[u8]) -> u16 {
    let answer = ask(admin, method, path, body).unwrap_or_default();
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
}

/// What is at this path, as JSON.
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

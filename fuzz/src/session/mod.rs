//! What must hold of the session's machine whatever its broker says: the input is a script of what users do, of time that passes
//! and of what a broker says that keeps to no rule.
//!
//! - `script`: bytes as choices.
//! - `users`, `broker`: what is called, and what is said.
//! - `bench`: the machine and the bytes to it and from it, one frame at a time.
//! - `model`: what may and what must come of it. It reads both streams with the wire crate, knows Pulsar's protocol and the
//!   promises of the machine, and nothing of how that one keeps them.
//!
//! What is checked:
//! - Every token comes back exactly once, and with what the broker has said about it: a receipt only for what it has acknowledged,
//!   an answer only for what was asked.
//! - A message is written once, in order, with sequence ids that go on.
//! - Of a consumer no more is asked for than its user has asked for and the broker owes; what is delivered is what was said, if it was
//!   asked for: otherwise the consumer ends. A batch has no more messages than its bytes may hold.
//! - Where a topic goes is told as the broker has said it, once for what was open on it.
//! - What is opened is closed or ended; what comes of an end is said once.
//! - What waits to be written does not grow by what a broker says: one PONG answers any number of PINGs.
//! - Time goes on: what is due is done, and a connection whose broker is silent ends. Then nothing more is written.

mod bench;
mod broker;
mod model;
mod script;
mod users;

use bench::Bench;
use longhaul_session::machine::call::ConnectionCall;
use longhaul_wire::frame;
use longhaul_wire::messages::CommandConnected;
use script::Script;
use std::time::Duration;

/// Times a frame is said again at once, at most.
const ECHOES_MAX: usize = 64;
/// Steps of a script; more say nothing new.
const STEPS_MAX: usize = 2_000;
/// Bits of an input's first byte: the broker has not taken the connection in yet, what is to be written waits until it is asked for,
/// in the end the broker is silent instead of gone, and frames come in two parts.
const GREETING: u8 = 1;
const LAZY: u8 = 2;
const SILENT: u8 = 4;
const CUT: u8 = 8;

/// Plays a script.
///
/// # Panics
/// When something does not hold.
pub fn session(input: &[u8]) {
    let mut script = Script(input);
    let mode = script.byte();
    let mut bench = Bench::new(mode & LAZY != 0, mode & CUT != 0);
    if mode & GREETING == 0 {
        bench.drain();
        let connected =
            CommandConnected { protocol_version: Some(21), ..CommandConnected::default() };
        bench.say(&broker::plain(connected));
    }
    for _ in 0..STEPS_MAX {
        if script.is_over() || bench.is_over() {
            break;
        }
        step(&mut script, &mut bench);
    }
    bench.finish(mode & SILENT != 0);
}

fn step(script: &mut Script<'_>, bench: &mut Bench) {
    match script.byte() {
        0..=99 => users::act(script, bench),
        100..=219 => {
            if let Some(said) = broker::say(script, bench) {
                bench.say(&said);
            }
        }
        220..=223 => {
            let echo = bench.last_said.clone();
            for _ in 0..script.below(ECHOES_MAX) {
                bench.say(&echo);
            }
        }
        224..=231 => bench.transmit(),
        232..=235 => bench.drain(),
        236..=237 => bench.drain_some(script.below(256) * 256),
        238..=245 => {
            let pause = script.one([1, 10, 1_000, 3_000, 8_000, 29_999, 30_000, 59_999, 60_000]);
            bench.pass(Duration::from_millis(pause), script.chance(2));
        }
        246..=251 => bench.ring(),
        252 => {
            // A head alone, and what follows is taken for its frame.
            let size = u32::try_from(script.below(256)).expect("a byte");
            bench.say(&size.to_be_bytes());
        }
        253 => {
            let count = script.below(32);
            bench.say(script.bytes(count));
        }
        254 if script.chance(16) => bench.fail(),
        _ => {
            let data = users::credentials(script);
            bench.call(ConnectionCall::Credentials(data.map(|data| data.map(Into::into))));
        }
    }
}

/// Reads one frame, if it is whole; says how many bytes it takes.
fn next_frame(
    stream: &bytes::BytesMut,
    message_bytes_max: usize,
) -> Result<Option<(frame::Frame, usize)>, frame::FrameError> {
    let mut rest = stream.clone();
    let found = frame::decode(&mut rest, message_bytes_max)?;
    Ok(found.map(|frame| (frame, stream.len() - rest.len())))
}

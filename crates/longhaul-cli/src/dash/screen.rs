//! Takes the terminal, and gives it back however the program ends: in order, by an error, or by a
//! panic.

use ratatui::DefaultTerminal;
use std::io;
use std::ops::{Deref, DerefMut};

/// The terminal while it is ours.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    /// # Errors
    /// When the terminal cannot be asked for its size, or does not take what is written.
    pub(crate) fn open() -> io::Result<Self> {
        // A panic gives the terminal back before it is told, so that it can be read.
        let opened = ratatui::try_init();
        if opened.is_err() {
            ratatui::restore();
        }
        Ok(Self { terminal: opened? })
    }
}

impl Deref for Screen {
    type Target = DefaultTerminal;

    fn deref(&self) -> &DefaultTerminal {
        &self.terminal
    }
}

impl DerefMut for Screen {
    fn deref_mut(&mut self) -> &mut DefaultTerminal {
        &mut self.terminal
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // After a panic that was done before it was told. Once more would put the cursor back to
        // where it was, and what is written next over the message.
        if !std::thread::panicking() {
            ratatui::restore();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pty_process::Size;
    use pty_process::blocking::{Command, open};
    use rustix::termios::{LocalModes, tcgetattr};
    use std::io::Read;

    /// Set where this program is the copy of itself that is to panic.
    const PANICS: &str = "LONGHAUL_TEST_PANICS";

    /// A shell that echoes nothing and has no cursor is all that is left of a program that dies
    /// with the terminal in its hands.
    #[test]
    fn a_panic_gives_the_terminal_back_before_it_is_told() {
        if std::env::var_os(PANICS).is_some() {
            let mut screen = Screen::open().unwrap();
            screen.draw(|frame| frame.render_widget("drawn", frame.area())).unwrap();
            panic!("planted");
        }
        let (mut pty, pts) = open().unwrap();
        pty.resize(Size::new(24, 80)).unwrap();
        let this = std::env::current_exe().unwrap();
        let name = "dash::screen::tests::a_panic_gives_the_terminal_back_before_it_is_told";
        let command = Command::new(this).args([name, "--exact", "--nocapture"]).env(PANICS, "1");
        // A stack would push the message off the screen.
        let command = command.env("RUST_BACKTRACE", "0");
        let mut child = command.spawn(pts).unwrap();
        let (mut terminal, mut piece) = (vt100::Parser::default(), vec![0; 4_096]);
        let (mut was_taken, mut written) = (false, Vec::new());
        // A terminal that nobody has open any more is an error on Linux.
        while let Ok(length @ 1..) = pty.read(&mut piece) {
            for byte in &piece[..length] {
                terminal.process(&[*byte]);
                was_taken |= terminal.screen().alternate_screen();
            }
            written.extend_from_slice(&piece[..length]);
        }
        assert!(!child.wait().unwrap().success());
        let screen = terminal.screen();
        assert!(was_taken && String::from_utf8_lossy(&written).contains("drawn"));
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
        assert!(screen.contents().contains("planted"), "{}", screen.contents());
        let modes = tcgetattr(&pty).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
    }
}

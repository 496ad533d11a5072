//! Takes the terminal, and restores it however the program ends: normally, by an error, or by a
//! panic.

use ratatui::DefaultTerminal;
use std::io;
use std::ops::{Deref, DerefMut};

/// The terminal while the dashboard uses it.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    /// # Errors
    /// When the terminal's size is unavailable, or it cannot be written to.
    pub(crate) fn open() -> io::Result<Self> {
        // A panic restores the terminal before its message is printed, so that it is readable.
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
        // After a panic the terminal is already restored. Restoring it again would move the cursor
        // back, and later output would overwrite the message.
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

    /// Set in the copy of this program that panics.
    const PANICS: &str = "LONGHAUL_TEST_PANICS";

    /// A program that dies without restoring the terminal leaves a shell without echo and cursor.
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
        // A backtrace would push the message off the screen.
        let command = command.env("RUST_BACKTRACE", "0");
        let mut child = command.spawn(pts).unwrap();
        let (mut terminal, mut piece) = (vt100::Parser::default(), vec![0; 4_096]);
        let (mut was_taken, mut written) = (false, Vec::new());
        // Reading a terminal that nobody has open is an error on Linux.
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

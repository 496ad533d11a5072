//! The windows of connections: all of them share the room for deliveries that wait to be sent.

use super::BrokerMachine;
use super::effect::MachineEffect;

/// A connection has at least this part of its window, so that each one goes on.
const PARTS_MAX: u64 = 64;

impl BrokerMachine {
    /// Divides the room anew.
    pub(super) fn resize_windows(&mut self) {
        let window = self.window();
        let connected = self.sessions.iter().filter(|(_, session)| session.role.is_some());
        let changed = connected.filter(|(_, session)| session.window != window);
        for conn in changed.map(|(&conn, _)| conn).collect::<Vec<_>>() {
            self.set_window(conn);
            self.wake(conn);
        }
    }

    /// Gives a connection its window.
    pub(super) fn set_window(&mut self, conn: u64) {
        let window = self.window();
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        if std::mem::replace(&mut session.window, window) != window {
            self.effects.push(MachineEffect::Window(conn, window));
        }
    }

    /// The window of each connection. Powers of two: most connections come and go without a change
    /// for the others.
    fn window(&self) -> u64 {
        let (window, connections) = (self.settings.window_bytes, self.sessions.len() as u64);
        let each = self.settings.unsent_bytes_max / connections.max(1).next_power_of_two();
        each.min(window).max(window / PARTS_MAX).max(1)
    }
}

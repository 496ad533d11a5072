//! Quotas of roles, and the windows of connections: all connections share the room for deliveries
//! that wait to be sent, and so do those of a role with a quota for it.

use super::BrokerMachine;
use super::effect::MachineEffect;
use super::pace::PublishPace;
use crate::auth::{AuthRole, RoleQuota};
use crate::policies::PublishRate;
use std::collections::HashMap;

/// A connection has at least this part of its window, so that each one goes on.
const PARTS_MAX: u64 = 64;

/// A connected role with a quota.
#[derive(Debug)]
struct RoleUse {
    quota: RoleQuota,
    connections: u64,
    pace: PublishPace,
}

/// The connected roles that have a quota, by name.
#[derive(Debug, Default)]
pub(super) struct RoleUses(HashMap<String, RoleUse>);

impl RoleUses {
    pub(super) fn quota(&self, role: &str) -> Option<&RoleQuota> {
        self.0.get(role).map(|known| &known.quota)
    }

    /// Counts a connection of a role, and returns how far the role is ahead of its rate, in ms.
    fn admit(
        &mut self,
        role: &AuthRole,
        quota: RoleQuota,
        former: Option<PublishPace>,
        up_ms: u64,
    ) -> u64 {
        let new = RoleUse { quota, connections: 0, pace: former.unwrap_or_default() };
        let known = self.0.entry(role.name.clone()).or_insert(new);
        known.connections += 1;
        known.pace.ahead_ms(up_ms)
    }

    /// Counts a publish, and returns how far the role is ahead of its rate, in ms.
    fn take(&mut self, role: &str, up_ms: u64, messages: u32, bytes: usize) -> u64 {
        let Some(known) = self.0.get_mut(role) else { return 0 };
        // A rate of 0 is none, which is not what a quota of 0 means.
        let rate = |limit: Option<u64>| {
            limit.map_or(0, |limit| limit.max(1).try_into().unwrap_or(i64::MAX))
        };
        let (messages_rate, bytes_rate) =
            (rate(known.quota.messages_per_second), rate(known.quota.bytes_per_second));
        let rate = PublishRate { messages: messages_rate, bytes: bytes_rate };
        known.pace.take(rate, up_ms, messages, bytes)
    }
}

impl BrokerMachine {
    /// Notes a publish of the connection's role, and that it is ahead of the role's rate.
    pub(super) fn take_of_role(&mut self, conn: u64, messages: u32, bytes: usize) {
        if self.roles.0.is_empty() {
            return;
        }
        let role = self.sessions.get(&conn).and_then(|session| session.role.as_ref());
        let ahead_ms = role.map_or(0, |role| self.roles.take(&role.name, self.up, messages, bytes));
        self.note_ahead(conn, ahead_ms);
    }

    /// Gives a connection that has just logged in its window.
    pub(super) fn welcome(&mut self, conn: u64, role: &AuthRole) {
        if let Some(quota) = self.auth.as_ref().and_then(|auth| auth.quota(role)) {
            // A new connection is no way around the rate.
            let ahead_ms = self.roles.admit(role, quota, None, self.up);
            self.note_ahead(conn, ahead_ms);
        }
        self.set_window(conn, self.window_of(role));
    }

    /// Divides the room anew. Roles that are gone are forgotten as soon as they are not ahead of
    /// their rates.
    pub(super) fn resize_windows(&mut self) {
        let mut former = std::mem::take(&mut self.roles.0);
        let roles = self.sessions.values().filter_map(|session| session.role.as_ref());
        for role in roles {
            let Some(quota) = self.auth.as_ref().and_then(|auth| auth.quota(role)) else {
                continue;
            };
            let pace = former.remove(&role.name).map(|known| known.pace);
            self.roles.admit(role, quota, pace, self.up);
        }
        former.retain(|_, known| {
            known.connections = 0;
            known.pace.ahead_ms(self.up) > 0
        });
        self.roles.0.extend(former);
        let windows = self.sessions.iter().filter_map(|(&conn, session)| {
            let window = self.window_of(session.role.as_ref()?);
            (window != session.window).then_some((conn, window))
        });
        for (conn, window) in windows.collect::<Vec<_>>() {
            self.set_window(conn, window);
            self.wake(conn);
        }
    }

    /// The window of a connection of this role.
    fn window_of(&self, role: &AuthRole) -> u64 {
        let (window, connections) = (self.settings.window_bytes, self.sessions.len() as u64);
        let own = share(window, self.settings.unsent_bytes_max, connections);
        let known = self.roles.0.get(&role.name);
        let of_role = known.and_then(|known| Some((known.quota.unsent_bytes?, known.connections)));
        of_role.map_or(own, |(all, connections)| own.min(share(window, all, connections)))
    }

    fn set_window(&mut self, conn: u64, window: u64) {
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        if std::mem::replace(&mut session.window, window) != window {
            self.effects.push(MachineEffect::Window(conn, window));
        }
    }
}

/// The window of each of so many connections that share the room. Powers of two: most connections
/// come and go without a change for the others.
fn share(window: u64, all: u64, connections: u64) -> u64 {
    let each = all / connections.max(1).next_power_of_two();
    each.min(window).max(window / PARTS_MAX).max(1)
}

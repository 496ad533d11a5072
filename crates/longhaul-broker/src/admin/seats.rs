//! Limits the connections of the admin interface. Pure, except for a lock.
//!
//! Monitoring must always be able to connect. If all seats are taken, a new connection replaces
//! the one that has waited longest for its client: for a first request, for the rest of a request,
//! or for the next request. A connection whose request is being answered keeps its seat.

use super::serve::Enter;
use crate::throttle::WarningThrottle;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

/// The seats of all ports.
pub(crate) struct Seats {
    enter: Enter,
    taken: Mutex<SeatTable>,
}

#[derive(Debug, Default)]
struct SeatTable {
    last: u64,
    by: HashMap<u64, Guest>,
    closed: WarningThrottle,
}

#[derive(Debug)]
struct Guest {
    /// Since when it has waited for its client; `None` while its request is answered.
    waits_since: Option<Instant>,
    leave: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

/// The seat of one connection. Dropping it frees the seat.
pub(super) struct Seat {
    seats: Arc<Seats>,
    number: u64,
    leave: CancellationToken,
}

impl Seats {
    /// As many seats as `enter` allows.
    pub(crate) fn new(enter: Enter) -> Arc<Self> {
        Arc::new(Self { enter, taken: Mutex::default() })
    }

    /// A seat for a new connection. `None` if the requests of all others are being answered.
    pub(super) fn take(self: &Arc<Self>, now: Instant) -> Option<Seat> {
        let mut taken = self.lock();
        let mut permit = (self.enter)();
        if permit.is_none()
            && let Some(closed) = taken.closed.note(now)
        {
            tracing::warn!(
                closed,
                "the admin interface has reached its limit of connections: a new one replaces the one that has waited longest for its client"
            );
        }
        while permit.is_none() && taken.free() {
            permit = (self.enter)();
        }
        let permit = permit?;
        taken.last += 1;
        let (number, leave) = (taken.last, CancellationToken::new());
        let guest = Guest { waits_since: Some(now), leave: leave.clone(), _permit: permit };
        taken.by.insert(number, guest);
        drop(taken);
        Some(Seat { seats: Arc::clone(self), number, leave })
    }

    fn lock(&self) -> MutexGuard<'_, SeatTable> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Seats {
    /// Waits until this many requests are being answered.
    pub(super) async fn all_are_asked(&self, count: usize) {
        let asked = || self.lock().by.values().filter(|guest| guest.waits_since.is_none()).count();
        while asked() < count {
            tokio::task::yield_now().await;
        }
    }
}

impl SeatTable {
    /// Closes the connection that has waited longest. Returns whether there was one.
    fn free(&mut self) -> bool {
        let waiting = self
            .by
            .iter()
            .filter_map(|(&number, guest)| guest.waits_since.map(|since| (since, number)));
        let Some((_, number)) = waiting.min() else { return false };
        if let Some(guest) = self.by.remove(&number) {
            guest.leave.cancel();
        }
        true
    }
}

impl Seat {
    /// Notes that the connection's request is complete and is being answered. Returns whether the
    /// connection still has its seat.
    pub(super) fn is_asked(&self) -> bool {
        self.set(None)
    }

    /// Notes that the connection waits for its client again.
    pub(super) fn waits(&self, now: Instant) {
        self.set(Some(now));
    }

    fn set(&self, waits_since: Option<Instant>) -> bool {
        let mut taken = self.seats.lock();
        let guest = taken.by.get_mut(&self.number);
        guest.map(|guest| guest.waits_since = waits_since).is_some()
    }

    /// Waits until another connection gets this seat.
    pub(super) async fn is_lost(&self) {
        self.leave.cancelled().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().by.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::room;
    use super::*;
    use crate::clock;
    use std::time::Duration;

    #[test]
    fn who_waits_longest_makes_room_and_who_is_answered_stays() {
        let (seats, began) = (Seats::new(room(3)), clock::monotonic());
        let at = |s| began + Duration::from_secs(s);
        let is_lost = |seat: &Seat| seat.leave.is_cancelled();
        let [first, second, third] = [0, 1, 2].map(|s| seats.take(at(s)).unwrap());
        assert!(first.is_asked());
        let fourth = seats.take(at(3)).unwrap();
        assert_eq!([&first, &second, &third].map(is_lost), [false, true, false]);
        assert!(!second.is_asked(), "the place is another's");
        drop(second);
        first.waits(at(4));
        assert!(third.is_asked() && fourth.is_asked());
        let fifth = seats.take(at(5)).unwrap();
        assert!(is_lost(&first), "it waited from its answer on");
        assert!(fifth.is_asked());
        assert!(seats.take(at(6)).is_none(), "all are being answered");
        drop(third);
        assert!(seats.take(at(6)).is_some());
    }
}

//! How many messages the broker may send to a consumer.
//!
//! The broker counts messages but sends entries: a batch of ten uses one permit and leaves nine
//! owed, so `granted` may become negative. The broker may even send as many entries at once as
//! there are permits, whatever the size of their batches. So only the number of entries can be
//! enforced: each uses at least one permit.

use super::unpack::BODY_BYTES_MAX;

/// Bytes that may wait for a reader, including the bytes that its permits are expected to bring.
const WINDOW_BYTES: usize = 4 * 1024 * 1024;
/// Permits that a reader may have open. If they bring the largest messages after small ones, the
/// window is exceeded by that many messages: granted permits cannot be revoked.
const PERMITS_MAX: usize = 250;
/// Messages and bytes that a reader may take before it reports them.
pub(crate) const UNTOLD_MAX: usize = 250;
pub(crate) const UNTOLD_BYTES_MAX: usize = WINDOW_BYTES / 4;
/// Assumed size of a message before the first one arrives.
const MESSAGE_BYTES_FIRST: usize = 16 * 1024;
/// Bytes of bodies that may wait when a compressed entry is unpacked, including that entry: twice
/// the largest body.
const UNPACKED_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;
/// A broker adds up permits in an i32; after an overflow it would send nothing more.
const GRANTED_MAX: i64 = i32::MAX as i64;

/// The permits of one consumer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Messages that may still be sent, as the broker counts them.
    granted: i64,
    /// Entries that may still be sent: granted permits minus arrived entries.
    entries: u64,
    /// Messages that wait to be taken.
    queued: usize,
    queued_bytes: usize,
    want: Want,
}

#[derive(Clone, Copy, Debug)]
enum Want {
    /// Messages that were requested and have not arrived. Negative when a batch brought more; the
    /// surplus counts towards the next request.
    Exact(i64),
    /// As many as there is room for.
    Window(Window),
}

#[derive(Clone, Copy, Debug)]
struct Window {
    max: usize,
    /// Assumed size of a message in bytes: the largest of the recent ones, slowly decreasing.
    each: usize,
}

impl Flow {
    /// Delivers only requested messages.
    pub(super) const fn exact() -> Self {
        Self::new(Want::Exact(0))
    }

    /// Delivers ahead, up to this many messages.
    pub(super) fn window(max: u32) -> Self {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        Self::new(Want::Window(Window { max, each: MESSAGE_BYTES_FIRST }))
    }

    const fn new(want: Want) -> Self {
        Self { granted: 0, entries: 0, queued: 0, queued_bytes: 0, want }
    }

    pub(super) const fn request(&mut self, count: u32) {
        if let Want::Exact(wanted) = &mut self.want {
            *wanted = wanted.saturating_add(count as i64);
        }
    }

    /// Counts an arriving entry. Returns whether it was requested: a broker may send as many
    /// entries as it was granted permits.
    pub(super) const fn admit(&mut self) -> bool {
        let is_asked = self.entries > 0;
        self.entries = self.entries.saturating_sub(1);
        is_asked
    }

    /// Largest body, in bytes, that may be unpacked now.
    pub(super) const fn room_to_unpack(&self) -> usize {
        UNPACKED_BYTES_MAX.saturating_sub(self.queued_bytes)
    }

    /// Records an entry: `counted` messages as the broker counts, `delivered` messages that were
    /// handed on, and `bytes` of bodies.
    pub(super) fn received(&mut self, counted: u32, delivered: usize, bytes: usize) {
        self.granted -= i64::from(counted);
        self.queued += delivered;
        self.queued_bytes += bytes;
        match &mut self.want {
            Want::Exact(wanted) => {
                let delivered = i64::try_from(delivered).unwrap_or(i64::MAX);
                *wanted = wanted.saturating_sub(delivered);
            }
            Want::Window(window) => {
                if let Some(each) = bytes.checked_div(delivered) {
                    window.each = each.max((window.each * 7 + each) / 8);
                }
            }
        }
    }

    pub(super) const fn taken(&mut self, count: usize, bytes: usize) {
        self.queued = self.queued.saturating_sub(count);
        self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
    }

    /// Permits to grant now; they count as granted.
    pub(super) fn grant(&mut self) -> Option<u32> {
        let missing = match &self.want {
            // An entry that had no room to be unpacked comes again when there is room.
            Want::Exact(_) if self.queued_bytes > UNPACKED_BYTES_MAX / 2 => 0,
            Want::Exact(wanted) => wanted.saturating_sub(self.granted),
            Want::Window(window) => {
                let room = window.room(self.queued, self.queued_bytes);
                let room = i64::try_from(room).unwrap_or(i64::MAX);
                // Not after every message: a FLOW command costs as much as a message.
                if self.granted > room / 2 { 0 } else { room - self.granted }
            }
        };
        let missing = missing.min(GRANTED_MAX).min(GRANTED_MAX.saturating_sub(self.granted));
        let missing = u32::try_from(missing.max(0)).unwrap_or_default();
        self.granted += i64::from(missing);
        self.entries += u64::from(missing);
        (missing > 0).then_some(missing)
    }
}

impl Window {
    /// Messages that may be on their way while these messages and bytes wait.
    fn room(&self, queued: usize, queued_bytes: usize) -> usize {
        let by_bytes = WINDOW_BYTES.saturating_sub(queued_bytes) / self.each.max(1);
        let room = self.max.saturating_sub(queued).min(by_bytes).min(PERMITS_MAX);
        // A message above the limit comes alone. Messages that count as waiting may already be
        // taken by a reader that reports them later.
        let may_be_taken = queued < UNTOLD_MAX && queued_bytes < UNTOLD_BYTES_MAX;
        if may_be_taken { room.max(1) } else { room }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that has taken all messages may report it late: until then one more message may
    /// come, and then none.
    #[test]
    fn one_message_comes_where_what_waits_may_be_taken() {
        let window = Window { max: UNTOLD_MAX, each: WINDOW_BYTES };
        for (queued, bytes, room) in [
            (0, 0, 1),
            (UNTOLD_MAX - 1, UNTOLD_BYTES_MAX - 1, 1),
            (UNTOLD_MAX, 0, 0),
            (1, UNTOLD_BYTES_MAX, 0),
        ] {
            assert_eq!(window.room(queued, bytes), room, "{queued} messages, {bytes} bytes");
        }
    }

    /// Otherwise an entry without room to be unpacked would be sent and returned again and again.
    #[test]
    fn nothing_is_granted_while_more_than_the_largest_body_waits() {
        for (waiting, granted) in [(BODY_BYTES_MAX, Some(1)), (BODY_BYTES_MAX + 1, None)] {
            let mut flow = Flow::exact();
            flow.received(1, 1, waiting);
            flow.request(1);
            flow.granted = 0;
            flow.want = Want::Exact(1);
            assert_eq!(flow.grant(), granted, "{waiting} bytes");
        }
    }

    #[test]
    fn a_window_is_filled_up_at_its_half_and_bounded_in_bytes() {
        let mut flow = Flow::window(100);
        assert_eq!(flow.grant(), Some(100));
        flow.received(40, 40, 4_000);
        flow.taken(40, 4_000);
        assert_eq!(flow.grant(), None);
        flow.received(20, 20, 2_000);
        flow.taken(20, 2_000);
        assert_eq!(flow.grant(), Some(60));
        // Large messages shrink the window; nothing is granted while they wait.
        for _ in 0..4 {
            flow.received(10, 10, 10 * 1024 * 1024);
        }
        assert_eq!(flow.grant(), None);
        flow.received(60, 60, 60 * 1024 * 1024);
        assert_eq!(flow.grant(), None);
        flow.taken(100, 100 * 1024 * 1024);
        assert!(matches!(flow.grant(), Some(1..10)));
    }

    /// A request for the maximum number of messages granted 4,294,967,295 permits, which a broker
    /// reads as -1 and adds to its count.
    #[test]
    fn permits_stay_below_what_a_broker_can_count() {
        let max = i32::MAX.unsigned_abs();
        let mut flow = Flow::exact();
        flow.request(u32::MAX);
        assert_eq!((flow.grant(), flow.grant()), (Some(max), None));
        flow.received(1, 1, 0);
        assert_eq!((flow.grant(), flow.granted), (Some(1), GRANTED_MAX));
        // The debt is larger than the maximum, so the maximum is granted.
        flow.received(u32::MAX, 0, 0);
        assert_eq!(flow.grant(), Some(max));
    }
}

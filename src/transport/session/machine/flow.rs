//! How many messages a consumer may be sent.
//!
//! The broker counts messages but sends entries: a batch of ten goes out for one permit and leaves nine owed, so what is granted may
//! be negative here and there.

/// Bytes that may wait to be taken by a reader, and that its permits may bring if messages go on as they are.
const WINDOW_BYTES: usize = 4 * 1024 * 1024;
/// Permits that a reader may have open. Should all of them bring the largest messages where small ones had come before, the window
/// is exceeded by so many of those: permits that are granted cannot be taken back.
const PERMITS_MAX: usize = 250;
/// Messages and bytes of them that a reader may take before it says so.
pub(in crate::transport::session) const UNTOLD_MAX: usize = 250;
pub(in crate::transport::session) const UNTOLD_BYTES_MAX: usize = WINDOW_BYTES / 4;
/// What a message is taken for before any has come.
const MESSAGE_BYTES_FIRST: usize = 16 * 1024;

/// The permits of one consumer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Messages that may still be sent, as the broker counts.
    granted: i64,
    want: Want,
}

#[derive(Clone, Copy, Debug)]
enum Want {
    /// So many messages that were asked for and have not come. Below zero when a batch brought more than that: what it brought
    /// counts for what is asked for next.
    Exact(i64),
    /// As many as there is room for.
    Window(Window),
}

#[derive(Clone, Copy, Debug)]
struct Window {
    max: usize,
    /// What waits to be taken.
    queued: usize,
    queued_bytes: usize,
    /// Bytes that a message is taken for: those of the largest of the last ones, and slowly less.
    each: usize,
}

impl Flow {
    /// Delivers what is asked for.
    pub(super) const fn exact() -> Self {
        Self { granted: 0, want: Want::Exact(0) }
    }

    /// Delivers ahead, up to this many messages.
    pub(super) fn window(max: u32) -> Self {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let window = Window { max, queued: 0, queued_bytes: 0, each: MESSAGE_BYTES_FIRST };
        Self { granted: 0, want: Want::Window(window) }
    }

    pub(super) const fn request(&mut self, count: u32) {
        if let Want::Exact(wanted) = &mut self.want {
            *wanted = wanted.saturating_add(count as i64);
        }
    }

    /// An entry came: `counted` messages for the broker, of which `delivered` were handed on, with `bytes` of bodies.
    pub(super) fn received(&mut self, counted: u32, delivered: usize, bytes: usize) {
        self.granted -= i64::from(counted);
        match &mut self.want {
            Want::Exact(wanted) => {
                let delivered = i64::try_from(delivered).unwrap_or(i64::MAX);
                *wanted = wanted.saturating_sub(delivered);
            }
            Want::Window(window) => {
                window.queued += delivered;
                window.queued_bytes += bytes;
                if let Some(each) = bytes.checked_div(delivered) {
                    window.each = each.max((window.each * 7 + each) / 8);
                }
            }
        }
    }

    pub(super) const fn taken(&mut self, count: usize, bytes: usize) {
        if let Want::Window(window) = &mut self.want {
            window.queued = window.queued.saturating_sub(count);
            window.queued_bytes = window.queued_bytes.saturating_sub(bytes);
        }
    }

    /// Permits to grant now; they count as granted.
    pub(super) fn grant(&mut self) -> Option<u32> {
        let missing = match &self.want {
            Want::Exact(wanted) => wanted - self.granted,
            Want::Window(window) => {
                let room = i64::try_from(window.room()).unwrap_or(i64::MAX);
                // Not for every message taken: a FLOW costs as much as a message.
                if self.granted > room / 2 { 0 } else { room - self.granted }
            }
        };
        let missing = u32::try_from(missing.max(0)).unwrap_or(u32::MAX);
        self.granted += i64::from(missing);
        (missing > 0).then_some(missing)
    }
}

impl Window {
    fn room(&self) -> usize {
        let by_bytes = WINDOW_BYTES.saturating_sub(self.queued_bytes) / self.each.max(1);
        let room = self.max.saturating_sub(self.queued).min(by_bytes).min(PERMITS_MAX);
        // A message that is larger than all that may wait comes alone. What seems to wait may be taken, and its reader silent until
        // more has come.
        let may_be_taken = self.queued < UNTOLD_MAX && self.queued_bytes < UNTOLD_BYTES_MAX;
        if self.queued == 0 || may_be_taken { room.max(1) } else { room }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_what_is_asked_for_is_granted() {
        let mut flow = Flow::exact();
        assert_eq!(flow.grant(), None);
        flow.request(1);
        assert_eq!((flow.grant(), flow.grant()), (Some(1), None));
        flow.received(1, 1, 10);
        assert_eq!(flow.grant(), None);
    }

    /// A batch of ten for one permit: nine of them wait for whoever asks next, and nothing more comes before they are asked for.
    #[test]
    fn what_a_batch_brought_beyond_the_permits_counts_for_what_is_asked_next() {
        let mut flow = Flow::exact();
        flow.request(1);
        assert_eq!(flow.grant(), Some(1));
        flow.received(10, 10, 100);
        assert_eq!((flow.grant(), flow.granted), (None, -9));
        flow.request(5);
        assert_eq!((flow.grant(), flow.granted), (Some(5), -4));
        flow.request(5);
        assert_eq!((flow.grant(), flow.granted), (Some(5), 1));
    }

    #[test]
    fn messages_that_are_skipped_are_replaced() {
        let mut flow = Flow::exact();
        flow.request(2);
        assert_eq!(flow.grant(), Some(2));
        flow.received(5, 0, 0);
        assert_eq!(flow.grant(), Some(5));
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
}

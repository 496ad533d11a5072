//! Room in memory for the bodies that are being read: a part each for small and large reports on
//! leases, and for small and large other bodies. One caller has at most half of each. So keep-alives
//! fail neither for slow uploads or large results, nor for another caller.

use super::body::kib;
use super::rate::Bucket;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The largest small body: a keep-alive with the largest checkpoint in base64 and its log lines.
const SMALL_BYTES_MAX: usize = 128 * 1024;

/// The share of all room that each part has, but that for large other bodies, which has the rest.
const PART_SHARE: usize = 8;

/// All room, measured in the largest body: then each part has room for one.
pub(crate) const LARGEST_BODIES_MIN: usize = 4;

/// What a body is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyClass {
    /// A report on a lease.
    Report,
    Other,
}

/// One part of the room, in KiB.
#[derive(Debug)]
struct PartRoom {
    all: Arc<Semaphore>,
    /// The room of one caller.
    share: usize,
    /// Callers with a body in this part.
    callers: Mutex<HashMap<Bucket, Weak<Semaphore>>>,
}

/// The room for all bodies.
#[derive(Debug)]
pub(super) struct BodyRoom {
    small_reports: PartRoom,
    large_reports: PartRoom,
    small: PartRoom,
    large: PartRoom,
}

/// The room of one body, until it is dropped.
pub(super) type BodyPermit = [OwnedSemaphorePermit; 2];

impl PartRoom {
    /// Room for so many KiB. One caller has half of it, or at least that of the largest body.
    fn new(all: usize, largest: usize) -> Self {
        let permits = |count: usize| count.min(Semaphore::MAX_PERMITS);
        let share = permits((all / 2).max(largest).min(all));
        Self { all: Arc::new(Semaphore::new(permits(all))), share, callers: Mutex::default() }
    }

    fn take(&self, caller: Bucket, room: u32) -> Option<BodyPermit> {
        let own = self.of(caller);
        let own = own.try_acquire_many_owned(room).ok()?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(room).ok()?;
        Some([own, all])
    }

    /// The room of a caller.
    fn of(&self, caller: Bucket) -> Arc<Semaphore> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = callers.get(&caller).and_then(Weak::upgrade) {
            return own;
        }
        // Each body has at least 1 KiB of the room, which bounds how many callers are left.
        callers.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.share));
        callers.insert(caller, Arc::downgrade(&own));
        own
    }
}

impl BodyRoom {
    /// Room for so many bytes, and for bodies of up to `largest`.
    pub(super) fn new(all: usize, largest: usize) -> Self {
        let part = all / PART_SHARE;
        let reports = part.max(largest);
        let of = |bytes, largest| PartRoom::new(kib(bytes), kib(largest));
        Self {
            small_reports: of(part, SMALL_BYTES_MAX),
            large_reports: of(reports, largest),
            small: of(part, SMALL_BYTES_MAX),
            large: of(all - 2 * part - reports, largest),
        }
    }

    /// Room for a body of a caller; `None` if there is none now.
    pub(super) fn take(
        &self,
        caller: Bucket,
        class: BodyClass,
        bytes: usize,
    ) -> Option<BodyPermit> {
        let room = match (class, bytes <= SMALL_BYTES_MAX) {
            (BodyClass::Report, true) => &self.small_reports,
            (BodyClass::Report, false) => &self.large_reports,
            (BodyClass::Other, true) => &self.small,
            (BodyClass::Other, false) => &self.large,
        };
        room.take(caller, u32::try_from(kib(bytes)).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn token(name: &str) -> Bucket {
        Bucket::Token(name.to_owned())
    }

    /// How many bodies of this size a caller may send at once.
    fn bodies(room: &BodyRoom, caller: &str, class: BodyClass, bytes: usize) -> Vec<BodyPermit> {
        std::iter::from_fn(|| room.take(token(caller), class, bytes)).take(1_000).collect()
    }

    #[test]
    fn a_caller_has_half_of_the_room_and_large_bodies_none_of_that_of_small_ones() {
        let room = BodyRoom::new(512 * MIB, 32 * MIB);
        let uploads = |caller| bodies(&room, caller, BodyClass::Other, 32 * MIB);
        let (ann, bob) = (uploads("ann"), uploads("bob"));
        assert_eq!((ann.len(), bob.len()), (5, 5), "of 320 MiB");
        let more = room.take(token("cy"), BodyClass::Other, SMALL_BYTES_MAX + 1);
        assert!(more.is_none(), "all of it is taken");
        let small = bodies(&room, "ann", BodyClass::Other, 1_000);
        assert_eq!(small.len(), 1_000);
        drop(ann);
        assert_eq!(uploads("cy").len(), 5, "the room is free again");
        drop((bob, small));
        assert!(room.take(token("ann"), BodyClass::Other, 1).is_some());
        assert_eq!(room.small.callers.lock().unwrap().len(), 1, "who has no body is forgotten");
    }

    /// Uploads held up results, and then results held up the keep-alives of other tasks.
    #[test]
    fn results_wait_for_no_uploads_and_keep_alives_for_neither() {
        let room = BodyRoom::new(512 * MIB, 32 * MIB);
        let uploads = bodies(&room, "ann", BodyClass::Other, 32 * MIB);
        let results = bodies(&room, "ann", BodyClass::Report, MIB);
        assert_eq!(results.len(), 32);
        let kept = bodies(&room, "ann", BodyClass::Report, SMALL_BYTES_MAX);
        assert_eq!((kept.len(), uploads.len()), (256, 5));
    }

    #[test]
    fn the_least_room_has_each_part_and_no_more_in_all() {
        let room = BodyRoom::new(LARGEST_BODIES_MIN * MIB, MIB);
        for class in [BodyClass::Report, BodyClass::Other] {
            assert!(room.take(token("ann"), class, MIB).is_some(), "{class:?}");
            assert!(room.take(token("ann"), class, SMALL_BYTES_MAX).is_some(), "{class:?}");
        }
        let parts = [&room.small_reports, &room.large_reports, &room.small, &room.large];
        assert_eq!(parts.map(|it| it.all.available_permits()).iter().sum::<usize>(), 4 * 1024);
    }
}

//! Room in memory for the bodies that are being read: one part for reports on leases, whatever
//! their size, one for other small bodies and one for other large ones. One caller has at most half
//! of each. So neither a few slow uploads nor one caller can keep out the others, whose keep-alives
//! would fail.

use super::body::kib;
use super::rate::Bucket;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A small body: requests for leases have a few KiB.
const SMALL_BYTES_MAX: usize = 64 * 1024;

/// The share of all room that is kept for small bodies, and the same for reports.
const SMALL_SHARE: usize = 8;

/// What a body is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyClass {
    /// A report on a lease.
    Report,
    Other,
}

/// The room for bodies of one size class, in KiB.
#[derive(Debug)]
struct ClassRoom {
    all: Arc<Semaphore>,
    /// The room of one caller.
    share: usize,
    /// Callers with a body of this class.
    callers: Mutex<HashMap<Bucket, Weak<Semaphore>>>,
}

/// The room for all bodies.
#[derive(Debug)]
pub(super) struct BodyRoom {
    reports: ClassRoom,
    small: ClassRoom,
    large: ClassRoom,
}

/// The room of one body, until it is dropped.
pub(super) type BodyPermit = [OwnedSemaphorePermit; 2];

impl ClassRoom {
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
        let small = (all / SMALL_SHARE).max(SMALL_BYTES_MAX);
        // The largest body must have room, however little there is.
        let reports = (all / SMALL_SHARE).max(largest.min(all));
        let large = all.saturating_sub(small + reports).max(largest.min(all));
        Self {
            reports: ClassRoom::new(kib(reports), kib(largest)),
            small: ClassRoom::new(kib(small), kib(SMALL_BYTES_MAX)),
            large: ClassRoom::new(kib(large), kib(largest)),
        }
    }

    /// Room for a body of a caller; `None` if there is none now.
    pub(super) fn take(
        &self,
        caller: Bucket,
        class: BodyClass,
        bytes: usize,
    ) -> Option<BodyPermit> {
        let room = match class {
            BodyClass::Report => &self.reports,
            BodyClass::Other if bytes <= SMALL_BYTES_MAX => &self.small,
            BodyClass::Other => &self.large,
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

    #[test]
    fn a_caller_has_half_of_the_room_and_large_bodies_none_of_that_of_small_ones() {
        let room = BodyRoom::new(512 * MIB, 32 * MIB);
        let uploads = |caller: &str| -> Vec<_> {
            std::iter::from_fn(|| room.take(token(caller), BodyClass::Other, 32 * MIB)).collect()
        };
        let (ann, bob) = (uploads("ann"), uploads("bob"));
        assert_eq!((ann.len(), bob.len()), (6, 6), "of 384 MiB");
        assert!(
            room.take(token("cy"), BodyClass::Other, 65 * 1024).is_none(),
            "all of it is taken"
        );
        let report = room.take(token("ann"), BodyClass::Report, MIB);
        assert!(report.is_some(), "uploads hold up no result of a task");
        let small =
            std::iter::from_fn(|| room.take(token("ann"), BodyClass::Other, 1000)).take(1_000);
        let small: Vec<_> = small.collect();
        assert_eq!(small.len(), 1_000);
        drop(ann);
        assert_eq!(uploads("cy").len(), 6, "the room is free again");
        drop((bob, small));
        assert!(room.take(token("ann"), BodyClass::Other, 1).is_some());
        assert_eq!(room.small.callers.lock().unwrap().len(), 1, "who has no body is forgotten");
    }

    #[test]
    fn a_caller_may_have_more_than_half_for_one_large_body() {
        let room = BodyRoom::new(40 * MIB, 32 * MIB);
        let body = room.take(token("ann"), BodyClass::Other, 32 * MIB);
        assert!(body.is_some() && room.take(token("bob"), BodyClass::Other, 4 * MIB).is_none());
        assert!(room.take(token("bob"), BodyClass::Other, SMALL_BYTES_MAX).is_some());
    }
}

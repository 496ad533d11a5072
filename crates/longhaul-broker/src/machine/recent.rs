//! The entries published last, kept in memory so that consumers who keep up need no reads.

use bytes::Bytes;
use std::collections::{HashMap, VecDeque};

/// The last entries of all topics together, up to a number of bytes.
#[derive(Debug, Default)]
pub struct Recent {
    topics: HashMap<u32, Tail>,
    /// The topics of the entries, in the order in which they came.
    order: VecDeque<u32>,
    bytes: usize,
    bytes_max: usize,
}

/// The last entries of a topic, without holes.
#[derive(Debug)]
struct Tail {
    first: u64,
    bodies: VecDeque<Bytes>,
}

impl Recent {
    /// Keeps this many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// Keeps an entry; older ones go.
    pub fn push(&mut self, topic: u32, ordinal: u64, body: Bytes) {
        let next = self.topics.get(&topic).map(|it| it.first + it.bodies.len() as u64);
        if next.is_some_and(|it| it != ordinal) {
            // Cannot happen while entries come in order; a tail with a hole would hand out wrong entries.
            self.forget(topic);
        }
        self.bytes += body.len();
        let fresh = || Tail { first: ordinal, bodies: VecDeque::new() };
        self.topics.entry(topic).or_insert_with(fresh).bodies.push_back(body);
        self.order.push_back(topic);
        while self.bytes > self.bytes_max {
            let Some(oldest) = self.order.pop_front() else { break };
            self.drop_first(oldest);
        }
    }

    fn drop_first(&mut self, topic: u32) {
        let Some(tail) = self.topics.get_mut(&topic) else { return };
        if let Some(body) = tail.bodies.pop_front() {
            self.bytes -= body.len();
            tail.first += 1;
        }
    }

    /// An entry, if it is kept.
    #[must_use]
    pub fn get(&self, topic: u32, ordinal: u64) -> Option<&Bytes> {
        let tail = self.topics.get(&topic)?;
        tail.bodies.get(usize::try_from(ordinal.checked_sub(tail.first)?).ok()?)
    }

    /// Forgets the entries of a topic.
    pub fn forget(&mut self, topic: u32) {
        let Some(tail) = self.topics.remove(&topic) else { return };
        self.bytes -= tail.bodies.iter().map(Bytes::len).sum::<usize>();
        self.order.retain(|&it| it != topic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(size: usize) -> Bytes {
        Bytes::from(vec![0; size])
    }

    #[test]
    fn the_oldest_entries_go_first_whatever_their_topic() {
        let mut recent = Recent::new(100);
        for ordinal in 0..3 {
            recent.push(1, ordinal, body(30));
        }
        recent.push(2, 7, body(45));
        assert!(recent.get(1, 0).is_none() && recent.get(1, 1).is_none());
        assert!(recent.get(1, 2).is_some() && recent.get(2, 7).is_some());
        assert!(recent.get(2, 6).is_none() && recent.get(2, 8).is_none());
        recent.push(1, 3, body(101));
        assert_eq!(
            (recent.bytes, recent.order.len()),
            (0, 0),
            "larger than everything that is kept"
        );
    }

    #[test]
    fn a_deleted_topic_takes_its_entries_with_it() {
        let mut recent = Recent::new(100);
        recent.push(1, 0, body(30));
        recent.push(2, 0, body(30));
        recent.forget(1);
        assert_eq!((recent.bytes, recent.get(1, 0)), (30, None));
        recent.push(2, 5, body(10));
        assert!(recent.get(2, 0).is_none(), "a hole would hand out wrong entries");
        assert_eq!((recent.bytes, recent.order.len()), (10, 1));
    }

    #[test]
    fn as_much_is_kept_as_there_is_room_for() {
        let mut recent = Recent::new(100);
        recent.push(1, 0, body(60));
        recent.push(1, 1, body(40));
        assert!(recent.get(1, 0).is_some(), "it fits exactly");
        recent.push(1, 2, body(1));
        assert!(recent.get(1, 0).is_none());
        assert_eq!((recent.bytes, recent.get(1, 1)), (41, Some(&body(40))));
        recent.push(1, 3, body(59));
        let kept: Vec<_> = (0..5).map(|it| recent.get(1, it).map(Bytes::len)).collect();
        assert_eq!(kept, [None, Some(40), Some(1), Some(59), None]);
    }

    /// What a topic had before a hole is forgotten in the order as well, and that of other topics is not.
    #[test]
    fn a_hole_forgets_the_entries_before_it_alone() {
        let mut recent = Recent::new(100);
        recent.push(1, 0, body(10));
        recent.push(2, 0, body(20));
        recent.push(1, 1, body(30));
        recent.push(1, 5, body(15));
        assert_eq!((recent.bytes, Vec::from(recent.order.clone())), (35, vec![2, 1]));
        assert!(recent.get(1, 1).is_none() && recent.get(1, 4).is_none());
        assert!(recent.get(2, 0).is_some() && recent.get(1, 5).is_some());
        recent.push(1, 6, body(60));
        assert_eq!((recent.bytes, recent.get(2, 0).is_some()), (95, true));
        recent.push(1, 7, body(10));
        assert_eq!((recent.bytes, recent.get(2, 0).is_some()), (85, false), "the oldest");
        recent.forget(1);
        assert_eq!((recent.bytes, recent.order.len()), (0, 0));
    }
}

//! Chunked messages in a compaction: all chunks of a message survive, or none. Pure.
//!
//! A chunk has the id of its message (`uuid`), its index (`chunk_id`) and the number of chunks
//! (`num_chunks_from_msg`). Consumers put a message together if its chunks come in order, each
//! once; chunks of several messages may be interleaved. Until its last chunk, a message is *open*.

use longhaul_wire::messages::MessageMetadata;
use std::collections::{BTreeMap, HashMap};

/// Open messages. If there are more, the chunks of those that began first are dropped.
const OPEN_MAX: usize = 10_000;
/// A message that was open at the previous compaction is dropped if no chunk of it has come for
/// this time since: its producer has given up.
const PATIENCE_MS: u64 = 3_600_000;

/// A chunk of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    uuid: Box<str>,
    index: usize,
    count: usize,
}

impl Chunk {
    /// The chunk with this metadata; `None` if the message is not chunked.
    pub(super) fn of(metadata: &MessageMetadata) -> Option<Self> {
        let number = |number: Option<i32>| usize::try_from(number?).ok();
        let count = number(metadata.num_chunks_from_msg).filter(|&count| count > 1)?;
        let uuid = metadata.uuid.as_deref()?.into();
        Some(Self { uuid, index: number(metadata.chunk_id)?, count })
    }
}

/// The chunks of a message that have come.
#[derive(Debug, Default)]
struct OpenChunks {
    ordinals: Vec<u64>,
    /// Publish time of the last one, in ms since the epoch.
    published: u64,
}

/// The open messages.
#[derive(Debug, Default)]
pub(super) struct OpenChunkedMessages {
    /// By their ids.
    open: HashMap<Box<str>, OpenChunks>,
    /// Their ids by the ordinals of their first chunks.
    begun: BTreeMap<u64, Box<str>>,
    /// The latest publish time of any entry.
    newest: u64,
}

impl OpenChunkedMessages {
    /// Notes the publish time of an entry.
    pub(super) fn note_time(&mut self, published: u64) {
        self.newest = self.newest.max(published);
    }

    /// Adds the next chunk. Returns the ordinals of all chunks of its message if it is the last.
    pub(super) fn add(&mut self, chunk: &Chunk, ordinal: u64, published: u64) -> Option<Vec<u64>> {
        if chunk.index == 0 {
            self.begin(&chunk.uuid, ordinal);
        }
        let run = self.open.get_mut(&chunk.uuid)?;
        // A producer that reconnects sends chunks twice, which consumers ignore. Without a chunk,
        // no consumer can put the message together.
        if chunk.index > run.ordinals.len() {
            self.forget(&chunk.uuid);
            return None;
        }
        if chunk.index == run.ordinals.len() {
            run.ordinals.push(ordinal);
            run.published = published;
        }
        if run.ordinals.len() < chunk.count { None } else { self.forget(&chunk.uuid) }
    }

    fn begin(&mut self, uuid: &str, ordinal: u64) {
        self.forget(uuid);
        if self.open.len() >= OPEN_MAX
            && let Some((_, oldest)) = self.begun.pop_first()
        {
            self.open.remove(&oldest);
        }
        self.begun.insert(ordinal, uuid.into());
        self.open.insert(uuid.into(), OpenChunks::default());
    }

    fn forget(&mut self, uuid: &str) -> Option<Vec<u64>> {
        let run = self.open.remove(uuid)?;
        self.begun.remove(run.ordinals.first()?);
        Some(run.ordinals)
    }

    /// The chunks of messages that are open at the end. `viewed` is the last ordinal of the previous
    /// view.
    pub(super) fn into_ordinals(self, viewed: Option<u64>) -> impl Iterator<Item = u64> {
        let newest = self.newest;
        let may_end = move |run: &OpenChunks| {
            let is_viewed = run.ordinals.last().copied() <= viewed;
            !is_viewed || run.published.saturating_add(PATIENCE_MS) > newest
        };
        self.open.into_values().filter(may_end).flat_map(|run| run.ordinals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(uuid: &str, index: usize) -> Chunk {
        Chunk { uuid: uuid.into(), index, count: 3 }
    }

    /// The messages that are put together, and the chunks that are kept for open ones.
    fn run(chunks: &[(&str, usize)]) -> (Vec<Vec<u64>>, Vec<u64>) {
        let mut open = OpenChunkedMessages::default();
        let chunks = (0..).zip(chunks);
        let whole = chunks
            .filter_map(|(ordinal, &(uuid, index))| open.add(&chunk(uuid, index), ordinal, 0))
            .collect();
        assert_eq!(open.open.len(), open.begun.len());
        let mut left: Vec<u64> = open.into_ordinals(None).collect();
        left.sort_unstable();
        (whole, left)
    }

    #[test]
    fn chunks_of_a_message_come_in_order() {
        assert_eq!(run(&[("a", 0), ("a", 1), ("a", 2)]), (vec![vec![0, 1, 2]], vec![]));
        let mixed = [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("b", 2), ("a", 2)];
        assert_eq!(run(&mixed), (vec![vec![1, 3, 4], vec![0, 2, 5]], vec![]));
        let twice = [("a", 0), ("a", 1), ("a", 1), ("a", 2), ("a", 2)];
        assert_eq!(run(&twice), (vec![vec![0, 1, 3]], vec![]), "repeated after a reconnect");
        assert_eq!(run(&[("a", 0), ("a", 1), ("a", 0)]), (vec![], vec![2]), "it begins again");
        assert_eq!(run(&[("a", 0), ("a", 2), ("a", 1)]), (vec![], vec![]), "one is missing");
        assert_eq!(run(&[("a", 1), ("a", 2)]), (vec![], vec![]), "the first one is missing");
        assert_eq!(run(&[("a", 0), ("b", 0), ("a", 1)]), (vec![], vec![0, 1, 2]), "open");
    }

    #[test]
    fn open_messages_have_a_limit_and_an_age() {
        let mut open = OpenChunkedMessages::default();
        let names: Vec<String> = (0..=OPEN_MAX).map(|name| name.to_string()).collect();
        for (ordinal, name) in (0..).zip(&names) {
            assert_eq!(open.add(&chunk(name, 0), ordinal, 7), None);
        }
        assert_eq!((open.open.len(), open.begun.len()), (OPEN_MAX, OPEN_MAX));
        assert_eq!(open.begun.first_key_value().unwrap().0, &1, "the first one is dropped");
        let left = |published, viewed| {
            let mut open = OpenChunkedMessages::default();
            open.add(&chunk("a", 0), 3, 7);
            open.note_time(published);
            open.into_ordinals(viewed).count()
        };
        assert_eq!(left(7 + PATIENCE_MS, Some(3)), 0);
        assert_eq!(left(6 + PATIENCE_MS, Some(3)), 1, "it is young");
        assert_eq!(left(7 + PATIENCE_MS, Some(2)), 1, "it came after the previous compaction");
    }

    #[test]
    fn a_chunk_is_told_by_its_metadata() {
        let metadata = |uuid: Option<&str>, index, count| MessageMetadata {
            uuid: uuid.map(str::to_owned),
            chunk_id: index,
            num_chunks_from_msg: count,
            ..MessageMetadata::default()
        };
        assert_eq!(Chunk::of(&metadata(Some("a"), Some(2), Some(3))), Some(chunk("a", 2)));
        for other in [
            metadata(None, Some(2), Some(3)),
            metadata(Some("a"), None, Some(3)),
            metadata(Some("a"), Some(-1), Some(3)),
            metadata(Some("a"), Some(0), Some(1)),
            metadata(Some("a"), Some(0), None),
        ] {
            assert_eq!(Chunk::of(&other), None, "{other:?}");
        }
    }
}

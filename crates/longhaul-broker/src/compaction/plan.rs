//! Decides which messages survive a compaction. Pure.
//!
//! The rules are Pulsar's. The last message of each key survives; if it is a tombstone, none does.
//! Messages without a key are removed. Compaction recognizes a tombstone by its size alone: a
//! message outside a batch whose uncompressed size is given as 0, or a message of a batch with an
//! empty payload. The null flag, by which readers recognize a tombstone, is ignored. Encrypted
//! batches are kept, because they cannot be read.
//!
//! A chunked message counts when its last chunk has come, and survives with all its chunks: see
//! [`chunks`](super::chunks).

use super::chunks::{Chunk, OpenChunkedMessages};
use bytes::Bytes;
use longhaul_wire::batch::{BatchBuilder, Single, Singles};
use longhaul_wire::compression::{self, kind, unpack};
use longhaul_wire::messages::{MessageMetadata, SingleMessageMetadata};
use longhaul_wire::payload::Payload;
use std::collections::HashMap;

/// Batches that claim to unpack to more bytes are kept unchanged.
const UNPACKED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Batches that claim to have more messages are kept unchanged.
const BATCH_MAX: usize = 100_000;

/// A message: the ordinal of its entry, and its index in the batch.
type MessageIndex = (u64, u32);

/// Finds the last message of every key.
#[derive(Debug, Default)]
pub(crate) struct LastMessages {
    last: HashMap<Box<str>, MessageIndex>,
    /// All chunks of the chunked messages in `last`, by the ordinals of their last chunks.
    chunks: HashMap<u64, Vec<u64>>,
    open: OpenChunkedMessages,
    /// Entries that cannot be read.
    opaque: Vec<MessageIndex>,
}

/// Content of an entry.
enum Content {
    One { key: Option<String>, is_tombstone: bool, chunk: Option<Chunk> },
    Batch(Vec<Single>),
    Opaque,
}

impl LastMessages {
    /// Records the keys of the next entry, with its publish time in ms since the epoch.
    pub(crate) fn visit(&mut self, ordinal: u64, published: u64, payload: &Payload) {
        self.open.note_time(published);
        match content(payload) {
            Content::Opaque => self.opaque.push((ordinal, 0)),
            Content::One { key, is_tombstone, chunk: None } => {
                self.note(key, (ordinal, 0), is_tombstone);
            }
            // Messages without a key are removed.
            Content::One { key: None, chunk: Some(_), .. } => {}
            Content::One { key, is_tombstone, chunk: Some(chunk) } => {
                let Some(all) = self.open.add(&chunk, ordinal, published) else { return };
                self.note(key, (ordinal, 0), is_tombstone);
                if !is_tombstone {
                    self.chunks.insert(ordinal, all);
                }
            }
            Content::Batch(singles) => {
                for (index, single) in (0..).zip(singles) {
                    if !is_out(&single) {
                        let is_tombstone = single.body.is_empty();
                        self.note(single.metadata.partition_key, (ordinal, index), is_tombstone);
                    }
                }
            }
        }
    }

    fn note(&mut self, key: Option<String>, index: MessageIndex, is_tombstone: bool) {
        let Some(key) = key else { return };
        let former = if is_tombstone {
            self.last.remove(key.as_str())
        } else {
            self.last.insert(key.into(), index)
        };
        if let Some((ordinal, _)) = former {
            self.chunks.remove(&ordinal);
        }
    }

    /// The surviving messages. `viewed` is the last ordinal of the previous view.
    pub(crate) fn finish(self, viewed: Option<u64>) -> Survivors {
        let chunks = self.chunks.into_values().flatten().chain(self.open.into_ordinals(viewed));
        let whole = self.last.into_values().chain(self.opaque);
        let mut messages: Vec<MessageIndex> =
            whole.chain(chunks.map(|ordinal| (ordinal, 0))).collect();
        messages.sort_unstable();
        Survivors { messages, at: 0 }
    }
}

/// The messages that survive, in order.
#[derive(Clone, Debug)]
pub(crate) struct Survivors {
    messages: Vec<MessageIndex>,
    at: usize,
}

/// Fate of an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CompactionFate {
    /// No message survives.
    Drop,
    /// The entry is kept unchanged.
    Keep,
    /// Some messages of a batch survive: the batch without the others.
    Rewrite(Payload),
}

impl Survivors {
    /// Whether any message of an entry survives. Entries must come in order.
    pub(crate) fn has(&mut self, ordinal: u64) -> bool {
        while self.messages.get(self.at).is_some_and(|(next, _)| *next < ordinal) {
            self.at += 1;
        }
        self.messages.get(self.at).is_some_and(|(next, _)| *next == ordinal)
    }

    /// Returns the fate of the entry. Entries must come in order.
    pub(crate) fn fate(&mut self, ordinal: u64, payload: &Payload) -> CompactionFate {
        if !self.has(ordinal) {
            return CompactionFate::Drop;
        }
        let Content::Batch(singles) = content(payload) else { return CompactionFate::Keep };
        let rest = self.messages.get(self.at..).unwrap_or_default();
        let kept: Vec<u32> =
            rest.iter().take_while(|(next, _)| *next == ordinal).map(|(_, index)| *index).collect();
        if kept.len() == singles.len() {
            return CompactionFate::Keep;
        }
        rebuild(payload, singles, &kept).map_or(CompactionFate::Keep, CompactionFate::Rewrite)
    }
}

/// Empties the removed messages and marks them as compacted out, so that batch indices do not
/// change.
fn rebuild(payload: &Payload, singles: Vec<Single>, kept: &[u32]) -> Option<Payload> {
    let mut metadata = payload.metadata().ok()?;
    let mut batch = BatchBuilder::default();
    for (index, single) in (0_u32..).zip(singles) {
        if kept.binary_search(&index).is_ok() {
            batch.push(single.metadata, &single.body);
        } else {
            // The key is left out, as on Pulsar.
            let gone = SingleMessageMetadata {
                compacted_out: Some(true),
                ..SingleMessageMetadata::default()
            };
            batch.push(gone, &[]);
        }
    }
    let body = batch.finish();
    let compression = kind(metadata.compression).ok()?;
    metadata.uncompressed_size = Some(u32::try_from(body.len()).ok()?);
    Some(Payload::new(&metadata, &compression::pack(compression, &body).ok()?))
}

fn is_out(single: &Single) -> bool {
    single.metadata.compacted_out == Some(true)
}

fn content(payload: &Payload) -> Content {
    let Ok(metadata) = payload.metadata() else { return Content::Opaque };
    let Some(count) = metadata.num_messages_in_batch else {
        let is_tombstone = metadata.uncompressed_size == Some(0);
        let chunk = Chunk::of(&metadata);
        return Content::One { key: metadata.partition_key, is_tombstone, chunk };
    };
    if !metadata.encryption_keys.is_empty() {
        return Content::Opaque;
    }
    let Some(body) = unpacked(&metadata, &payload.body()) else { return Content::Opaque };
    let count = usize::try_from(count).unwrap_or_default();
    if count > BATCH_MAX {
        return Content::Opaque;
    }
    let singles: Result<Vec<Single>, _> = Singles::new(body, count).collect();
    singles.map_or(Content::Opaque, Content::Batch)
}

fn unpacked(metadata: &MessageMetadata, body: &Bytes) -> Option<Bytes> {
    let size = metadata.uncompressed_size.unwrap_or_default();
    unpack(kind(metadata.compression).ok()?, body, size, UNPACKED_BYTES_MAX).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_wire::messages::{CompressionType, EncryptionKeys};

    fn one(key: Option<&str>, body: &[u8], change: impl FnOnce(&mut MessageMetadata)) -> Payload {
        let mut metadata =
            MessageMetadata { partition_key: key.map(str::to_owned), ..MessageMetadata::default() };
        change(&mut metadata);
        Payload::new(&metadata, body)
    }

    fn plain(key: &str, body: &str) -> Payload {
        one(Some(key), body.as_bytes(), |_| {})
    }

    fn batch(compression: CompressionType, messages: &[(Option<&str>, &str)]) -> Payload {
        let mut builder = BatchBuilder::default();
        for (key, body) in messages {
            let metadata = SingleMessageMetadata {
                partition_key: key.map(str::to_owned),
                ..SingleMessageMetadata::default()
            };
            builder.push(metadata, body.as_bytes());
        }
        let body = builder.finish();
        let metadata = MessageMetadata {
            num_messages_in_batch: i32::try_from(messages.len()).ok(),
            compression: Some(compression.into()),
            uncompressed_size: u32::try_from(body.len()).ok(),
            ..MessageMetadata::default()
        };
        Payload::new(&metadata, &compression::pack(compression, &body).unwrap())
    }

    fn fates(entries: &[Payload]) -> Vec<CompactionFate> {
        let mut last = LastMessages::default();
        for (ordinal, entry) in (0..).zip(entries) {
            last.visit(ordinal, 0, entry);
        }
        let mut survivors = last.finish(None);
        (0..).zip(entries).map(|(ordinal, entry)| survivors.fate(ordinal, entry)).collect()
    }

    #[test]
    fn the_last_message_of_a_key_stays() {
        let entries =
            [plain("a", "1"), plain("b", "1"), plain("a", "2"), one(None, b"no key", |_| {})];
        assert_eq!(
            fates(&entries),
            [
                CompactionFate::Drop,
                CompactionFate::Keep,
                CompactionFate::Keep,
                CompactionFate::Drop
            ]
        );
    }

    /// A message in a batch of one.
    fn batched(key: &str, body: &[u8], null: bool) -> Payload {
        let mut builder = BatchBuilder::default();
        let metadata = SingleMessageMetadata {
            partition_key: Some(key.to_owned()),
            null_value: null.then_some(true),
            ..SingleMessageMetadata::default()
        };
        builder.push(metadata, body);
        let body = builder.finish();
        let metadata = MessageMetadata {
            num_messages_in_batch: Some(1),
            uncompressed_size: u32::try_from(body.len()).ok(),
            ..MessageMetadata::default()
        };
        Payload::new(&metadata, &body)
    }

    /// Once each of three encodings was a tombstone here. Pulsar keeps messages of two of them, so
    /// the same ledger lost entries on this broker and kept them on Pulsar.
    #[test]
    fn a_tombstone_is_told_by_its_size_alone() {
        let sized = |null: bool| {
            one(Some("a"), b"", |metadata| {
                metadata.uncompressed_size = Some(0);
                metadata.null_value = null.then_some(true);
            })
        };
        let compressed = one(Some("a"), b"\0", |metadata| {
            metadata.compression = Some(CompressionType::Lz4.into());
            metadata.uncompressed_size = Some(0);
        });
        let tombstones = [
            sized(true),
            sized(false),
            compressed,
            batched("a", b"", true),
            batched("a", b"", false),
        ];
        for tombstone in tombstones {
            let entries = [plain("a", "1"), tombstone];
            assert_eq!(
                fates(&entries),
                [CompactionFate::Drop, CompactionFate::Drop],
                "{:?}",
                entries[1].metadata()
            );
            let [first, tombstone] = entries;
            let revived = fates(&[first, tombstone, plain("a", "3")]);
            assert_eq!(
                revived,
                [CompactionFate::Drop, CompactionFate::Drop, CompactionFate::Keep],
                "a key may come back"
            );
        }
        let flagged =
            |body: &[u8]| one(Some("a"), body, |metadata| metadata.null_value = Some(true));
        let others = [
            flagged(b""),
            flagged(b"x"),
            one(Some("a"), b"", |_| {}),
            one(Some("a"), b"x", |metadata| metadata.uncompressed_size = Some(1)),
            batched("a", b"x", true),
        ];
        for other in others {
            let entries = [plain("a", "1"), other];
            assert_eq!(
                fates(&entries),
                [CompactionFate::Drop, CompactionFate::Keep],
                "{:?}",
                entries[1].metadata()
            );
        }
    }

    #[test]
    fn a_batch_keeps_its_places_when_some_of_it_goes() {
        for compression in [CompressionType::None, CompressionType::Lz4, CompressionType::Zstd] {
            let entries = [
                batch(compression, &[(Some("a"), "1"), (Some("b"), "1"), (None, "x")]),
                plain("b", "2"),
                batch(compression, &[(Some("c"), "1"), (Some("d"), "1")]),
            ];
            let found = fates(&entries);
            assert_eq!((&found[1], &found[2]), (&CompactionFate::Keep, &CompactionFate::Keep));
            let CompactionFate::Rewrite(payload) = &found[0] else { panic!("{:?}", found[0]) };
            payload.verify().unwrap();
            let Content::Batch(singles) = content(payload) else { panic!("no batch any more") };
            let left: Vec<_> =
                singles.iter().map(|single| (is_out(single), &single.body[..])).collect();
            assert_eq!(left, [(false, &b"1"[..]), (true, b""), (true, b"")]);
            // A second compaction changes nothing.
            let again = fates(std::slice::from_ref(payload));
            assert!(
                matches!(&again[..], [CompactionFate::Rewrite(same)] if same == payload),
                "{again:?}"
            );
        }
    }

    /// A compaction kept the last chunk of a chunked message alone: no reader of the view could put
    /// the message together, and the key had no value.
    #[test]
    fn a_chunked_message_stays_whole() {
        let chunk = |uuid: &str, index, count| {
            one(Some("a"), b"part", |metadata| {
                metadata.uuid = Some(uuid.to_owned());
                metadata.chunk_id = Some(index);
                metadata.num_chunks_from_msg = Some(count);
                metadata.uncompressed_size = Some(8);
            })
        };
        let kept = |entries: &[Payload]| {
            let fates = fates(entries).into_iter().zip(0..);
            let kept = fates.filter(|(fate, _)| *fate == CompactionFate::Keep);
            kept.map(|(_, at)| at).collect::<Vec<u64>>()
        };
        let (first, second) = (|uuid| chunk(uuid, 0, 2), |uuid| chunk(uuid, 1, 2));
        assert_eq!(kept(&[plain("a", "1"), first("x"), second("x")]), [1, 2]);
        let replaced = [first("x"), second("x"), plain("b", "1"), first("y"), second("y")];
        assert_eq!(kept(&replaced), [2, 3, 4], "a message replaces all chunks of the one before");
        let tombstone = one(Some("a"), b"", |metadata| metadata.uncompressed_size = Some(0));
        assert_eq!(kept(&[first("x"), second("x"), tombstone]), [0; 0]);
        let open = [plain("a", "1"), first("x"), plain("b", "1")];
        assert_eq!(kept(&open), [0, 1, 2], "it may still come, and until then the value is 1");
        let later = [first("x"), plain("a", "1"), second("x")];
        assert_eq!(kept(&later), [0, 2], "the last chunk decides which message is the newest");
        assert_eq!(kept(&[plain("a", "1"), second("x")]), [0], "it can never be put together");
    }

    #[test]
    fn what_nobody_can_look_into_stays() {
        let entries = [
            one(Some("a"), b"sealed", |metadata| {
                metadata.num_messages_in_batch = Some(2);
                metadata.encryption_keys =
                    vec![EncryptionKeys { key: "k".to_owned(), ..EncryptionKeys::default() }];
            }),
            one(Some("a"), b"no batch at all", |metadata| metadata.num_messages_in_batch = Some(2)),
            one(Some("a"), b"", |metadata| metadata.num_messages_in_batch = Some(-2)),
        ];
        assert_eq!(fates(&entries)[..2], [CompactionFate::Keep, CompactionFate::Keep]);
    }
}

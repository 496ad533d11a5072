//! Writes whole blocks, so that the file system need not read the data around a chunk.

use crate::log::segments::segment::HEADER_BYTES;
use crate::log::shared::Segment;
use std::io;

/// Block size of file systems, in bytes. A file consists of whole blocks.
const BLOCK_BYTES: usize = HEADER_BYTES as usize;
/// Larger chunks are written without a copy: reading two blocks costs less than copying the chunk.
const COPY_BYTES_MAX: usize = 1024 * 1024;

/// The last, partly filled block of a segment.
///
/// Data before a chunk in its first block is written again unchanged. Data after it in its last
/// block becomes zeros: nothing valid is there.
#[derive(Debug, Default)]
pub(in crate::log) struct Blocks {
    /// Number of the segment, and the offset after its last chunk; `None` if unknown.
    end: Option<(u32, u32)>,
    /// Data of the last block before that offset.
    front: Vec<u8>,
}

impl Blocks {
    /// Writes a chunk. It is not yet durable.
    pub(in crate::log) fn write(
        &mut self,
        segment: &Segment,
        offset: u32,
        bytes: &[u8],
    ) -> io::Result<()> {
        if bytes.len() > COPY_BYTES_MAX {
            self.end = None;
            segment.file.write_at(bytes, u64::from(offset))
        } else {
            self.write_blocks(segment, offset, bytes)
        }
    }

    fn write_blocks(&mut self, segment: &Segment, offset: u32, bytes: &[u8]) -> io::Result<()> {
        let number = segment.header.number;
        let front = offset as usize % BLOCK_BYTES;
        let from = u64::from(offset) - front as u64;
        if self.end != Some((number, offset)) {
            self.front.resize(front, 0);
            segment.file.read_at(&mut self.front, from)?;
        }
        // Unknown until the write has succeeded.
        self.end = None;
        let block = &mut self.front;
        block.extend_from_slice(bytes);
        let end = block.len();
        block.resize(end.next_multiple_of(BLOCK_BYTES), 0);
        segment.file.write_at(block, from)?;
        let rest = end % BLOCK_BYTES;
        block.copy_within(end - rest..end, 0);
        block.truncate(rest);
        let behind = u32::try_from(bytes.len()).ok().and_then(|size| offset.checked_add(size));
        self.end = behind.map(|end| (number, end));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Storage;
    use crate::log::disk::storage::StorageFile;
    use crate::log::segments::segment::SegmentHeader;
    use std::sync::{Arc, Mutex};

    const SEGMENT_BYTES: u32 = 16 * HEADER_BYTES;

    /// A file that records its calls.
    #[derive(Debug)]
    struct Noting {
        file: Arc<dyn StorageFile>,
        /// Whether the call is a read, and its range.
        calls: Mutex<Vec<(bool, u64, u64)>>,
    }

    impl StorageFile for Noting {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            self.calls.lock().unwrap().push((true, offset, offset + buffer.len() as u64));
            self.file.read_at(buffer, offset)
        }

        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            self.calls.lock().unwrap().push((false, offset, offset + bytes.len() as u64));
            self.file.write_at(bytes, offset)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.file.sync_data()
        }

        fn allocate(&self, size: u64) -> io::Result<()> {
            self.file.allocate(size)
        }
    }

    fn segment(number: u32) -> (Segment, Arc<Noting>) {
        let file = crate::log::SimulatedStorage::new(1).create("file").unwrap();
        file.write_at(&[9; SEGMENT_BYTES as usize], 0).unwrap();
        let header = SegmentHeader {
            number,
            size: SEGMENT_BYTES,
            previous: 0,
            previous_end: 0,
            group: 1,
            salt: 1,
        };
        let noting = Arc::new(Noting { file, calls: Mutex::default() });
        (Segment::new(header, Arc::clone(&noting) as Arc<dyn StorageFile>), noting)
    }

    /// A partly written block that is not in memory was read by the file system before the write,
    /// and each sync waited for that.
    #[test]
    fn whole_blocks_are_written_and_nothing_of_them_is_lost() {
        let ((one, noted), (two, noted_too)) = (segment(1), segment(2));
        let mut blocks = Blocks::default();
        let mut expected = vec![9_u8; SEGMENT_BYTES as usize];
        let mut offset = HEADER_BYTES;
        for (at, size) in [1, 4000, 95, 1, 4096, 8191, 2, 5000].into_iter().enumerate() {
            let chunk = vec![u8::try_from(at + 1).unwrap(); size];
            blocks.write(&one, offset, &chunk).unwrap();
            let end = offset as usize + size;
            expected[offset as usize..end].copy_from_slice(&chunk);
            expected[end..end.next_multiple_of(BLOCK_BYTES)].fill(0);
            offset = u32::try_from(end).unwrap();
            // A chunk of another segment in between, as if the log had been reopened: the block is
            // read once.
            if at == 4 {
                blocks.write(&two, HEADER_BYTES, b"other").unwrap();
            }
        }
        let mut found = vec![0; SEGMENT_BYTES as usize];
        noted.file.read_at(&mut found, 0).unwrap();
        assert!(found == expected);
        let is_whole = |&(_, from, to): &(bool, u64, u64)| {
            from.is_multiple_of(BLOCK_BYTES as u64) && to.is_multiple_of(BLOCK_BYTES as u64)
        };
        let calls = noted.calls.lock().unwrap();
        let (reads, writes): (Vec<_>, Vec<_>) = calls.iter().copied().partition(|call| call.0);
        assert_eq!(reads.iter().filter(|call| call.2 > call.1).count(), 1, "{reads:?}");
        assert!(writes.len() == 8 && writes.iter().all(is_whole), "{writes:?}");
        assert!(noted_too.calls.lock().unwrap().iter().filter(|call| !call.0).all(is_whole));
    }

    #[test]
    fn a_large_chunk_is_written_from_where_it_lies() {
        let file = crate::log::SimulatedStorage::new(1).create("file").unwrap();
        let size = 4 * u32::try_from(COPY_BYTES_MAX).unwrap();
        file.write_at(&vec![9; size as usize], 0).unwrap();
        let header =
            SegmentHeader { number: 1, size, previous: 0, previous_end: 0, group: 1, salt: 1 };
        let noting = Arc::new(Noting { file, calls: Mutex::default() });
        let segment = Segment::new(header, Arc::clone(&noting) as Arc<dyn StorageFile>);
        let mut blocks = Blocks::default();
        blocks.write(&segment, HEADER_BYTES, b"before").unwrap();
        let large = vec![7; COPY_BYTES_MAX + 1];
        blocks.write(&segment, HEADER_BYTES + 6, &large).unwrap();
        let end = HEADER_BYTES + 6 + u32::try_from(large.len()).unwrap();
        blocks.write(&segment, end, b"after").unwrap();
        let mut found = vec![0; 6 + large.len() + 5];
        noting.file.read_at(&mut found, u64::from(HEADER_BYTES)).unwrap();
        assert!(found == [b"before", &large[..], b"after"].concat());
    }
}

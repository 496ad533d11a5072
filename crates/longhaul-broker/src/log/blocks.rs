//! Writes whole blocks, so that the file system need not read what stands around a chunk.

use super::segment::HEADER_BYTES;
use super::shared::Segment;
use std::io;

/// What file systems keep in memory and write as a whole. A file consists of whole ones.
const BLOCK_BYTES: usize = HEADER_BYTES as usize;
/// A larger chunk is written from where it lies: to read two blocks costs less than to copy it.
const COPY_BYTES_MAX: usize = 1024 * 1024;

/// The block that a segment ends in so far.
///
/// What stands in front of a chunk in its first block is written again as it is, and what is behind
/// it in its last block becomes zeros: nothing that counts lies there.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// The number of the segment and the offset behind its last chunk; `None` when that is not
    /// known.
    end: Option<(u32, u32)>,
    /// What the last block has in front of that.
    front: Vec<u8>,
}

impl Blocks {
    /// Writes a chunk, which the disk need not have then.
    pub(super) fn write(&mut self, segment: &Segment, offset: u32, bytes: &[u8]) -> io::Result<()> {
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
        // Until it is written nothing is known.
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
    use crate::log::segment::SegmentHeader;
    use crate::log::storage::StorageFile;
    use std::sync::{Arc, Mutex};

    const SEGMENT_BYTES: u32 = 16 * HEADER_BYTES;

    /// A file that notes what is asked of it.
    #[derive(Debug)]
    struct Noting {
        file: Arc<dyn StorageFile>,
        /// Whether it is a read, and from where to where.
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

    /// A part of a block that is not in memory is read by the file system before it is written, and
    /// each sync waited for that.
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
            // Another segment between them, as if the log had been opened anew: the block is read
            // once.
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

//! What a store has of a data directory, by the names of its objects. Pure.
//!
//! | object | content |
//! |---|---|
//! | `log/<segment>/<edition>/<from>-<to>-<at>[-end<time>][-last]` | these bytes of a segment |
//! | `checkpoint/<at>` | the checkpoint |
//! | `segments/<at>` | the inventory |
//! | `compact/<file>` | a compacted view |
//!
//! `at` is the time when the bytes were read. Each piece has a later one than the piece before,
//! also if the clock was set back. The checkpoint and the inventory of a pass have a time behind
//! that of its pieces. Everything that was confirmed before the time behind `end` is in the pieces
//! up to that one. An *edition* has a segment from its beginning: a new one begins with each start
//! of a backup, since a broker that was killed drops what it had not confirmed, and when an
//! edition has many pieces. Its name is the time when it was begun.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Folders of the objects.
const LOG: &str = "log";
const CHECKPOINT: &str = "checkpoint";
const SEGMENTS: &str = "segments";
const COMPACT: &str = "compact";

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PieceName {
    /// Number of the segment.
    pub(crate) segment: u32,
    /// The edition of the segment.
    pub(crate) edition: u64,
    /// Offset of the first byte.
    pub(crate) from: u32,
    /// Offset behind the last byte.
    pub(crate) to: u32,
    /// The time when it was read.
    pub(crate) at: u64,
    /// The time when the log had nothing more, if that is so.
    pub(crate) end: Option<u64>,
    /// Whether the segment has nothing more.
    pub(crate) is_last: bool,
}

/// An object of a backup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ObjectName {
    Piece(PieceName),
    Checkpoint(u64),
    Inventory(u64),
    View(String),
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Piece(piece) => {
                let PieceName { segment, edition, from, to, at, end, is_last } = piece;
                write!(f, "{LOG}/{segment:010}/{edition:013}/{from:010}-{to:010}-{at:013}")?;
                if let Some(end) = end {
                    write!(f, "-end{end:013}")?;
                }
                f.write_str(if *is_last { "-last" } else { "" })
            }
            Self::Checkpoint(at) => write!(f, "{CHECKPOINT}/{at:013}"),
            Self::Inventory(at) => write!(f, "{SEGMENTS}/{at:013}"),
            Self::View(file) => write!(f, "{COMPACT}/{file}"),
        }
    }
}

impl ObjectName {
    /// Reads a name; `None` if no backup gives such names.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (folder, rest) = name.split_once('/')?;
        match folder {
            LOG => piece(rest).map(Self::Piece),
            CHECKPOINT => rest.parse().ok().map(Self::Checkpoint),
            SEGMENTS => rest.parse().ok().map(Self::Inventory),
            COMPACT => (!rest.contains('/')).then(|| Self::View(rest.to_owned())),
            _ => None,
        }
    }
}

fn piece(name: &str) -> Option<PieceName> {
    let mut parts = name.split('/');
    let (segment, edition) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let (file, None) = (parts.next()?, parts.next()) else { return None };
    let mut parts = file.split('-');
    let (from, to) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let at = parts.next()?.parse().ok()?;
    let flags: Vec<&str> = parts.collect();
    let (end, is_last) = match &flags[..] {
        [] => (None, false),
        ["last"] => (None, true),
        [end] => (Some(end.strip_prefix("end")?.parse().ok()?), false),
        [end, "last"] => (Some(end.strip_prefix("end")?.parse().ok()?), true),
        _ => return None,
    };
    Some(PieceName { segment, edition, from, to, at, end, is_last })
}

/// What a store has of a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    /// Pieces by segment and edition, each edition in order.
    segments: BTreeMap<u32, BTreeMap<u64, BTreeSet<PieceName>>>,
    checkpoints: BTreeSet<u64>,
    inventories: BTreeSet<u64>,
    views: BTreeSet<String>,
}

/// What a restore fetches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RestorePlan {
    pub(crate) checkpoint: Option<u64>,
    pub(crate) inventory: Option<u64>,
    pub(crate) views: BTreeSet<String>,
    /// The pieces of each segment, in order and without a gap.
    pub(crate) segments: BTreeMap<u32, Vec<PieceName>>,
}

impl RestorePlan {
    /// The time before which everything that was confirmed is in these segments; `None` if no pass
    /// has stored all of them.
    pub(crate) fn as_of(&self) -> Option<u64> {
        let pieces = self.segments.values().flatten().filter(|piece| piece.end.is_some());
        pieces.max_by_key(|piece| piece.at).and_then(|piece| piece.end)
    }
}

impl Catalog {
    /// Notes an object.
    pub(crate) fn add(&mut self, name: ObjectName) {
        match name {
            ObjectName::Piece(piece) => {
                let editions = self.segments.entry(piece.segment).or_default();
                editions.entry(piece.edition).or_default().insert(piece);
            }
            ObjectName::Checkpoint(at) => drop(self.checkpoints.insert(at)),
            ObjectName::Inventory(at) => drop(self.inventories.insert(at)),
            ObjectName::View(file) => drop(self.views.insert(file)),
        }
    }

    /// Forgets an object.
    pub(crate) fn remove(&mut self, name: &ObjectName) {
        match name {
            ObjectName::Piece(piece) => {
                let Some(editions) = self.segments.get_mut(&piece.segment) else { return };
                if let Some(pieces) = editions.get_mut(&piece.edition) {
                    pieces.remove(piece);
                }
                editions.retain(|_, pieces| !pieces.is_empty());
                if editions.is_empty() {
                    self.segments.remove(&piece.segment);
                }
            }
            ObjectName::Checkpoint(at) => drop(self.checkpoints.remove(at)),
            ObjectName::Inventory(at) => drop(self.inventories.remove(at)),
            ObjectName::View(file) => drop(self.views.remove(file)),
        }
    }

    /// The time in the name of the newest object; 0 if there is none.
    pub(crate) fn last(&self) -> u64 {
        let pieces = self.segments.values().flat_map(BTreeMap::values).flatten();
        let times = pieces.map(|piece| piece.at).chain(self.checkpoints.last().copied());
        times.chain(self.inventories.last().copied()).max().unwrap_or_default()
    }

    /// Whether there is nothing of a log. A data directory has views, too, and is no backup.
    pub(crate) fn is_empty(&self) -> bool {
        self.last() == 0
    }

    /// The time of the first piece with which the log was complete.
    pub(crate) fn first_end(&self) -> Option<u64> {
        let pieces = self.segments.values().flat_map(BTreeMap::values).flatten();
        pieces.filter(|piece| piece.end.is_some()).map(|piece| piece.at).min()
    }

    /// The number of checkpoints.
    pub(crate) fn checkpoint_count(&self) -> usize {
        self.checkpoints.len()
    }

    /// The times at which a backup can become restorable, in order: those of the checkpoints and
    /// inventories, and of the first piece with which the log was complete.
    pub(crate) fn beginnings(&self) -> BTreeSet<u64> {
        let states = self.checkpoints.iter().chain(&self.inventories).copied();
        states.chain(self.first_end()).collect()
    }

    /// The edition by which the store has the whole segment, if it has.
    pub(crate) fn whole(&self, segment: u32) -> Option<u64> {
        let last = self.chosen(segment, u64::MAX).pop().filter(|piece| piece.is_last);
        last.map(|piece| piece.edition)
    }

    /// The number of pieces that make up a segment.
    pub(crate) fn count(&self, segment: u32) -> usize {
        self.chosen(segment, u64::MAX).len()
    }

    pub(crate) fn has_view(&self, file: &str) -> bool {
        self.views.contains(file)
    }

    /// What a restore to this time fetches.
    pub(crate) fn plan(&self, at: u64) -> RestorePlan {
        let pieces = self.segments.keys().map(|&segment| (segment, self.chosen(segment, at)));
        RestorePlan {
            checkpoint: self.checkpoints.range(..=at).next_back().copied(),
            inventory: self.inventories.range(..=at).next_back().copied(),
            views: self.views.clone(),
            segments: pieces.filter(|(_, pieces)| !pieces.is_empty()).collect(),
        }
    }

    /// The pieces that are a segment's content at this time. An edition counts from its first piece
    /// that says that there was nothing more; until then the one before it has more. A segment that
    /// has no such edition yet has what was stored of the newest.
    fn chosen(&self, segment: u32, at: u64) -> Vec<PieceName> {
        let Some(editions) = self.segments.get(&segment) else { return Vec::new() };
        let mut newest = Vec::new();
        for pieces in editions.values().rev() {
            let pieces = gapless(pieces, at);
            if is_caught_up(&pieces) {
                return pieces;
            }
            if newest.is_empty() {
                newest = pieces;
            }
        }
        newest
    }

    /// Objects that no restore to `oldest` or later needs. `gone` has what the data directory has
    /// no longer, with the time since when.
    pub(crate) fn expired(&self, oldest: u64, gone: &BTreeMap<DataFile, u64>) -> Vec<ObjectName> {
        let is_gone = |file: &DataFile| gone.get(file).is_some_and(|&since| since <= oldest);
        let mut expired = Vec::new();
        for (&segment, editions) in &self.segments {
            let counts = editions.iter().rev();
            let mut counts = counts.filter(|(_, pieces)| is_caught_up(&gapless(pieces, oldest)));
            let first = counts.next().map_or(0, |(&edition, _)| edition);
            let is_gone = is_gone(&DataFile::Segment(segment));
            let old = editions.iter().filter(|&(&edition, _)| is_gone || edition < first);
            expired.extend(old.flat_map(|(_, pieces)| pieces).copied().map(ObjectName::Piece));
        }
        let old = |times: &BTreeSet<u64>| -> Vec<u64> {
            let needed = times.range(..=oldest).next_back().copied().unwrap_or_default();
            times.range(..needed).copied().collect()
        };
        expired.extend(old(&self.checkpoints).into_iter().map(ObjectName::Checkpoint));
        expired.extend(old(&self.inventories).into_iter().map(ObjectName::Inventory));
        let views = self.views.iter().filter(|file| is_gone(&DataFile::View((*file).clone())));
        expired.extend(views.cloned().map(ObjectName::View));
        expired
    }

    /// The segments and views that the data directory has no longer. It has these, in order.
    pub(crate) fn gone(&self, segments: &[u32], views: &BTreeSet<String>) -> Vec<DataFile> {
        let is_gone = |number: &&u32| segments.binary_search(number).is_err();
        let segments = self.segments.keys().filter(is_gone);
        let views = self.views.difference(views);
        let segments = segments.map(|&number| DataFile::Segment(number));
        segments.chain(views.cloned().map(DataFile::View)).collect()
    }
}

/// A file of a data directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DataFile {
    Segment(u32),
    View(String),
}

/// The pieces up to this time, from the beginning of the segment to the first gap.
fn gapless(pieces: &BTreeSet<PieceName>, at: u64) -> Vec<PieceName> {
    let mut end = 0;
    let mut whole = Vec::new();
    for piece in pieces.iter().filter(|piece| piece.at <= at) {
        if piece.from != end {
            break;
        }
        end = piece.to;
        whole.push(*piece);
    }
    whole
}

/// Whether an edition has had everything that there was.
fn is_caught_up(pieces: &[PieceName]) -> bool {
    pieces.iter().any(|piece| piece.end.is_some() || piece.is_last)
}

#[cfg(test)]
mod tests;

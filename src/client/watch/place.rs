//! The place of a watch, as a text: another watch can continue there after a restart or in another
//! process.

use super::Watch;
use longhaul_core::task::Position;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The most partitions in a text.
const PARTITIONS_MAX: usize = 10_000;

/// How far a watch has come in each partition of its metadata topic.
///
/// Its text form is `partition@ledger:entry`, with `:index` behind it for a message that came in a
/// batch, and commas between the partitions.
///
/// ```
/// use longhaul::WatchPlace;
///
/// let place: WatchPlace = "0@21426:0,1@21427:5:2".parse()?;
/// assert_eq!(place.to_string(), "0@21426:0,1@21427:5:2");
/// # Ok::<(), longhaul::WatchPlaceError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchPlace {
    positions: BTreeMap<i32, Position>,
}

/// The text is not the place of a watch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the place of a watch: `{0}` (expected partition@ledger:entry, with commas between them)"
)]
pub struct WatchPlaceError(String);

impl WatchPlace {
    pub(super) fn note(&mut self, partition: i32, position: Position) {
        self.positions.insert(partition, position);
    }

    pub(super) fn of(&self, partition: i32) -> Option<Position> {
        self.positions.get(&partition).copied()
    }
}

impl Watch {
    /// The place of the watch: [`WatchFrom::After`](super::WatchFrom::After) continues behind the
    /// last event shown.
    #[must_use]
    pub const fn place(&self) -> &WatchPlace {
        &self.place
    }
}

impl fmt::Display for WatchPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (partition, position)) in self.positions.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{partition}@{position}")?;
        }
        Ok(())
    }
}

impl FromStr for WatchPlace {
    type Err = WatchPlaceError;

    fn from_str(text: &str) -> Result<Self, WatchPlaceError> {
        const SHOWN_MAX: usize = 80;
        let refused = || WatchPlaceError(text.chars().take(SHOWN_MAX).collect());
        let parts = text.split(',').filter(|_| !text.is_empty()).take(PARTITIONS_MAX);
        let positions: Option<_> = parts.map(parse_part).collect();
        positions.map(|positions| Self { positions }).ok_or_else(refused)
    }
}

fn parse_part(part: &str) -> Option<(i32, Position)> {
    let (partition, position) = part.split_once('@')?;
    let partition = partition.parse().ok().filter(|number| *number >= -1)?;
    Some((partition, Position::parse(position)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_text_that_reads_back() {
        for text in ["", "-1@1:2", "0@1:2,1@3:4:5,7@0:0"] {
            assert_eq!(text.parse::<WatchPlace>().unwrap().to_string(), text);
        }
        for bad in ["1", "1@2", "1@2:3:4:5", "-2@1:2", "x@1:2", "1@1:2,", ",", "1@-1:2", "1@1:2 "] {
            assert!(bad.parse::<WatchPlace>().is_err(), "{bad:?}");
        }
    }
}

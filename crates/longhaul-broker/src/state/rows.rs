//! A compact encoding of slots: adjacent entries have similar locations and publish times.
//!
//! A slot is a row of six numbers. Each column has a base, and takes as many bytes as its largest
//! difference from the base needs: none if all values are equal.

use super::entries::EntrySlot;
use crate::log::RecordLocation;

/// Segment, offset, size, publish time, messages, hash of the key.
const COLUMNS: usize = 6;
/// Maximum width of a column in bytes.
const WIDTH_MAX: u8 = 8;
const DIFFERENCE_BYTES: usize = WIDTH_MAX as usize;

type Values = [u64; COLUMNS];

#[derive(Clone, Copy, Debug, Default)]
struct Column {
    base: u64,
    /// Width of a difference from the base, in bytes.
    width: u8,
}

impl Column {
    /// The largest difference that fits.
    const fn most(self) -> u64 {
        match self.width {
            0 => 0,
            width => u64::MAX >> (8 * (WIDTH_MAX - width)),
        }
    }

    const fn has(self, value: u64) -> bool {
        value >= self.base && value - self.base <= self.most()
    }

    /// The column, extended to fit this value. Each extension makes room for many more values, so
    /// extensions are rare.
    fn with(self, value: u64, is_empty: bool) -> Self {
        if is_empty {
            return Self { base: value, width: 0 };
        }
        if self.has(value) {
            return self;
        }
        let highest = self.base.saturating_add(self.most()).max(value);
        let lowest = self.base.min(value);
        let bits = u64::BITS - (highest - lowest).leading_zeros();
        let width = u8::try_from(bits.div_ceil(8)).unwrap_or(WIDTH_MAX);
        // A column that grows downwards gets as much room below as it had above.
        let base = if value < self.base {
            highest.saturating_sub(Self { base: 0, width }.most())
        } else {
            lowest
        };
        Self { base, width }
    }
}

/// A sequence of slots.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    columns: [Column; COLUMNS],
    bytes: Vec<u8>,
    count: usize,
}

impl Rows {
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    fn stride(&self) -> usize {
        self.columns.iter().map(|column| usize::from(column.width)).sum()
    }

    pub(super) fn get(&self, at: usize) -> Option<EntrySlot> {
        if at >= self.count {
            return None;
        }
        let stride = self.stride();
        let mut row = self.bytes.get(at * stride..(at + 1) * stride)?;
        let mut values = [0; COLUMNS];
        for (value, column) in values.iter_mut().zip(&self.columns) {
            let (difference, rest) = row.split_at_checked(usize::from(column.width))?;
            let mut bytes = [0; 8];
            for (to, from) in bytes.iter_mut().zip(difference) {
                *to = *from;
            }
            *value = column.base.wrapping_add(u64::from_le_bytes(bytes));
            row = rest;
        }
        Some(slot(values))
    }

    /// The slots from this index on.
    pub(super) fn from(&self, at: usize) -> impl Iterator<Item = EntrySlot> + '_ {
        (at..self.count).map_while(|at| self.get(at))
    }

    /// Replaces a slot.
    pub(super) fn set(&mut self, at: usize, slot: &EntrySlot) {
        let values = values(slot);
        self.fit(&values, &values);
        let stride = self.stride();
        if let Some(row) = self.bytes.get_mut(at * stride..(at + 1) * stride) {
            write(&self.columns, values, row);
        }
    }

    /// Inserts a slot.
    pub(super) fn insert(&mut self, at: usize, slot: &EntrySlot) {
        let values = values(slot);
        self.fit(&values, &values);
        let (stride, end) = (self.stride(), self.bytes.len());
        self.count += 1;
        self.bytes.resize(end + stride, 0);
        let from = (at * stride).min(end);
        self.bytes.copy_within(from..end, from + stride);
        if let Some(row) = self.bytes.get_mut(from..from + stride) {
            write(&self.columns, values, row);
        }
    }

    /// Appends slots.
    pub(super) fn extend(&mut self, slots: &[EntrySlot]) {
        let Some(first) = slots.first().map(values) else { return };
        let (mut lowest, mut highest) = (first, first);
        for slot in slots {
            for ((low, high), value) in lowest.iter_mut().zip(&mut highest).zip(values(slot)) {
                (*low, *high) = ((*low).min(value), (*high).max(value));
            }
        }
        self.fit(&lowest, &highest);
        self.count += slots.len();
        let mut at = self.bytes.len();
        let end = at + slots.len() * self.stride();
        // A difference is written with its full 8 bytes; the next one overwrites those beyond the
        // column's width.
        self.bytes.reserve_exact(end + DIFFERENCE_BYTES - at);
        self.bytes.resize(end + DIFFERENCE_BYTES, 0);
        for slot in slots {
            for (column, value) in self.columns.iter().zip(values(slot)) {
                if let Some(to) = self.bytes.get_mut(at..at + DIFFERENCE_BYTES) {
                    to.copy_from_slice(&value.wrapping_sub(column.base).to_le_bytes());
                }
                at += usize::from(column.width);
            }
        }
        self.bytes.truncate(end);
    }

    /// Frees unused memory.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Extends the columns to fit these numbers and those between them.
    fn fit(&mut self, lowest: &Values, highest: &Values) {
        let has = |values: &Values| {
            self.columns.iter().zip(values).all(|(column, &value)| column.has(value))
        };
        if self.count == 0 || !has(lowest) || !has(highest) {
            self.widen(lowest, highest);
        }
    }

    fn widen(&mut self, lowest: &Values, highest: &Values) {
        let mut columns = self.columns;
        for ((column, &low), &high) in columns.iter_mut().zip(lowest).zip(highest) {
            *column = column.with(low, self.count == 0).with(high, false);
        }
        let mut wider = Self { columns, bytes: Vec::new(), count: self.count };
        let stride = wider.stride();
        wider.bytes = vec![0; self.count * stride];
        if stride > 0 {
            for (row, slot) in wider.bytes.chunks_exact_mut(stride).zip(self.from(0)) {
                write(&columns, values(&slot), row);
            }
        }
        *self = wider;
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

fn write(columns: &[Column; COLUMNS], values: Values, mut row: &mut [u8]) {
    for (column, value) in columns.iter().zip(values) {
        let bytes = value.wrapping_sub(column.base).to_le_bytes();
        let Some((difference, rest)) = row.split_at_mut_checked(usize::from(column.width)) else {
            return;
        };
        for (to, from) in difference.iter_mut().zip(bytes) {
            *to = from;
        }
        row = rest;
    }
}

fn values(slot: &EntrySlot) -> Values {
    let RecordLocation { segment, offset, size } = slot.location;
    let (code, key_hash) = (slot.code().into(), slot.key_hash.into());
    [segment.into(), offset.into(), size.into(), slot.publish_time, code, key_hash]
}

fn slot([segment, offset, size, publish_time, code, key_hash]: Values) -> EntrySlot {
    let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let location =
        RecordLocation { segment: small(segment), offset: small(offset), size: small(size) };
    let key_hash = u16::try_from(key_hash).unwrap_or(u16::MAX);
    EntrySlot::coded(location, small(code), publish_time).with_key(key_hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Similar numbers, and occasionally any number.
    fn near(at: u64) -> impl Strategy<Value = u64> {
        prop_oneof![5 => at..at + 300, 1 => at.saturating_sub(70_000)..at + 70_000, 1 => any::<u64>()]
    }

    fn any_slot() -> impl Strategy<Value = EntrySlot> {
        let small = |at| near(at).prop_map(|value| u32::try_from(value & 0xffff_ffff).unwrap());
        let batch = proptest::option::of(0..5_u32);
        let key = prop_oneof![Just(0), any::<u16>()];
        (small(3), small(90_000), small(100), near(1_700_000_000_000), batch, key).prop_map(
            |(segment, offset, size, publish_time, batch, key)| {
                EntrySlot::new(RecordLocation { segment, offset, size }, batch, publish_time)
                    .with_key(key)
            },
        )
    }

    #[derive(Clone, Debug)]
    enum Step {
        Set(usize, EntrySlot),
        Insert(usize, EntrySlot),
        Extend(Vec<EntrySlot>),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (any::<usize>(), any_slot()).prop_map(|(at, slot)| Step::Set(at, slot)),
            (any::<usize>(), any_slot()).prop_map(|(at, slot)| Step::Insert(at, slot)),
            proptest::collection::vec(any_slot(), 0..5).prop_map(Step::Extend),
        ]
    }

    proptest! {
        #[test]
        fn rows_are_a_list(steps in proptest::collection::vec(step(), 1..60)) {
            let (mut rows, mut list) = (Rows::default(), Vec::new());
            for step in steps {
                match step {
                    Step::Set(..) if list.is_empty() => {}
                    Step::Set(at, slot) => {
                        let at = at % list.len();
                        rows.set(at, &slot);
                        list[at] = slot;
                    }
                    Step::Insert(at, slot) => {
                        let at = at % (list.len() + 1);
                        rows.insert(at, &slot);
                        list.insert(at, slot);
                    }
                    Step::Extend(slots) => {
                        rows.extend(&slots);
                        list.extend(slots);
                    }
                }
                prop_assert_eq!(rows.len(), list.len());
            }
            prop_assert_eq!(rows.from(0).collect::<Vec<_>>(), list);
        }
    }

    /// Slots take the same space when they are added together as when they are added one by one.
    #[test]
    fn many_take_no_more_than_one_after_the_other() {
        let slots: Vec<EntrySlot> = (0..1024_u32)
            .map(|at| {
                let location =
                    RecordLocation { segment: 7, offset: 4096 + at * 1100, size: 1000 + at % 100 };
                EntrySlot::new(location, None, 1_700_000_000_000 + u64::from(at / 4))
            })
            .collect();
        let (mut one_by_one, mut together) = (Rows::default(), Rows::default());
        slots.iter().for_each(|slot| one_by_one.insert(one_by_one.len(), slot));
        for some in slots.chunks(700) {
            together.extend(some);
        }
        assert_eq!(together.bytes, one_by_one.bytes);
    }

    /// In every direction, a column is widened a few times, and not for each slot.
    #[test]
    fn columns_grow_seldom() {
        let mut column = Column { base: 1 << 40, width: 0 };
        for (step, far) in [(1_u64, 100_000_u64), (77, 1_000_000)] {
            let mut grown = 0;
            for value in (0..far).map(|count| (1 << 40) - count * step) {
                grown += u32::from(!column.has(value));
                column = column.with(value, false);
            }
            assert!(grown <= 8 && column.width <= 5, "{grown} times to {}", column.width);
        }
    }

    #[test]
    fn neighbours_take_few_bytes() {
        let mut rows = Rows::default();
        for at in 0..1024_u32 {
            let location =
                RecordLocation { segment: 7, offset: 4096 + at * 1100, size: 1000 + at % 100 };
            rows.insert(
                rows.len(),
                &EntrySlot::new(location, None, 1_700_000_000_000 + u64::from(at / 4)),
            );
        }
        assert_eq!(rows.stride(), 5, "three bytes of the offset, one of the size, one of the time");
    }

    /// Slots of one topic among many, with batches, sizes up to 64 KiB, and all 1,024 within four
    /// hours.
    #[test]
    fn neighbours_that_lie_far_apart_take_eleven() {
        let mut rows = Rows::default();
        for at in 0..1024_u32 {
            let size = 100 + at * 31 % 65_000;
            let location = RecordLocation {
                segment: 7 + at / 50,
                offset: 4096 + at * 99_991 % 67_000_000,
                size,
            };
            let time = 1_700_000_000_000 + u64::from(at) * 14_000;
            rows.insert(
                rows.len(),
                &EntrySlot::new(location, (at % 3 == 0).then_some(at % 100), time),
            );
        }
        assert_eq!(rows.stride(), 11);
    }
}

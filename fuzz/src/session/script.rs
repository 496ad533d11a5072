//! Bytes as choices.

/// What is left of an input. Where it ends, every choice is the first one.
pub(super) struct Script<'a>(pub(super) &'a [u8]);

impl<'a> Script<'a> {
    pub(super) const fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(super) fn chance(&mut self, of: u8) -> bool {
        !self.is_over() && self.byte().is_multiple_of(of)
    }

    /// One of so many, from 0.
    pub(super) fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        let index = self.below(of.len());
        of.get(index).copied()
    }

    /// One of a list that is never empty.
    pub(super) fn one<T: Copy, const N: usize>(&mut self, of: [T; N]) -> T {
        self.pick(&of).expect("it is never empty")
    }

    /// Mostly a small number; otherwise one where numbers of some kind begin or end.
    pub(super) fn number(&mut self) -> u64 {
        let byte = u64::from(self.byte());
        match byte {
            0..=199 => byte % 32,
            200..=219 => u64::MAX - (byte - 200) % 3,
            220..=234 => i64::MAX.unsigned_abs() + byte % 3 - 1,
            235..=244 => u64::from(u32::MAX) + byte % 3 - 1,
            _ => u64::from(self.byte()) << 8 | u64::from(self.byte()),
        }
    }

    /// The same below zero, too.
    pub(super) fn signed(&mut self) -> i64 {
        self.number().cast_signed()
    }

    pub(super) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(super) fn text(&mut self) -> String {
        let count = self.below(12);
        String::from_utf8_lossy(self.bytes(count)).into_owned()
    }
}

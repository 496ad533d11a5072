//! Fingerprints of states: 128 bits, so that two different states of a search practically never
//! collide (with ten million states the odds are 10⁻²⁵), and parts that carry their fingerprints,
//! so that a step rehashes only the changed parts.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;

const KEYS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];
const FACTORS: [u64; 2] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db];

/// Two independent lanes of folded multiplication.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprint {
    lanes: [u64; 2],
}

impl Default for Fingerprint {
    fn default() -> Self {
        Self { lanes: KEYS }
    }
}

impl Fingerprint {
    /// The fingerprint of a value.
    pub fn of<T: Hash + ?Sized>(value: &T) -> u128 {
        let mut hasher = Self::default();
        value.hash(&mut hasher);
        hasher.both()
    }

    fn both(&self) -> u128 {
        let [low, high] = self.lanes;
        (u128::from(fold(high, FACTORS[0])) << 64) | u128::from(fold(low, FACTORS[1]))
    }
}

const fn fold(lane: u64, factor: u64) -> u64 {
    let product = (lane as u128) * (factor as u128);
    ((product >> 64) as u64) ^ ((product & 0xffff_ffff_ffff_ffff) as u64)
}

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_usize(bytes.len());
    }

    fn write_u64(&mut self, word: u64) {
        // Adding the key keeps a lane from sticking at zero.
        for (lane, (key, factor)) in self.lanes.iter_mut().zip(KEYS.iter().zip(FACTORS)) {
            *lane = fold(*lane ^ word, factor).wrapping_add(*key);
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_u128(&mut self, value: u128) {
        self.write_u64((value >> 64) as u64);
        self.write_u64((value & 0xffff_ffff_ffff_ffff) as u64);
    }

    fn finish(&self) -> u64 {
        fold(self.lanes[0], FACTORS[1])
    }
}

/// A part of a state, shared by all states that contain it.
#[derive(Clone, Debug)]
pub struct Part<T>(Rc<(u128, T)>);

impl<T: Hash> Part<T> {
    /// Wraps a part and takes its fingerprint.
    pub fn new(value: T) -> Self {
        Self(Rc::new((Fingerprint::of(&value), value)))
    }
}

impl<T: Hash + Clone> Part<T> {
    /// Changes a copy of the part.
    pub fn change<R>(&mut self, with: impl FnOnce(&mut T) -> R) -> R {
        let mut value = T::clone(self);
        let result = with(&mut value);
        *self = Self::new(value);
        result
    }
}

impl<T> Deref for Part<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.1
    }
}

impl<T> Hash for Part<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.0.hash(state);
    }
}

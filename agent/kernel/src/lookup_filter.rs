//! The filter before an index: bits in lines of 64 bytes, to the bit what `lookup/filter.py` says.
//!
//! Most keys that are asked for are in no table. Such a key costs one read from memory, and no branch that depends on it
//! but the last, which is nearly always guessed right; so other work goes on while the line is fetched.

use pyo3::prelude::*;

/// Bytes of a line: what a processor fetches at once.
const LINE: usize = 64;
/// Bits that name a bit of a line.
const NAME: u32 = 9;

/// How a filter is made.
#[derive(Clone, Copy, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Shape {
    lines: u64,
    tests: u32,
}

impl Shape {
    /// Whether a filter of so many bytes can be so made.
    pub fn fits(self, size: usize) -> bool {
        self.lines > 0
            && (1..=64 / NAME).contains(&self.tests)
            && self.lines.checked_mul(LINE as u64) == Some(size as u64)
    }

    /// The line of a hash, and what names its bits, from the highest on.
    fn spot(self, hash: u64) -> (usize, u64) {
        let wide = u128::from(hash) * u128::from(self.lines);
        ((wide >> 64) as usize, wide as u64)
    }

    /// Whether a key with this hash may be there; never false for one that is.
    pub fn may_hold(self, filter: &[u8], hash: u64) -> bool {
        let (line, mut names) = self.spot(hash);
        let Some(line) = filter[line * LINE..].first_chunk::<LINE>() else { return true };
        let mut all = 1;
        for _ in 0..self.tests {
            let bit = (names >> (64 - NAME)) as usize;
            all &= line[bit / 8] >> (bit % 8);
            names <<= NAME;
        }
        all & 1 == 1
    }

    /// The filter of keys with these hashes.
    pub fn made(self, hashes: impl Iterator<Item = u64>) -> Vec<u8> {
        let mut filter = vec![0; self.lines as usize * LINE];
        for hash in hashes {
            let (line, mut names) = self.spot(hash);
            for _ in 0..self.tests {
                let bit = (names >> (64 - NAME)) as usize;
                filter[line * LINE + bit / 8] |= 1 << (bit % 8);
                names <<= NAME;
            }
        }
        filter
    }
}

//! What holds for texts of one field that come again: of most fields, such as a program's path or a user's name, the
//! same few texts fill most events, and a search costs many times what it takes to recognize one of them.
//!
//! A text is kept when it comes a second time, in place of what was kept where its hash points to. So texts that never
//! come again cost a hash each and put nothing in the place of those that do.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::fields::Mark;
use crate::layout::GroupNumber;

/// Texts that are kept at most, a power of two.
const PLACES: usize = 1 << 13;
/// Bytes of a text that is kept.
const MAX_TEXT: usize = 256;
/// Predicates that are kept with it.
const MAX_MARKS: usize = 64;

struct Known {
    group: GroupNumber,
    text: Box<[u8]>,
    marks: Box<[Mark]>,
}

/// See the module's text.
pub struct Memo {
    known: Box<[Option<Known>]>,
    /// By place the hash of the last text that was not known there.
    met: Box<[u64]>,
    hasher: RandomState,
}

impl Default for Memo {
    fn default() -> Self {
        let known = std::iter::repeat_with(|| None).take(PLACES).collect();
        Self { known, met: vec![0; PLACES].into(), hasher: RandomState::default() }
    }
}

impl Memo {
    /// What holds, and what may, for `text`, the inside of a JSON string as it is written, in the field of `group`. Err:
    /// that is not known; a place: it is to be kept there.
    pub fn recall(&mut self, group: GroupNumber, text: &[u8]) -> Result<&[Mark], Option<usize>> {
        if text.len() > MAX_TEXT {
            return Err(None);
        }
        let hash = self.hasher.hash_one((group, text));
        let place = hash as usize % PLACES;
        match &self.known[place] {
            Some(known) if known.group == group && *known.text == *text => Ok(&known.marks),
            _ => Err((std::mem::replace(&mut self.met[place], hash) == hash).then_some(place)),
        }
    }

    /// Keep what was found for a text at the place that `recall` gave.
    pub fn keep(&mut self, place: usize, group: GroupNumber, text: &[u8], marks: &[Mark]) {
        if marks.len() <= MAX_MARKS {
            self.known[place] = Some(Known { group, text: text.into(), marks: marks.into() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_twice_is_kept() {
        let mut memo = Memo::default();
        assert!(matches!(memo.recall(1, b"a"), Err(None)));
        let Err(Some(place)) = memo.recall(1, b"a") else { panic!("it came twice") };
        memo.keep(place, 1, b"a", &[Mark::Holds(7), Mark::Open(8)]);
        assert!(matches!(memo.recall(1, b"a"), Ok([Mark::Holds(7), Mark::Open(8)])));
        assert!(memo.recall(2, b"a").is_err() && memo.recall(1, b"b").is_err());
    }

    #[test]
    fn what_never_comes_again_takes_no_place() {
        let mut memo = Memo::default();
        let place = memo.recall(1, b"a").err().and(memo.recall(1, b"a").err()).flatten().unwrap();
        memo.keep(place, 1, b"a", &[]);
        for number in 0..100_000_u32 {
            assert!(memo.recall(1, &number.to_le_bytes()).is_err());
        }
        assert!(memo.recall(1, b"a").is_ok());
    }

    #[test]
    fn long_texts_and_many_marks_are_not_kept() {
        let (mut memo, long) = (Memo::default(), [b'a'; MAX_TEXT + 1]);
        assert!((0..2).all(|_| matches!(memo.recall(1, &long), Err(None))));
        memo.keep(0, 1, b"a", &[Mark::Holds(1); MAX_MARKS + 1]);
        assert!(memo.known[0].is_none());
    }
}

//! Which events of a chunk hold which rules' literals: the scan of `engine/prefilter.py`, natively.
//!
//! One scan finds what the patterns of the prefilter's database hit; hits are grouped by event. A pattern **says** of
//! some rules that the event holds what they need, in one of two kinds. A rule is named that has the first kind and, as
//! it needs two, the second, too, or needs one only (`single`), or whose other literal may be in another event
//! (`apart`). An event that holds an **escape** is searched once more with its escapes undone.
//!
//! Never too few are named, sometimes too many: a hit across two events with explicit ends is the second's; where a run
//! has more than `MAX_HITS` hits, or its search fails, each of its events is a candidate of every rule, and so are the
//! further events with hits of an answer that has come to `MAX_ANSWER`.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use memchr::{memchr, memchr_iter, memmem, memrchr};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::hs::{Database, Hit, Library, Scratch};
use crate::numbers;

/// Hits in one run after which each of its events is a candidate of every rule.
pub const MAX_HITS: usize = 1 << 16;

/// Numbers in one answer after which rules are no longer listed.
pub const MAX_ANSWER: usize = 1 << 20;

/// In place of a number of rules: all those asked for.
pub const EVERY: u32 = u32::MAX;

/// Behind what is scanned: the library may miss a match that ends at the very last byte.
const PAD: &[u8] = b"\n\n";

/// How the events of a chunk lie in its bytes.
#[derive(Clone, Copy)]
pub enum Events<'a> {
    /// Each is followed by a newline and holds none.
    Lines,
    /// Each ends where the next begins, at these positions.
    Ends(&'a [u32]),
}

impl Events<'_> {
    /// Start and end of the event that holds byte `at`, within `run` of whole events.
    fn around(self, data: &[u8], run: &Range<usize>, at: usize) -> Range<usize> {
        match self {
            Self::Lines => {
                let start = memrchr(b'\n', &data[run.start..at]).map_or(run.start, |found| run.start + found + 1);
                let end = memchr(b'\n', &data[at..run.end]).map_or(run.end, |found| at + found);
                start..end
            }
            Self::Ends(ends) => {
                let next = ends.partition_point(|&end| end as usize <= at);
                let start = if next == 0 { 0 } else { ends[next - 1] as usize };
                start..ends.get(next).map_or(run.end, |&end| end as usize)
            }
        }
    }

    /// Call `each` with start and end of every event of `run`.
    pub fn each(self, data: &[u8], run: &Range<usize>, mut each: impl FnMut(usize, usize)) {
        let mut start = run.start;
        match self {
            Self::Lines => {
                for found in memchr_iter(b'\n', &data[run.clone()]) {
                    each(start, run.start + found);
                    start = run.start + found + 1;
                }
            }
            Self::Ends(ends) => {
                let first = ends.partition_point(|&end| end as usize <= run.start);
                for end in ends[first..].iter().map(|&end| end as usize).take_while(|&end| end <= run.end) {
                    each(start, end);
                    start = end;
                }
            }
        }
    }
}

/// A set of rules, a bit each.
pub type Rules = Vec<u64>;

/// What a pattern says of 64 rules: which of them have their first and their second kind.
#[derive(Clone, Copy, Default)]
struct Said {
    word: u32,
    first: u64,
    second: u64,
}

/// What the patterns of a database say of rules.
pub struct Meaning {
    words: usize,
    said: Vec<Said>,
    /// Per pattern, where in `said` it begins; with the end behind the last.
    begins: Vec<u32>,
    escapes: Vec<bool>,
    single: Rules,
}

impl Meaning {
    /// Of `rules` rules. `says`: per pattern numbers, `rule` for the first kind, `rules + rule` for the second; the last
    /// is that of numbers. `escapes`: patterns. `single`: the rules that need the first kind only.
    pub fn new(rules: usize, says: &[Vec<u32>], escapes: &[u32], single: &[u8]) -> Result<Self, String> {
        let words = rules.div_ceil(64);
        if says.is_empty() {
            return Err("it is not said what numbers mean".to_owned());
        }
        let (mut said, mut begins, mut last) = (Vec::new(), vec![0], vec![None; words]);
        for numbers in says {
            let begin = said.len();
            for &number in numbers {
                let (rule, second) = (number as usize % rules.max(1), number as usize >= rules);
                if number as usize >= 2 * rules {
                    return Err(format!("no rule is meant by {number}"));
                }
                let at = match last[rule / 64] {
                    Some(at) if at >= begin => at,
                    _ => {
                        said.push(Said { word: (rule / 64) as u32, ..Said::default() });
                        last[rule / 64] = Some(said.len() - 1);
                        said.len() - 1
                    }
                };
                *(if second { &mut said[at].second } else { &mut said[at].first }) |= 1 << (rule % 64);
            }
            begins.push(said.len() as u32);
        }
        let mut is_escape = vec![false; says.len()];
        for &pattern in escapes {
            *is_escape.get_mut(pattern as usize).ok_or("an escape that is no pattern")? = true;
        }
        Ok(Self { words, said, begins, escapes: is_escape, single: bits(single, words) })
    }

    /// What stands for a number among the patterns.
    fn number(&self) -> u32 {
        self.escapes.len() as u32 - 1
    }

    /// Whether a rule of `within` is one that numbers are noted for.
    fn asks_for_numbers(&self, within: &[u64]) -> bool {
        self.of(self.number()).iter().any(|said| within[said.word as usize] & (said.first | said.second) != 0)
    }

    fn of(&self, pattern: u32) -> &[Said] {
        match (self.begins.get(pattern as usize), self.begins.get(pattern as usize + 1)) {
            (Some(&from), Some(&to)) => &self.said[from as usize..to as usize],
            _ => &[],
        }
    }
}

/// The set whose bits stand in `bytes`, least significant first, in `words` words.
#[must_use]
pub fn bits(bytes: &[u8], words: usize) -> Rules {
    let mut set = vec![0; words];
    for (at, &byte) in bytes.iter().enumerate().take(words * 8) {
        set[at / 8] |= u64::from(byte) << (at % 8 * 8);
    }
    set
}

/// What one event holds, as far as its hits have been noted.
struct Held {
    first: Rules,
    second: Rules,
    /// A bit per word that may not be zero.
    dirty: Rules,
    /// Per pattern, the last event that noted it.
    noted: Vec<u32>,
    event: u32,
}

impl Held {
    fn new(meaning: &Meaning) -> Self {
        Self {
            first: vec![0; meaning.words],
            second: vec![0; meaning.words],
            dirty: vec![0; meaning.words.div_ceil(64)],
            noted: vec![0; meaning.escapes.len()],
            event: 1,
        }
    }

    /// True when `pattern` is an escape.
    fn note(&mut self, meaning: &Meaning, pattern: u32) -> bool {
        match self.noted.get_mut(pattern as usize) {
            Some(noted) if *noted != self.event => *noted = self.event,
            _ => return false,
        }
        for said in meaning.of(pattern) {
            let word = said.word as usize;
            self.first[word] |= said.first;
            self.second[word] |= said.second;
            self.dirty[word / 64] |= 1 << (word % 64);
        }
        meaning.escapes[pattern as usize]
    }

    /// Append the rules of `within` that the event may match, ascending, and forget it.
    fn name(&mut self, meaning: &Meaning, within: &[u64], apart: bool, out: &mut Vec<u32>) {
        for (at, dirty) in self.dirty.iter_mut().enumerate() {
            while *dirty != 0 {
                let word = at * 64 + dirty.trailing_zeros() as usize;
                *dirty &= *dirty - 1;
                let needed = if apart { u64::MAX } else { self.second[word] | meaning.single[word] };
                let mut named = self.first[word] & needed & within[word];
                (self.first[word], self.second[word]) = (0, 0);
                while named != 0 {
                    out.push((word * 64) as u32 + named.trailing_zeros());
                    named &= named - 1;
                }
            }
        }
        self.event = self.event.wrapping_add(1);
        if self.event == 0 {
            self.noted.fill(0);
            self.event = 1;
        }
    }
}

/// The databases of a prefilter and the memory of one search at a time.
pub struct Search {
    meaning: Meaning,
    literals: Database,
    scratch: Scratch,
    held: Held,
    hits: Vec<Hit>,
    padded: Vec<u8>,
    /// Searches that failed, so that every event was named.
    pub panics: u64,
}

/// What is asked of a search: `within` these rules; `apart`: one kind is enough.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// Of as many words as the meaning has.
    pub within: &'a [u64],
    /// What an event needs may be in other events.
    pub apart: bool,
}

impl Search {
    /// `literals`: the serialized database whose patterns `meaning` is about.
    pub fn new(library: Library, meaning: Meaning, literals: &[u8]) -> Result<Self, String> {
        let mut scratch = Scratch::new(library);
        let literals = library.load(literals)?;
        scratch.fit(&literals)?;
        let held = Held::new(&meaning);
        Ok(Self { meaning, literals, scratch, held, hits: Vec::new(), padded: Vec::new(), panics: 0 })
    }

    /// How many words a set of rules has.
    #[must_use]
    pub fn words(&self) -> usize {
        self.meaning.words
    }

    /// Append start, end, number of rules and rules of each event of `data[run]` that may match one of those asked for,
    /// in order; the number is `EVERY` when they are not listed. `run` is of whole events.
    pub fn run(&mut self, data: &[u8], events: Events, run: Range<usize>, asked: Asked, out: &mut Vec<u32>) {
        let before = out.len();
        let searched = catch_unwind(AssertUnwindSafe(|| self.search(data, events, &run, asked, out)));
        if matches!(searched, Ok(true)) {
            return;
        }
        if searched.is_err() {
            self.panics += 1;
            self.held = Held::new(&self.meaning);
        }
        out.truncate(before);
        events.each(data, &run, |start, end| out.extend([start as u32, end as u32, EVERY]));
    }

    /// False when there were too many hits.
    fn search(&mut self, data: &[u8], events: Events, run: &Range<usize>, asked: Asked, out: &mut Vec<u32>) -> bool {
        self.hits.clear();
        let whole = &data[run.clone()];
        let scanned = if whole.last() == Some(&b'\n') {
            whole
        } else {
            self.padded.clear();
            self.padded.extend_from_slice(whole);
            self.padded.extend_from_slice(PAD);
            &self.padded
        };
        if !self.scratch.scan(&self.literals, scanned, MAX_HITS) {
            return false;
        }
        std::mem::swap(&mut self.hits, &mut self.scratch.hits);
        if self.meaning.asks_for_numbers(asked.within) && !self.numbers(data, events, run) {
            return false;
        }
        self.hits.sort_by_key(|&(_, to)| to);
        let hits = std::mem::take(&mut self.hits);
        let mut left = hits.as_slice();
        while let Some(&(_, to)) = left.first() {
            let event = events.around(data, run, run.start + (to as usize).saturating_sub(1));
            let here = left.iter().take_while(|&&(_, to)| run.start + to as usize <= event.end).count().max(1);
            let mut escaped = false;
            for &(pattern, _) in &left[..here] {
                escaped |= self.held.note(&self.meaning, pattern);
            }
            left = &left[here..];
            let at = out.len();
            out.extend([event.start as u32, event.end as u32, 0]);
            let known = !escaped || self.again(&data[event]);
            self.held.name(&self.meaning, asked.within, asked.apart, out);
            let named = out.len() - at - 3;
            if !known || (named > 0 && out.len() > MAX_ANSWER) {
                out.truncate(at + 3);
                out[at + 2] = EVERY;
            } else if named == 0 {
                out.truncate(at);
            } else {
                out[at + 2] = named as u32;
            }
        }
        self.hits = hits;
        true
    }

    /// Add the numbers of `data[run]` that may be written otherwise to the hits; false when there are too many.
    fn numbers(&mut self, data: &[u8], events: Events, run: &Range<usize>) -> bool {
        let (hits, number) = (&mut self.hits, self.meaning.number());
        let mut left = MAX_HITS;
        let mut note = |end: usize| {
            if left > 0 {
                left -= 1;
                hits.push((number, end as u32));
            }
        };
        let whole = &data[run.clone()];
        numbers::ends(whole, &mut note);
        let mut bare = |start: usize, end: usize| {
            if numbers::is_bare(&data[start..end]) {
                note(end - run.start);
            }
        };
        match events {
            // Of all others the newline before them stands before the number.
            Events::Lines => bare(run.start, run.start + memchr(b'\n', whole).unwrap_or(whole.len())),
            Events::Ends(_) => events.each(data, run, bare),
        }
        left > 0
    }

    /// Note what `event` holds once its escapes are undone; false when that is too much.
    fn again(&mut self, event: &[u8]) -> bool {
        self.padded.clear();
        unescape(event, &mut self.padded);
        self.padded.push(b'\n');
        fold(event, &mut self.padded);
        self.padded.extend_from_slice(PAD);
        if !self.scratch.scan(&self.literals, &self.padded, MAX_HITS) {
            return false;
        }
        for &(pattern, _) in &self.scratch.hits {
            self.held.note(&self.meaning, pattern);
        }
        let mut held = false;
        numbers::ends(&self.padded, |_| held = true);
        if held {
            self.held.note(&self.meaning, self.meaning.number());
        }
        true
    }
}

/// Whether literals are made of this character (`_SAFE` of `plan/literals.py`).
fn is_safe(char: u32) -> bool {
    (0x20..0x7f).contains(&char) && !matches!(char, 0x26 | 0x27 | 0x3c | 0x3e)
}

/// `unescaped` of `plan/literals.py`: escapes of ASCII and of what folds to it are undone, read as JSON.
fn unescape(event: &[u8], out: &mut Vec<u8>) {
    let mut left = event;
    while let Some((&byte, rest)) = left.split_first() {
        let (taken, char) = match left {
            [b'\\', b'u', b'0', b'0', high @ b'0'..=b'7', low, ..] if low.is_ascii_hexdigit() => {
                let char = hex(*high) << 4 | hex(*low);
                (6, is_safe(char).then_some(char as u8))
            }
            [b'\\', b'u', b'0', b'1', b'7', b'f' | b'F', ..] => (6, Some(b's')),
            [b'\\', b'u', b'2', b'1', b'2', b'a' | b'A', ..] => (6, Some(b'k')),
            [b'\\', 0..=0x7f, ..] => (2, None),
            _ => {
                if let Some((taken, char)) = verbatim(left) {
                    (taken, Some(char))
                } else {
                    out.push(byte);
                    left = rest;
                    continue;
                }
            }
        };
        match char {
            Some(char) => out.push(char),
            None => out.extend_from_slice(&left[..taken]),
        }
        left = &left[taken..];
    }
}

/// `folded` of `plan/literals.py`: what folds to ASCII as that, read verbatim or as XML.
fn fold(event: &[u8], out: &mut Vec<u8>) {
    let mut left = event;
    while let Some((&byte, rest)) = left.split_first() {
        if let Some((taken, char)) = verbatim(left).or_else(|| entity(left)) {
            out.push(char);
            left = &left[taken..];
        } else {
            out.push(byte);
            left = rest;
        }
    }
}

/// U+017F or U+212A at the start of `text`: its length and what it folds to.
fn verbatim(text: &[u8]) -> Option<(usize, u8)> {
    match text {
        [0xc5, 0xbf, ..] => Some((2, b's')),
        [0xe2, 0x84, 0xaa, ..] => Some((3, b'k')),
        _ => None,
    }
}

/// A reference to a character by its number at the start of `text`: its length and the character, if it is safe.
fn entity(text: &[u8]) -> Option<(usize, u8)> {
    let number = text.strip_prefix(b"&#")?;
    let (digits, most, radix) = match number {
        [b'x' | b'X', digits @ ..] => (digits, 6, 16),
        digits => (digits, 7, 10),
    };
    let length = digits.iter().take(most).take_while(|&&byte| char::from(byte).is_digit(radix)).count();
    if length == 0 || digits.get(length) != Some(&b';') {
        return None;
    }
    let value = digits[..length].iter().fold(0, |value, &byte| value * radix + hex(byte));
    let char = match value {
        0x17f => b's',
        0x212a => b'k',
        value if is_safe(value) => value as u8,
        _ => return None,
    };
    Some((text.len() - digits.len() + length + 1, char))
}

fn hex(digit: u8) -> u32 {
    char::from(digit).to_digit(16).unwrap_or(0)
}

/// Numbers as Python gets them: native 32-bit integers.
pub fn packed<'py>(py: Python<'py>, numbers: &[u32]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, numbers.len() * 4, |bytes| {
        for (place, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
            *place = number.to_ne_bytes();
        }
        Ok(())
    })
}

/// Numbers as Python gives them.
#[must_use]
pub fn numbers_of(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|one| u32::from_ne_bytes(*one)).collect()
}

/// Whether ``data`` holds ``text``: what Python's ``in`` says, in a tenth of its time.
#[pyfunction]
#[must_use]
pub fn holds(data: &[u8], text: &[u8]) -> bool {
    memmem::find(data, text).is_some()
}

/// The scan of a prefilter, for Python: which events of a chunk may match which rules.
#[pyclass(frozen)]
pub struct Lines {
    state: Mutex<State>,
}

struct State {
    search: Search,
    within: Vec<Rules>,
}

impl Lines {
    fn state<R: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut State) -> R + Send) -> R {
        py.detach(|| work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[pymethods]
impl Lines {
    /// ``library``: the file of the imported module ``hyperscan._hs_ext``. ``literals``: the prefilter's serialized
    /// database, whose digest was checked.
    ///
    /// ``says``: per pattern, and last for a number that may be written otherwise (``numbers.rs``), ``rule`` for each
    /// rule of which the event then holds the first kind of literal, and ``rules + rule`` for the second. ``escapes``:
    /// the patterns after which an event is searched once more with its escapes undone. ``single``: the rules that need
    /// the first kind alone, as a bit each, little-endian.
    ///
    /// Raises ``ValueError`` when a database cannot be loaded or a number is out of range.
    #[new]
    #[allow(clippy::needless_pass_by_value)]
    fn new(
        library: &str,
        literals: &[u8],
        rules: usize,
        says: Vec<Vec<u32>>,
        escapes: Vec<u32>,
        single: &[u8],
    ) -> PyResult<Self> {
        let made = || {
            let meaning = Meaning::new(rules, &says, &escapes, single)?;
            let search = Search::new(Library::open(library)?, meaning, literals)?;
            Ok(Self { state: Mutex::new(State { search, within: Vec::new() }) })
        };
        made().map_err(|error: String| PyValueError::new_err(error))
    }

    /// Register rules that an input's events can meet, a bit each, little-endian; returns what ``candidates`` takes.
    fn within(&self, py: Python<'_>, rules: &[u8]) -> usize {
        self.state(py, |state| {
            state.within.push(bits(rules, state.search.words()));
            state.within.len() - 1
        })
    }

    /// The events of a chunk that may match a rule of ``within``, in order, as native 32-bit integers: start, end,
    /// number of rules, the rules, ascending; the number is ``EVERY`` when they are not listed: each of ``within``.
    ///
    /// ``ends``: an ``array("I")`` of where events end; None: each is followed by a newline. ``apart``: of rules that
    /// need two literals one is enough. ``runs``: native 32-bit integers, start and end of each part to search, ascending,
    /// each of whole events (of lines with their newlines); None: all of it.
    ///
    /// Raises ``ValueError`` when ``within`` or a run is none.
    #[pyo3(signature = (data, ends, within, apart, runs = None))]
    fn candidates<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        ends: Option<PyBuffer<u32>>,
        within: usize,
        apart: bool,
        runs: Option<&[u8]>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let ends = ends.map(|ends| ends.to_vec(py)).transpose()?;
        let events = ends.as_deref().map_or(Events::Lines, Events::Ends);
        let runs = runs.map_or_else(|| vec![0, data.len() as u32], numbers_of);
        let found = self.state(py, |state| {
            let asked = Asked { within: state.within.get(within)?, apart };
            let mut found = Vec::new();
            for run in runs.chunks(2) {
                let run = *run.first()? as usize..*run.get(1)? as usize;
                data.get(run.clone())?;
                state.search.run(data, events, run, asked, &mut found);
            }
            Some(found)
        });
        let found = found.ok_or_else(|| PyValueError::new_err("no such rules or no such run"))?;
        packed(py, &found)
    }

    /// Searches that failed within, after which every event was named.
    #[getter]
    fn panics(&self, py: Python<'_>) -> u64 {
        self.state(py, |state| state.search.panics)
    }

    /// In place of a number of rules: all those asked for.
    #[classattr]
    #[pyo3(name = "EVERY")]
    const EVERY_RULE: u32 = EVERY;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unescaped(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        unescape(text, &mut out);
        out
    }

    fn folded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        fold(text, &mut out);
        out
    }

    #[test]
    fn escapes_are_undone_from_left_to_right() {
        assert_eq!(unescaped(br"\u0061lph\u0041"), b"alphA");
        assert_eq!(unescaped(br"\\u0061"), br"\\u0061");
        assert_eq!(unescaped(br"\u003c\u0022\n\u000a\u0080"), br#"\u003c"\n\u000a\u0080"#);
        assert_eq!(unescaped(b"\\u017fi\\u212A \xc5\xbfi\xe2\x84\xaa \\"), b"sik sik \\");
        assert_eq!(unescaped(b"\\\xc5\xbf \\u00"), b"\\s \\u00");
    }

    #[test]
    fn entities_are_undone_as_xml() {
        assert_eq!(folded(b"&#x61;&#108;&#0000112;h&#x000041;"), b"alphA");
        assert_eq!(folded(b"&#x3c;&#38;&#0000000112;&#;&#x;&#12"), b"&#x3c;&#38;&#0000000112;&#;&#x;&#12");
        assert_eq!(folded(b"&#383;&#x212A;\xe2\x84\xaa\\u0041"), b"skk\\u0041");
        assert_eq!(folded(b"&#xffffff;&#9999999;"), b"&#xffffff;&#9999999;");
    }

    #[test]
    fn a_rule_needs_both_kinds() {
        let says = [vec![0, 1, 71], vec![70, 70], vec![2, 73], vec![]];
        let meaning = Meaning::new(71, &says, &[2], &[0b11]).unwrap();
        let mut held = Held::new(&meaning);
        let within = vec![u64::MAX; 2];
        let mut named = |patterns: &[u32], within: &[u64], apart| {
            let escaped = patterns.iter().filter(|&&pattern| held.note(&meaning, pattern)).count() > 0;
            let mut out = Vec::new();
            held.name(&meaning, within, apart, &mut out);
            (out, escaped)
        };
        assert!(Meaning::new(71, &[vec![142]], &[], &[]).is_err());
        assert!(Meaning::new(71, &says, &[4], &[]).is_err());
        assert_eq!(named(&[0, 0], &within, false), (vec![0, 1], false));
        assert_eq!(named(&[1], &within, false), (vec![], false));
        assert_eq!(named(&[1], &within, true), (vec![70], false));
        assert_eq!(named(&[2, 1, 0], &within, false), (vec![0, 1, 2], true));
        assert_eq!(named(&[2, 1, 0], &[0b100, 0], false), (vec![2], true));
        assert_eq!(named(&[3, 9], &within, false), (vec![], false));
    }

    #[test]
    fn events_around_a_byte() {
        let data = b"ab\n\ncd\n";
        assert_eq!(Events::Lines.around(data, &(0..7), 1), 0..2);
        assert_eq!(Events::Lines.around(data, &(0..7), 4), 4..6);
        assert_eq!(Events::Lines.around(data, &(4..7), 4), 4..6);
        let ends = Events::Ends(&[1, 4, 7]);
        assert_eq!(ends.around(data, &(0..7), 0), 0..1);
        assert_eq!(ends.around(data, &(0..7), 1), 1..4);
        assert_eq!(ends.around(data, &(4..7), 6), 4..7);
    }

    #[test]
    fn every_event_of_a_run() {
        let spans = |events: Events, run| {
            let mut found = Vec::new();
            events.each(b"ab\n\ncd\n", &run, |start, end| found.push((start, end)));
            found
        };
        assert_eq!(spans(Events::Lines, 0..7), [(0, 2), (3, 3), (4, 6)]);
        assert_eq!(spans(Events::Lines, 3..7), [(3, 3), (4, 6)]);
        assert_eq!(spans(Events::Ends(&[1, 4, 7]), 0..7), [(0, 1), (1, 4), (4, 7)]);
        assert_eq!(spans(Events::Ends(&[1, 4, 7]), 1..4), [(1, 4)]);
        assert_eq!(spans(Events::Ends(&[]), 0..0), []);
    }
}

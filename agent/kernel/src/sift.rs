//! Lines that hold literals: which of the rules that have these do surely not match.
//!
//! Of a line whose header is read here (`header.rs`) message and program are known, and what keyword searches read where
//! the message is of no format; all other fields are open. A message that is a JSON object is one of `events.rs`: the
//! same structures, each with what the header has. Any other line keeps all its rules.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use foldhash::HashMap;
use memchr::memmem::{Finder, find};

use crate::events::{Answer, Plan, SURE, State};
use crate::fields::{PAD, Place, Predicate, Text};
use crate::header::{self, Header};
use crate::json::{Kind, Leaf};
use crate::layout::{GroupNumber, Layout};
use crate::lines::{EVERY, Events, MAX_ANSWER};

/// Bytes beyond which a line keeps its rules.
const MAX_LINE: usize = 1 << 20;

/// What the lines of an input are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Not known here.
    Nothing,
    /// Syslog, where they begin with a priority.
    Syslog,
    /// A message each.
    Text,
}

/// What is asked about the events of one kind of input.
pub struct View {
    /// See `Reads`.
    pub reads: Reads,
    /// The rules that they can meet, ascending.
    pub rules: Vec<u32>,
    /// Those that need no literal, ascending.
    pub always: Vec<u32>,
}

/// Where rules ask for what is known of a line, and when it is not.
pub struct Texts {
    /// Groups of the message.
    pub message: Vec<GroupNumber>,
    /// Groups of the program.
    pub program: Vec<GroupNumber>,
    /// Groups of keyword searches.
    pub keywords: Vec<GroupNumber>,
    /// What holds of a message that is there.
    pub with_message: Vec<Predicate>,
    /// What holds of a program that is there.
    pub with_program: Vec<Predicate>,
    /// What is tested by itself where little is asked.
    pub direct: HashMap<Predicate, Direct>,
    /// By rule how many of these it asks for.
    pub asks: Vec<u32>,
    /// With one of them, a line may name its program otherwise.
    pub named_by: Vec<Finder<'static>>,
    /// Whether a message that begins with this byte may be of a format.
    pub formats: [bool; 256],
    /// What a message holds within so many bytes that is of a format behind other words.
    pub prefixed: (Vec<u8>, usize),
}

/// A test of one text that needs no database.
pub struct Direct {
    /// Where the text must stand; None: it is the whole.
    pub place: Option<Place>,
    /// Whether case counts.
    pub cased: bool,
    /// The text, folded unless `cased`.
    pub text: Finder<'static>,
}

impl Direct {
    /// Whether it holds for a text.
    #[must_use]
    pub fn holds(&self, text: Text) -> bool {
        let padded = if self.cased { text.padded } else { text.folded };
        let (text, own) = (&padded[..padded.len() - PAD.len()], self.text.needle());
        match self.place {
            None => text == own,
            Some(Place::Within) => self.text.find(text).is_some(),
            Some(place) => place.holds(text, own),
        }
    }
}

/// Direct tests up to which they are cheaper than one search for all that rules ask of a text.
const FEW: u32 = 16;

const PROGRAM: usize = 1;
const KEYWORDS: usize = 2;

impl Texts {
    /// The layouts of a line by what is known beside the message (`PROGRAM`, `KEYWORDS`), each with what holds.
    pub(crate) fn layouts(&self, groups: usize) -> [(Layout, Vec<Predicate>); 4] {
        std::array::from_fn(|known| {
            let mut holds = self.with_message.clone();
            let mut sources = BTreeMap::new();
            let mut give = |groups: &[GroupNumber], leaf: &'static [u32]| {
                sources.extend(groups.iter().map(|&group| (group, leaf)));
            };
            give(&self.message, &[0]);
            if known & KEYWORDS != 0 {
                give(&self.keywords, &[0]);
            }
            if known & PROGRAM != 0 {
                give(&self.program, &[1]);
                holds.extend(&self.with_program);
            }
            let mut layout = Layout::new(groups, sources, HashMap::default(), None);
            layout.partial = true;
            (layout, holds)
        })
    }

    fn known(&self, line: &[u8], header: Option<&Header>, start: usize) -> usize {
        let program = header.and_then(|header| header.program);
        let named = program.is_some() && self.named_by.iter().all(|name| name.find(line).is_none());
        let more = header.is_some_and(|header| header.data) || program.is_some_and(|program| program.starts_with(b"%"));
        let message = &line[start..];
        let (part, within) = (&self.prefixed.0, message.len().min(self.prefixed.1));
        let format = header.is_some()
            && (message.first().is_some_and(|&byte| self.formats[usize::from(byte)])
                || find(&message[..within], part).is_some());
        usize::from(named) * PROGRAM + usize::from(!more && !format) * KEYWORDS
    }
}

/// Events of a chunk with the rules that have their literals.
pub struct Named<'a> {
    /// The chunk.
    pub data: &'a [u8],
    /// How its events lie in it.
    pub events: Events<'a>,
    /// Start and end of each part that was searched.
    pub runs: &'a [u32],
    /// Start, end, number of rules, rules: of each event with literals, in order (`lines.rs`).
    pub found: &'a [u32],
    /// Records in it may be brought together with others.
    pub apart: bool,
}

/// The rows of `found`; None: every rule.
fn rows(mut found: &[u32]) -> impl Iterator<Item = (u32, u32, Option<&[u32]>)> {
    std::iter::from_fn(move || {
        let (&[start, end, count], rest) = found.split_first_chunk()?;
        let (rules, rest) = if count == EVERY {
            (None, rest)
        } else {
            rest.split_at_checked(count as usize).map(|(rules, rest)| (Some(rules), rest))?
        };
        found = rest;
        Some((start, end, rules))
    })
}

/// A line and what is asked about it.
struct Line<'a> {
    number: u16,
    view: &'a View,
    place: (u32, u32),
    text: &'a [u8],
    rules: &'a [u32],
    always: &'a [u32],
    apart: bool,
}

impl State {
    /// Leave out the rules that surely do not match: `answer` gets rows as those of `named.found`, and what to learn.
    pub fn sift(&mut self, plan: &Plan, named: &Named, number: u16, view: &View, answer: &mut Answer) {
        let mut asked = Vec::new();
        let mut rows = rows(named.found);
        let mut take = |start: u32, end: u32, rules: Option<&[u32]>| {
            let Some(text) = named.data.get(start as usize..end as usize) else { return };
            let (rules, always) = rules.map_or((&view.rules[..], &[][..]), |rules| (rules, &view.always[..]));
            let line = Line { number, view, place: (start, end), text, rules, always, apart: named.apart };
            self.one_line(plan, &line, answer, &mut asked);
        };
        if view.always.is_empty() {
            rows.for_each(|(start, end, rules)| take(start, end, rules));
            return;
        }
        let mut next = rows.next();
        for run in named.runs.as_chunks().0 {
            let &[from, to] = run;
            named.events.each(named.data, &(from as usize..to as usize), |start, end| {
                let (start, end) = (start as u32, end as u32);
                let mut found = false;
                while let Some((row, row_end, rules)) = next.filter(|row| row.0 <= start) {
                    take(row, row_end, rules);
                    found |= row == start;
                    next = rows.next();
                }
                if !found {
                    take(start, end, Some(&[]));
                }
            });
        }
    }

    fn one_line(&mut self, plan: &Plan, line: &Line, answer: &mut Answer, asked: &mut Vec<u64>) {
        let from = answer.found.len();
        let decided = catch_unwind(AssertUnwindSafe(|| self.decide_line(plan, line, answer, asked)));
        if decided.is_err() {
            self.counts.panics += 1;
        }
        let decided = decided.unwrap_or(None);
        if decided.is_none() {
            answer.found.truncate(from);
            answer.found.extend([line.place.0, line.place.1, 0]);
            answer.found.extend_from_slice(line.rules);
            answer.found.extend_from_slice(line.always);
        }
        let Some(row) = answer.found.get_mut(from..).filter(|row| row.len() > 3) else {
            answer.found.truncate(from);
            return;
        };
        let mut count = row.len() - 3;
        if !line.always.is_empty() {
            row[3..].sort_unstable();
            let mut last = None;
            count = 0;
            for at in 3..row.len() {
                let rule = row[at];
                if last.replace(rule) != Some(rule) {
                    row[3 + count] = rule;
                    count += 1;
                }
            }
        }
        row[2] = count as u32 | if decided == Some(true) { SURE } else { 0 };
        answer.found.truncate(from + 3 + count);
        if answer.found.len() > MAX_ANSWER {
            answer.found.truncate(from + 3);
            answer.found[from + 2] = EVERY;
        }
    }

    /// Whether its rules surely match; None when nothing is known of the line.
    fn decide_line(&mut self, plan: &Plan, line: &Line, answer: &mut Answer, asked: &mut Vec<u64>) -> Option<bool> {
        let text = line.text;
        // A byte order mark or a hole is no part of an event.
        if text.len() > MAX_LINE
            || matches!(text.first(), Some(0 | 0xef))
            || (line.apart && find(text, b"audit(").is_some())
        {
            return None;
        }
        let header = match line.view.reads {
            Reads::Nothing => return None,
            Reads::Text => None,
            Reads::Syslog => match header::split(text) {
                None => return None,
                header => header,
            },
        };
        let start = header.as_ref().map_or(0, |header| header.start);
        if let Some(header) = &header {
            // As `_JSON_MESSAGE` of `decode/decoder.py` finds a document.
            let first = text[start..].iter().find(|byte| !matches!(byte, b' ' | b'\t'..=b'\r'));
            if let Some(b'{' | b'@') = first {
                let object = object(text, header)?;
                return self.decide_object(plan, line, (object, header), answer, asked).then_some(false);
            }
        }
        let end =
            text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n' | 0)).map_or(start, |last| start.max(last + 1));
        let program = header.as_ref().and_then(|header| header.program).unwrap_or_default();
        if simdutf8::basic::from_utf8(&text[start..end]).is_err() || simdutf8::basic::from_utf8(program).is_err() {
            return None;
        }
        // Where the program is: its bytes are a part of the line.
        let at = if program.is_empty() { 0 } else { program.as_ptr().addr() - text.as_ptr().addr() };
        let leaf =
            |start: usize, end: usize| Leaf { start: start as u32, end: end as u32, kind: Kind::Text, escaped: false };
        let leaves = [leaf(start, end), leaf(at, at + program.len())];
        let known = plan.texts.known(text, header.as_ref(), start);
        answer.found.extend([line.place.0, line.place.1, 0]);
        let rules = line.rules.iter().chain(line.always).copied();
        let asked = rules.clone().map(|rule| plan.texts.asks[rule as usize]).fold(0, u32::saturating_add);
        let (layout, holds) = &self.lines[known];
        let sure = self.work.ask(plan, (layout, holds), (text, &leaves), rules, asked <= FEW, &mut answer.found);
        Some(sure && text.first() != Some(&b'{')) // Python tells by it which answers know the log source
    }

    fn decide_object(
        &mut self,
        plan: &Plan,
        line: &Line,
        object: (&[u8], &Header),
        answer: &mut Answer,
        asked: &mut Vec<u64>,
    ) -> bool {
        let from = answer.found.len();
        self.count(false);
        if !self.one(plan, object.0, Some(object.1), line.number, line.place, answer, asked) {
            self.counts.rest += 1;
            return false;
        }
        // A rule without a literal in the line does not match either.
        let mut at = 0;
        let kept = |rule: &u32| line.rules.binary_search(rule).is_ok() || line.always.binary_search(rule).is_ok();
        for place in from..answer.found.len() {
            let rule = answer.found[place];
            if place < from + 3 || kept(&rule) {
                answer.found[from + at] = rule;
                at += 1;
            }
        }
        answer.found.truncate(from + at);
        true
    }
}

/// The JSON object that is the message of a line.
pub(crate) fn object<'a>(line: &'a [u8], header: &Header) -> Option<&'a [u8]> {
    // Python gives further fields by a device's tag, and of structured data.
    if header.data || header.program.is_some_and(|program| program.starts_with(b"%")) {
        return None;
    }
    let message = &line[header.start..];
    let message = message.strip_prefix(b"@cee:").map_or(message, |rest| rest.strip_prefix(b" ").unwrap_or(rest));
    (message.first() == Some(&b'{')).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> Texts {
        let mut formats = [false; 256];
        formats[usize::from(b'C')] = true;
        Texts {
            message: vec![0],
            program: vec![1],
            keywords: vec![2],
            with_message: vec![7],
            with_program: vec![8],
            direct: HashMap::default(),
            asks: Vec::new(),
            named_by: vec![Finder::new(b"program")],
            formats,
            prefixed: (b"EF:".to_vec(), 8),
        }
    }

    fn known(line: &str) -> usize {
        let header = header::split(line.as_bytes()).unwrap();
        texts().known(line.as_bytes(), Some(&header), header.start)
    }

    #[test]
    fn what_is_known_of_a_line() {
        assert_eq!(known("<9>Oct 11 22:14:15 h a: x"), PROGRAM | KEYWORDS);
        assert_eq!(known("<9>Oct 11 22:14:15 h a: the program"), KEYWORDS);
        assert_eq!(known("<9>Oct 11 22:14:15 h a: Cx"), PROGRAM);
        assert_eq!(known("<9>Oct 11 22:14:15 h a: x CEF:1"), PROGRAM);
        assert_eq!(known("<9>Oct 11 22:14:15 h a: far away CEF:1"), PROGRAM | KEYWORDS);
        assert_eq!(known("<9>Oct 11 22:14:15 h %A-1-B: x"), PROGRAM);
        assert_eq!(known("<9>1 2026-10 h - - - - x"), KEYWORDS);
        assert_eq!(known("<9>1 2026-10 h a - - [b c=\"d\"] x"), PROGRAM);
        assert_eq!(texts().known(b"CEF:0", None, 0), KEYWORDS);
    }

    #[test]
    fn a_layout_says_what_is_open() {
        let layouts = texts().layouts(4);
        let open = |known: usize| (0..4).filter(|&group| layouts[known].0.is_open(group)).collect::<Vec<_>>();
        assert_eq!(open(0), [1, 2, 3]);
        assert_eq!(open(PROGRAM), [2, 3]);
        assert_eq!(open(KEYWORDS), [1, 3]);
        assert_eq!(open(PROGRAM | KEYWORDS), [3]);
        assert_eq!((&layouts[KEYWORDS].1[..], &layouts[PROGRAM].1[..]), (&[7][..], &[7, 8][..]));
        assert_eq!((layouts[PROGRAM].0.leaves(1), layouts[KEYWORDS].0.leaves(2)), (&[1][..], &[0][..]));
    }

    #[test]
    fn direct_tests() {
        let text = Text { padded: b"aBc\n\n", folded: b"abc\n\n", number: None };
        let holds = |place, cased, own: &'static str| Direct { place, cased, text: Finder::new(own) }.holds(text);
        assert!(holds(None, false, "abc") && holds(None, true, "aBc"));
        assert!(!holds(None, true, "abc") && !holds(None, false, "abc\n"));
        let places = [(Place::Prefix, "ab"), (Place::Suffix, "bc"), (Place::Within, "b"), (Place::Within, "")];
        assert!(places.iter().all(|&(place, own)| holds(Some(place), false, own)));
        let not = [(Place::Prefix, "bc"), (Place::Suffix, "c\n"), (Place::Within, "c\n"), (Place::Within, "B")];
        assert!(not.iter().all(|&(place, own)| !holds(Some(place), false, own)));
    }

    #[test]
    fn rows_of_an_answer() {
        let found = [0, 4, 2, 5, 6, 5, 9, EVERY, 10, 12, 0];
        let expected = [(0, 4, Some(&[5, 6][..])), (5, 9, None), (10, 12, Some(&[][..]))];
        assert!(rows(&found).eq(expected));
        assert!(rows(&found[..4]).eq([]));
    }

    #[test]
    fn objects_that_are_messages() {
        let object = |line: &str| {
            let header = header::split(line.as_bytes()).unwrap();
            object(line.as_bytes(), &header).map(|object| String::from_utf8(object.to_vec()).unwrap())
        };
        for head in ["a: ", "a:", "a: @cee:", "a: @cee: "] {
            assert_eq!(object(&format!("<9>Oct 11 22:14:15 h {head}{{1}}")).as_deref(), Some("{1}"));
        }
        for message in ["a:  {1}", "a: @cee:  {1}", "a: [{1}]", "a: ", "%A-1-B: {1}"] {
            assert_eq!(object(&format!("<9>Oct 11 22:14:15 h {message}")), None);
        }
    }
}

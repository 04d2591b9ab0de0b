//! JSON events against rules: for each the rules that may match. What is left out surely does not.
//!
//! An event is read once (`json.rs`); its structure tells its layout (`layout.rs`), and that where fields are. Fields
//! are tested (`fields.rs`) as rules need them: first those of which a rule cannot do without, then what else the rules
//! found by these ask for. Events that cannot be read, or whose layout is not known, are left to others (`rest`).

use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};

use foldhash::fast::RandomState;
use foldhash::{HashMap, HashSet};

use crate::columns::{self, Found};
use crate::fields::{Group, Marks, PAD, Place, Predicate, Text};
use crate::header::{self, Header};
use crate::hs::{Database, Hit, Scratch};
use crate::json::{Event, Kind, Leaf, Names, each_item, unescape};
use crate::layout::{Column, Computed, GroupNumber, Layout, Shape};
use crate::lines::{self, MAX_ANSWER};
use crate::rows::Table;
use crate::rules::{MAYBE, NO, Rules, Truth, YES};
use crate::sift::{Texts, object};

/// What a predicate depends on.
#[derive(Clone, Copy)]
pub enum About {
    /// The texts of a field.
    Text(GroupNumber),
    /// Whether the field is there.
    Presence(GroupNumber),
    /// Two fields: None for equal texts.
    Compare(Option<Place>, GroupNumber, GroupNumber),
}

/// What does not change.
pub struct Plan {
    /// By number.
    pub predicates: Vec<About>,
    /// By number.
    pub groups: Vec<Group>,
    /// The group that reads every value.
    pub keywords: Option<GroupNumber>,
    /// See `Rules`.
    pub rules: Rules,
    /// Simple case folding beyond ASCII.
    pub folding: HashMap<char, char>,
    /// By predicate, a guess how rare it is: lower is rarer.
    pub guesses: Vec<f64>,
    /// Groups whose texts are compared with those of others: they are needed in every event.
    pub compared: HashSet<GroupNumber>,
    /// What rules ask of lines.
    pub texts: Texts,
    /// By rule the tables that it selects events for, where it does nothing else and rows can be made here.
    pub tables: Vec<Vec<Table>>,
}

impl Shape for Plan {
    fn groups_of(&self, predicate: Predicate) -> [GroupNumber; 2] {
        match self.predicates[predicate as usize] {
            About::Text(group) | About::Presence(group) => [group, group],
            About::Compare(_, one, other) => [one, other],
        }
    }

    fn depends_on_text(&self, predicate: Predicate) -> bool {
        !matches!(self.predicates[predicate as usize], About::Presence(_))
    }
}

/// Layouts take about this many bytes at most; beyond that all are dropped and learned again.
const MAX_WEIGHT: usize = 16 << 20;
/// Layouts of one outline; with more, the values that decide are too many to learn.
const MAX_VARIANTS: u32 = 128;
/// Events that pay for learning one layout, and how much is saved up.
const PRICE: u32 = 200;
const SAVED: u32 = PRICE << 9;
/// Layouts learned after one chunk.
const MAX_ASKED: usize = 16;
/// Structures remembered that were met once.
const MAX_MET: usize = 1 << 13;
/// Names that decide; with more, nothing is learned.
const MAX_NAMES: usize = 512;
/// Pairs of texts beyond which two fields are not compared.
const MAX_PAIRS: usize = 1 << 16;
/// In place of its variants: an outline of which nothing is learned, since its events were decided wrongly.
const DISTRUSTED: u32 = u32::MAX;
/// Outlines that are distrusted.
const MAX_DISTRUSTED: usize = 64;

/// Counts for the status.
#[derive(Default, Clone, Copy)]
pub struct Counts {
    /// Events seen that begin as objects.
    pub events: u64,
    /// Of them left to others.
    pub rest: u64,
    /// Layouts learned.
    pub learned: u64,
    /// Layouts that cannot be learned.
    pub refused: u64,
    /// Panics; each left an event to others.
    pub panics: u64,
}

/// A bit of the count of rules: each surely matches.
pub const SURE: u32 = 1 << 31;
/// A bit of the count of rules: these are several events, whose rows are made here.
pub const RUN: u32 = 1 << 30;
/// Events of one run.
const MAX_RUN: u32 = 256;
/// Values of columns in one answer.
const MAX_VALUES: usize = 1 << 19;

/// What came of one chunk.
#[derive(Default)]
pub struct Answer {
    /// Start, end, count, rules: of every event that a rule may match. Where all surely do, `SURE` is in the count. Of a
    /// run of events that only give rows: start of the first, end of the last, count with `RUN`, rules, and from where up
    /// to where they are among `taken`.
    pub found: Vec<u32>,
    /// Whether events that only give rows are taken together.
    pub rows: bool,
    /// Of these events start, end, and the place of its run in `found`.
    pub taken: Vec<(u32, u32, usize)>,
    /// The columns of each of `taken`.
    pub values: Vec<Found>,
    /// Where the run is to which the next event may belong.
    run: Option<usize>,
    /// Start, end: of everything that is left to others, neighbours as one.
    pub rest: Vec<u32>,
    /// Start, end: of events whose layout should be learned.
    pub ask: Vec<(u32, u32)>,
}

impl Answer {
    /// Empty.
    #[must_use]
    pub fn new(rows: bool) -> Self {
        Self { rows, ..Self::default() }
    }

    /// Take an event, whose answer is at `from`, into a run if its rules do nothing but select events for tables.
    fn take(&mut self, plan: &Plan, columns: &[Column], leaves: &[Leaf], place: (u32, u32), from: usize) -> bool {
        let count = self.found.len() - from - 3;
        let rules = &self.found[from + 3..];
        if !self.rows
            || self.values.len() + columns.len() > MAX_VALUES
            || rules.iter().any(|&rule| plan.tables[rule as usize].is_empty())
        {
            return false;
        }
        let number = self.taken.len() as u32;
        self.values.extend(columns::found(columns, leaves));
        if let Some(run) = self.run
            && self.found[run + 2] == count as u32 | SURE | RUN
            && self.found[run + 3..run + 3 + count] == *rules
            && number - self.found[run + 3 + count] < MAX_RUN
        {
            self.found.truncate(from);
            self.found[run + 1] = place.1;
            self.found[run + 4 + count] = number + 1;
            self.taken.push((place.0, place.1, run));
            return true;
        }
        self.found[from + 2] = count as u32 | SURE | RUN;
        self.found.extend([number, number + 1]);
        self.taken.push((place.0, place.1, from));
        self.run = Some(from);
        true
    }
}

enum Known {
    Layout(Box<Layout>),
    Refused,
}

/// What `learn` made of an event.
#[derive(PartialEq, Eq, Debug, Clone, Copy)]
pub enum Learned {
    /// Its layout is known.
    Known,
    /// A name decides from now on: what was known is forgotten.
    Again,
    /// It will be left to others.
    Refused,
}

/// What Python found out about an event.
pub struct Lesson {
    /// By group the numbers of the values that its field has.
    pub sources: Vec<Vec<u32>>,
    /// By group what its field may be, of fields that are computed.
    pub computed: HashMap<GroupNumber, Computed>,
    /// Predicates that always hold.
    pub holds: Vec<Predicate>,
    /// Predicates that are always open.
    pub open: Vec<Predicate>,
    /// The rules that an event of its log source may match.
    pub rules: Vec<u32>,
    /// Values that were looked at, with the names under which they stand.
    pub inspected: Vec<(u32, Vec<u8>)>,
    /// How many values Python counted.
    pub leaves: u32,
    /// See `Layout`.
    pub columns: Vec<Column>,
}

impl Lesson {
    /// Whether it is about an event with so many values, and names nothing that `plan` lacks.
    fn fits(&self, plan: &Plan, leaves: usize) -> bool {
        let below = |numbers: &[u32], count: usize| numbers.iter().all(|&number| (number as usize) < count);
        self.leaves as usize == leaves
            && self.sources.len() == plan.groups.len()
            && self.sources.iter().all(|own| below(own, leaves))
            && self.computed.iter().all(|(&group, one)| {
                let mut values = one.parts.iter().map(|part| part.0).chain(one.guards.iter().map(|guard| guard.0));
                (group as usize) < plan.groups.len() && values.all(|value| (value as usize) < leaves)
            })
            && below(&self.holds, plan.predicates.len())
            && below(&self.open, plan.predicates.len())
            && below(&self.rules, plan.rules.roots.len())
            && self.columns.iter().all(|column| !matches!(column, Column::Leaf(leaf) if *leaf as usize >= leaves))
    }
}

/// What changes.
pub struct State {
    names: Names,
    known: HashMap<Box<[u8]>, Known>,
    weight: usize,
    variants: HashMap<u64, u32>,
    met: HashSet<u64>,
    hasher: RandomState,
    credit: u32,
    event: Event,
    pub(crate) work: Work,
    /// See `Texts::layouts`.
    pub(crate) lines: [Layout; 4],
    /// See `Counts`.
    pub counts: Counts,
}

impl State {
    /// Of a plan. `scratch` fits its databases.
    #[must_use]
    pub fn new(plan: &Plan, scratch: Scratch) -> Self {
        Self {
            names: Names::default(),
            known: HashMap::default(),
            weight: 0,
            variants: HashMap::default(),
            met: HashSet::default(),
            hasher: RandomState::default(),
            credit: SAVED,
            event: Event::default(),
            work: Work::new(plan, scratch),
            lines: plan.texts.layouts(plan.groups.len()),
            counts: Counts::default(),
        }
    }

    /// The events of some runs of a chunk, each by itself. `view`: of which input they are.
    ///
    /// What follows when the answer has come to `MAX_ANSWER` is left to others: in a few bytes many rules may be open.
    /// `again`: they were left to others before, and something has been learned since.
    pub fn decide(
        &mut self,
        plan: &Plan,
        data: &[u8],
        events: lines::Events,
        runs: &[u32],
        (view, again): (u16, bool),
        answer: &mut Answer,
    ) {
        let mut asked = Vec::new();
        for &[from, to] in runs.as_chunks().0 {
            answer.run = None;
            let run = from as usize..to as usize;
            if data.get(run.clone()).is_none() {
                continue;
            }
            events.each(data, &run, |start, end| {
                let (Some(line), place) = (data.get(start..end), (start as u32, end as u32)) else { return };
                let json = line.first() == Some(&b'{');
                if json {
                    self.count(again);
                }
                let from = answer.found.len();
                let done = json
                    && from < MAX_ANSWER
                    && catch_unwind(AssertUnwindSafe(|| self.one(plan, line, None, view, place, answer, &mut asked)))
                        .unwrap_or_else(|_| {
                            self.counts.panics += 1;
                            answer.found.truncate(from);
                            false
                        });
                if !done {
                    answer.run = None;
                    self.counts.rest += u64::from(json);
                    let following = end + usize::from(matches!(events, lines::Events::Lines));
                    match answer.rest.last_mut() {
                        Some(last) if *last == place.0 => *last = following as u32,
                        _ => answer.rest.extend([place.0, following as u32]),
                    }
                }
            });
        }
    }

    /// An object was met, or was left to others before.
    pub(crate) fn count(&mut self, again: bool) {
        if again {
            self.counts.rest -= 1;
        } else {
            self.counts.events += 1;
            self.credit = (self.credit + 1).min(SAVED);
        }
    }

    /// False when the event is left to others. `header`: of the syslog line that it is the message of.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn one(
        &mut self,
        plan: &Plan,
        line: &[u8],
        header: Option<&Header>,
        view: u16,
        place: (u32, u32),
        answer: &mut Answer,
        asked: &mut Vec<u64>,
    ) -> bool {
        let line = trimmed(line);
        if self.event.read(line, &self.names, false).is_none() {
            return false;
        }
        self.sign(view, header);
        match self.known.get_mut(&self.event.signature[..]) {
            Some(Known::Layout(layout)) => {
                if layout.is_empty() {
                    return true;
                }
                let from = answer.found.len();
                answer.found.extend([place.0, place.1, 0]);
                let sure = self.work.evaluate(plan, layout, line, &self.event.leaves, &mut answer.found);
                let count = answer.found.len() - from - 3;
                if count == 0 {
                    answer.found.truncate(from);
                } else {
                    answer.found[from + 3..].sort_unstable();
                    let (columns, leaves) = (&layout.columns, &self.event.leaves);
                    if !sure || header.is_some() || !answer.take(plan, columns, leaves, place, from) {
                        answer.found[from + 2] = count as u32 | if sure { SURE } else { 0 };
                        answer.run = None;
                    }
                }
                if layout.count() {
                    let before = layout.weight();
                    self.work.choose(plan, layout);
                    self.weight = self.weight + layout.weight() - before;
                }
                true
            }
            Some(Known::Refused) => false,
            None => {
                if self.is_worth_learning(line, asked) {
                    answer.ask.push(place);
                }
                false
            }
        }
    }

    /// What decoders know of an event beside its object, as far as the same fields follow from it.
    fn sign(&mut self, view: u16, header: Option<&Header>) {
        let signature = &mut self.event.signature;
        signature.extend_from_slice(&view.to_ne_bytes());
        if let Some(header) = header {
            signature.extend([header.parts, header.facility]);
            signature.extend_from_slice(header.program.unwrap_or_default());
        }
    }

    fn is_worth_learning(&mut self, line: &[u8], asked: &mut Vec<u64>) -> bool {
        let hash = self.hasher.hash_one(&self.event.signature);
        if asked.len() >= MAX_ASKED || self.credit < PRICE || asked.contains(&hash) {
            return false;
        }
        if self.met.len() >= MAX_MET {
            self.met.clear();
        }
        if self.met.insert(hash) {
            return false;
        }
        if self.event.read(line, &self.names, true).is_none() || self.names.len() >= MAX_NAMES {
            return false;
        }
        if self.variants.get(&self.hasher.hash_one(&self.event.outline)).is_some_and(|&count| count >= MAX_VARIANTS) {
            return false;
        }
        self.credit -= PRICE;
        asked.push(hash);
        true
    }

    /// Take over what Python found out about an event of `ask`.
    pub fn learn(&mut self, plan: &Plan, line: &[u8], view: u16, lesson: Option<Lesson>) -> Learned {
        catch_unwind(AssertUnwindSafe(|| self.take_over(plan, line, view, lesson))).unwrap_or_else(|_| {
            self.counts.panics += 1;
            Learned::Refused
        })
    }

    fn take_over(&mut self, plan: &Plan, line: &[u8], view: u16, lesson: Option<Lesson>) -> Learned {
        let Some((line, header)) = self.read_outlined(line) else { return Learned::Refused };
        self.sign(view, header.as_ref());
        let known = match lesson {
            Some(lesson) if lesson.fits(plan, self.event.leaves.len()) => {
                let mut again = false;
                let mut lost = false;
                for (leaf, name) in &lesson.inspected {
                    if !self.event.leaves.get(*leaf as usize).is_some_and(|leaf| leaf.decides) {
                        let added = self.names.add(name);
                        again |= added;
                        lost |= !added; // it is written in another way here
                    }
                }
                if again {
                    self.forget();
                    return Learned::Again;
                }
                if lost { Known::Refused } else { Known::Layout(Box::new(self.layout(plan, line, lesson))) }
            }
            _ => Known::Refused,
        };
        let learned = if let Known::Layout(layout) = &known {
            self.weight += layout.weight();
            self.counts.learned += 1;
            Learned::Known
        } else {
            self.counts.refused += 1;
            Learned::Refused
        };
        self.weight += self.event.signature.len() + 100;
        if self.weight > MAX_WEIGHT {
            self.forget();
        }
        let variants = self.variants.entry(self.hasher.hash_one(&self.event.outline)).or_default();
        *variants = variants.saturating_add(1);
        self.known.insert(self.event.signature.as_slice().into(), known);
        learned
    }

    /// Read an object, by itself or as the message of a syslog line, with its outline; gives it and the line's header.
    fn read_outlined<'a>(&mut self, line: &'a [u8]) -> Option<(&'a [u8], Option<Header<'a>>)> {
        let header = if line.first() == Some(&b'{') { None } else { header::split(line) };
        let line = trimmed(header.as_ref().and_then(|header| object(line, header)).unwrap_or(line));
        self.event.read(line, &self.names, true).map(|()| (line, header))
    }

    /// Leave all events of the outline of `line` to others. False when that does not help: it is no object that is read
    /// here, they are already, or there are too many of these.
    pub fn distrust(&mut self, line: &[u8]) -> bool {
        catch_unwind(AssertUnwindSafe(|| {
            let distrusted = self.variants.values().filter(|&&count| count == DISTRUSTED).count();
            if distrusted >= MAX_DISTRUSTED || self.read_outlined(line).is_none() {
                return false;
            }
            let before = self.variants.insert(self.hasher.hash_one(&self.event.outline), DISTRUSTED);
            self.forget();
            before != Some(DISTRUSTED)
        }))
        .unwrap_or_else(|_| {
            self.counts.panics += 1;
            false
        })
    }

    /// The hits of one of the plan's databases.
    pub fn hits(&mut self, database: &Database, data: &[u8]) -> Option<Vec<Hit>> {
        self.work.scratch.scan(database, data, usize::MAX).then(|| self.work.scratch.hits.clone())
    }

    /// Where the columns of an event are, and its values, if its layout is known.
    pub fn columns(&mut self, line: &[u8], view: u16) -> Option<(&[Column], &[Leaf])> {
        if line.first() != Some(&b'{') {
            return None;
        }
        self.event.read(trimmed(line), &self.names, false)?;
        self.sign(view, None);
        match self.known.get(&self.event.signature[..]) {
            Some(Known::Layout(layout)) => Some((&layout.columns, &self.event.leaves)),
            _ => None,
        }
    }

    fn forget(&mut self) {
        self.known.clear();
        self.variants.retain(|_, count| *count == DISTRUSTED);
        self.weight = 0;
    }

    fn layout(&mut self, plan: &Plan, line: &[u8], lesson: Lesson) -> Layout {
        let mut layout =
            Layout::new(&lesson.sources, lesson.computed, plan.keywords, lesson.holds, lesson.open, lesson.rules);
        layout.columns = lesson.columns;
        let leaves = &self.event.leaves;
        let same = |group: &GroupNumber| {
            let own = layout.leaves(*group);
            let decides = !own.is_empty() && own.iter().all(|&leaf| leaves[leaf as usize].decides);
            decides && !plan.compared.contains(group)
        };
        let settled: Vec<GroupNumber> = (0..plan.groups.len() as GroupNumber).filter(same).collect();
        self.work.test(plan, &layout, line, leaves, &settled);
        layout.settle(&settled, &self.work.marks);
        self.work.choose(plan, &mut layout);
        layout
    }
}

/// Without what `decode/values.py` strips from JSON.
fn trimmed(mut line: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t' | b'\r' | b'\n' | 0] = line {
        line = rest;
    }
    line
}

/// A range of one of the buffers.
type Span = (usize, usize);

/// The event under way.
pub(crate) struct Work {
    scratch: Scratch,
    marks: Marks,
    epoch: u32,
    /// By group and by rule, the event for which it was tested last.
    tested: Vec<u32>,
    asked: Vec<u32>,
    /// By value, the event of its text, and where that is.
    texts: Vec<(u32, Span, Span)>,
    plain: Vec<u8>,
    folded: Vec<u8>,
    /// By predicate, how often it was found.
    found: Vec<u32>,
}

impl Work {
    fn new(plan: &Plan, scratch: Scratch) -> Self {
        Self {
            scratch,
            marks: Marks::new(plan.predicates.len()),
            epoch: 0,
            tested: vec![0; plan.groups.len()],
            asked: vec![0; plan.rules.roots.len()],
            texts: Vec::new(),
            plain: Vec::new(),
            folded: Vec::new(),
            found: vec![0; plan.predicates.len()],
        }
    }

    fn begin(&mut self) {
        self.marks.begin();
        self.plain.clear();
        self.folded.clear();
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.tested.fill(0);
            self.asked.fill(0);
            self.texts.clear();
            self.epoch = 1;
        }
    }

    fn choose(&mut self, plan: &Plan, layout: &mut Layout) {
        let found = &self.found;
        layout.choose(&plan.rules, plan, &mut self.marks, |predicate| match plan.predicates[predicate as usize] {
            About::Text(_) => Some(f64::from(found[predicate as usize]) + plan.guesses[predicate as usize]),
            _ => None,
        });
    }

    /// Test `groups` alone: what is found is in `marks`.
    fn test(&mut self, plan: &Plan, layout: &Layout, line: &[u8], leaves: &[Leaf], groups: &[GroupNumber]) {
        self.begin();
        let mut event = Under { plan, layout, line, leaves, direct: false, work: self, sure: false };
        for &group in groups {
            event.test(group);
        }
    }

    /// Append those of `rules` that may match a line. `direct`: by `Texts::direct`, where that has a test.
    pub(crate) fn ask(
        &mut self,
        plan: &Plan,
        layout: &Layout,
        (line, leaves): (&[u8], &[Leaf]),
        rules: impl Iterator<Item = u32>,
        direct: bool,
        out: &mut Vec<u32>,
    ) {
        self.begin();
        layout.holds.iter().for_each(|&predicate| self.marks.hold(predicate));
        let mut event = Under { plan, layout, line, leaves, direct, work: self, sure: false };
        rules.for_each(|rule| event.ask(rule, out));
    }

    /// Append the rules that may match; whether each surely does.
    fn evaluate(&mut self, plan: &Plan, layout: &Layout, line: &[u8], leaves: &[Leaf], out: &mut Vec<u32>) -> bool {
        self.begin();
        layout.holds.iter().for_each(|&predicate| self.marks.hold(predicate));
        layout.open.iter().for_each(|&predicate| self.marks.leave_open(predicate));
        let known = self.marks.found.len();
        let mut event = Under { plan, layout, line, leaves, direct: false, work: self, sure: true };
        for &group in &layout.eager {
            event.test(group);
        }
        for &rule in &layout.always {
            event.ask(rule, out);
        }
        let mut next = known;
        while let Some(&predicate) = event.work.marks.found.get(next) {
            next += 1;
            event.work.found[predicate as usize] += 1;
            for &rule in layout.waiting_for(predicate) {
                event.ask(rule, out);
            }
        }
        event.sure
    }
}

struct Under<'a> {
    plan: &'a Plan,
    layout: &'a Layout,
    line: &'a [u8],
    leaves: &'a [Leaf],
    direct: bool,
    work: &'a mut Work,
    /// Whether every rule that was found surely matches.
    sure: bool,
}

impl Under<'_> {
    fn ask(&mut self, rule: u32, out: &mut Vec<u32>) {
        let asked = &mut self.work.asked[rule as usize];
        if *asked == self.work.epoch {
            return;
        }
        *asked = self.work.epoch;
        let plan = self.plan;
        let root = plan.rules.roots[rule as usize];
        let truth = plan.rules.truth(root, &mut |predicate| self.truth(predicate));
        if truth & YES != 0 {
            out.push(rule);
            self.sure &= truth == YES;
        }
    }

    fn truth(&mut self, predicate: Predicate) -> Truth {
        match self.plan.predicates[predicate as usize] {
            About::Compare(..) if self.layout.partial => return MAYBE,
            About::Compare(place, one, other) => return self.compare(predicate, place, one, other),
            About::Text(group) | About::Presence(group) if self.layout.is_open(group) => return MAYBE,
            About::Text(group) if self.direct && self.work.tested[group as usize] != self.work.epoch => {
                if let Some(test) = self.plan.texts.direct.get(&predicate) {
                    let mut holds = false;
                    self.each_text(self.layout.leaves(group)[0] as usize, |text, _| {
                        holds = text.is_some_and(|text| test.holds(text));
                    });
                    return if holds { YES } else { NO };
                }
                self.test(group);
            }
            About::Text(group) | About::Presence(group) => self.test(group),
        }
        if self.work.marks.holds(predicate) {
            YES
        } else if self.work.marks.is_open(predicate) {
            MAYBE
        } else {
            NO
        }
    }

    fn test(&mut self, group: GroupNumber) {
        let tested = &mut self.work.tested[group as usize];
        if *tested == self.work.epoch {
            return;
        }
        *tested = self.work.epoch;
        if self.layout.keywords == Some(group) {
            self.test_all(group);
            return;
        }
        let layout = self.layout;
        for &leaf in layout.leaves(group) {
            self.test_leaf(group, leaf as usize);
        }
        if let Some(computed) = layout.computed(group) {
            self.test_computed(group, computed);
        }
    }

    /// A field that is perhaps there, and then perhaps a part of a value: what holds for the part is open.
    fn test_computed(&mut self, group: GroupNumber, computed: &Computed) {
        let group = &self.plan.groups[group as usize];
        for (leaf, bytes) in &computed.guards {
            self.each_text(*leaf as usize, |text, work| {
                if text.is_none_or(|text| text.own().iter().any(|byte| bytes.contains(byte))) {
                    work.marks.leave_group_open(group);
                }
            });
        }
        for (leaf, cuts) in &computed.parts {
            self.each_text(*leaf as usize, |text, work| {
                let Some(text) = text else { return work.marks.leave_group_open(group) };
                let cut = |text: &[u8]| [cuts.iter().fold(text, |text, cut| cut.of(text)), PAD].concat();
                work.marks.perhaps = true;
                if cuts.is_empty() {
                    group.test(text, work.scratch, work.marks);
                } else {
                    let (padded, folded) = (cut(text.own()), cut(text.own_folded()));
                    group.test(Text { padded: &padded, folded: &folded, number: None }, work.scratch, work.marks);
                }
                work.marks.perhaps = false;
            });
        }
    }

    /// The keyword searches: of every value.
    fn test_all(&mut self, number: GroupNumber) {
        let group = &self.plan.groups[number as usize];
        if !group.joined {
            for leaf in 0..self.leaves.len() {
                self.test_leaf(number, leaf);
            }
            return;
        }
        for leaf in 0..self.leaves.len() {
            self.each_text(leaf, |text, work| match text {
                Some(text) => group.look_up(text, work.marks),
                None => work.marks.leave_group_open(group),
            });
        }
        let Work { scratch, marks, plain, folded, .. } = self.work;
        group.search_joined(plain, folded, scratch, marks);
    }

    fn test_leaf(&mut self, group: GroupNumber, leaf: usize) {
        let group = &self.plan.groups[group as usize];
        self.each_text(leaf, |text, work| match text {
            Some(text) => group.test(text, work.scratch, work.marks),
            None => work.marks.leave_group_open(group),
        });
    }

    /// The texts of a value; None for one that Python may print in another way.
    fn each_text(&mut self, number: usize, mut take: impl FnMut(Option<Text>, Tests)) {
        let leaf = self.leaves[number];
        match leaf.kind {
            Kind::Null | Kind::EmptyList => {}
            Kind::List => {
                let (line, plan) = (self.line, self.plan);
                let whole = each_item(&line[..leaf.end as usize], leaf.start as usize, |item| match item.kind {
                    Kind::Null => {}
                    Kind::Number => take(None, self.work.tests()),
                    _ => {
                        let spans = self.work.write(plan, line, item);
                        self.work.with(spans, number_of(line, item), &mut take);
                    }
                });
                if whole.is_none() {
                    take(None, self.work.tests());
                }
            }
            Kind::Number => take(None, self.work.tests()),
            _ => {
                if self.work.texts.len() <= number {
                    self.work.texts.resize(number + 1, (0, (0, 0), (0, 0)));
                }
                let (epoch, mut plain, mut folded) = self.work.texts[number];
                if epoch != self.work.epoch {
                    (plain, folded) = self.work.write(self.plan, self.line, leaf);
                    self.work.texts[number] = (self.work.epoch, plain, folded);
                }
                self.work.with((plain, folded), number_of(self.line, leaf), &mut take);
            }
        }
    }

    /// `FIELD_*` of `plan/ir.py`: one pair of the fields' texts fits.
    fn compare(&mut self, predicate: Predicate, place: Option<Place>, one: GroupNumber, other: GroupNumber) -> Truth {
        if self.work.marks.is_open(predicate) {
            return MAYBE;
        }
        let mut sides: [Vec<Vec<u8>>; 2] = [Vec::new(), Vec::new()];
        let mut open = false;
        let layout = self.layout;
        for (side, group) in sides.iter_mut().zip([one, other]) {
            for &leaf in layout.leaves(group) {
                self.each_text(leaf as usize, |text, _| match text {
                    Some(text) => side.push(text.own_folded().to_vec()),
                    None => open = true,
                });
            }
        }
        let [own, others] = sides;
        if own.len() * others.len() > MAX_PAIRS {
            return MAYBE;
        }
        let fits =
            |own: &Vec<u8>| others.iter().any(|other| place.map_or(own == other, |place| place.holds(own, other)));
        if own.iter().any(fits) {
            YES
        } else if open {
            MAYBE
        } else {
            NO
        }
    }
}

/// What a test needs beside the text.
struct Tests<'a> {
    scratch: &'a mut Scratch,
    marks: &'a mut Marks,
}

impl Work {
    fn tests(&mut self) -> Tests<'_> {
        Tests { scratch: &mut self.scratch, marks: &mut self.marks }
    }

    fn with(&mut self, (plain, folded): (Span, Span), number: Option<i64>, take: &mut impl FnMut(Option<Text>, Tests)) {
        let text = Text { padded: &self.plain[plain.0..plain.1], folded: &self.folded[folded.0..folded.1], number };
        take(Some(text), Tests { scratch: &mut self.scratch, marks: &mut self.marks });
    }

    /// Write the text of a value into the buffers, as it is and folded.
    fn write(&mut self, plan: &Plan, line: &[u8], leaf: Leaf) -> (Span, Span) {
        let (from, folded_from) = (self.plain.len(), self.folded.len());
        let inside = &line[leaf.start as usize..leaf.end as usize];
        if leaf.escaped {
            // `json.rs` has checked the escapes.
            unescape(inside, &mut self.plain).expect("escapes are checked when an event is read");
        } else {
            self.plain.extend_from_slice(inside);
        }
        let text = &self.plain[from..];
        if text.is_ascii() {
            self.folded.extend_from_slice(text);
            self.folded[folded_from..].make_ascii_lowercase();
        } else {
            let text = std::str::from_utf8(text).expect("events are read when they are UTF-8");
            for char in text.chars() {
                let folded = match char {
                    'A'..='Z' => char.to_ascii_lowercase(),
                    '\0'..='\x7f' => char,
                    _ => plan.folding.get(&char).copied().unwrap_or(char),
                };
                self.folded.extend_from_slice(folded.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        self.plain.extend_from_slice(PAD);
        self.folded.extend_from_slice(PAD);
        ((from, self.plain.len()), (folded_from, self.folded.len()))
    }
}

/// The value of a whole number.
fn number_of(line: &[u8], leaf: Leaf) -> Option<i64> {
    if !matches!(leaf.kind, Kind::Int | Kind::Decimal) {
        return None;
    }
    let text = std::str::from_utf8(&line[leaf.start as usize..leaf.end as usize]).ok()?;
    if leaf.kind == Kind::Int { text } else { text.strip_suffix(".0")? }.parse().ok()
}

//! JSON events against rules: for each the rules that may match. What is left out surely does not.
//!
//! An event is read once (`json.rs`). Its outline, whatever the order of its names (`structure.rs`), and the values that
//! decide (`outline.rs`) are its structure, which tells its layout (`layout.rs`), and that where fields are. Fields are
//! tested (`fields.rs`) as rules need them: first those of which a rule cannot do without (`shortlist.rs`), then what else
//! the rules found by these ask for. Events that cannot be read, or whose layout is not known, are left to others (`rest`).
//!
//! Learning a layout costs Python as much as evaluating an event or a few. It is paid for: by a little from every event,
//! and by what events save that are decided here. So names that are made up without end cost what they would without.

use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use foldhash::fast::RandomState;
use foldhash::{HashMap, HashSet};

use crate::columns::{self, Found};
use crate::fields::{Group, Marks, PAD, Place, Predicate, Text};
use crate::header::{self, Header};
use crate::hs::{Database, Hit, Scratch};
use crate::json::{Event, Kind, Leaf, each_item, unescape};
use crate::layout::{Column, Computed, GroupNumber, Layout};
use crate::lines::{self, MAX_ANSWER};
use crate::memo::Memo;
use crate::outline::Outline;
use crate::rows::Table;
use crate::rules::{MAYBE, NO, Rules, Truth, YES};
use crate::shortlist::{Facts, Shape, Shortlist};
use crate::sift::{Texts, object};
use crate::structure::Structure;

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
    /// By predicate, a guess how rare it is and those that go with it (`Rules::heads`): lower is rarer.
    pub guesses: Vec<f64>,
    /// Groups whose texts are compared with those of others: they are needed in every event.
    pub compared: HashSet<GroupNumber>,
    /// What rules ask of lines.
    pub texts: Texts,
    /// By rule the tables that it selects events for, where it does nothing else and rows can be made here.
    pub tables: Vec<Vec<Table>>,
    /// By rule the numbers of the fields to show.
    pub shown: Vec<Vec<u32>>,
    /// How many such fields there are.
    pub names: usize,
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

/// Structures and their layouts take about this many bytes at most; beyond that those that saved too little are dropped.
const MAX_WEIGHT: usize = 12 << 20;
/// The orders in which they are written take about this many bytes at most; beyond that all are dropped and sorted again.
const MAX_WRITTEN: usize = 4 << 20;
/// Lessons about one outline, until their count restarts; with more, the values that decide are too many to learn.
const MAX_VARIANTS: u32 = 128;
/// Events after which that count restarts.
const COUNTED: u64 = 1 << 16;
/// Events that pay for learning one layout, and how much is saved up.
const PRICE: u32 = 200;
const SAVED: u32 = PRICE << 9;
/// So many events more does each pay for that is decided here, as it costs Python that much less.
const EARNED: u32 = 8;
/// Events that a layout must have decided to be kept when there are too many: those that have paid for it.
const KEPT: u32 = PRICE / (1 + EARNED);
/// Layouts learned after one chunk.
const MAX_ASKED: usize = 16;
/// Structures remembered that were met once. While more than half is saved up they are learned at once.
const MAX_MET: usize = 1 << 13;
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

/// A structure that was met.
struct Known {
    /// Its layout and the number of its shortlist; None: its events are left to others.
    layout: Option<(Layout, u32)>,
    /// How many events it decided since memory was short.
    used: u32,
}

/// Of a signature as it is written the outline, and the order of its values.
struct Written {
    outline: u32,
    order: Box<[u32]>,
}

/// The structure of the event that was read, whose values are in its order.
enum Met {
    Known(u32),
    /// Its outline, if that is known.
    New(Option<u32>),
    TooMuch,
}

/// What Python found out about an event. Its values are numbered in the order of its structure.
pub struct Lesson {
    /// The groups whose field is there, ascending, with the numbers of the values that it has.
    pub present: Vec<(GroupNumber, Vec<u32>)>,
    /// By group what its field may be, of fields that are computed.
    pub computed: HashMap<GroupNumber, Computed>,
    /// Predicates that always hold.
    pub holds: Vec<Predicate>,
    /// Predicates that are always open.
    pub open: Vec<Predicate>,
    /// The rules that an event of its log source may match.
    pub rules: Arc<[u32]>,
    /// How many values Python counted.
    pub leaves: u32,
    /// See `Layout`.
    pub columns: Vec<Column>,
    /// See `Layout`.
    pub shown: Vec<(u32, Column)>,
}

impl Lesson {
    /// Whether it is about an event with so many values, and names nothing that `plan` lacks.
    fn fits(&self, plan: &Plan, leaves: usize) -> bool {
        let below = |numbers: &[u32], count: usize| numbers.iter().all(|&number| (number as usize) < count);
        self.leaves as usize == leaves
            && self.present.is_sorted_by_key(|own| own.0)
            && self.present.iter().all(|own| (own.0 as usize) < plan.groups.len() && below(&own.1, leaves))
            && self.computed.iter().all(|(&group, one)| {
                let mut values = one.parts.iter().map(|part| part.0).chain(one.guards.iter().map(|guard| guard.0));
                (group as usize) < plan.groups.len() && values.all(|value| (value as usize) < leaves)
            })
            && below(&self.holds, plan.predicates.len())
            && below(&self.open, plan.predicates.len())
            && below(&self.rules, plan.rules.roots.len())
            && self.shown.is_sorted_by_key(|own| own.0)
            && self.shown.last().is_none_or(|own| (own.0 as usize) < plan.names)
            && (self.columns.iter().chain(self.shown.iter().map(|own| &own.1)))
                .all(|column| !matches!(column, Column::Leaf(leaf) if *leaf as usize >= leaves))
    }
}

/// What changes.
pub struct State {
    written: HashMap<Box<[u8]>, Written>,
    written_weight: usize,
    /// By sorted signature the number of an outline.
    numbers: HashMap<Box<[u8]>, u32>,
    outlines: Vec<Outline>,
    known: Vec<Known>,
    /// The same sets of rules are one.
    rules: HashSet<Arc<[u32]>>,
    /// By what is known of a structure the number of its shortlist.
    shared: HashMap<Arc<Facts>, u32>,
    lists: Vec<Shortlist>,
    /// Of outlines, structures and shortlists.
    weight: usize,
    /// By hash of an outline how many lessons were about it.
    variants: HashMap<u64, u32>,
    met: HashSet<u64>,
    hasher: RandomState,
    credit: u32,
    event: Event,
    structure: Structure,
    /// The deciding values of the event under way.
    values: Vec<u8>,
    pub(crate) work: Work,
    /// See `Texts::layouts`.
    pub(crate) lines: [(Layout, Vec<Predicate>); 4],
    /// See `Counts`.
    pub counts: Counts,
}

impl State {
    /// Of a plan. `scratch` fits its databases.
    #[must_use]
    pub fn new(plan: &Plan, scratch: Scratch) -> Self {
        Self {
            written: HashMap::default(),
            written_weight: 0,
            numbers: HashMap::default(),
            outlines: Vec::new(),
            known: Vec::new(),
            rules: HashSet::default(),
            shared: HashMap::default(),
            lists: Vec::new(),
            weight: 0,
            variants: HashMap::default(),
            met: HashSet::default(),
            hasher: RandomState::default(),
            credit: SAVED,
            event: Event::default(),
            structure: Structure::default(),
            values: Vec::new(),
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
            if self.counts.events.is_multiple_of(COUNTED) {
                self.restart_counts();
            }
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
        let number = match self.meet(line, view, header) {
            Met::Known(number) => number,
            Met::New(outline) => {
                if self.is_worth_learning(outline, asked) {
                    answer.ask.push(place);
                }
                return false;
            }
            Met::TooMuch => return false,
        };
        let known = &mut self.known[number as usize];
        let Some((layout, list)) = &known.layout else { return false };
        known.used = known.used.saturating_add(1);
        self.credit = (self.credit + EARNED).min(SAVED);
        let list = &mut self.lists[*list as usize];
        if list.is_empty() {
            return true;
        }
        let from = answer.found.len();
        answer.found.extend([place.0, place.1, 0]);
        let sure = self.work.evaluate(plan, (layout, list), line, &self.event.leaves, &mut answer.found);
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
        if list.count() {
            let before = list.weight();
            self.work.choose(plan, list);
            self.weight = self.weight + list.weight() - before;
        }
        true
    }

    /// Read an object and look for its structure.
    fn meet(&mut self, line: &[u8], view: u16, header: Option<&Header>) -> Met {
        if self.event.read(line).is_none() {
            return Met::TooMuch;
        }
        self.sign(view, header);
        let (event, structure) = (&mut self.event, &mut self.structure);
        let find = |outline: u32, leaves: &[Leaf], values: &mut Vec<u8>| {
            let number = self.outlines[outline as usize].find(line, leaves, values);
            number.map_or(Met::New(Some(outline)), Met::Known)
        };
        if let Some(written) = self.written.get(&event.signature[..]) {
            event.arrange(&written.order);
            return find(written.outline, &event.leaves, &mut self.values);
        }
        if structure.sort(&event.signature).is_none() {
            return Met::TooMuch;
        }
        event.arrange(&structure.leaves);
        let Some(&outline) = self.numbers.get(&structure.signature[..]) else { return Met::New(None) };
        if self.written_weight > MAX_WRITTEN {
            self.written.clear();
            self.written_weight = 0;
        }
        let order: Box<[u32]> = structure.leaves.as_slice().into();
        self.written_weight += event.signature.len() + order.len() * 4 + 100;
        self.written.insert(event.signature.as_slice().into(), Written { outline, order });
        find(outline, &event.leaves, &mut self.values)
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

    /// Whether to ask for a lesson about the new structure just met.
    fn is_worth_learning(&mut self, outline: Option<u32>, asked: &mut Vec<u64>) -> bool {
        let hash = match outline {
            Some(number) => self.hasher.hash_one((number, &self.values)),
            None => self.hasher.hash_one(&self.structure.signature),
        };
        if asked.len() >= MAX_ASKED || self.credit < PRICE || asked.contains(&hash) {
            return false;
        }
        // Of an outline that is known others decide too, by values that may be new in each event: it was met.
        if self.credit < SAVED / 2 && outline.is_none() {
            if self.met.len() >= MAX_MET {
                self.met.clear();
            }
            if self.met.insert(hash) {
                return false;
            }
        }
        if self.variants.get(&self.hash_of(outline)).is_some_and(|&count| count >= MAX_VARIANTS) {
            return false;
        }
        self.credit -= PRICE;
        asked.push(hash);
        true
    }

    /// The hash of an outline, or of the sorted structure's.
    fn hash_of(&self, outline: Option<u32>) -> u64 {
        let sorted = || self.hasher.hash_one(self.structure.object());
        outline.map_or_else(sorted, |number| self.outlines[number as usize].hash)
    }

    /// Take over what Python found out about an event of `ask`, when it looked into these values.
    pub fn learn(&mut self, plan: &Plan, line: &[u8], view: u16, inspected: &[u32], lesson: Option<Lesson>) {
        if catch_unwind(AssertUnwindSafe(|| self.take_over(plan, line, view, inspected, lesson))).is_err() {
            self.counts.panics += 1;
        }
    }

    fn take_over(&mut self, plan: &Plan, line: &[u8], view: u16, inspected: &[u32], lesson: Option<Lesson>) {
        let (line, header) = object_of(line);
        let header = header.as_ref();
        if self.weight > MAX_WEIGHT {
            self.forget(|_, known| known.used >= KEPT);
            if self.weight > MAX_WEIGHT / 2 {
                self.forget(|_, _| false);
            }
            self.known.iter_mut().for_each(|known| known.used = 0);
            self.restart_counts();
        }
        let Met::New(outline) = self.meet(line, view, header) else { return };
        let hash = self.hash_of(outline);
        let variants = self.variants.entry(hash).or_default();
        if *variants == DISTRUSTED {
            return;
        }
        *variants = variants.saturating_add(1);
        let leaves = self.event.leaves.len();
        if !inspected.is_sorted() || inspected.last().is_some_and(|&last| last as usize >= leaves) {
            self.counts.refused += 1; // it is not about this event: for which others it holds is not known
            return;
        }
        let lesson = lesson.filter(|lesson| lesson.fits(plan, leaves));
        if let Some(number) = outline {
            self.make_room(number, inspected);
        }
        let layout = lesson.map(|lesson| self.layout(plan, line, inspected, lesson));
        let certain = layout.is_some();
        let learned = self.add(line, outline, hash, inspected, layout) && certain;
        self.counts.learned += u64::from(learned);
        self.counts.refused += u64::from(!learned);
    }

    /// Where an outline has as many sets of values that decide as may be, forget its structures that have not paid, and those
    /// of the set that is used least: a sender may pay for all sets but that of others.
    fn make_room(&mut self, outline: u32, deciding: &[u32]) {
        let (own, known) = (&mut self.outlines[outline as usize], &mut self.known);
        if !own.is_full(deciding) {
            return;
        }
        let least = own.least(|number| known[number as usize].used).max(KEPT - 1);
        own.retain(|number| {
            let structure = &mut known[number as usize];
            let stays = structure.used > least;
            if !stays {
                self.weight -= structure.layout.take().map_or(0, |(layout, _)| layout.weight());
            }
            stays.then_some(number)
        });
    }

    /// Remember the structure of the event that was read. False when these values are too long.
    fn add(
        &mut self,
        line: &[u8],
        outline: Option<u32>,
        hash: u64,
        deciding: &[u32],
        layout: Option<(Layout, u32)>,
    ) -> bool {
        let (number, leaves) = (self.known.len() as u32, &self.event.leaves);
        let mut new = Outline::new(hash);
        let own = outline.map_or(&mut new, |number| &mut self.outlines[number as usize]);
        let Some(weight) = own.add(deciding, line, leaves, number) else { return false };
        if outline.is_none() {
            let signature: Box<[u8]> = self.structure.signature.as_slice().into();
            self.weight += outline_weight(&signature);
            self.numbers.insert(signature, self.outlines.len() as u32);
            self.outlines.push(new);
        }
        let known = Known { layout, used: 0 };
        self.weight += weight + known.weight();
        self.known.push(known);
        true
    }

    /// How many lessons are about an outline is counted from now on.
    fn restart_counts(&mut self) {
        self.variants.retain(|_, count| *count == DISTRUSTED);
    }

    /// Leave all events of the outline of `line` to others. False when that does not help: it is no object that is read
    /// here, they are already, or there are too many of these.
    pub fn distrust(&mut self, line: &[u8]) -> bool {
        catch_unwind(AssertUnwindSafe(|| {
            let distrusted = self.variants.values().filter(|&&count| count == DISTRUSTED).count();
            if distrusted >= MAX_DISTRUSTED
                || self.event.read(object_of(line).0).is_none()
                || self.structure.sort(&self.event.signature).is_none()
            {
                return false;
            }
            let hash = self.hash_of(None);
            let before = self.variants.insert(hash, DISTRUSTED);
            self.forget(|other, _| other != hash);
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

    /// The layout of an event, and its values, if that is known.
    pub fn known(&mut self, line: &[u8], view: u16) -> Option<(&Layout, &[Leaf])> {
        if line.first() != Some(&b'{') {
            return None;
        }
        let met = catch_unwind(AssertUnwindSafe(|| self.meet(trimmed(line), view, None))).unwrap_or_else(|_| {
            self.counts.panics += 1;
            Met::TooMuch
        });
        let Met::Known(number) = met else { return None };
        let (layout, _) = self.known[number as usize].layout.as_ref()?;
        Some((layout, &self.event.leaves))
    }

    /// Forget all structures but those to `keep`, by the hash of their outline.
    fn forget(&mut self, keep: impl Fn(u64, &Known) -> bool) {
        self.written.clear();
        self.written_weight = 0;
        self.weight = 0;
        let mut known: Vec<_> = std::mem::take(&mut self.known).into_iter().map(Some).collect();
        let mut lists: Vec<_> = std::mem::take(&mut self.lists).into_iter().map(Some).collect();
        let mut outlines = std::mem::take(&mut self.outlines);
        let mut places = vec![None; lists.len()];
        let mut numbers = std::mem::take(&mut self.numbers);
        numbers.retain(|signature, number| {
            let mut outline = std::mem::take(&mut outlines[*number as usize]);
            let hash = outline.hash;
            self.weight += outline.retain(|number| {
                let mut left = known[number as usize].take_if(|known| keep(hash, known))?;
                if let Some((_, list)) = &mut left.layout {
                    let old = *list as usize;
                    *list = *places[old].get_or_insert(self.lists.len() as u32);
                    self.lists.extend(lists[old].take());
                }
                self.weight += left.weight();
                self.known.push(left);
                Some(self.known.len() as u32 - 1)
            });
            if outline.is_empty() {
                return false;
            }
            self.weight += outline_weight(signature);
            *number = self.outlines.len() as u32;
            self.outlines.push(outline);
            true
        });
        self.numbers = numbers;
        self.shared.retain(|_, list| {
            places[*list as usize].is_some_and(|place| {
                *list = place;
                true
            })
        });
        drop(lists);
        self.rules.retain(|rules| Arc::strong_count(rules) > 1);
        self.weight += self.lists.iter().map(Shortlist::weight).sum::<usize>();
        self.weight += self.rules.iter().map(|rules| rules.len() * 4).sum::<usize>();
    }

    /// The layout of the event that was read, and the number of its shortlist.
    fn layout(&mut self, plan: &Plan, line: &[u8], deciding: &[u32], lesson: Lesson) -> (Layout, u32) {
        let Lesson { present, computed, mut holds, mut open, columns, shown, .. } = lesson;
        let leaves = &self.event.leaves;
        let all = present.iter().map(|(group, own)| (*group, &own[..]));
        let layout = Layout::new(plan.groups.len(), all.clone(), computed, plan.keywords);
        // Fields that are the same in every event are tested once.
        let decides = |&(group, own): &(GroupNumber, &[u32])| {
            let same = !own.is_empty() && own.iter().all(|leaf| deciding.binary_search(leaf).is_ok());
            same && !plan.compared.contains(&group)
        };
        let settled: Vec<GroupNumber> = all.clone().filter(decides).map(|own| own.0).collect();
        self.work.test(plan, &layout, line, leaves, &settled);
        let marks = &self.work.marks;
        for &predicate in &marks.found {
            if marks.holds(predicate) { &mut holds } else { &mut open }.push(predicate);
        }
        let rest = all.filter(|own| settled.binary_search(&own.0).is_err());
        let mut layout = Layout::new(plan.groups.len(), rest, layout.into_computed(), plan.keywords);
        layout.columns = columns;
        layout.shown = shown;
        let mut there = present.iter().map(|own| own.0).peekable();
        for (group, absent) in (0..).zip(plan.groups.iter().map(|group| &group.absent)) {
            if there.next_if_eq(&group).is_none() {
                holds.extend_from_slice(absent);
            }
        }
        for predicates in [&mut holds, &mut open] {
            predicates.sort_unstable();
            predicates.dedup();
        }
        let rules = self.rules.get(&lesson.rules).cloned().unwrap_or_else(|| {
            self.rules.insert(lesson.rules.clone());
            self.weight += lesson.rules.len() * 4;
            lesson.rules
        });
        let facts = Arc::new(Facts { dynamic: layout.dynamic(), holds, open, rules });
        let list = self.shared.get(&facts).copied().unwrap_or_else(|| {
            let list = self.work.shortlist(plan, facts.clone());
            self.weight += list.weight();
            self.lists.push(list);
            let number = self.lists.len() as u32 - 1;
            self.shared.insert(facts, number);
            number
        });
        (layout, list)
    }
}

impl Known {
    /// Bytes that it takes, about.
    fn weight(&self) -> usize {
        50 + self.layout.as_ref().map_or(0, |own| own.0.weight())
    }
}

/// Bytes that an outline takes with its signature, without its structures, about.
fn outline_weight(signature: &[u8]) -> usize {
    signature.len() + 150
}

/// An object by itself or as the message of a syslog line, and the line's header.
fn object_of(line: &[u8]) -> (&[u8], Option<Header<'_>>) {
    let header = if line.first() == Some(&b'{') { None } else { header::split(line) };
    (trimmed(header.as_ref().and_then(|header| object(line, header)).unwrap_or(line)), header)
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
    /// By predicate, how often it was found, or one whose head it is.
    found: Vec<u32>,
    memo: Memo,
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
            memo: Memo::default(),
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

    fn shortlist(&mut self, plan: &Plan, facts: Arc<Facts>) -> Shortlist {
        let cost = |predicate| cost(plan, &self.found, predicate);
        Shortlist::new(facts, &plan.rules, plan, &mut self.marks, cost)
    }

    fn choose(&mut self, plan: &Plan, list: &mut Shortlist) {
        let cost = |predicate| cost(plan, &self.found, predicate);
        list.choose(&plan.rules, plan, &mut self.marks, cost);
    }

    /// Test `groups` alone: what is found is in `marks`.
    fn test(&mut self, plan: &Plan, layout: &Layout, line: &[u8], leaves: &[Leaf], groups: &[GroupNumber]) {
        self.begin();
        let mut event = Under { plan, layout, line, leaves, direct: false, work: self, sure: false, recalls: false };
        for &group in groups {
            event.test(group);
        }
    }

    /// Append those of `rules` that may match a line; whether each surely does, if it is asked of the line's log source.
    /// `direct`: by `Texts::direct`, where that has a test.
    pub(crate) fn ask(
        &mut self,
        plan: &Plan,
        (layout, holds): (&Layout, &[Predicate]),
        (line, leaves): (&[u8], &[Leaf]),
        rules: impl Iterator<Item = u32>,
        direct: bool,
        out: &mut Vec<u32>,
    ) -> bool {
        self.begin();
        for &predicate in holds {
            self.marks.hold(predicate);
        }
        let mut event = Under { plan, layout, line, leaves, direct, work: self, sure: true, recalls: false };
        rules.for_each(|rule| event.ask(rule, out));
        event.sure
    }

    /// Append the rules that may match; whether each surely does.
    fn evaluate(
        &mut self,
        plan: &Plan,
        (layout, list): (&Layout, &Shortlist),
        line: &[u8],
        leaves: &[Leaf],
        out: &mut Vec<u32>,
    ) -> bool {
        self.begin();
        list.facts.holds.iter().for_each(|&predicate| self.marks.hold(predicate));
        list.facts.open.iter().for_each(|&predicate| self.marks.leave_open(predicate));
        let known = self.marks.found.len();
        let mut event = Under { plan, layout, line, leaves, direct: false, work: self, sure: true, recalls: true };
        for &group in &list.eager {
            event.test(group);
        }
        for &rule in &list.always {
            event.ask(rule, out);
        }
        let mut next = known;
        while let Some(&predicate) = event.work.marks.found.get(next) {
            next += 1;
            let head = plan.rules.heads[predicate as usize];
            event.work.found[head as usize] += 1;
            for &rule in list.waiting_for(head) {
                event.ask(rule, out);
            }
        }
        event.sure
    }
}

/// How often a predicate is found that waits for a text, if that is noted.
fn cost(plan: &Plan, found: &[u32], predicate: Predicate) -> Option<f64> {
    match plan.predicates[predicate as usize] {
        About::Text(_) => Some(f64::from(found[predicate as usize]) + plan.guesses[predicate as usize]),
        _ => None,
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
    /// Whether texts are looked for in the memo.
    recalls: bool,
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
        if let ([leaf], None) = (layout.leaves(group), layout.computed(group)) {
            return self.test_single(group, *leaf as usize);
        }
        for &leaf in layout.leaves(group) {
            self.test_leaf(group, leaf as usize);
        }
        if let Some(computed) = layout.computed(group) {
            self.test_computed(group, computed);
        }
    }

    /// A field of one value: what was found for the same text before holds again.
    fn test_single(&mut self, group: GroupNumber, number: usize) {
        let leaf = self.leaves[number];
        if !self.recalls || leaf.kind != Kind::Text || !self.plan.groups[group as usize].is_constant() {
            return self.test_leaf(group, number);
        }
        let (Work { memo, marks, .. }, text) = (&mut *self.work, inside(self.line, leaf));
        let place = match memo.recall(group, text) {
            Ok(own) => return own.iter().for_each(|&mark| marks.mark(mark)),
            Err(place) => place,
        };
        self.work.marks.noted = place.map(|_| Vec::new());
        self.test_leaf(group, number);
        if let (Some(place), Some(noted)) = (place, self.work.marks.noted.take()) {
            self.work.memo.keep(place, group, text, &noted);
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
        let inside = inside(line, leaf);
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

/// A value as it is written.
fn inside(line: &[u8], leaf: Leaf) -> &[u8] {
    &line[leaf.start as usize..leaf.end as usize]
}

/// The value of a whole number.
fn number_of(line: &[u8], leaf: Leaf) -> Option<i64> {
    if !matches!(leaf.kind, Kind::Int | Kind::Decimal) {
        return None;
    }
    let text = std::str::from_utf8(inside(line, leaf)).ok()?;
    if leaf.kind == Kind::Int { text } else { text.strip_suffix(".0")? }.parse().ok()
}

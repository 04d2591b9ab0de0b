//! What is known of all events of one structure: where fields are, what always holds, which rules are left.
//!
//! A layout is learned once, from Python's own decoders (`engine/native.py`), and holds for every event with the same
//! signature (`json.rs`). Rules that no such event can match are not looked at again.

use foldhash::{HashMap, HashSet};

use crate::fields::{Marks, Predicate};
use crate::rules::{MAYBE, NO, Rules, Truth, YES};

/// A field's number among the groups.
pub type GroupNumber = u32;

/// What of an event `Layout` needs to know about its predicates.
pub trait Shape {
    /// The group of a predicate, or the two of a comparison of fields.
    fn groups_of(&self, predicate: Predicate) -> [GroupNumber; 2];
    /// Whether a predicate depends on a text, not on whether the field is there.
    fn depends_on_text(&self, predicate: Predicate) -> bool;
}

/// What stands before a separator or after it (`decode/computed.py`).
#[derive(Clone, Copy)]
pub struct Cut {
    /// ASCII, and no letter: it stands in a folded text where it stands in the text.
    pub separator: u8,
    /// Behind it, not before.
    pub after: bool,
    /// Of several the last, not the first.
    pub last: bool,
}

impl Cut {
    /// The part of `text`.
    #[must_use]
    pub fn of(self, text: &[u8]) -> &[u8] {
        let found =
            if self.last { memchr::memrchr(self.separator, text) } else { memchr::memchr(self.separator, text) };
        match (found, self.after) {
            (Some(at), true) => &text[at + 1..],
            (Some(at), false) => &text[..at],
            (None, after) if after == self.last => text,
            (None, _) => &[],
        }
    }
}

/// What a field may be that decoders compute; or it is absent.
#[derive(Default)]
pub struct Computed {
    /// Values, with what is cut out of them.
    pub parts: Vec<(u32, Vec<Cut>)>,
    /// Values, with bytes of which one in it makes the field anything.
    pub guards: Vec<(u32, Vec<u8>)>,
}

/// See the module's text.
#[derive(Default)]
pub struct Layout {
    /// Of each group the values (`leaves[sources[group]..sources[group + 1]]`) that its field has.
    sources: Vec<u32>,
    leaves: Vec<u32>,
    computed: HashMap<GroupNumber, Computed>,
    /// Groups that every keyword search reads: all leaves.
    pub keywords: Option<GroupNumber>,
    /// What always holds, and what is always open.
    pub holds: Vec<Predicate>,
    /// See `holds`.
    pub open: Vec<Predicate>,
    /// The rules that may match.
    rules: Vec<u32>,
    /// Rules to look at in every event.
    pub always: Vec<u32>,
    /// The rules to look at when a predicate is found: `witnessed[index[predicate]]`.
    index: HashMap<Predicate, (u32, u32)>,
    witnessed: Vec<u32>,
    /// The groups to test in every event: those of `index`.
    pub eager: Vec<GroupNumber>,
    /// Whether groups without values are open: no more is known of the event.
    pub partial: bool,
    /// Events seen.
    pub events: u64,
    /// Where the values of columns are, by their number.
    pub columns: Vec<Column>,
}

/// Where the value of a column is in every event of a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    /// A value of the event.
    Leaf(u32),
    /// It is null, or there is none.
    Null,
    /// It is this.
    Truth(bool),
    /// Decoders have to say.
    Unknown,
}

impl Column {
    /// By what `Native` (`engine/native.py`) calls it: a value's number, or one of its codes.
    #[must_use]
    pub fn of(code: i64) -> Self {
        match code {
            -1 => Self::Null,
            -2 => Self::Truth(true),
            -3 => Self::Truth(false),
            leaf => u32::try_from(leaf).map_or(Self::Unknown, Self::Leaf),
        }
    }
}

impl Layout {
    /// `sources`: by group the numbers of values. `rules`: those that may match for all that is known beforehand.
    #[must_use]
    pub fn new(
        sources: &[Vec<u32>],
        computed: HashMap<GroupNumber, Computed>,
        keywords: Option<GroupNumber>,
        holds: Vec<Predicate>,
        open: Vec<Predicate>,
        rules: Vec<u32>,
    ) -> Self {
        let mut layout = Self { computed, keywords, holds, open, rules, ..Self::default() };
        layout.sources.push(0);
        for leaves in sources {
            layout.leaves.extend_from_slice(leaves);
            layout.sources.push(layout.leaves.len() as u32);
        }
        layout
    }

    /// Take what holds and what is open for the values of `groups`, which are the same in every event, as known.
    pub fn settle(&mut self, groups: &[GroupNumber], marks: &Marks) {
        for &predicate in &marks.found {
            if marks.holds(predicate) { &mut self.holds } else { &mut self.open }.push(predicate);
        }
        let sources: Vec<Vec<u32>> = (0..self.sources.len() as u32 - 1)
            .map(|group| if groups.contains(&group) { Vec::new() } else { self.leaves(group).to_vec() })
            .collect();
        let known = std::mem::take(self);
        *self = Self {
            columns: known.columns,
            ..Self::new(&sources, known.computed, known.keywords, known.holds, known.open, known.rules)
        };
    }

    /// The values of a group's field.
    #[inline]
    #[must_use]
    pub fn leaves(&self, group: GroupNumber) -> &[u32] {
        let range = self.sources[group as usize] as usize..self.sources[group as usize + 1] as usize;
        &self.leaves[range]
    }

    /// What a group's field may be, if it is computed.
    #[inline]
    #[must_use]
    pub fn computed(&self, group: GroupNumber) -> Option<&Computed> {
        if self.computed.is_empty() { None } else { self.computed.get(&group) }
    }

    /// Whether nothing is known of a group's field.
    #[inline]
    #[must_use]
    pub fn is_open(&self, group: GroupNumber) -> bool {
        self.partial && self.leaves(group).is_empty()
    }

    /// The rules to look at when `predicate` is found.
    #[inline]
    #[must_use]
    pub fn waiting_for(&self, predicate: Predicate) -> &[u32] {
        self.index.get(&predicate).map_or(&[], |&(from, to)| &self.witnessed[from as usize..to as usize])
    }

    /// Bytes that it takes, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        let numbers = self.sources.len() + self.leaves.len() + self.holds.len() + self.open.len();
        let computed = |one: &Computed| 80 + 64 * (one.parts.len() + one.guards.len());
        (numbers + self.rules.len() + self.always.len() + self.witnessed.len()) * 4
            + self.index.len() * 24
            + self.columns.len() * 8
            + self.computed.values().map(computed).sum::<usize>()
            + 400
    }

    fn known(&self, shape: &impl Shape, marks: &Marks, predicate: Predicate) -> Truth {
        if marks.holds(predicate) {
            return YES;
        }
        if marks.is_open(predicate) {
            return MAYBE;
        }
        let dynamic = shape.depends_on_text(predicate)
            && shape.groups_of(predicate).iter().any(|&group| {
                Some(group) == self.keywords || !self.leaves(group).is_empty() || self.computed(group).is_some()
            });
        if dynamic { MAYBE } else { NO }
    }

    /// Leave out the rules that cannot match, and choose witnesses for the others. `marks` is overwritten.
    ///
    /// `cost`: how often a predicate is found, None for one that is never noted.
    pub fn choose(
        &mut self,
        rules: &Rules,
        shape: &impl Shape,
        marks: &mut Marks,
        cost: impl Fn(Predicate) -> Option<f64>,
    ) {
        marks.begin();
        self.holds.iter().for_each(|&predicate| marks.hold(predicate));
        self.open.iter().for_each(|&predicate| marks.leave_open(predicate));
        let (mut left, mut always, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
        for &rule in &self.rules {
            let root = rules.roots[rule as usize];
            let known = |predicate: Predicate| self.known(shape, marks, predicate);
            if rules.truth(root, &mut |predicate| known(predicate)) == NO {
                continue;
            }
            left.push(rule);
            // What is known to hold, or open, is not found anew in an event: it is no witness.
            let noted =
                |predicate| if marks.holds(predicate) || marks.is_open(predicate) { None } else { cost(predicate) };
            match rules.witness(root, &known, &noted) {
                Some(witness) => pairs.extend(witness.predicates.into_iter().map(|predicate| (predicate, rule))),
                None => always.push(rule),
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        self.index.clear();
        let mut eager = HashSet::default();
        let mut from = 0;
        while from < pairs.len() {
            let predicate = pairs[from].0;
            let to = from + pairs[from..].iter().take_while(|pair| pair.0 == predicate).count();
            self.index.insert(predicate, (from as u32, to as u32));
            eager.extend(shape.groups_of(predicate));
            from = to;
        }
        self.index.shrink_to_fit();
        self.witnessed = pairs.into_iter().map(|pair| pair.1).collect();
        self.eager = eager.into_iter().collect();
        self.eager.sort_unstable();
        (self.rules, self.always) = (left, always);
    }

    /// Whether it is time to choose again, as the predicates of more events have been counted.
    pub fn count(&mut self) -> bool {
        self.events += 1;
        self.events == 1 << 6 || self.events == 1 << 10 || self.events == 1 << 14
    }

    /// Whether no rule is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Node;

    /// Predicate `n` is a text of group `n`, but for 9: whether group 0 is there.
    struct Simple;

    impl Shape for Simple {
        fn groups_of(&self, predicate: Predicate) -> [GroupNumber; 2] {
            [predicate % 9; 2]
        }

        fn depends_on_text(&self, predicate: Predicate) -> bool {
            predicate != 9
        }
    }

    /// A rule for each predicate, then one for each predicate's opposite.
    fn rules() -> Rules {
        let leaves = (0..10).map(Node::Leaf);
        let nots = (0..10).map(Node::Not);
        Rules { nodes: leaves.chain(nots).collect(), roots: (0..20).collect() }
    }

    fn chosen(layout: &mut Layout, cost: impl Fn(Predicate) -> Option<f64>) -> Marks {
        let mut marks = Marks::new(10);
        layout.choose(&rules(), &Simple, &mut marks, cost);
        marks
    }

    #[test]
    fn parts_before_and_after_separators() {
        let cut = |after, last, text: &str| {
            String::from_utf8(Cut { separator: b'?', after, last }.of(text.as_bytes()).to_vec()).unwrap()
        };
        assert_eq!([cut(false, false, "a?b?c"), cut(true, false, "a?b?c")], ["a", "b?c"]);
        assert_eq!([cut(false, true, "a?b?c"), cut(true, true, "a?b?c")], ["a?b", "c"]);
        assert_eq!(
            [cut(false, false, "a"), cut(true, false, "a"), cut(false, true, "a"), cut(true, true, "a")],
            ["a", "", "", "a"]
        );
        assert_eq!([cut(false, false, "?"), cut(true, true, "?")], ["", ""]);
    }

    #[test]
    fn rules_that_cannot_match_are_left_out() {
        let mut sources = vec![Vec::new(); 10];
        sources[0] = vec![0];
        sources[1] = vec![1, 2];
        let computed = HashMap::from_iter([(2, Computed { parts: vec![(0, Vec::new())], guards: Vec::new() })]);
        let mut layout = Layout::new(&sources, computed, Some(3), vec![4, 9], vec![5], (0..20).collect());
        chosen(&mut layout, |_| Some(1.0));
        // By a value, by two, computed, searched in all, held, open; what is not there only where it must not be.
        assert_eq!(layout.rules, [0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 15, 16, 17, 18]);
        assert!(!layout.is_empty());
        assert_eq!((layout.leaves(1), layout.leaves(2)), (&[1, 2][..], &[][..]));
        assert!(layout.computed(2).is_some() && layout.computed(1).is_none());
        assert_eq!([0, 1, 2, 3].map(|predicate| layout.waiting_for(predicate).to_vec()), [[0], [1], [2], [3]]);
        assert!([4, 5, 6, 9].iter().all(|&predicate| layout.waiting_for(predicate).is_empty()));
        assert_eq!(layout.always, [4, 5, 9, 10, 11, 12, 13, 15, 16, 17, 18]);
        assert_eq!(layout.eager, [0, 1, 2, 3]);
    }

    #[test]
    fn a_rule_without_a_witness_is_looked_at_always() {
        let sources = vec![vec![0]; 10];
        let mut layout = Layout::new(&sources, HashMap::default(), None, Vec::new(), Vec::new(), vec![0, 1]);
        chosen(&mut layout, |predicate| (predicate == 0).then_some(1.0));
        assert_eq!((&layout.always[..], layout.waiting_for(0), layout.waiting_for(1)), (&[1][..], &[0][..], &[][..]));
        let mut none = Layout::new(&vec![Vec::new(); 10], HashMap::default(), None, Vec::new(), Vec::new(), vec![0]);
        chosen(&mut none, |_| Some(1.0));
        assert!(none.is_empty());
    }

    #[test]
    fn what_is_the_same_in_every_event_is_known() {
        let sources = vec![vec![0], vec![1], vec![2]];
        let mut layout = Layout::new(&sources, HashMap::default(), None, vec![7], Vec::new(), vec![0, 1, 2]);
        let mut marks = Marks::new(10);
        marks.begin();
        marks.hold(0);
        marks.leave_open(1);
        layout.settle(&[0, 1], &marks);
        assert_eq!((&layout.holds[..], &layout.open[..]), (&[7, 0][..], &[1][..]));
        assert_eq!([0, 1, 2].map(|group| layout.leaves(group).len()), [0, 0, 1]);
    }

    #[test]
    fn witnesses_are_chosen_again_three_times() {
        let mut layout = Layout::default();
        let again: Vec<u32> = (1..=1 << 15).filter(|_| layout.count()).collect();
        assert_eq!(again, [1 << 6, 1 << 10, 1 << 14]);
    }

    #[test]
    fn what_a_layout_takes_grows_with_what_it_holds() {
        let weight = |sources: &[Vec<u32>], computed| {
            Layout::new(sources, computed, None, Vec::new(), Vec::new(), vec![1; 10]).weight()
        };
        let none = weight(&[], HashMap::default());
        assert!(none >= 400 + 40);
        assert!(weight(&vec![vec![1; 10]; 10], HashMap::default()) >= none + 400);
        let part = Computed { parts: vec![(0, Vec::new()); 10], guards: vec![(0, Vec::new()); 10] };
        assert!(weight(&[], HashMap::from_iter([(0, part)])) >= none + 20 * 64);
    }
}

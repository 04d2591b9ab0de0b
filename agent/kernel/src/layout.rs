//! What is known of all events of one structure: where fields are. It is learned once, from Python's own decoders
//! (`engine/lessons.py`), and holds for every event with the same outline and deciding values (`outline.rs`). What rules
//! ask of them is in `shortlist.rs`.

use foldhash::HashMap;

/// A field's number among the groups.
pub type GroupNumber = u32;

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
    /// The part of `text`; behind a cut at a blank without the blanks around it.
    #[must_use]
    pub fn of(self, text: &[u8]) -> &[u8] {
        let found =
            if self.last { memchr::memrchr(self.separator, text) } else { memchr::memchr(self.separator, text) };
        let mut part = match (found, self.after) {
            (Some(at), true) => &text[at + 1..],
            (Some(at), false) => &text[..at],
            (None, after) if after == self.last => text,
            (None, _) => &[],
        };
        if self.separator == b' ' {
            while let [b' ', rest @ ..] | [rest @ .., b' '] = part {
                part = rest;
            }
        }
        part
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
    /// Whether groups without values are open: no more is known of the event.
    pub partial: bool,
    /// Where the values of columns are, by their number.
    pub columns: Vec<Column>,
    /// The fields to show that are there, by their number, ascending, and where their values are.
    pub shown: Vec<(u32, Column)>,
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
    /// Of so many groups. `sources`: the numbers of values of those whose fields have some, ascending by group.
    #[must_use]
    pub fn new<'a>(
        groups: usize,
        sources: impl IntoIterator<Item = (GroupNumber, &'a [u32])>,
        computed: HashMap<GroupNumber, Computed>,
        keywords: Option<GroupNumber>,
    ) -> Self {
        let mut layout = Self { computed, keywords, ..Self::default() };
        layout.sources.reserve_exact(groups + 1);
        for (group, leaves) in sources {
            layout.sources.resize(group as usize + 1, layout.leaves.len() as u32);
            layout.leaves.extend_from_slice(leaves);
        }
        layout.sources.resize(groups + 1, layout.leaves.len() as u32);
        layout
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

    /// Where the value of a field to show is.
    #[must_use]
    pub fn shown(&self, name: u32) -> Column {
        self.shown.binary_search_by_key(&name, |own| own.0).map_or(Column::Null, |place| self.shown[place].1)
    }

    /// What `new` was given.
    #[must_use]
    pub fn into_computed(self) -> HashMap<GroupNumber, Computed> {
        self.computed
    }

    /// The groups whose fields are texts that differ from event to event, ascending.
    #[must_use]
    pub fn dynamic(&self) -> Vec<GroupNumber> {
        let differs = |group: &GroupNumber| {
            Some(*group) == self.keywords || !self.leaves(*group).is_empty() || self.computed(*group).is_some()
        };
        (0..self.sources.len() as GroupNumber - 1).filter(differs).collect()
    }

    /// Whether nothing is known of a group's field.
    #[inline]
    #[must_use]
    pub fn is_open(&self, group: GroupNumber) -> bool {
        self.partial && self.leaves(group).is_empty()
    }

    /// Bytes that it takes, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        let computed = |one: &Computed| 80 + 64 * (one.parts.len() + one.guards.len());
        (self.sources.len() + self.leaves.len()) * 4
            + self.columns.len() * 8
            + self.shown.len() * 12
            + self.computed.values().map(computed).sum::<usize>()
            + 250
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(Cut { separator: b' ', after: true, last: false }.of(b"a  b c "), b"b c");
    }

    #[test]
    fn where_fields_are() {
        let computed = HashMap::from_iter([(4, Computed { parts: vec![(0, Vec::new())], guards: Vec::new() })]);
        let layout = Layout::new(6, [(1, &[7, 8][..]), (2, &[]), (3, &[7])], computed, Some(5));
        assert_eq!(
            (0..6).map(|group| layout.leaves(group).to_vec()).collect::<Vec<_>>(),
            [vec![], vec![7, 8], vec![], vec![7], vec![], vec![]]
        );
        assert!(layout.computed(4).is_some() && layout.computed(1).is_none());
        assert_eq!(layout.dynamic(), [1, 3, 4, 5]);
        assert!(!layout.is_open(0));
    }

    #[test]
    fn what_a_layout_takes_grows_with_what_it_holds() {
        let weight = |groups, leaves: &[u32], computed| Layout::new(groups, [(0, leaves)], computed, None).weight();
        let none = weight(1, &[], HashMap::default());
        assert!(none >= 250);
        assert!(weight(1, &[1; 100], HashMap::default()) >= none + 400);
        assert!(weight(101, &[], HashMap::default()) >= none + 400);
        let part = Computed { parts: vec![(0, Vec::new()); 10], guards: vec![(0, Vec::new()); 10] };
        assert!(weight(1, &[], HashMap::from_iter([(0, part)])) >= none + 20 * 64);
    }
}

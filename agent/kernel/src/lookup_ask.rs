//! The tests of one field that ask lookups: `LOOKUP` of `plan/ir.py`, as `of_lookup` of `engine/group.py` says it.

use crate::fields::{Marks, Predicate, Text};
use crate::lookup_keys::{Kind, canonical};
use crate::lookup_read::Asked;

/// A lookup and what holds when a text is one of its keys.
pub struct Lookup {
    /// The index that is asked.
    pub asked: Asked,
    /// What holds then.
    pub predicate: Predicate,
}

impl Lookup {
    /// Note whether a text is a key.
    pub fn test(&self, text: Text, marks: &mut Marks) {
        if self.holds(text) {
            marks.hold(self.predicate);
        }
    }

    fn holds(&self, text: Text) -> bool {
        let own = match self.asked.kind() {
            Kind::Folded | Kind::Domain => text.own_folded(),
            Kind::Text | Kind::Number | Kind::Range | Kind::Ip => text.own(),
        };
        canonical(self.asked.kind(), own).is_some_and(|key| self.asked.holds(key.bytes()))
    }
}

//! The rules that are left of events of which the same is known, and what to look at to find those that may match.
//!
//! Rules that no such event can match are not looked at again. Of the others each waits for predicates that it cannot do
//! without. Structures of which the same is known share one (`Facts`), wherever their values are.

use std::sync::Arc;

use foldhash::HashMap;

use crate::fields::{Marks, Predicate};
use crate::layout::GroupNumber;
use crate::rules::{Known, MAYBE, NO, Rules, Truth, YES};

/// What of an event `Shortlist` needs to know about its predicates.
pub trait Shape {
    /// The group of a predicate, or the two of a comparison of fields.
    fn groups_of(&self, predicate: Predicate) -> [GroupNumber; 2];
    /// Whether a predicate depends on a text, not on whether the field is there.
    fn depends_on_text(&self, predicate: Predicate) -> bool;
}

/// What is known of events before their texts are looked at.
#[derive(PartialEq, Eq, Hash, Clone, Default)]
pub struct Facts {
    /// The groups whose fields are texts, ascending.
    pub dynamic: Vec<GroupNumber>,
    /// What always holds, ascending.
    pub holds: Vec<Predicate>,
    /// What is always open, ascending.
    pub open: Vec<Predicate>,
    /// The rules that are asked about them.
    pub rules: Arc<[u32]>,
}

/// See the module's text.
#[derive(Default)]
pub struct Shortlist {
    /// What is known of its events.
    pub facts: Arc<Facts>,
    /// The rules that may match.
    rules: Vec<u32>,
    /// Rules to look at in every event.
    pub always: Vec<u32>,
    /// The rules to look at when a predicate is found, by the first of those that go together (`Rules::heads`):
    /// `witnessed[index[head]]`.
    index: HashMap<Predicate, (u32, u32)>,
    witnessed: Vec<u32>,
    /// The groups to test in every event: those of `index`.
    pub eager: Vec<GroupNumber>,
    /// Events seen.
    events: u64,
}

/// What choosing goes by.
struct Before<'a, S, C> {
    marks: &'a Marks,
    shape: &'a S,
    cost: C,
    /// By group whether its field is a text.
    dynamic: Vec<bool>,
    /// By group whether something of it holds, or is open, in every event.
    known: Vec<bool>,
}

impl<S: Shape, C: Fn(Predicate) -> Option<f64>> Known for Before<'_, S, C> {
    fn truth(&self, predicate: Predicate) -> Truth {
        if self.marks.holds(predicate) {
            return YES;
        }
        let texts = || self.shape.groups_of(predicate).iter().any(|&group| self.dynamic[group as usize]);
        let open = self.marks.is_open(predicate) || (self.shape.depends_on_text(predicate) && texts());
        if open { MAYBE } else { NO }
    }

    fn cost(&self, predicate: Predicate) -> Option<f64> {
        // What surely holds, or is open, is not tested in an event: it is no witness.
        if self.marks.holds(predicate) || self.marks.is_open(predicate) { None } else { (self.cost)(predicate) }
    }

    fn alike(&self, predicate: Predicate) -> bool {
        self.shape.groups_of(predicate).iter().all(|&group| !self.known[group as usize])
    }
}

impl Shortlist {
    /// Of events of which `facts` are known. `marks` is overwritten. `cost`: how often a predicate is found, None for one
    /// that is never noted.
    #[must_use]
    pub fn new(
        facts: Arc<Facts>,
        rules: &Rules,
        shape: &impl Shape,
        marks: &mut Marks,
        cost: impl Fn(Predicate) -> Option<f64>,
    ) -> Self {
        let mut list = Self { rules: facts.rules.to_vec(), facts, ..Self::default() };
        list.choose(rules, shape, marks, cost);
        list
    }

    /// The rules to look at when a predicate is found whose head is this.
    #[inline]
    #[must_use]
    pub fn waiting_for(&self, head: Predicate) -> &[u32] {
        self.index.get(&head).map_or(&[], |&(from, to)| &self.witnessed[from as usize..to as usize])
    }

    /// Whether no rule is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Bytes that it takes with its `Facts`, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        let facts = self.facts.holds.len() + self.facts.open.len() + self.facts.dynamic.len();
        let rules = self.rules.len() + self.always.len() + self.witnessed.len();
        (facts + rules + self.eager.len()) * 4 + self.index.len() * 24 + 400
    }

    /// Whether it is time to choose again, as the predicates of more events have been counted.
    pub fn count(&mut self) -> bool {
        self.events += 1;
        self.events == 1 << 6 || self.events == 1 << 10 || self.events == 1 << 14
    }

    /// Leave out the rules that cannot match, and choose witnesses for the others; as `new`.
    pub fn choose(
        &mut self,
        rules: &Rules,
        shape: &impl Shape,
        marks: &mut Marks,
        cost: impl Fn(Predicate) -> Option<f64>,
    ) {
        marks.begin();
        let Facts { holds, open, .. } = &*self.facts;
        for &predicate in holds {
            marks.hold(predicate);
        }
        for &predicate in open {
            marks.leave_open(predicate);
        }
        let mut dynamic = vec![false; rules.groups];
        self.facts.dynamic.iter().for_each(|&group| dynamic[group as usize] = true);
        let mut known = vec![false; rules.groups];
        holds
            .iter()
            .chain(open)
            .flat_map(|&predicate| shape.groups_of(predicate))
            .for_each(|group| known[group as usize] = true);
        let before = Before { marks, shape, cost, dynamic, known };
        let there = |&group: &GroupNumber| before.dynamic[group as usize] || before.known[group as usize];
        let (mut left, mut always, mut pairs, mut witness) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for &rule in &self.rules {
            if !rules.needs[rule as usize].iter().all(|need| need.iter().any(there)) {
                continue;
            }
            witness.clear();
            match rules.witness(rules.roots[rule as usize], &before, &mut witness) {
                None => always.push(rule),
                Some(_) if witness.is_empty() => continue,
                Some(_) => pairs.extend(witness.iter().map(|&predicate| (predicate, rule))),
            }
            left.push(rule);
        }
        pairs.sort_unstable();
        pairs.dedup();
        self.index.clear();
        let mut eager = vec![false; rules.groups];
        let mut from = 0;
        for chunk in pairs.chunk_by(|one, other| one.0 == other.0) {
            let to = from + chunk.len();
            self.index.insert(chunk[0].0, (from as u32, to as u32));
            shape.groups_of(chunk[0].0).iter().for_each(|&group| eager[group as usize] = true);
            from = to;
        }
        self.index.shrink_to_fit();
        self.witnessed = pairs.into_iter().map(|pair| pair.1).collect();
        self.eager = (0..rules.groups as GroupNumber).filter(|&group| eager[group as usize]).collect();
        (self.rules, self.always) = (left, always);
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
        let mut rules = Rules { nodes: leaves.chain(nots).collect(), roots: (0..20).collect(), ..Rules::default() };
        rules.join(&[None; 10]);
        rules.find_needs(10, &|predicate| Simple.groups_of(predicate));
        rules
    }

    fn chosen(
        dynamic: &[GroupNumber],
        (holds, open): (&[Predicate], &[Predicate]),
        of: u32,
        cost: impl Fn(Predicate) -> Option<f64>,
    ) -> Shortlist {
        let facts = Facts { dynamic: dynamic.into(), holds: holds.into(), open: open.into(), rules: (0..of).collect() };
        Shortlist::new(Arc::new(facts), &rules(), &Simple, &mut Marks::new(10), cost)
    }

    #[test]
    fn rules_that_cannot_match_are_left_out() {
        let list = chosen(&[0, 1, 2, 3], (&[4, 9], &[5]), 20, |_| Some(1.0));
        // What is there, held, open; what is not there only where it must not be; not the opposite of what is held.
        assert_eq!(list.rules, [0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 15, 16, 17, 18]);
        assert!(!list.is_empty());
        assert_eq!([0, 1, 2, 3].map(|predicate| list.waiting_for(predicate).to_vec()), [[0], [1], [2], [3]]);
        assert!([4, 5, 6, 9].iter().all(|&predicate| list.waiting_for(predicate).is_empty()));
        assert_eq!(list.always, [4, 5, 9, 10, 11, 12, 13, 15, 16, 17, 18]);
        assert_eq!(list.eager, [0, 1, 2, 3]);
    }

    #[test]
    fn a_rule_without_a_witness_is_looked_at_always() {
        let list = chosen(&[0, 1], (&[], &[]), 2, |predicate| (predicate == 0).then_some(1.0));
        assert_eq!((&list.always[..], list.waiting_for(0), list.waiting_for(1)), (&[1][..], &[0][..], &[][..]));
        assert!(chosen(&[], (&[], &[]), 1, |_| Some(1.0)).is_empty());
    }

    #[test]
    fn witnesses_are_chosen_again_three_times() {
        let mut list = Shortlist::default();
        let again: Vec<u32> = (1..=1 << 15).filter(|_| list.count()).collect();
        assert_eq!(again, [1 << 6, 1 << 10, 1 << 14]);
    }

    #[test]
    fn what_it_takes_grows_with_what_it_holds() {
        let weight = |holds: &[Predicate], rules| chosen(&[0, 1, 2], (holds, &[]), rules, |_| Some(1.0)).weight();
        assert!(weight(&[], 0) >= 400 && weight(&[4, 5], 0) >= weight(&[], 0) + 8);
        assert!(weight(&[], 3) >= weight(&[], 0) + 3 * (24 + 8));
    }
}

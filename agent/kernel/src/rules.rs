//! Rules as expressions over predicates, their truth of three values, and the predicates that they cannot do without.

use crate::fields::Predicate;

/// Whether something may be true, and whether it may be false.
pub type Truth = u8;
/// It is true.
pub const YES: Truth = 1;
/// It is false.
pub const NO: Truth = 2;
/// Not known.
pub const MAYBE: Truth = YES | NO;

/// A part of an expression; parts are named by their place.
pub enum Node {
    /// The truth of a predicate.
    Leaf(Predicate),
    /// Its opposite.
    Not(u32),
    /// All of them.
    And(Vec<u32>),
    /// One of them.
    Or(Vec<u32>),
}

/// The expressions of all rules.
#[derive(Default)]
pub struct Rules {
    /// Every part.
    pub nodes: Vec<Node>,
    /// By rule its expression.
    pub roots: Vec<u32>,
}

/// A set of predicates of which one must hold, and how often one does.
pub struct Witness {
    /// The set.
    pub predicates: Vec<Predicate>,
    /// Its cost.
    pub cost: f64,
}

impl Rules {
    /// The truth of `node`, given that of predicates.
    pub fn truth(&self, node: u32, of: &mut impl FnMut(Predicate) -> Truth) -> Truth {
        match &self.nodes[node as usize] {
            Node::Leaf(predicate) => of(*predicate),
            Node::Not(inner) => {
                let truth = self.truth(*inner, of);
                (truth & YES) << 1 | (truth & NO) >> 1
            }
            Node::And(inner) => {
                let mut all = YES;
                for &node in inner {
                    match self.truth(node, of) {
                        NO => return NO,
                        MAYBE => all = MAYBE,
                        _ => {}
                    }
                }
                all
            }
            Node::Or(inner) => {
                let mut any = NO;
                for &node in inner {
                    match self.truth(node, of) {
                        YES => return YES,
                        MAYBE => any = MAYBE,
                        _ => {}
                    }
                }
                any
            }
        }
    }

    /// What must hold for `node` to be true, among predicates that `cost` gives one: the cheapest such set.
    ///
    /// `known`: the truth of predicates that is the same for every event in question; of others `MAYBE`.
    pub fn witness(
        &self,
        node: u32,
        known: &impl Fn(Predicate) -> Truth,
        cost: &impl Fn(Predicate) -> Option<f64>,
    ) -> Option<Witness> {
        match &self.nodes[node as usize] {
            Node::Leaf(predicate) if known(*predicate) == NO => Some(Witness { predicates: Vec::new(), cost: 0.0 }),
            Node::Leaf(predicate) => Some(Witness { predicates: vec![*predicate], cost: cost(*predicate)? }),
            Node::Not(_) => None,
            Node::And(inner) => inner
                .iter()
                .filter_map(|node| self.witness(*node, known, cost))
                .min_by(|a, b| a.cost.total_cmp(&b.cost)),
            Node::Or(inner) => {
                let mut union = Witness { predicates: Vec::new(), cost: 0.0 };
                for &node in inner {
                    let mut one = self.witness(node, known, cost)?;
                    union.predicates.append(&mut one.predicates);
                    union.cost += one.cost;
                }
                Some(union)
            }
        }
    }
}

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
    /// How many leaves of `node` are `wanted`.
    pub fn count(&self, node: u32, wanted: &impl Fn(Predicate) -> bool) -> u32 {
        match &self.nodes[node as usize] {
            Node::Leaf(predicate) => u32::from(wanted(*predicate)),
            Node::Not(inner) => self.count(*inner, wanted),
            Node::And(inner) | Node::Or(inner) => inner.iter().map(|&node| self.count(node, wanted)).sum(),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    const PREDICATES: u32 = 4;

    /// A tree of at most `depth`, by the digits of `seed`.
    fn grown(rules: &mut Rules, seed: &mut u64, depth: u32) -> u32 {
        let mut digit = |of: u64| {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*seed >> 33) % of
        };
        let kind = if depth == 0 { 0 } else { digit(4) };
        let node = match kind {
            0 => Node::Leaf(digit(u64::from(PREDICATES)) as u32),
            1 => Node::Not(grown(rules, seed, depth - 1)),
            _ => {
                let count = 1 + digit(3);
                let inner = (0..count).map(|_| grown(rules, seed, depth - 1)).collect();
                if kind == 2 { Node::And(inner) } else { Node::Or(inner) }
            }
        };
        rules.nodes.push(node);
        rules.nodes.len() as u32 - 1
    }

    /// The truth that a rule has under all ways in which predicates that are `MAYBE` may turn out.
    fn by_cases(rules: &Rules, root: u32, values: [Truth; PREDICATES as usize]) -> Truth {
        let mut all = 0;
        for case in 0..1_u32 << PREDICATES {
            let fits =
                values.iter().enumerate().all(|(i, &value)| value & if case >> i & 1 == 1 { YES } else { NO } != 0);
            if fits {
                all |= rules.truth(root, &mut |predicate| if case >> predicate & 1 == 1 { YES } else { NO });
            }
        }
        all
    }

    #[test]
    fn truth_leaves_out_nothing_that_may_come_about() {
        let mut seed = 1;
        for _ in 0..2_000 {
            let mut rules = Rules::default();
            let root = grown(&mut rules, &mut seed, 4);
            for number in 0..81_u32 {
                let values = [0, 1, 2, 3].map(|place| [YES, NO, MAYBE][(number / 3_u32.pow(place) % 3) as usize]);
                let truth = rules.truth(root, &mut |predicate| values[predicate as usize]);
                let exact = by_cases(&rules, root, values);
                assert_eq!(truth & exact, exact, "{number}");
                assert!(truth == exact || truth == MAYBE);
            }
        }
    }

    #[test]
    fn no_rule_is_true_without_its_witness() {
        let mut seed = 2;
        let mut witnesses = 0;
        for _ in 0..2_000 {
            let mut rules = Rules::default();
            let root = grown(&mut rules, &mut seed, 4);
            let Some(witness) = rules.witness(root, &|_| MAYBE, &|predicate| Some(f64::from(predicate))) else {
                continue;
            };
            witnesses += 1;
            for case in 0..1_u32 << PREDICATES {
                let holds = |predicate: u32| case >> predicate & 1 == 1;
                if rules.truth(root, &mut |predicate| if holds(predicate) { YES } else { NO }) == YES {
                    assert!(witness.predicates.iter().any(|&predicate| holds(predicate)));
                }
            }
        }
        assert!(witnesses > 500);
    }
}

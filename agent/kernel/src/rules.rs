//! Rules as expressions over predicates, their truth of three values, and the predicates that they cannot do without.

use foldhash::HashMap;

use crate::fields::Predicate;
use crate::layout::GroupNumber;

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
    /// One of these predicates, which are about the texts of one field and always asked for together.
    Any(Box<[Predicate]>),
}

/// What is known of predicates in all events in question.
pub trait Known {
    /// Its truth, where that is the same in all of them; else `MAYBE`.
    fn truth(&self, predicate: Predicate) -> Truth;
    /// Of a predicate and those that are asked for together with it, how often one is found; None: that is not noted.
    fn cost(&self, predicate: Predicate) -> Option<f64>;
    /// Whether the same is known of all predicates about the same text.
    fn alike(&self, predicate: Predicate) -> bool;
}

/// The parent of a leaf that is not one of several of which one is wanted.
const ALONE: u32 = u32::MAX;

/// The truth of "one of them".
fn any(truths: impl Iterator<Item = Truth>) -> Truth {
    let mut any = NO;
    for truth in truths {
        match truth {
            YES => return YES,
            MAYBE => any = MAYBE,
            _ => {}
        }
    }
    any
}

/// The expressions of all rules.
#[derive(Default)]
pub struct Rules {
    /// Every part.
    pub nodes: Vec<Node>,
    /// By rule its expression.
    pub roots: Vec<u32>,
    /// By rule sets of groups: there must be something of one in each for the rule to be true.
    pub needs: Vec<Vec<Box<[GroupNumber]>>>,
    /// How many groups there are.
    pub groups: usize,
    /// By predicate the first of those that are always asked for together with it.
    pub heads: Vec<Predicate>,
}

impl Rules {
    /// How many leaves of `node` are `wanted`.
    pub fn count(&self, node: u32, wanted: &impl Fn(Predicate) -> bool) -> u32 {
        match &self.nodes[node as usize] {
            Node::Leaf(predicate) => u32::from(wanted(*predicate)),
            Node::Any(predicates) => predicates.iter().filter(|&&predicate| wanted(predicate)).count() as u32,
            Node::Not(inner) => self.count(*inner, wanted),
            Node::And(inner) | Node::Or(inner) => inner.iter().map(|&node| self.count(node, wanted)).sum(),
        }
    }

    /// Make of leaves `Node::Any` where they may be, and find out `heads`. `text_of`: by predicate the group whose texts it
    /// is about.
    pub fn join(&mut self, text_of: &[Option<GroupNumber>]) {
        let mut parents = vec![Vec::new(); text_of.len()];
        let leaf = |nodes: &[Node], node: u32| match nodes[node as usize] {
            Node::Leaf(predicate) => Some(predicate),
            _ => None,
        };
        for (number, node) in self.nodes.iter().enumerate() {
            match node {
                Node::Or(inner) => inner.iter().filter_map(|&node| leaf(&self.nodes, node)).for_each(|predicate| {
                    parents[predicate as usize].push(number as u32);
                }),
                Node::And(inner) => inner.iter().filter_map(|&node| leaf(&self.nodes, node)).for_each(|predicate| {
                    parents[predicate as usize].push(ALONE);
                }),
                _ => {}
            }
        }
        let single = self.nodes.iter().filter_map(|node| if let Node::Not(inner) = node { Some(*inner) } else { None });
        for predicate in single.chain(self.roots.iter().copied()).filter_map(|node| leaf(&self.nodes, node)) {
            parents[predicate as usize].push(ALONE);
        }
        let mut together: HashMap<(GroupNumber, &[u32]), Vec<Predicate>> = HashMap::default();
        for (predicate, (parents, text)) in (0..).zip(parents.iter().zip(text_of)) {
            if let Some(group) = *text
                && !parents.contains(&ALONE)
            {
                together.entry((group, parents)).or_default().push(predicate);
            }
        }
        self.heads = (0..text_of.len() as Predicate).collect();
        let mut joined: HashMap<Predicate, Box<[Predicate]>> = HashMap::default();
        for predicates in together.into_values().filter(|predicates| predicates.len() > 1) {
            for &predicate in &predicates {
                self.heads[predicate as usize] = predicates[0];
            }
            joined.insert(predicates[0], predicates.into());
        }
        for number in 0..self.nodes.len() {
            let Node::Or(inner) = &self.nodes[number] else { continue };
            let is_head = |&node: &u32| {
                leaf(&self.nodes, node).is_none_or(|predicate| self.heads[predicate as usize] == predicate)
            };
            let inner: Vec<u32> = inner.iter().copied().filter(is_head).collect();
            for &node in &inner {
                if let Some(predicates) = leaf(&self.nodes, node).and_then(|head| joined.get(&head)) {
                    self.nodes[node as usize] = Node::Any(predicates.clone());
                }
            }
            self.nodes[number] = Node::Or(inner);
        }
    }

    /// Find out `needs`. `groups_of`: the groups that a predicate is about.
    pub fn find_needs(&mut self, groups: usize, groups_of: &impl Fn(Predicate) -> [GroupNumber; 2]) {
        self.groups = groups;
        let mut uses = vec![0; groups];
        for node in &self.nodes {
            let predicate = match node {
                Node::Leaf(predicate) => *predicate,
                Node::Any(predicates) => predicates[0],
                _ => continue,
            };
            for group in groups_of(predicate) {
                uses[group as usize] += 1;
            }
        }
        self.needs = self.roots.iter().map(|&root| self.needs_of(root, &uses, groups_of)).collect();
    }

    fn needs_of(
        &self,
        node: u32,
        uses: &[u32],
        groups_of: &impl Fn(Predicate) -> [GroupNumber; 2],
    ) -> Vec<Box<[GroupNumber]>> {
        let sorted = |mut groups: Vec<GroupNumber>| -> Box<[GroupNumber]> {
            groups.sort_unstable();
            groups.dedup();
            groups.into()
        };
        match &self.nodes[node as usize] {
            Node::Leaf(predicate) => vec![sorted(groups_of(*predicate).to_vec())],
            Node::Any(predicates) => vec![sorted(groups_of(predicates[0]).to_vec())],
            Node::Not(_) => Vec::new(),
            Node::And(inner) => {
                let mut all: Vec<_> = inner.iter().flat_map(|&node| self.needs_of(node, uses, groups_of)).collect();
                all.sort_unstable();
                all.dedup();
                all
            }
            Node::Or(inner) => {
                // Of each part the set that is there least often, by how much asks for it.
                let often = |need: &[GroupNumber]| need.iter().map(|&group| uses[group as usize]).sum::<u32>();
                let rarest =
                    |&node: &u32| self.needs_of(node, uses, groups_of).into_iter().min_by_key(|need| often(need));
                let parts: Option<Vec<_>> = inner.iter().map(rarest).collect();
                parts.map_or_else(Vec::new, |parts| vec![sorted(parts.concat())])
            }
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
            Node::Or(inner) => any(inner.iter().map(|&node| self.truth(node, of))),
            Node::Any(predicates) => any(predicates.iter().map(|&predicate| of(predicate))),
        }
    }

    /// Append to `out` what `node` cannot be true without, among predicates that `known` gives a cost: of one of them, or
    /// of one that is asked for together with it, at least. Gives the cost of the set, the cheapest there is; nothing is
    /// appended only if `node` is surely false. None: there is no such set.
    pub fn witness(&self, node: u32, known: &impl Known, out: &mut Vec<Predicate>) -> Option<f64> {
        let first = out.len();
        match &self.nodes[node as usize] {
            Node::Leaf(predicate) if known.truth(*predicate) == NO => Some(0.0),
            Node::Leaf(predicate) => {
                let cost = known.cost(*predicate)?;
                out.push(*predicate);
                Some(cost)
            }
            Node::Any(predicates) => {
                let head = predicates[0];
                let own = if known.alike(head) { &predicates[..1] } else { predicates };
                let mut cost = None;
                for &predicate in own.iter().filter(|&&predicate| known.truth(predicate) != NO) {
                    known.cost(predicate)?;
                    cost = known.cost(head);
                }
                out.extend(cost.map(|_| head));
                Some(cost.unwrap_or(0.0))
            }
            Node::Not(inner) => (self.truth(*inner, &mut |predicate| known.truth(predicate)) == YES).then_some(0.0),
            Node::And(inner) => {
                let (mut best, mut end) = (None, first);
                for &node in inner {
                    out.truncate(end);
                    let Some(own) = self.witness(node, known, out) else { continue };
                    if out.len() == end {
                        out.truncate(first);
                        return Some(0.0);
                    }
                    if best.is_none_or(|best| own < best) {
                        out.drain(first..end);
                        (best, end) = (Some(own), out.len());
                    }
                }
                out.truncate(end);
                best
            }
            Node::Or(inner) => {
                let mut sum = 0.0;
                for &node in inner {
                    let Some(own) = self.witness(node, known, out) else {
                        out.truncate(first);
                        return None;
                    };
                    sum += own;
                }
                Some(sum)
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

    /// Everything costs its number, and the same is known of no two predicates.
    struct Given([Truth; PREDICATES as usize]);

    impl Known for Given {
        fn truth(&self, predicate: Predicate) -> Truth {
            self.0[predicate as usize]
        }

        fn cost(&self, predicate: Predicate) -> Option<f64> {
            Some(1.0 + f64::from(predicate))
        }

        fn alike(&self, _: Predicate) -> bool {
            self.0 == [MAYBE; PREDICATES as usize]
        }
    }

    /// A rule by the digits of `seed`, as it is and joined: of three predicates about one text, and one about another.
    fn rules(seed: &mut u64) -> [Rules; 2] {
        let depth = 1 + (*seed >> 40) as u32 % 4;
        let make = |seed: &mut u64, groups: [Option<GroupNumber>; PREDICATES as usize]| {
            let mut rules = Rules::default();
            let root = grown(&mut rules, seed, depth);
            rules.roots.push(root);
            rules.join(&groups);
            rules
        };
        let plain = make(&mut seed.clone(), [None; PREDICATES as usize]);
        [plain, make(seed, [Some(0), Some(0), Some(0), Some(1)])]
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
        let (mut seed, mut joined) = (1, 0);
        for _ in 0..2_000 {
            let both = rules(&mut seed);
            joined += usize::from(both[1].nodes.iter().any(|node| matches!(node, Node::Any(_))));
            for (rules, number) in both.iter().flat_map(|rules| (0..81_u32).map(move |number| (rules, number))) {
                let values = [0, 1, 2, 3].map(|place| [YES, NO, MAYBE][(number / 3_u32.pow(place) % 3) as usize]);
                let truth = rules.truth(rules.roots[0], &mut |predicate| values[predicate as usize]);
                let exact = by_cases(rules, rules.roots[0], values);
                assert_eq!(exact, by_cases(&both[0], both[0].roots[0], values), "{number}");
                assert_eq!(truth & exact, exact, "{number}");
                assert!(truth == exact || truth == MAYBE);
            }
        }
        assert!(joined > 50, "{joined}");
    }

    #[test]
    fn no_rule_is_true_without_its_witness() {
        let (mut seed, mut witnesses) = (2, 0);
        for _ in 0..2_000 {
            for rules in rules(&mut seed) {
                let (root, mut witness) = (rules.roots[0], Vec::new());
                let cost = rules.witness(root, &Given([MAYBE; 4]), &mut witness);
                assert_eq!(cost.is_none(), witness.is_empty());
                witnesses += usize::from(cost.is_some());
                for case in 0..1_u32 << PREDICATES {
                    let holds = |predicate: u32| case >> predicate & 1 == 1;
                    if rules.truth(root, &mut |predicate| if holds(predicate) { YES } else { NO }) == YES {
                        let heads = (0..PREDICATES).filter(|&predicate| holds(predicate));
                        let mut heads = heads.map(|predicate| rules.heads[predicate as usize]);
                        assert!(cost.is_none() || heads.any(|head| witness.contains(&head)));
                    }
                }
            }
        }
        assert!(witnesses > 1000);
    }

    #[test]
    fn a_witness_is_empty_only_where_a_rule_is_surely_false() {
        let mut seed = 3;
        for _ in 0..2_000 {
            let both = rules(&mut seed);
            for (rules, number) in both.iter().flat_map(|rules| (0..81_u32).map(move |number| (rules, number))) {
                let values = [0, 1, 2, 3].map(|place| [YES, NO, MAYBE][(number / 3_u32.pow(place) % 3) as usize]);
                let mut witness = Vec::new();
                let found = rules.witness(rules.roots[0], &Given(values), &mut witness).is_some();
                let truth = rules.truth(rules.roots[0], &mut |predicate| values[predicate as usize]);
                assert_eq!(found && witness.is_empty(), truth == NO, "{number}");
            }
        }
    }
}

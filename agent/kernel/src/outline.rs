//! The structures of one outline: events with the same names, nesting and kinds of values (`structure.rs`), told apart by
//! the values that decide.
//!
//! Which values decide may itself depend on values. So each lesson notes those that decoders looked into, and holds for
//! the events of its outline that have the same there. No event changes what is known of others that differ from it in
//! one of these, or in their outline.

use foldhash::HashMap;

use crate::json::{END, Leaf};

/// Sets of values that decide, of one outline.
const MAX_SETS: usize = 8;
/// Bytes of the deciding values of one event; of one with more nothing is learned.
const MAX_DECIDING: usize = 1 << 10;

/// Structures that the same values tell apart.
struct Set {
    /// The numbers of these values, ascending.
    deciding: Box<[u32]>,
    /// By the values, as they are written and with `END` behind each, the number of a structure.
    known: HashMap<Box<[u8]>, u32>,
}

/// See the module's text.
#[derive(Default)]
pub struct Outline {
    /// The hash of what `Structure::object` gives.
    pub hash: u64,
    sets: Vec<Set>,
}

impl Outline {
    /// None yet.
    #[must_use]
    pub fn new(hash: u64) -> Self {
        Self { hash, sets: Vec::new() }
    }

    /// The number of an event's structure. `values` is overwritten: where there is none, by all that was looked at.
    #[inline]
    #[must_use]
    pub fn find(&self, data: &[u8], leaves: &[Leaf], values: &mut Vec<u8>) -> Option<u32> {
        values.clear();
        self.sets.iter().find_map(|set| {
            let from = values.len();
            let whole = write(&set.deciding, data, leaves, values);
            if whole { set.known.get(&values[from..]).copied() } else { None }
        })
    }

    /// Whether there are as many sets as may be, and `deciding` is none of them.
    #[must_use]
    pub fn is_full(&self, deciding: &[u32]) -> bool {
        self.sets.len() >= MAX_SETS && self.sets.iter().all(|set| *set.deciding != *deciding)
    }

    /// How often a structure of the set that is used least is used at most.
    #[must_use]
    pub fn least(&self, used: impl Fn(u32) -> u32) -> u32 {
        let most = |set: &Set| set.known.values().map(|&number| used(number)).max();
        self.sets.iter().filter_map(most).min().unwrap_or_default()
    }

    /// Remember an event's structure, by these of its values. None: they are too long. Else the bytes that it takes.
    pub fn add(&mut self, deciding: &[u32], data: &[u8], leaves: &[Leaf], number: u32) -> Option<usize> {
        let mut values = Vec::new();
        if !write(deciding, data, leaves, &mut values) {
            return None;
        }
        let place = self.sets.iter().position(|set| *set.deciding == *deciding).unwrap_or_else(|| {
            self.sets.push(Set { deciding: deciding.into(), known: HashMap::default() });
            self.sets.len() - 1
        });
        let weight = weight(deciding, &values);
        self.sets[place].known.insert(values.into(), number);
        Some(weight)
    }

    /// Leave out the structures for which `keep` gives None, and number the others as it says. The bytes that they take.
    pub fn retain(&mut self, mut keep: impl FnMut(u32) -> Option<u32>) -> usize {
        let mut taken = 0;
        self.sets.retain_mut(|set| {
            set.known.retain(|values, number| {
                let place = keep(*number);
                *number = place.unwrap_or_default();
                taken += place.map_or(0, |_| weight(&set.deciding, values));
                place.is_some()
            });
            !set.known.is_empty()
        });
        taken
    }

    /// Whether there is no structure.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }
}

/// Append the values as `Set::known` has them. False when they are too long.
fn write(deciding: &[u32], data: &[u8], leaves: &[Leaf], values: &mut Vec<u8>) -> bool {
    let most = values.len() + MAX_DECIDING;
    for &number in deciding {
        let leaf = leaves[number as usize];
        let value = &data[leaf.start as usize..leaf.end as usize];
        if values.len() + value.len() >= most {
            return false;
        }
        values.extend_from_slice(value);
        values.push(END);
    }
    true
}

/// Bytes that a structure takes here, about.
fn weight(deciding: &[u32], values: &[u8]) -> usize {
    values.len() + deciding.len() * 4 + 100
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Event;

    /// The structure's number.
    fn find(outline: &Outline, text: &str) -> Option<u32> {
        let mut event = Event::default();
        event.read(text.as_bytes()).unwrap();
        outline.find(text.as_bytes(), &event.leaves, &mut Vec::new())
    }

    fn add(outline: &mut Outline, deciding: &[u32], text: &str, number: u32) -> bool {
        let mut event = Event::default();
        event.read(text.as_bytes()).unwrap();
        outline.add(deciding, text.as_bytes(), &event.leaves, number).is_some()
    }

    #[test]
    fn a_structure_holds_for_the_same_values_alone() {
        let mut outline = Outline::new(0);
        assert!(add(&mut outline, &[0, 1], r#"{"a":"x","b":"y","c":"z"}"#, 7));
        assert!(add(&mut outline, &[1], r#"{"a":"x","b":"only","c":"z"}"#, 8));
        assert_eq!(find(&outline, r#"{"a":"x","b":"y","c":"other"}"#), Some(7));
        assert_eq!(find(&outline, r#"{"a":"any","b":"only","c":"z"}"#), Some(8));
        for text in [r#"{"a":"x","b":"z","c":"y"}"#, r#"{"a":"xy","b":"","c":"z"}"#, r#"{"a":"","b":"xy","c":"z"}"#] {
            assert_eq!(find(&outline, text), None, "{text}");
        }
    }

    #[test]
    fn a_structure_without_deciding_values_holds_for_all() {
        let mut outline = Outline::new(0);
        assert!(add(&mut outline, &[], r#"{"a":1}"#, 7));
        assert_eq!(find(&outline, r#"{"a":2}"#), Some(7));
    }

    #[test]
    fn what_is_too_long_is_not_learned() {
        let mut outline = Outline::new(0);
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(MAX_DECIDING));
        assert!(!add(&mut outline, &[0], &long, 7) && outline.is_empty());
        assert!(add(&mut outline, &[0], r#"{"a":"x"}"#, 8));
        assert_eq!((find(&outline, &long), find(&outline, r#"{"a":"x"}"#)), (None, Some(8)));
    }

    #[test]
    fn sets_are_bounded_and_go_with_their_structures() {
        let text = format!("{{{}}}", (0..=MAX_SETS).map(|name| format!("\"{name}\":1")).collect::<Vec<_>>().join(","));
        let mut outline = Outline::new(0);
        for number in 0..MAX_SETS as u32 {
            assert!(!outline.is_full(&[number]));
            assert!(add(&mut outline, &[number], &text, number));
        }
        assert!(outline.is_full(&[MAX_SETS as u32]) && !outline.is_full(&[0]));
        assert_eq!(outline.least(|number| number + 5), 5);
        let one = outline.retain(|number| (number == 3).then_some(0));
        assert!(one > 0 && !outline.is_full(&[MAX_SETS as u32]) && find(&outline, &text) == Some(0));
        assert_eq!(outline.retain(|_| None), 0);
        assert!(outline.is_empty());
    }
}

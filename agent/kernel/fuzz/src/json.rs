//! Any bytes: the reader returns, and what it reads is what `serde_json` reads of the same text, value by value. Its
//! structure is that of the same members in the opposite order.

#![no_main]

#[allow(dead_code)]
#[path = "../../src/json.rs"]
mod json;
#[allow(dead_code)]
#[path = "../../src/structure.rs"]
mod structure;

use std::collections::HashSet;
use std::fmt;

use libfuzzer_sys::fuzz_target;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use json::{Event, Kind, Leaf, each_item, unescape};
use structure::Structure;

/// An object's names and values in the order of the text, also those that occur twice.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Pairs<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

fn items(text: &str) -> Vec<&RawValue> {
    serde_json::from_str(text).expect("an array")
}

fn has_object(text: &str) -> bool {
    match text.as_bytes()[0] {
        b'{' => true,
        b'[' => items(text).iter().any(|item| has_object(item.get())),
        _ => false,
    }
}

/// The texts of the values that the reader should give one leaf each.
fn leaves<'a>(text: &'a str, found: &mut Vec<&'a str>) {
    match text.as_bytes()[0] {
        b'{' => {
            let pairs: Pairs = serde_json::from_str(text).expect("an object");
            pairs.0.iter().for_each(|(_, value)| leaves(value.get(), found));
        }
        b'[' if has_object(text) => items(text).iter().for_each(|item| leaves(item.get(), found)),
        _ => found.push(text),
    }
}

/// The same text with the members of every object in the opposite order; of those of one name only the last.
fn turned(text: &str, out: &mut String) {
    let mut each = |open, close, parts: Vec<(Option<String>, &str)>| {
        out.push(open);
        for (number, (name, value)) in parts.into_iter().enumerate() {
            if number > 0 {
                out.push(',');
            }
            if let Some(name) = name {
                out.push_str(&serde_json::to_string(&name).expect("a string"));
                out.push(':');
            }
            turned(value, out);
        }
        out.push(close);
    };
    match text.as_bytes()[0] {
        b'{' => {
            let pairs: Pairs = serde_json::from_str(text).expect("an object");
            let mut seen = HashSet::new();
            let last = pairs.0.into_iter().rev().filter(|(name, _)| seen.insert(name.clone()));
            each('{', '}', last.map(|(name, value)| (Some(name), value.get())).collect());
        }
        b'[' if has_object(text) => each('[', ']', items(text).into_iter().map(|item| (None, item.get())).collect()),
        _ => out.push_str(text),
    }
}

/// The sorted signature of an event, and the texts of its values; None: it is not read, or not sorted.
fn sorted(text: &str) -> Option<(Vec<u8>, Vec<&str>)> {
    let (mut event, mut structure) = (Event::default(), Structure::default());
    event.read(text.as_bytes())?;
    structure.sort(&event.signature)?;
    let leaves = structure.leaves.iter().map(|&leaf| event.leaves[leaf as usize]);
    let values = leaves.map(|leaf| &text[leaf.start as usize..leaf.end as usize]).collect();
    Some((structure.signature, values))
}

/// The texts of the scalars in an array.
fn scalars<'a>(text: &'a str, found: &mut Vec<&'a str>) {
    match text.as_bytes()[0] {
        b'[' => items(text).iter().for_each(|item| scalars(item.get(), found)),
        _ => found.push(text),
    }
}

/// `leaf` is the value that is written as `text`.
fn same(data: &[u8], leaf: Leaf, text: &str) {
    let bytes = &data[leaf.start as usize..leaf.end as usize];
    match leaf.kind {
        Kind::Text | Kind::Empty => {
            let wanted: String = serde_json::from_str(text).expect("a string");
            let mut found = Vec::new();
            unescape(bytes, &mut found).expect("what was read can be unescaped");
            assert_eq!(found, wanted.as_bytes());
            assert_eq!(leaf.escaped, bytes.contains(&b'\\'));
            assert_eq!(leaf.kind == Kind::Empty, wanted.is_empty());
        }
        Kind::List | Kind::EmptyList => {
            assert_eq!(bytes, text.as_bytes());
            let (mut wanted, mut number) = (Vec::new(), 0);
            scalars(text, &mut wanted);
            each_item(data, leaf.start as usize, |item| {
                same(data, item, wanted[number]);
                number += 1;
            })
            .expect("what was read can be read again");
            assert_eq!(number, wanted.len());
        }
        Kind::Int | Kind::Decimal | Kind::Number => {
            assert_eq!(bytes, text.as_bytes());
            let float: Option<f64> = text.parse().ok();
            if leaf.kind == Kind::Int {
                assert!(text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok());
            } else if leaf.kind == Kind::Decimal {
                // As Python prints it: Rust finds the same shortest digits.
                assert_eq!(format!("{:?}", float.expect("a number")), text);
            }
        }
        Kind::True => assert_eq!(text, "true"),
        Kind::False => assert_eq!(text, "false"),
        Kind::Null => assert_eq!(text, "null"),
    }
}

fuzz_target!(|data: &[u8]| {
    let mut event = Event::default();
    if event.read(data).is_some() {
        let read = &event.leaves;
        let text = std::str::from_utf8(data).expect("UTF-8");
        let (whole, mut wanted): (&RawValue, _) = (serde_json::from_str(text).expect("JSON"), Vec::new());
        leaves(whole.get(), &mut wanted);
        assert_eq!(read.len(), wanted.len());
        read.iter().zip(wanted).for_each(|(leaf, text)| same(data, *leaf, text));
        let mut other = String::new();
        turned(whole.get(), &mut other);
        // Without the members that do not count it may be small enough.
        if let Some(sorted_as_written) = sorted(text)
            && let Some(sorted_turned) = sorted(&other)
        {
            assert_eq!(sorted_as_written, sorted_turned);
        }
    }
});

//! The structure of an event without the order of its names: the members of each object sorted by name.
//!
//! Of a name that an object has more than once the last member counts, as readers of JSON have it; the others are left
//! out. So events with the same members have one signature, in whatever order they are written, and their values are
//! numbered alike.

use crate::json::{END, LIST, NAME_END, OBJECT};

/// Members beyond which an event is not sorted.
const MAX_MEMBERS: usize = 1 << 14;
/// Times that the bytes of a signature are moved, on average; with more it is not sorted: objects may nest deep.
const MAX_MOVED: usize = 8;

/// A sorted signature and its values.
#[derive(Default)]
pub struct Structure {
    /// As `json::Event` has it, sorted.
    pub signature: Vec<u8>,
    /// How much of it is about the object.
    object: usize,
    /// By number of a value here its number in the event.
    pub leaves: Vec<u32>,
    /// Of the objects that are open, one behind the other.
    members: Vec<Member>,
    order: Vec<u32>,
    spare: Vec<u8>,
    spare_leaves: Vec<u32>,
    moved: usize,
}

/// Where a member begins in `signature` and in `leaves`, and how long its name is.
#[derive(Clone, Copy)]
struct Member {
    start: u32,
    leaf: u32,
    name: u32,
}

impl Member {
    fn name(self, signature: &[u8]) -> &[u8] {
        &signature[self.start as usize..(self.start + self.name) as usize]
    }
}

impl Structure {
    /// Sort the signature of an event; what is behind the object stays there. None: it would take too long.
    pub fn sort(&mut self, signature: &[u8]) -> Option<()> {
        self.signature.clear();
        self.leaves.clear();
        self.members.clear();
        self.moved = 0;
        let mut sorter = Sorter { from: signature, at: 0, leaf: 0, to: self };
        sorter.value()?;
        let behind = sorter.at;
        self.object = self.signature.len();
        self.signature.extend_from_slice(&signature[behind..]);
        Some(())
    }

    /// The object's signature, without what is behind it.
    #[must_use]
    pub fn object(&self) -> &[u8] {
        &self.signature[..self.object]
    }

    /// Bring the members from `first` on, which are all of their object, in order.
    fn arrange(&mut self, first: usize) -> Option<()> {
        let Self { signature, leaves, members, order, spare, spare_leaves, moved, .. } = self;
        let own = &members[first..];
        if own.windows(2).all(|pair| pair[0].name(signature) < pair[1].name(signature)) {
            return Some(());
        }
        let (start, leaf) = (own[0].start as usize, own[0].leaf as usize);
        *moved += signature.len() - start;
        if *moved > MAX_MOVED * signature.len() {
            return None;
        }
        order.clear();
        order.extend(0..own.len() as u32);
        order.sort_by(|&one, &other| own[one as usize].name(signature).cmp(own[other as usize].name(signature)));
        spare.clear();
        spare_leaves.clear();
        for (place, &number) in order.iter().enumerate() {
            let member = own[number as usize];
            let next = order.get(place + 1).map(|&next| own[next as usize]);
            if next.is_some_and(|next| next.name(signature) == member.name(signature)) {
                continue; // a later one counts
            }
            let (end, last) = own
                .get(number as usize + 1)
                .map_or((signature.len(), leaves.len()), |next| (next.start as usize, next.leaf as usize));
            spare.extend_from_slice(&signature[member.start as usize..end]);
            spare_leaves.extend_from_slice(&leaves[member.leaf as usize..last]);
        }
        signature.truncate(start);
        signature.extend_from_slice(spare);
        leaves.truncate(leaf);
        leaves.extend_from_slice(spare_leaves);
        Some(())
    }
}

struct Sorter<'a> {
    from: &'a [u8],
    at: usize,
    /// The number of the next value of the event.
    leaf: u32,
    to: &'a mut Structure,
}

impl Sorter<'_> {
    /// Take over so many bytes.
    fn take(&mut self, count: usize) {
        self.to.signature.extend_from_slice(&self.from[self.at..self.at + count]);
        self.at += count;
    }

    fn value(&mut self) -> Option<()> {
        let mark = self.from[self.at];
        self.take(1);
        match mark {
            OBJECT => return self.members(),
            LIST => {
                while self.from[self.at] != END {
                    self.value()?;
                }
                self.take(1);
            }
            _ => {
                self.to.leaves.push(self.leaf);
                self.leaf += 1;
            }
        }
        Some(())
    }

    fn members(&mut self) -> Option<()> {
        let first = self.to.members.len();
        while self.from[self.at] != END {
            if self.to.members.len() >= MAX_MEMBERS {
                return None;
            }
            let name = memchr::memchr(NAME_END, &self.from[self.at..]).expect("a name has an end");
            let (start, leaf) = (self.to.signature.len() as u32, self.to.leaves.len() as u32);
            self.to.members.push(Member { start, leaf, name: name as u32 });
            self.take(name + 1);
            self.value()?;
        }
        self.to.arrange(first)?;
        self.to.members.truncate(first);
        self.take(1);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Event;

    fn sorted(text: &str) -> Option<(Vec<u8>, Vec<String>)> {
        let (mut event, mut structure) = (Event::default(), Structure::default());
        event.read(text.as_bytes()).expect(text);
        structure.sort(&event.signature)?;
        let value = |&leaf: &u32| {
            let leaf = event.leaves[leaf as usize];
            text[leaf.start as usize..leaf.end as usize].to_owned()
        };
        let values = structure.leaves.iter().map(value).collect();
        Some((structure.signature, values))
    }

    #[test]
    fn order_is_taken_out_at_every_depth() {
        let (signature, values) = sorted(r#"{"a":1,"b":{"c":"x","id":2},"d":[{"e":3,"f":4},5,[6]]}"#).unwrap();
        for text in [
            r#"{"b":{"id":2,"c":"x"},"a":1,"d":[{"f":4,"e":3},5,[6]]}"#,
            r#"{"d":[{"f":4,"e":3},5,[6]],"b":{"c":"x","id":2},"a":1}"#,
            r#"{"d":[{"f":4,"e":3},5,[6]],"\u0062":{"\u0063":"x","i\u0064":2},"a":1}"#,
        ] {
            assert_eq!(sorted(text).unwrap(), (signature.clone(), values.clone()), "{text}");
        }
        for text in [
            r#"{"b":{"id":"2","c":"x"},"a":1,"d":[{"f":4,"e":3},5,[6]]}"#,
            r#"{"b":{"id":2,"c":"x"},"a":1,"d":[5,{"f":4,"e":3},[6]]}"#,
            r#"{"b":{"id":2,"c":"x","a":1},"d":[{"f":4,"e":3},5,[6]]}"#,
        ] {
            assert_ne!(sorted(text).unwrap().0, signature, "{text}");
        }
    }

    #[test]
    fn of_a_name_that_is_there_more_than_once_the_last_counts() {
        let single = sorted(r#"{"a":2,"b":{"c":4}}"#).unwrap();
        for text in [
            r#"{"a":{"x":1,"y":1},"b":3,"b":{"c":3,"c":4},"a":2}"#,
            r#"{"b":{"c":[{"c":3}],"\u0063":4},"a":"x","a":[],"a":2}"#,
        ] {
            assert_eq!(sorted(text).unwrap(), single, "{text}");
        }
    }

    #[test]
    fn what_would_take_too_long_is_not_sorted() {
        let many = (0..=MAX_MEMBERS).map(|number| format!("\"{number}\":{{}}")).collect::<Vec<_>>().join(",");
        assert!(sorted(&format!("{{{many}}}")).is_none());
        let nested = |levels| {
            let inner = (0..levels)
                .fold(format!("{{\"{}\":1}}", "x".repeat(1000)), |inner, _| format!("{{\"b\":{inner},\"a\":1}}"));
            sorted(&inner).is_some()
        };
        assert!(nested(MAX_MOVED - 1) && !nested(2 * MAX_MOVED));
    }

    #[test]
    fn what_is_behind_the_object_stays_there() {
        let (mut event, mut structure) = (Event::default(), Structure::default());
        event.read(br#"{"b":1,"a":"x"}"#).unwrap();
        event.signature.extend([7, END, 8]);
        structure.sort(&event.signature).unwrap();
        let object = sorted(r#"{"a":"x","b":1}"#).unwrap().0;
        assert_eq!((structure.object(), &structure.signature[object.len()..]), (&object[..], &[7, END, 8][..]));
    }
}

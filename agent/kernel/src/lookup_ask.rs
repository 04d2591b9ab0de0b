//! The tests of one field that ask lookups: `LOOKUP` of `plan/ir.py`, as `of_lookup` of `engine/group.py` says it.

use std::net::IpAddr;

use crate::fields::{Marks, Predicate, Text};
use crate::lookup_keys::{Kind, canonical, four};
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
        match self.holds(text) {
            Some(true) => marks.hold(self.predicate),
            Some(false) => {}
            None => marks.leave_open(self.predicate),
        }
    }

    /// None for a text that Python may read in another way.
    fn holds(&self, text: Text) -> Option<bool> {
        let kind = self.asked.kind();
        let own = match kind {
            Kind::Ip => return self.holds_address(text.own()),
            Kind::Folded | Kind::Domain => text.own_folded(),
            Kind::Text | Kind::Number | Kind::Range => text.own(),
        };
        Some(canonical(kind, own).is_some_and(|key| self.asked.holds(key.bytes())))
    }

    /// An address of IPv4 mapped into IPv6 is both.
    fn holds_address(&self, own: &[u8]) -> Option<bool> {
        if let Some(four) = four(own) {
            return Some(self.asked.holds(&four));
        }
        let Ok(own) = std::str::from_utf8(own) else { return None };
        // Python strips what it takes for space, and knows scopes: such texts are rare.
        if !own.bytes().all(|byte| (b' '..0x7f).contains(&byte) && byte != b'%') {
            return None;
        }
        Some(match own.trim_matches(' ').parse() {
            Ok(IpAddr::V4(address)) => self.asked.holds(&address.octets()),
            Ok(IpAddr::V6(address)) => {
                self.asked.holds(&address.octets())
                    || address.to_ipv4_mapped().is_some_and(|mapped| self.asked.holds(&mapped.octets()))
            }
            Err(_) => false,
        })
    }
}

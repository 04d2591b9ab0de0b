//! The tests of one field: a text in, the predicates that hold for it out.
//!
//! The meaning of each test is `plan/ir.py`'s. What is not decided here is noted as *open*: perhaps it holds.

use std::net::IpAddr;

use foldhash::HashMap;

use crate::hs::{Database, Scratch};
use crate::lookup_ask::Lookup;
use crate::lookup_keys::parsed;

/// A predicate's number in the plan.
pub type Predicate = u32;

/// Hits in one text beyond which every search of it is open.
const MAX_HITS: usize = 4096;
/// Two newlines follow every text that is scanned (`plan/patterns.py`).
pub const PAD: &[u8] = b"\n\n";

/// Which hits of a search count, by where they end (`plan/patterns.py`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Anywhere: no match holds a newline.
    Anywhere,
    /// Not behind the text.
    Within,
    /// One byte behind it.
    AtEnd,
    /// The same, or behind the text's own last newline.
    AtLineEnd,
    /// Perhaps.
    Perhaps,
}

/// Searches by one database.
pub struct Scan {
    /// Pattern `i` belongs to `searches[i]`.
    pub database: Database,
    /// What each pattern stands for.
    pub searches: Vec<(Predicate, End)>,
}

/// Where a text must hold another one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At its begin.
    Prefix,
    /// At its end.
    Suffix,
    /// Anywhere.
    Within,
}

impl Place {
    /// Whether `part` is there in `whole`.
    #[must_use]
    pub fn holds(self, whole: &[u8], part: &[u8]) -> bool {
        match self {
            Self::Prefix => whole.starts_with(part),
            Self::Suffix => whole.ends_with(part),
            Self::Within => memchr::memmem::find(whole, part).is_some(),
        }
    }
}

/// A search without a database.
pub struct Plain {
    /// Where `text` must stand.
    pub place: Place,
    /// Whether case counts.
    pub cased: bool,
    /// Folded unless `cased`.
    pub text: Box<[u8]>,
    /// What holds then.
    pub predicate: Predicate,
}

/// A comparison with a number.
#[derive(Clone, Copy)]
pub enum Order {
    /// <
    Less,
    /// <=
    AtMost,
    /// >
    More,
    /// >=
    AtLeast,
}

/// The predicates of one field.
#[derive(Default)]
pub struct Group {
    /// Searches of the folded text.
    pub folded: Option<Scan>,
    /// Searches of the text as it is.
    pub raw: Option<Scan>,
    /// By folded text.
    pub exact: HashMap<Box<[u8]>, Vec<Predicate>>,
    /// By text.
    pub exact_cased: HashMap<Box<[u8]>, Vec<Predicate>>,
    /// Of whole numbers.
    pub numbers: HashMap<i64, Vec<Predicate>>,
    /// See `Plain`.
    pub plain: Vec<Plain>,
    /// Network, bits of its prefix.
    pub networks: Vec<(IpAddr, u32, Predicate)>,
    /// Comparisons with numbers of at most 53 bits.
    pub orders: Vec<(Order, f64, Predicate)>,
    /// See `Lookup`.
    pub lookups: Vec<Lookup>,
    /// What is open for every text.
    pub open: Vec<Predicate>,
    /// All that depends on the text.
    pub all: Vec<Predicate>,
    /// What holds where the field is not there.
    pub absent: Vec<Predicate>,
    /// Whether many texts may be searched as one: no search is bound to a text's begin or end.
    pub joined: bool,
}

/// A predicate that holds, or is open.
#[derive(Clone, Copy)]
pub enum Mark {
    /// It holds.
    Holds(Predicate),
    /// Perhaps it holds.
    Open(Predicate),
}

/// Which predicates hold, and which are open, for the event under way.
pub struct Marks {
    epoch: u32,
    held: Vec<u32>,
    open: Vec<u32>,
    /// Those that hold or are open, in the order in which that was found.
    pub found: Vec<Predicate>,
    /// Whether what is tested is perhaps no text of the field: what holds for it is open.
    pub perhaps: bool,
    /// While there is a list: every mark goes to it, too.
    pub noted: Option<Vec<Mark>>,
}

impl Marks {
    /// For so many predicates.
    #[must_use]
    pub fn new(predicates: usize) -> Self {
        Self {
            epoch: 0,
            held: vec![0; predicates],
            open: vec![0; predicates],
            found: Vec::new(),
            perhaps: false,
            noted: None,
        }
    }

    /// Forget all.
    pub fn begin(&mut self) {
        self.found.clear();
        self.perhaps = false;
        self.noted = None;
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.held.fill(0);
            self.open.fill(0);
            self.epoch = 1;
        }
    }

    /// It holds.
    #[inline]
    pub fn hold(&mut self, predicate: Predicate) {
        if self.perhaps {
            self.leave_open(predicate);
            return;
        }
        if let Some(noted) = &mut self.noted {
            noted.push(Mark::Holds(predicate));
        }
        let at = &mut self.held[predicate as usize];
        if *at != self.epoch {
            *at = self.epoch;
            if self.open[predicate as usize] != self.epoch {
                self.found.push(predicate);
            }
        }
    }

    /// Perhaps it holds.
    #[inline]
    pub fn leave_open(&mut self, predicate: Predicate) {
        if let Some(noted) = &mut self.noted {
            noted.push(Mark::Open(predicate));
        }
        let at = &mut self.open[predicate as usize];
        if *at != self.epoch {
            *at = self.epoch;
            if self.held[predicate as usize] != self.epoch {
                self.found.push(predicate);
            }
        }
    }

    /// Either.
    pub fn mark(&mut self, mark: Mark) {
        match mark {
            Mark::Holds(predicate) => self.hold(predicate),
            Mark::Open(predicate) => self.leave_open(predicate),
        }
    }

    /// Whether it surely holds.
    #[inline]
    #[must_use]
    pub fn holds(&self, predicate: Predicate) -> bool {
        self.held[predicate as usize] == self.epoch
    }

    /// Whether it is open.
    #[inline]
    #[must_use]
    pub fn is_open(&self, predicate: Predicate) -> bool {
        self.open[predicate as usize] == self.epoch
    }

    fn hold_all(&mut self, predicates: Option<&Vec<Predicate>>) {
        for &predicate in predicates.into_iter().flatten() {
            self.hold(predicate);
        }
    }

    /// Leave all of `group` open.
    pub fn leave_group_open(&mut self, group: &Group) {
        for &predicate in &group.all {
            self.leave_open(predicate);
        }
    }
}

/// A text under test.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    /// As it is, with `PAD` behind it.
    pub padded: &'a [u8],
    /// Folded, with `PAD` behind it.
    pub folded: &'a [u8],
    /// The value of a whole number.
    pub number: Option<i64>,
}

impl<'a> Text<'a> {
    /// It, without the pad.
    #[must_use]
    pub fn own(&self) -> &'a [u8] {
        &self.padded[..self.padded.len() - PAD.len()]
    }

    /// It folded, without the pad.
    #[must_use]
    pub fn own_folded(&self) -> &'a [u8] {
        &self.folded[..self.folded.len() - PAD.len()]
    }
}

impl Group {
    /// Whether what it finds in a text is worth remembering, and stays true: lookups change.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.lookups.is_empty() && (self.folded.is_some() || self.raw.is_some())
    }

    /// Note what holds, and what may, for one text.
    pub fn test(&self, text: Text, scratch: &mut Scratch, marks: &mut Marks) {
        let (padded, folded) = (text.padded, text.folded);
        self.look_up(text, marks);
        self.search_plain(padded, folded, marks);
        for (scan, data) in [(&self.folded, folded), (&self.raw, padded)] {
            if let Some(scan) = scan {
                scan.search(data, data.len() - PAD.len(), scratch, marks);
            }
        }
        let own = text.own();
        if !self.networks.is_empty() {
            self.find_networks(own, marks);
        }
        if !self.orders.is_empty() {
            self.compare(own, marks);
        }
        for lookup in &self.lookups {
            lookup.test(text, marks);
        }
        for &predicate in &self.open {
            marks.leave_open(predicate);
        }
    }

    /// The tests of a whole text that are no searches.
    pub fn look_up(&self, text: Text, marks: &mut Marks) {
        if !self.exact.is_empty() {
            marks.hold_all(self.exact.get(text.own_folded()));
        }
        if !self.exact_cased.is_empty() {
            marks.hold_all(self.exact_cased.get(text.own()));
        }
        if let Some(number) = text.number {
            marks.hold_all(self.numbers.get(&number));
        }
    }

    fn search_plain(&self, padded: &[u8], folded: &[u8], marks: &mut Marks) {
        for plain in &self.plain {
            let data = if plain.cased { padded } else { folded };
            if plain.place.holds(&data[..data.len() - PAD.len()], &plain.text) {
                marks.hold(plain.predicate);
            }
        }
    }

    /// Search many texts, of which each has `PAD` behind it, as one; what is found is open where it may be in two of them.
    pub fn search_joined(&self, padded: &[u8], folded: &[u8], scratch: &mut Scratch, marks: &mut Marks) {
        if padded.is_empty() {
            return;
        }
        for plain in &self.plain {
            let data = if plain.cased { padded } else { folded };
            if plain.place.holds(data, &plain.text) {
                if plain.text.contains(&b'\n') {
                    marks.leave_open(plain.predicate);
                } else {
                    marks.hold(plain.predicate);
                }
            }
        }
        for (scan, data) in [(&self.folded, folded), (&self.raw, padded)] {
            let Some(scan) = scan else { continue };
            if scratch.scan(&scan.database, data, MAX_HITS) {
                for &(pattern, _) in &scratch.hits {
                    let (predicate, end) = scan.searches[pattern as usize];
                    if end == End::Anywhere { marks.hold(predicate) } else { marks.leave_open(predicate) }
                }
            } else {
                scan.leave_open(marks);
            }
        }
        for &predicate in &self.open {
            marks.leave_open(predicate);
        }
    }

    fn find_networks(&self, own: &[u8], marks: &mut Marks) {
        let Some(address) = parsed(own) else { return };
        for &(network, bits, predicate) in &self.networks {
            if within(address, network, bits) {
                marks.hold(predicate);
            }
        }
    }

    fn compare(&self, own: &[u8], marks: &mut Marks) {
        match as_number(own) {
            Written::None => {}
            Written::Exact(number) => {
                for &(order, value, predicate) in &self.orders {
                    let holds = match order {
                        Order::Less => number < value,
                        Order::AtMost => number <= value,
                        Order::More => number > value,
                        Order::AtLeast => number >= value,
                    };
                    if holds {
                        marks.hold(predicate);
                    }
                }
            }
            Written::Other => {
                for &(_, _, predicate) in &self.orders {
                    marks.leave_open(predicate);
                }
            }
        }
    }
}

impl Scan {
    fn search(&self, data: &[u8], size: usize, scratch: &mut Scratch, marks: &mut Marks) {
        if !scratch.scan(&self.database, data, MAX_HITS) {
            self.leave_open(marks);
            return;
        }
        for &(pattern, to) in &scratch.hits {
            let (predicate, end) = self.searches[pattern as usize];
            let to = to as usize;
            match end {
                End::Anywhere => marks.hold(predicate),
                End::Within if to <= size => marks.hold(predicate),
                End::AtEnd | End::AtLineEnd if to == size + 1 => marks.hold(predicate),
                End::AtLineEnd if to == size && data[..size].ends_with(b"\n") => marks.hold(predicate),
                End::AtEnd | End::AtLineEnd => {}
                End::Within | End::Perhaps => marks.leave_open(predicate),
            }
        }
    }

    fn leave_open(&self, marks: &mut Marks) {
        for &(predicate, _) in &self.searches {
            marks.leave_open(predicate);
        }
    }
}

/// Whether `address` lies in a network.
fn within(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let same = |a: u128, b: u128, size: u32| bits == 0 || (a ^ b) >> (size - bits.min(size)) == 0;
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

enum Written {
    None,
    Exact(f64),
    Other,
}

/// The number that `text` is written as (`operators.as_number`), as far as a float compares as Python would.
fn as_number(text: &[u8]) -> Written {
    let digits = |from: &[u8]| from.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = usize::from(text.first() == Some(&b'-'));
    let whole = digits(&text[at..]);
    if whole == 0 {
        return Written::None;
    }
    at += whole;
    if text.get(at) == Some(&b'.') {
        let count = digits(&text[at + 1..]);
        if count == 0 {
            return Written::None;
        }
        at += 1 + count;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        let sign = usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let count = digits(&text[at + 1 + sign..]);
        if count == 0 {
            return Written::None;
        }
        at += 1 + sign + count;
    }
    if at != text.len() {
        return Written::None;
    }
    // Up to 15 digits, a whole number is its float exactly; of others the nearest is taken by both.
    match std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok()) {
        Some(number) if at != whole + usize::from(text[0] == b'-') || whole <= 15 => Written::Exact(number),
        _ => Written::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks() -> Marks {
        let mut marks = Marks::new(8);
        marks.begin();
        marks
    }

    #[test]
    fn marks_are_forgotten() {
        let mut marks = marks();
        marks.hold(1);
        marks.leave_open(1);
        marks.leave_open(2);
        marks.hold(2);
        marks.hold(1);
        assert_eq!(marks.found, [1, 2]);
        assert!(marks.holds(1) && marks.is_open(1) && marks.holds(2) && !marks.holds(3) && !marks.is_open(3));
        marks.perhaps = true;
        marks.hold(4);
        assert!(!marks.holds(4) && marks.is_open(4));
        for epoch in [2, u32::MAX] {
            marks.epoch = epoch;
            marks.hold(1);
            marks.begin();
            assert!(marks.found.is_empty() && !marks.perhaps && !marks.holds(1) && !marks.is_open(1));
        }
        assert_eq!(marks.epoch, 1);
    }

    #[test]
    fn places_of_a_part() {
        let places = [Place::Prefix, Place::Suffix, Place::Within];
        let holds = |whole: &str, part: &str| places.map(|place| place.holds(whole.as_bytes(), part.as_bytes()));
        assert_eq!(holds("abc", "ab"), [true, false, true]);
        assert_eq!(holds("abc", "bc"), [false, true, true]);
        assert_eq!(holds("abc", "b"), [false, false, true]);
        assert_eq!(holds("abc", "x"), [false; 3]);
        assert_eq!(holds("", ""), [true; 3]);
    }

    #[test]
    fn addresses_in_networks() {
        let inside = |address: &str, network: &str, bits| {
            within(parsed(address.as_bytes()).unwrap(), network.parse().unwrap(), bits)
        };
        assert!(inside("10.1.2.3", "10.1.2.3", 32) && !inside("10.1.2.3", "10.1.2.2", 32));
        assert!(inside("10.1.2.3", "10.1.2.2", 31) && inside("10.1.2.3", "10.0.0.0", 8));
        assert!(!inside("11.1.2.3", "10.0.0.0", 8) && inside("11.1.2.3", "10.0.0.0", 0));
        assert!(inside("fe80::1", "fe80::", 64) && !inside("fe81::1", "fe80::", 64) && inside("fe81::1", "::", 0));
        assert!(inside("fe80::1", "fe80::1", 128) && !inside("fe80::1", "fe80::2", 128));
        assert!(inside("::ffff:10.1.2.3", "10.0.0.0", 8) && !inside("::10.1.2.3", "10.0.0.0", 8));
        assert!(inside(" [fe80::1%eth0] ", "fe80::", 64) && !inside("::ffff:10.1.2.3", "::", 0));
        assert!(!inside("10.1.2.3", "::", 0));
    }

    fn tested(group: &Group, text: &str) -> (Vec<Predicate>, Vec<Predicate>) {
        let mut marks = marks();
        group.find_networks(text.as_bytes(), &mut marks);
        group.compare(text.as_bytes(), &mut marks);
        let found = marks.found.clone();
        found.into_iter().partition(|&predicate| marks.holds(predicate))
    }

    #[test]
    fn texts_that_are_addresses() {
        let group = Group { networks: vec![("10.0.0.0".parse().unwrap(), 8, 0)], ..Group::default() };
        for text in ["10.1.2.3", " 10.1.2.3 ", "10.1.2.3\t", "[10.1.2.3]", "::ffff:10.1.2.3", "::ffff:a01:203%eth0"] {
            assert_eq!(tested(&group, text), (vec![0], vec![]), "{text}");
        }
        for text in ["11.1.2.3", "10.1.2", "x", "", "010.1.2.3", "fe80::1%eth0", "\u{a0}10.1.2.3", "10.1.2.3\x7f"] {
            assert_eq!(tested(&group, text), (vec![], vec![]), "{text}");
        }
    }

    #[test]
    fn texts_that_are_numbers() {
        let orders = [Order::Less, Order::AtMost, Order::More, Order::AtLeast];
        let orders = orders.into_iter().enumerate().map(|(i, order)| (order, 7.0, i as u32)).collect();
        let group = Group { orders, ..Group::default() };
        let exact: [(&str, &[u32]); 9] = [
            ("6", &[0, 1]),
            ("7", &[1, 3]),
            ("7.0", &[1, 3]),
            ("70e-1", &[1, 3]),
            ("8", &[2, 3]),
            ("-8", &[0, 1]),
            ("7.5E+0", &[2, 3]),
            ("999999999999999", &[2, 3]),
            ("1e300", &[2, 3]),
        ];
        for (text, holding) in exact {
            assert_eq!(tested(&group, text), (holding.to_vec(), vec![]), "{text}");
        }
        for text in ["", "-", "x", "7x", "7.", ".7", "7e", "7e+", "+7", " 7", "7 ", "--7", "7.0.0", "0x7", "inf", "NaN"]
        {
            assert_eq!(tested(&group, text), (vec![], vec![]), "{text}");
        }
        for text in ["9999999999999999", "-9999999999999999"] {
            assert_eq!(tested(&group, text), (vec![], vec![0, 1, 2, 3]), "{text}");
        }
    }

    #[test]
    fn whole_texts() {
        let of = |text: &str, predicate| (text.as_bytes().into(), vec![predicate]);
        let group = Group {
            exact: HashMap::from_iter([of("ab", 0)]),
            exact_cased: HashMap::from_iter([of("Ab", 1)]),
            numbers: HashMap::from_iter([(7, vec![2])]),
            plain: [(Place::Prefix, false, "a", 3), (Place::Suffix, true, "B", 4)]
                .map(|(place, cased, text, predicate)| Plain { place, cased, text: text.as_bytes().into(), predicate })
                .into(),
            open: vec![5],
            all: vec![0, 1, 2, 3, 4, 5],
            ..Group::default()
        };
        let found = |text: &str, number| {
            let (padded, folded) = (format!("{text}\n\n"), format!("{}\n\n", text.to_lowercase()));
            let text = Text { padded: padded.as_bytes(), folded: folded.as_bytes(), number };
            let mut marks = marks();
            group.look_up(text, &mut marks);
            group.search_plain(text.padded, text.folded, &mut marks);
            (String::from_utf8(text.own().to_vec()).unwrap(), marks.found)
        };
        assert_eq!(found("Ab", None), ("Ab".into(), vec![0, 1, 3]));
        assert_eq!(found("AB", None), ("AB".into(), vec![0, 3, 4]));
        assert_eq!(found("7", Some(7)), ("7".into(), vec![2]));
        assert_eq!(found("", None), (String::new(), vec![]));
        let mut all = marks();
        all.leave_group_open(&group);
        assert_eq!(all.found, group.all);
    }
}

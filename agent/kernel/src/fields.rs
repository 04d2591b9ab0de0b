//! The tests of one field: a text in, the predicates that hold for it out.
//!
//! The meaning of each test is `plan/ir.py`'s. What is not decided here is noted as *open*: perhaps it holds.

use std::net::IpAddr;

use foldhash::HashMap;

use crate::hs::{Database, Scratch};

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
    /// What is open for every text.
    pub open: Vec<Predicate>,
    /// All that depends on the text.
    pub all: Vec<Predicate>,
    /// Whether many texts may be searched as one: no search is bound to a text's begin or end.
    pub joined: bool,
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
}

impl Marks {
    /// For so many predicates.
    #[must_use]
    pub fn new(predicates: usize) -> Self {
        Self { epoch: 0, held: vec![0; predicates], open: vec![0; predicates], found: Vec::new(), perhaps: false }
    }

    /// Forget all.
    pub fn begin(&mut self) {
        self.found.clear();
        self.perhaps = false;
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
        let at = &mut self.open[predicate as usize];
        if *at != self.epoch {
            *at = self.epoch;
            if self.held[predicate as usize] != self.epoch {
                self.found.push(predicate);
            }
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
        // Python strips what it takes for space, and knows scopes: such texts are rare.
        let plain = own.iter().all(|byte| (b' '..0x7f).contains(byte) && *byte != b'%');
        let address = std::str::from_utf8(own).ok().and_then(|text| text.trim().parse::<IpAddr>().ok());
        for &(network, bits, predicate) in &self.networks {
            if !plain {
                marks.leave_open(predicate);
            } else if address.is_some_and(|address| within(address, network, bits)) {
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

/// Whether `address` lies in a network; one of IPv4 mapped into IPv6 is both.
fn within(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let same = |a: u128, b: u128, size: u32| bits == 0 || (a ^ b) >> (size - bits.min(size)) == 0;
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
        (IpAddr::V6(a), IpAddr::V4(_)) => a.to_ipv4_mapped().is_some_and(|a| within(IpAddr::V4(a), network, bits)),
        (IpAddr::V4(_), IpAddr::V6(_)) => false,
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

//! The class `Table` of the import: an opened lookup, as `lookup/table.py` describes its parts.
//!
//! Every place is checked when it is used: a damaged file is an error, never a read outside of the map.

#![allow(clippy::needless_pass_by_value, clippy::cast_possible_wrap)]

use std::borrow::Cow;
use std::hint::select_unpredictable;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::lookup_filter::Shape;
use crate::lookup_keys::{Key, Kind, address, canonical, gather, hash, of, place, spread};
use crate::lookup_map::{Bytes, File};

/// Rows between two places in `groups`.
pub const GROUP: usize = 16;

/// Start and size in the file.
type Section = (usize, usize);

/// How a column lies in a record.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Store {
    code: char,
    width: usize,
    at: usize,
    base: i64,
    kind: String,
    ends: Section,
    texts: Section,
}

/// Where an index finds its parts; what its layout does not have is empty.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct IndexParts {
    kind: String,
    layout: String,
    column: usize,
    bits: u32,
    seed: u64,
    filter: Option<(Shape, Section)>,
    dots: (usize, usize),
    dir: Section,
    fps: Section,
    refs: Option<Section>,
    parents: Section,
    fst: Section,
    parts: Vec<(usize, u32, Section, Section, Section)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Hash,
    Sorted,
    Fst,
    Ranges,
}

/// Keys of `width` bytes in order, without their upper bits.
struct Points {
    width: usize,
    bits: u32,
    low: usize,
    dir: Section,
    lows: Section,
    nodes: Section,
}

struct Index {
    kind: Kind,
    layout: Layout,
    column: usize,
    bits: u32,
    seed: u64,
    filter: Option<(Shape, Section)>,
    /// Fewest and most dots of a key, where keys are domains.
    dots: (usize, usize),
    dir: Section,
    fps: Section,
    refs: Option<Section>,
    parents: Section,
    fst: Section,
    parts: Vec<Points>,
    /// Of a table of texts: digests are kept as the bytes that they are the digits of.
    digits: bool,
}

/// A value in a record.
enum Cell<'a> {
    Null,
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(Cow<'a, [u8]>),
}

struct Inner {
    file: File,
    stores: Vec<Store>,
    indexes: Vec<Index>,
    records: Section,
    groups: Section,
    width: usize,
    texts: usize,
    symbols: Vec<(u64, u8)>,
}

fn number(bytes: &[u8]) -> u64 {
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(whole)
}

fn short(bytes: &[u8], at: usize) -> usize {
    number(&bytes[at * 4..at * 4 + 4]) as usize
}

/// What was found: a row, or a key of a table that has nothing else.
enum Found<'a> {
    Row(usize),
    Key(Kind, bool, Cow<'a, [u8]>),
}

impl Points {
    fn cut<'k>(&self, key: &'k [u8]) -> (usize, &'k [u8]) {
        let mut first = [0; 8];
        let known = self.width.min(8);
        first[..known].copy_from_slice(&key[..known]);
        let place = u64::from_be_bytes(first).checked_shr(64 - self.bits).unwrap_or(0) as usize;
        (place, &key[self.width - self.low..])
    }

    /// How many entries are not above `key`, and whether the last of these is it.
    fn rank(&self, file: &[u8], key: &[u8]) -> (usize, bool) {
        let (place, low) = self.cut(key);
        let dir = &file[self.dir.0..self.dir.0 + self.dir.1];
        let (start, end) = (short(dir, place), short(dir, place + 1));
        let lows = &file[self.lows.0..self.lows.0 + self.lows.1];
        let part = &lows[start * self.low..end * self.low];
        let (mut from, mut to) = (0, end - start);
        if self.low == 2 {
            let wanted = u16::from_be_bytes([low[0], low[1]]);
            let entries = part.as_chunks::<2>().0;
            let below = |at: usize| u16::from_be_bytes(entries[at]) <= wanted;
            if self.nodes.1 == 0 {
                // Each step goes either way half the time: no branch, which would be guessed wrong as often.
                while to > 1 {
                    let half = to / 2;
                    from = select_unpredictable(below(from + half - 1), from + half, from);
                    to -= half;
                }
                from += usize::from(to == 1 && below(from));
            } else {
                // Here guesses pay: while the entries are compared they fetch what is read next, of the rank or its
                // neighbour.
                while from < to {
                    let middle = usize::midpoint(from, to);
                    if below(middle) { from = middle + 1 } else { to = middle }
                }
            }
        } else {
            while from < to {
                let middle = usize::midpoint(from, to);
                if &part[middle * self.low..(middle + 1) * self.low] <= low { from = middle + 1 } else { to = middle }
            }
        }
        (start + from, from > 0 && &part[(from - 1) * self.low..from * self.low] == low)
    }
}

/// A domain and all above it, the longest first, of those that have as many dots as a key may have.
fn suffixes(domain: &[u8], (least, most): (usize, usize)) -> impl Iterator<Item = &[u8]> {
    let dots = memchr::memchr_iter(b'.', domain).count();
    let above = memchr::memchr_iter(b'.', domain).map(|at| &domain[at + 1..]);
    let all = std::iter::once(domain).chain(above).enumerate();
    let fitting = all.filter(move |(number, rest)| (least..=most).contains(&(dots - number)) && !rest.is_empty());
    fitting.map(|(_, rest)| rest)
}

/// By byte the digit that it is; 255: none.
const DIGITS: [u8; 256] = {
    let mut table = [255; 256];
    let mut digit = 0;
    while digit < 16 {
        table[b"0123456789abcdef"[digit] as usize] = digit as u8;
        digit += 1;
    }
    table
};

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() || text.len() > 128 {
        return None;
    }
    let mut wrong = 0;
    let raw = pairs.iter().map(|[high, low]| {
        let (high, low) = (DIGITS[usize::from(*high)], DIGITS[usize::from(*low)]);
        wrong |= high | low;
        high << 4 | low & 15
    });
    let raw: Vec<u8> = raw.collect();
    (wrong < 16).then_some(raw)
}

fn hex(bytes: &[u8]) -> Vec<u8> {
    let digits = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]).collect()
}

impl Inner {
    fn section(&self, section: Section) -> &[u8] {
        &self.file[section.0..section.0 + section.1]
    }

    fn record(&self, row: usize) -> &[u8] {
        let records = self.section(self.records);
        if self.texts == 0 {
            return &records[row * self.width..];
        }
        let groups = self.section(self.groups);
        let group = row / GROUP * 8;
        let mut at = number(&groups[group..group + 8]) as usize;
        for _ in 0..row % GROUP {
            at += self.width;
            for _ in 0..self.texts {
                let (size, start) = size(records, at);
                at = start + size.unwrap_or(0);
            }
        }
        &records[at..]
    }

    /// The cells of a record, in the order of the columns.
    fn cells<'a>(&'a self, record: &'a [u8]) -> impl Iterator<Item = Cell<'a>> {
        let mut at = self.width;
        self.stores.iter().map(move |store| {
            if store.code != 't' {
                return self.fixed(store, record);
            }
            let (size, start) = size(record, at);
            at = start + size.unwrap_or(0);
            match size {
                None => Cell::Null,
                Some(size) => Cell::Text(self.plain(&record[start..start + size])),
            }
        })
    }

    fn plain<'a>(&self, codes: &'a [u8]) -> Cow<'a, [u8]> {
        if self.symbols.is_empty() {
            return Cow::Borrowed(codes);
        }
        let mut out = Vec::with_capacity(codes.len() * 3);
        let mut codes = codes.iter();
        while let Some(&code) = codes.next() {
            if code == 255 {
                out.extend(codes.next());
            } else {
                let (bytes, size) = self.symbols[usize::from(code)];
                out.extend_from_slice(&bytes.to_le_bytes()[..usize::from(size)]);
            }
        }
        Cow::Owned(out)
    }

    fn fixed<'a>(&'a self, store: &Store, record: &'a [u8]) -> Cell<'a> {
        let raw = &record[store.at..store.at + store.width];
        match store.code {
            'f' => {
                let float = f64::from_bits(number(raw));
                if float.is_nan() { Cell::Null } else { Cell::Float(float) }
            }
            'a' => Cell::Text(Cow::Owned(shown_address(raw).into_bytes())),
            'x' => Cell::Text(Cow::Owned(hex(raw))),
            'd' => match number(raw) as usize {
                0 => Cell::Null,
                word => {
                    let ends = self.section(store.ends);
                    let start = if word > 1 { short(ends, word - 2) } else { 0 };
                    Cell::Text(Cow::Borrowed(&self.section(store.texts)[start..short(ends, word - 1)]))
                }
            },
            _ => match number(raw) {
                0 => Cell::Null,
                code => {
                    let value = (code - 1).wrapping_add_signed(store.base) as i64;
                    if store.kind == "bool" { Cell::Bool(value != 0) } else { Cell::Int(value) }
                }
            },
        }
    }

    /// Whether the key's column in a row has this key.
    fn is(&self, index: &Index, row: usize, key: &[u8]) -> bool {
        let record = self.record(row);
        let store = &self.stores[index.column];
        match store.code {
            'a' => return &record[store.at..store.at + store.width] == key,
            'x' => return unhex(key).is_some_and(|raw| raw == record[store.at..store.at + store.width]),
            _ => {}
        }
        match self.cells(record).nth(index.column) {
            Some(Cell::Text(text)) if index.kind == Kind::Ip => {
                address(&text).is_some_and(|found| found.bytes() == key)
            }
            Some(Cell::Text(text)) => *text == *key,
            Some(Cell::Int(value)) => value.to_le_bytes() == *key,
            _ => false,
        }
    }

    /// Every finding, the best first, until `each` says that it is enough.
    fn find<'k>(&self, index: &Index, key: &'k [u8], mut each: impl FnMut(Found<'k>) -> bool) {
        match index.layout {
            Layout::Hash if index.kind == Kind::Domain => {
                for one in suffixes(key, index.dots) {
                    if !self.find_hashed(index, one, &mut each) {
                        return;
                    }
                }
            }
            Layout::Hash => {
                self.find_hashed(index, key, &mut each);
            }
            Layout::Sorted => self.find_sorted(index, key, &mut each),
            Layout::Fst if index.kind == Kind::Domain => {
                for one in suffixes(key, index.dots) {
                    if self.accepts(index, one) && !each(Found::Key(index.kind, false, Cow::Borrowed(one))) {
                        return;
                    }
                }
            }
            Layout::Fst => {
                if self.accepts(index, key) {
                    each(Found::Key(index.kind, false, Cow::Borrowed(key)));
                }
            }
            Layout::Ranges => {
                let mut node = self.narrowest(index, key);
                let refs = self.section(index.refs.unwrap_or_default());
                let parents = self.section(index.parents);
                while node > 0 {
                    if !each(Found::Row(short(refs, node - 1))) {
                        return;
                    }
                    let wider = short(parents, node - 1);
                    assert!(wider < node, "parents come before");
                    node = wider;
                }
            }
        }
    }

    /// The number of the narrowest range around a key, plus one; zero: there is none.
    fn narrowest(&self, index: &Index, key: &[u8]) -> usize {
        let Some(points) = index.parts.iter().find(|points| points.width == key.len()) else { return 0 };
        match points.rank(&self.file, key).0 {
            0 => 0,
            rank => short(self.section(points.nodes), rank - 1),
        }
    }

    /// Whether a key with this hash may be there: what is asked first, as most are not.
    fn may_hold(&self, index: &Index, hash: u64) -> bool {
        index.filter.is_none_or(|(shape, filter)| shape.may_hold(self.section(filter), hash))
    }

    /// The entries that may have a key with this hash.
    fn entries(&self, index: &Index, hash: u64) -> (usize, &[u8], u8) {
        let (place, mark) = place(hash, index.bits);
        let dir = self.section(index.dir);
        let (start, end) = (short(dir, place), short(dir, place + 1));
        (start, &self.section(index.fps)[start..end], mark)
    }

    fn find_hashed<'k>(&self, index: &Index, key: &'k [u8], each: &mut impl FnMut(Found<'k>) -> bool) -> bool {
        let hash = hash(key, index.seed);
        if !self.may_hold(index, hash) {
            return true;
        }
        let (start, marks, mark) = self.entries(index, hash);
        for (at, _) in marks.iter().enumerate().filter(|(_, one)| **one == mark) {
            let row = match index.refs {
                None => start + at,
                Some(refs) => short(self.section(refs), start + at),
            };
            if self.is(index, row, key) && !each(Found::Row(row)) {
                return false;
            }
        }
        true
    }

    fn find_sorted<'k>(&self, index: &Index, key: &'k [u8], each: &mut impl FnMut(Found<'k>) -> bool) {
        if !self.may_hold(index, hash(key, index.seed)) {
            return;
        }
        let raw: Cow<'k, [u8]> = match index.kind {
            Kind::Number => Cow::Owned(spread(number(key)).to_be_bytes().to_vec()),
            Kind::Ip => Cow::Borrowed(key),
            _ => match unhex(key) {
                Some(raw) => Cow::Owned(raw),
                None => return,
            },
        };
        if let Some(points) = index.parts.iter().find(|points| points.width == raw.len())
            && points.rank(&self.file, &raw).1
        {
            each(Found::Key(index.kind, index.digits, raw));
        }
    }

    /// Whether the automaton has the key.
    fn accepts(&self, index: &Index, key: &[u8]) -> bool {
        self.may_hold(index, hash(key, index.seed))
            && fst::raw::Fst::new(self.section(index.fst)).is_ok_and(|automaton| automaton.contains_key(key))
    }

    fn holds(&self, index: &Index, key: &[u8]) -> bool {
        if index.layout == Layout::Ranges {
            return self.narrowest(index, key) > 0;
        }
        let mut found = false;
        self.find(index, key, |_| {
            found = true;
            false
        });
        found
    }

    fn shown<'py>(&self, py: Python<'py>, found: &Found) -> PyResult<Bound<'py, PyTuple>> {
        match found {
            Found::Row(row) => {
                let mut values = Vec::with_capacity(self.stores.len());
                for cell in self.cells(self.record(*row)) {
                    values.push(match cell {
                        Cell::Null => py.None().into_bound(py),
                        Cell::Int(value) => value.into_pyobject(py)?.into_any(),
                        Cell::Float(value) => value.into_pyobject(py)?.into_any(),
                        Cell::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
                        Cell::Text(value) => text(py, &value)?,
                    });
                }
                PyTuple::new(py, values)
            }
            Found::Key(Kind::Number, _, key) => {
                let mut whole = [0; 8];
                whole.copy_from_slice(key);
                PyTuple::new(py, [gather(u64::from_be_bytes(whole)) as i64])
            }
            Found::Key(Kind::Ip, _, key) => PyTuple::new(py, [shown_address(key)]),
            Found::Key(_, true, key) => PyTuple::new(py, [text(py, &hex(key))?]),
            Found::Key(_, false, key) => PyTuple::new(py, [text(py, key)?]),
        }
    }
}

/// A text as Python has it; one that is no UTF-8 holds lone surrogates.
fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(PyString::new(py, text).into_any()),
        Err(_) => PyBytes::new(py, bytes).call_method1("decode", ("utf-8", "surrogatepass")),
    }
}

fn shown_address(raw: &[u8]) -> String {
    match (<[u8; 4]>::try_from(raw), <[u8; 16]>::try_from(raw)) {
        (Ok(four), _) => Ipv4Addr::from(four).to_string(),
        (_, Ok(sixteen)) => Ipv6Addr::from(sixteen).to_string(),
        _ => String::new(),
    }
}

/// The size of the text at `at`, None when it is null, and where its codes begin.
fn size(records: &[u8], mut at: usize) -> (Option<usize>, usize) {
    let (mut found, mut shift) = (0, 0);
    loop {
        let byte = records[at];
        at += 1;
        found |= usize::from(byte & 127) << shift;
        if byte < 128 {
            return (found.checked_sub(1), at);
        }
        shift += 7;
    }
}

/// An opened lookup.
#[pyclass(frozen)]
pub struct Table(Arc<Inner>);

/// One index of a lookup, for rules that ask it.
pub struct Asked {
    table: Arc<Inner>,
    index: usize,
}

impl Asked {
    /// Of what its keys are.
    pub fn kind(&self) -> Kind {
        self.table.indexes[self.index].kind
    }

    /// Whether a key is there. Panics when the file is damaged.
    pub fn holds(&self, key: &[u8]) -> bool {
        self.table.holds(&self.table.indexes[self.index], key)
    }
}

fn damaged<R>(work: impl FnOnce() -> R) -> PyResult<R> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|_| PyValueError::new_err("the lookup's file is damaged: copy it again"))
}

impl Table {
    fn index(&self, number: usize) -> PyResult<&Index> {
        self.0.indexes.get(number).ok_or_else(|| PyValueError::new_err("no such index"))
    }

    /// What stays readable without Python, for as long as it is kept.
    pub(crate) fn asked(&self, index: usize) -> Option<Asked> {
        (index < self.0.indexes.len()).then(|| Asked { table: Arc::clone(&self.0), index })
    }
}

#[pymethods]
impl Table {
    /// `file`: a descriptor that is open; it may be closed afterwards. Sections count from the file's first byte.
    #[new]
    fn new(
        file: i32,
        stores: Vec<Store>,
        indexes: Vec<IndexParts>,
        records: Section,
        groups: Section,
        width: usize,
        symbols: Vec<Vec<u8>>,
    ) -> PyResult<Self> {
        let wrong = |what: &str| PyValueError::new_err(what.to_owned());
        let file = File::map(file)?;
        let mut made = Vec::new();
        for one in indexes {
            let kind = Kind::parse(&one.kind).ok_or_else(|| wrong("an index of an unknown kind"))?;
            let layout = match one.layout.as_str() {
                "hash" => Layout::Hash,
                "sorted" => Layout::Sorted,
                "fst" => Layout::Fst,
                "ranges" => Layout::Ranges,
                _ => return Err(wrong("an index of an unknown layout")),
            };
            if one.bits > 24 || one.column >= stores.len().max(1) {
                return Err(wrong("an index that cannot be"));
            }
            if one.filter.is_some_and(|(shape, (_, size))| !shape.fits(size)) {
                return Err(wrong("a filter of another size"));
            }
            let parts = one.parts.into_iter().map(|(width, bits, dir, lows, nodes)| {
                if width == 0 || width > 64 || bits > 24 || bits as usize > width * 8 {
                    return Err(wrong("keys of an impossible width"));
                }
                let low = (width * 8 - bits as usize).div_ceil(8);
                Ok(Points { width, bits, low, dir, lows, nodes })
            });
            made.push(Index {
                kind,
                layout,
                column: one.column,
                bits: one.bits,
                seed: one.seed,
                filter: one.filter,
                dots: one.dots,
                dir: one.dir,
                fps: one.fps,
                refs: one.refs,
                parents: one.parents,
                fst: one.fst,
                parts: parts.collect::<PyResult<_>>()?,
                digits: matches!(kind, Kind::Text | Kind::Folded),
            });
        }
        let symbols = symbols.iter().map(|symbol| {
            if symbol.is_empty() || symbol.len() > 8 {
                return Err(wrong("a symbol of an impossible size"));
            }
            Ok((number(symbol), symbol.len() as u8))
        });
        let texts = stores.iter().filter(|store| store.code == 't').count();
        if stores.iter().any(|store| !"bfdaxt".contains(store.code) || (store.width > 8 && !"ax".contains(store.code)))
        {
            return Err(wrong("a column that lies in a record as none does"));
        }
        let symbols = symbols.collect::<PyResult<_>>()?;
        Ok(Self(Arc::new(Inner { file, stores, indexes: made, records, groups, width, texts, symbols })))
    }

    /// The first row of a key, or None.
    fn get<'py>(
        &self,
        py: Python<'py>,
        index: usize,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let index = self.index(index)?;
        let Some(key) = of(index.kind, key) else { return Ok(None) };
        damaged(|| {
            let mut found = None;
            self.0.find(index, key.bytes(), |one| {
                found = Some(self.0.shown(py, &one));
                false
            });
            found.transpose()
        })?
    }

    /// Every row of a key.
    fn all<'py>(&self, py: Python<'py>, index: usize, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let index = self.index(index)?;
        let rows = PyList::empty(py);
        let Some(key) = of(index.kind, key) else { return Ok(rows) };
        damaged(|| {
            let mut failed = None;
            self.0.find(index, key.bytes(), |one| {
                let added = self.0.shown(py, &one).and_then(|row| rows.append(row));
                failed = added.err();
                failed.is_none()
            });
            failed.map_or(Ok(()), Err)
        })??;
        Ok(rows)
    }

    /// Whether a key is there.
    fn contains(&self, index: usize, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let index = self.index(index)?;
        let Some(key) = of(index.kind, key) else { return Ok(false) };
        damaged(|| self.0.holds(index, key.bytes()))
    }

    /// Of many keys, as texts one behind the other that end at `ends` (u32), a byte each: whether it is there.
    fn holds<'py>(&self, py: Python<'py>, index: usize, keys: Bytes, ends: Bytes) -> PyResult<Bound<'py, PyBytes>> {
        let index = self.index(index)?;
        let (keys, ends): (&[u8], &[u8]) = (&keys, &ends);
        let found = py.detach(|| {
            damaged(|| {
                let mut start = 0;
                let each = ends.as_chunks().0.iter().map(|end| {
                    let end = u32::from_le_bytes(*end) as usize;
                    let key = canonical(index.kind, &keys[start..end]);
                    start = end;
                    u8::from(key.is_some_and(|key: Key| self.0.holds(index, key.bytes())))
                });
                each.collect::<Vec<u8>>()
            })
        })?;
        Ok(PyBytes::new(py, &found))
    }
}

//! The parts of a lookup from columns and keys: what `lookup/pack.py` says, for tables of millions of rows.

#![allow(clippy::needless_pass_by_value, clippy::elidable_lifetime_names)]

use fsst::{Compressor, Symbol};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyBytes;

use crate::lookup_filter::Shape;
use crate::lookup_keys::{address, hash, place, spread};
use crate::lookup_map::Bytes;
use crate::lookup_read::GROUP;

const MAX_TWINS: usize = 8;
/// Texts that symbols are learned from.
const SAMPLE: usize = 20_000;

type Twins = Vec<(u32, u32)>;
type Entries<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Twins);
type Automaton<'py> = (Bound<'py, PyBytes>, Twins, usize);

/// Keys one behind the other.
#[derive(Clone, Copy)]
struct Keys<'a> {
    arena: &'a [u8],
    ends: Option<&'a [[u8; 4]]>,
    width: usize,
}

impl<'a> Keys<'a> {
    fn new(arena: &'a [u8], ends: Option<&'a Bytes>, width: usize) -> Self {
        Self { arena, ends: ends.map(|ends| ends.as_chunks().0), width }
    }

    fn len(&self) -> usize {
        self.ends.map_or_else(|| self.arena.len() / self.width.max(1), <[_]>::len)
    }

    fn get(&self, row: usize) -> &'a [u8] {
        match self.ends {
            None => &self.arena[row * self.width..(row + 1) * self.width],
            Some(ends) => {
                let start = if row == 0 { 0 } else { u32::from_le_bytes(ends[row - 1]) as usize };
                &self.arena[start..u32::from_le_bytes(ends[row]) as usize]
            }
        }
    }
}

fn numbers(numbers: impl Iterator<Item = u32>, count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count * 4);
    numbers.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    bytes
}

/// Of each place the number of its first entry, and at last that of all; places rise.
fn directory(places: impl Iterator<Item = usize>, bits: u32) -> Vec<u8> {
    let mut starts = vec![0u32; (1 << bits) + 1];
    places.for_each(|place| starts[place + 1] += 1);
    let mut total = 0;
    for start in &mut starts {
        total += *start;
        *start = total;
    }
    numbers(starts.into_iter(), (1 << bits) + 1)
}

/// The row of each entry, `dir`, `fps`, twins.
#[pyfunction]
pub fn lookup_hash<'py>(
    py: Python<'py>,
    arena: Bytes,
    ends: Option<Bytes>,
    width: usize,
    seed: u64,
    bits: u32,
    unique: bool,
) -> PyResult<Entries<'py>> {
    checked(bits)?;
    let keys = Keys::new(&arena, ends.as_ref(), width);
    let (order, starts, marks, twins) = py.detach(|| {
        let mut hashes: Vec<(u64, u32)> = (0..keys.len()).map(|row| (hash(keys.get(row), seed), row as u32)).collect();
        hashes.sort_unstable();
        let twins = merge(keys, &mut hashes, unique);
        let starts = directory(hashes.iter().map(|(hash, _)| place(*hash, bits).0), bits);
        let marks: Vec<u8> = hashes.iter().map(|(hash, _)| place(*hash, bits).1).collect();
        (numbers(hashes.iter().map(|(_, row)| *row), hashes.len()), starts, marks, twins)
    });
    Ok((PyBytes::new(py, &order), PyBytes::new(py, &starts), PyBytes::new(py, &marks), twins))
}

fn checked(bits: u32) -> PyResult<()> {
    if bits > 24 { Err(PyValueError::new_err("a directory of more than 24 bits")) } else { Ok(()) }
}

/// The rows of the keys in order.
fn ranked(keys: Keys) -> Vec<(u64, u32)> {
    let head = |key: &[u8]| {
        let mut first = [0; 8];
        let known = key.len().min(8);
        first[..known].copy_from_slice(&key[..known]);
        u64::from_be_bytes(first)
    };
    let mut order: Vec<(u64, u32)> = (0..keys.len()).map(|row| (head(keys.get(row)), row as u32)).collect();
    order.sort_unstable_by(|a, b| {
        a.0.cmp(&b.0).then_with(|| keys.get(a.1 as usize).cmp(keys.get(b.1 as usize))).then_with(|| a.1.cmp(&b.1))
    });
    order
}

/// Twins; of which only the first stays where keys are to be `unique`.
fn merge(keys: Keys, order: &mut Vec<(u64, u32)>, unique: bool) -> Twins {
    let same = |a: &(u64, u32), b: &(u64, u32)| a.0 == b.0 && keys.get(a.1 as usize) == keys.get(b.1 as usize);
    let twins = order.windows(2).filter(|pair| same(&pair[0], &pair[1]));
    let twins = twins.map(|pair| (pair[0].1, pair[1].1)).take(MAX_TWINS).collect();
    if unique {
        order.dedup_by(|later, first| same(later, first));
    }
    twins
}

/// The row of each key in order, `dir`, `lows`, twins.
#[pyfunction]
pub fn lookup_points<'py>(
    py: Python<'py>,
    arena: Bytes,
    width: usize,
    bits: u32,
    unique: bool,
) -> PyResult<Entries<'py>> {
    checked(bits)?;
    if width == 0 || bits as usize > width * 8 {
        return Err(PyValueError::new_err("keys of an impossible width"));
    }
    let keys = Keys::new(&arena, None, width);
    let (order, starts, lows, twins) = py.detach(|| {
        let mut order = ranked(keys);
        let twins = merge(keys, &mut order, unique);
        let low = (width * 8 - bits as usize).div_ceil(8);
        let mut lows = Vec::with_capacity(low * order.len());
        for (_, row) in &order {
            lows.extend_from_slice(&keys.get(*row as usize)[width - low..]);
        }
        let places = order.iter().map(|(head, _)| head.checked_shr(64 - bits).unwrap_or(0) as usize);
        let starts = directory(places, bits);
        (numbers(order.iter().map(|(_, row)| *row), order.len()), starts, lows, twins)
    });
    Ok((PyBytes::new(py, &order), PyBytes::new(py, &starts), PyBytes::new(py, &lows), twins))
}

/// The automaton of texts, twins, and how many texts are different.
#[pyfunction]
pub fn lookup_automaton<'py>(py: Python<'py>, arena: Bytes, ends: Bytes) -> PyResult<Automaton<'py>> {
    let keys = Keys::new(&arena, Some(&ends), 0);
    let made = py.detach(|| -> Result<_, fst::Error> {
        let mut order = ranked(keys);
        let twins = merge(keys, &mut order, true);
        let mut builder = fst::SetBuilder::memory();
        for (_, row) in &order {
            builder.insert(keys.get(*row as usize))?;
        }
        Ok((builder.into_inner()?, twins, order.len()))
    });
    let (automaton, twins, count) = made.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok((PyBytes::new(py, &automaton), twins, count))
}

/// The filter of keys, and the fewest and most dots of one.
#[pyfunction]
pub fn lookup_filter<'py>(
    py: Python<'py>,
    arena: Bytes,
    ends: Option<Bytes>,
    width: usize,
    seed: u64,
    shape: Shape,
    size: usize,
) -> PyResult<(Bound<'py, PyBytes>, (usize, usize))> {
    if !shape.fits(size) {
        return Err(PyValueError::new_err("a filter that cannot be"));
    }
    let keys = Keys::new(&arena, ends.as_ref(), width);
    let (filter, dots) = py.detach(|| {
        let all = || (0..keys.len()).map(|row| keys.get(row));
        let dots = all().map(|key| memchr::memchr_iter(b'.', key).count());
        let dots = dots.fold((usize::MAX, 0), |(least, most), dots| (least.min(dots), most.max(dots)));
        (shape.made(all().map(|key| hash(key, seed))), if keys.len() > 0 { dots } else { (0, 0) })
    });
    Ok((PyBytes::new(py, &filter), dots))
}

/// Addresses as keys: the bytes, their ends (u32), and the first text that is none.
#[pyfunction]
pub fn lookup_addresses<'py>(
    py: Python<'py>,
    given: Vec<PyBackedStr>,
) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Option<usize>) {
    let (mut arena, mut ends) = (Vec::new(), Vec::new());
    for (number, text) in given.iter().enumerate() {
        let Some(key) = address(text.trim_ascii().as_bytes()) else {
            return (PyBytes::new(py, b""), PyBytes::new(py, b""), Some(number));
        };
        arena.extend_from_slice(key.bytes());
        ends.extend_from_slice(&(arena.len() as u32).to_le_bytes());
    }
    (PyBytes::new(py, &arena), PyBytes::new(py, &ends), None)
}

/// Integers (i64) as keys that lie far apart, highest byte first.
#[pyfunction]
pub fn lookup_spread<'py>(py: Python<'py>, given: Bytes) -> Bound<'py, PyBytes> {
    let given: &[u8] = &given;
    let found = py.detach(|| {
        let words = given.as_chunks().0.iter();
        words.flat_map(|word| spread(u64::from_le_bytes(*word)).to_be_bytes()).collect::<Vec<u8>>()
    });
    PyBytes::new(py, &found)
}

/// Code, width, data, ends and presence of a column.
type Column = (char, usize, Bytes, Option<Bytes>, Option<Bytes>);

/// What to write texts by: the symbols that save most in a sample of them.
#[pyfunction]
pub fn lookup_symbols(columns: Vec<Column>) -> Vec<Vec<u8>> {
    let mut sample = Vec::new();
    for (code, _, data, ends, _) in &columns {
        if *code == 't' {
            let keys = Keys::new(data, ends.as_ref(), 0);
            let step = (keys.len() / SAMPLE).max(1);
            sample.extend((0..keys.len()).step_by(step).map(|row| keys.get(row)));
        }
    }
    let trained = Compressor::train(&sample);
    let sizes = trained.symbol_lengths();
    let symbols = trained.symbol_table().iter().zip(sizes);
    symbols.map(|(symbol, size)| symbol.to_u64().to_le_bytes()[..usize::from(*size)].to_vec()).collect()
}

/// `records` and `groups` of the rows `order` (u32); the first of them lies at `base`, and is the first of a group.
#[pyfunction]
pub fn lookup_records<'py>(
    py: Python<'py>,
    columns: Vec<Column>,
    order: Bytes,
    base: u64,
    symbols: Vec<Vec<u8>>,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    if symbols.iter().any(|symbol| symbol.is_empty() || symbol.len() > 8) {
        return Err(PyValueError::new_err("a symbol of an impossible size"));
    }
    let sizes: Vec<u8> = symbols.iter().map(|symbol| symbol.len() as u8).collect();
    let words = symbols.iter().map(|symbol| {
        let mut word = [0; 8];
        word[..symbol.len()].copy_from_slice(symbol);
        Symbol::from_slice(&word)
    });
    let compressor =
        if symbols.is_empty() { None } else { Some(Compressor::rebuild_from(words.collect::<Vec<_>>(), sizes)) };
    let given: Vec<_> = columns
        .iter()
        .map(|(code, width, data, ends, there)| {
            let data: &[u8] = data;
            (*code, *width, data, Keys::new(data, ends.as_ref(), 0), there.as_ref().map(|there| &**there))
        })
        .collect();
    let order: &[u8] = &order;
    let (out, groups) = py.detach(|| {
        let mut out: Vec<u8> = Vec::new();
        let mut groups: Vec<u8> = Vec::new();
        for (number, row) in order.as_chunks().0.iter().enumerate() {
            let row = u32::from_le_bytes(*row) as usize;
            if number % GROUP == 0 {
                groups.extend_from_slice(&(base + out.len() as u64).to_le_bytes());
            }
            for (code, width, data, _, _) in &given {
                match code {
                    'b' | 'f' => out.extend_from_slice(&data[row * 8..row * 8 + width]),
                    'd' => out.extend_from_slice(&data[row * 4..row * 4 + width]),
                    'a' | 'x' => out.extend_from_slice(&data[row * width..(row + 1) * width]),
                    _ => {}
                }
            }
            for (_, _, _, texts, there) in given.iter().filter(|(code, ..)| *code == 't') {
                if there.is_some_and(|there| there[row] == 0) {
                    out.push(0);
                    continue;
                }
                let text = texts.get(row);
                let packed;
                let codes = match &compressor {
                    None => text,
                    Some(compressor) => {
                        packed = compressor.compress(text);
                        &packed
                    }
                };
                let mut size = codes.len() + 1;
                while size > 127 {
                    out.push(size as u8 | 128);
                    size >>= 7;
                }
                out.push(size as u8);
                out.extend_from_slice(codes);
            }
        }
        (out, groups)
    });
    Ok((PyBytes::new(py, &out), PyBytes::new(py, &groups)))
}

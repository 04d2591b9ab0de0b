//! Rows of statements' tables: the columns of JSON events as their types, to the value what `stream/reader.py` makes of
//! what decoders say. An event of which that is not sure here is left to it.
//!
//! Of two Options the outer None means that decoders have to say, the inner one NULL.

// The numbers that are cast are floats exactly.
#![allow(clippy::option_option, clippy::cast_precision_loss)]

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::columns::{Found, value};
use crate::json::{Kind, Leaf};
use crate::layout::Column;

/// What may say the time of an event, and what its host (`engine/native.py`).
const TIME: usize = 0;
const HOST: usize = 1;

/// `MAX_SKEW` of `model/times.py`.
const MAX_SKEW: i64 = 300_000_000;

/// Seconds since 1970 of the years 1990 and 2200, and what else numbers may count.
const PLAUSIBLE: (i128, i128) = (631_152_000, 7_258_118_400);
const UNITS: [i128; 4] = [1, 1_000, 1_000_000, 1_000_000_000];

const MILLISECOND: i64 = 1000;

/// What a column of a table is.
#[derive(Clone, Copy)]
enum Source {
    Text(usize),
    /// Of so many bits.
    Integer(usize, u32),
    Double(usize),
    Single(usize),
    Truth(usize),
    /// In steps of so many microseconds.
    Time(usize, i64),
    EventTime,
    ReceivedAt,
    Host,
    Input,
    Offset,
}

/// One table that a rule selects events for.
pub struct Table {
    sources: Vec<Source>,
    /// Which column is the time, from 1; 0: none.
    time: usize,
}

/// A table as `engine/rows.py` describes it: of each column kind, place among the columns, and a number.
pub type TableParts = (Vec<(u8, usize, i64)>, usize);

impl Table {
    /// None for a description that is none.
    #[must_use]
    pub fn build((sources, time): TableParts) -> Option<Self> {
        if time > sources.len() {
            return None;
        }
        let sources = sources.into_iter().map(|(kind, place, number)| {
            Some(match kind {
                0 => Source::Text(place),
                1 => Source::Integer(place, u32::try_from(number).ok().filter(|bits| (1..=64).contains(bits))?),
                2 => Source::Double(place),
                3 => Source::Single(place),
                4 => Source::Truth(place),
                5 if number > 0 => Source::Time(place, number),
                6 => Source::EventTime,
                7 => Source::ReceivedAt,
                8 => Source::Host,
                9 => Source::Input,
                10 => Source::Offset,
                _ => return None,
            })
        });
        Some(Self { sources: sources.collect::<Option<_>>()?, time })
    }
}

/// What the events of a chunk have in common.
#[derive(FromPyObject)]
pub struct Common<'py> {
    /// Of the chunk, in the raw log.
    offset: i64,
    received_at: i64,
    input: Bound<'py, PyAny>,
    /// Whose events are that do not say it; an Ellipsis: not known.
    host: Bound<'py, PyAny>,
}

/// Of events that rules take their rows, None for one that decoders have to say, and their hosts.
pub struct Rows<'py> {
    common: Common<'py>,
    /// By event.
    pub rows: Bound<'py, PyList>,
    /// By event.
    pub hosts: Bound<'py, PyList>,
}

impl<'py> Rows<'py> {
    /// None yet.
    #[must_use]
    pub fn new(py: Python<'py>, common: Common<'py>) -> Self {
        Self { common, rows: PyList::empty(py), hosts: PyList::empty(py) }
    }

    /// An event at `start` of its chunk: its row, of several `tables` a tuple of its rows.
    pub fn add<'t>(
        &mut self,
        event: &[u8],
        start: u32,
        found: &[Found],
        tables: impl Iterator<Item = &'t Table>,
    ) -> PyResult<()> {
        let py = self.rows.py();
        let known = Known { py, event, found, common: &self.common, start };
        let made = match known.host() {
            None => None,
            Some(host) => {
                let rows: Option<Vec<_>> = tables.map(|table| known.row(table, &host)).collect();
                rows.map(|rows| (rows, host))
            }
        };
        let Some((mut rows, host)) = made else {
            self.rows.append(py.None())?;
            return self.hosts.append(py.None());
        };
        self.hosts.append(host)?;
        if rows.len() == 1 {
            self.rows.append(PyTuple::new(py, rows.remove(0))?)
        } else {
            let rows = rows.into_iter().map(|row| PyTuple::new(py, row)).collect::<PyResult<Vec<_>>>()?;
            self.rows.append(PyTuple::new(py, rows)?)
        }
    }
}

/// An event under way. What is None is left to decoders.
struct Known<'a, 'py> {
    py: Python<'py>,
    event: &'a [u8],
    found: &'a [Found],
    common: &'a Common<'py>,
    start: u32,
}

type Value<'py> = Bound<'py, PyAny>;

impl<'py> Known<'_, 'py> {
    fn host(&self) -> Option<Value<'py>> {
        let found = self.found.get(HOST)?;
        match (found.column, found.leaf) {
            (Column::Leaf(_), Some(leaf)) if leaf.kind == Kind::Text => value(self.py, self.event, leaf),
            (Column::Leaf(_), Some(leaf)) if leaf.kind != Kind::Empty => None,
            (Column::Leaf(_) | Column::Null, _) => {
                let host = &self.common.host;
                (!host.is(self.py.Ellipsis())).then(|| host.clone())
            }
            _ => None,
        }
    }

    fn row(&self, table: &Table, host: &Value<'py>) -> Option<Vec<Value<'py>>> {
        let mut row = Vec::with_capacity(table.sources.len() + 1);
        let offset = self.common.offset.checked_add(i64::from(self.start))?;
        row.push(self.int(offset)?);
        for (number, source) in table.sources.iter().enumerate() {
            let time = |time: Option<i64>| {
                let time = if number + 1 == table.time { time.map(|time| self.bounded(time)) } else { time };
                time.map_or_else(|| Some(self.null()), |time| self.int(time))
            };
            row.push(match *source {
                Source::Time(place, unit) => time(self.time(place)?.map(|found| found.div_euclid(unit) * unit))?,
                Source::EventTime => time(Some(whole(self.event_time()?)))?,
                Source::ReceivedAt => time(Some(whole(self.common.received_at)).filter(|&at| at != 0))?,
                Source::Host => host.clone(),
                Source::Input => self.common.input.clone(),
                Source::Offset => self.int(offset)?,
                Source::Text(place) => self.text(place)?,
                Source::Integer(place, bits) => self.integer(place, bits)?,
                Source::Double(place) => self.float(place, |value| value)?,
                Source::Single(place) => self.float(place, |value| f64::from(value as f32))?,
                Source::Truth(place) => self.truth(place)?,
            });
        }
        Some(row)
    }

    /// A table's time is not after the receipt of the event by more than may be.
    fn bounded(&self, time: i64) -> i64 {
        let received_at = self.common.received_at;
        whole(if received_at > 0 && time > received_at + MAX_SKEW { received_at } else { time })
    }

    /// A value of the event; the inner None: it is null, or there is none.
    fn leaf(&self, place: usize) -> Option<Option<(Leaf, &str)>> {
        let found = self.found.get(place)?;
        match (found.column, found.leaf) {
            (Column::Null, _) => Some(None),
            (Column::Leaf(_), Some(leaf)) if leaf.kind == Kind::Null => Some(None),
            (Column::Leaf(_), Some(leaf)) => {
                let inside = self.event.get(leaf.start as usize..leaf.end as usize)?;
                Some(Some((leaf, std::str::from_utf8(inside).ok()?)))
            }
            _ => None,
        }
    }

    fn null(&self) -> Value<'py> {
        self.py.None().into_bound(self.py)
    }

    fn int(&self, value: i64) -> Option<Value<'py>> {
        value.into_bound_py_any(self.py).ok()
    }

    fn text(&self, place: usize) -> Option<Value<'py>> {
        if let Column::Truth(truth) = self.found.get(place)?.column {
            return Some(PyString::new(self.py, if truth { "true" } else { "false" }).into_any());
        }
        let Some((leaf, inside)) = self.leaf(place)? else { return Some(self.null()) };
        match leaf.kind {
            Kind::Text | Kind::Empty => value(self.py, self.event, leaf),
            Kind::Int | Kind::Decimal | Kind::True | Kind::False => Some(PyString::new(self.py, inside).into_any()),
            _ => None,
        }
    }

    fn integer(&self, place: usize, bits: u32) -> Option<Value<'py>> {
        let Some((leaf, inside)) = self.leaf(place)? else { return Some(self.null()) };
        let simple = leaf.kind == Kind::Int || (leaf.kind == Kind::Text && is_whole(inside));
        let limit = 1_i128 << (bits - 1);
        let number: i64 = if simple { inside.parse().ok()? } else { return None };
        (-limit..limit).contains(&i128::from(number)).then(|| self.int(number))?
    }

    fn float(&self, place: usize, rounded: impl Fn(f64) -> f64) -> Option<Value<'py>> {
        let Some((leaf, inside)) = self.leaf(place)? else { return Some(self.null()) };
        rounded(number(leaf, inside)?).into_bound_py_any(self.py).ok()
    }

    fn truth(&self, place: usize) -> Option<Value<'py>> {
        let truth = match self.found.get(place)?.column {
            Column::Truth(truth) => Some(truth),
            _ => match self.leaf(place)? {
                None => None,
                Some((leaf, _)) if leaf.kind == Kind::True => Some(true),
                Some((leaf, _)) if leaf.kind == Kind::False => Some(false),
                Some(_) => return None,
            },
        };
        truth.map_or_else(|| Some(self.null()), |truth| truth.into_bound_py_any(self.py).ok())
    }

    /// A time as a column has it: a text of RFC 3339, or a number since 1970.
    fn time(&self, place: usize) -> Option<Option<i64>> {
        let Some((leaf, inside)) = self.leaf(place)? else { return Some(None) };
        match leaf.kind {
            Kind::Text if !leaf.escaped => iso(inside.as_bytes()),
            Kind::Int => counted(inside.parse().ok()?),
            Kind::Decimal | Kind::Number => reckoned(number(leaf, inside)?),
            _ => None,
        }
        .map(Some)
    }

    fn event_time(&self) -> Option<i64> {
        let received_at = self.common.received_at;
        Some(match self.time(TIME)? {
            None => received_at,
            Some(time) if time > received_at + MAX_SKEW => received_at,
            Some(time) => time,
        })
    }
}

fn whole(time: i64) -> i64 {
    time.div_euclid(MILLISECOND) * MILLISECOND
}

/// Whether a text is a whole number that fits 64 bits.
fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (1..=18).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number of JSON as Python has it; None for one that is not sure.
fn number(leaf: Leaf, inside: &str) -> Option<f64> {
    let sure = match leaf.kind {
        Kind::Int | Kind::Decimal => true,
        Kind::Number => inside.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')),
        _ => false,
    };
    if sure { inside.parse().ok().filter(|number: &f64| number.is_finite()) } else { None }
}

/// `time_of` of `model/times.py`, of whole numbers.
fn counted(value: i128) -> Option<i64> {
    let unit = UNITS.into_iter().find(|unit| (PLAUSIBLE.0 * unit..=PLAUSIBLE.1 * unit).contains(&value))?;
    i64::try_from((value * 1_000_000).div_euclid(unit)).ok()
}

/// `time_of` of `model/times.py`, of fractions.
fn reckoned(value: f64) -> Option<i64> {
    // Both bounds are floats exactly.
    let within = |unit: &i128| ((PLAUSIBLE.0 * unit) as f64..=(PLAUSIBLE.1 * unit) as f64).contains(&value);
    let unit = UNITS.into_iter().find(within)?;
    Some((value * (1_000_000.0 / unit as f64)).round_ties_even() as i64)
}

/// `iso_time` of `model/times.py` for what names its offset: microseconds since 1970.
fn iso(text: &[u8]) -> Option<i64> {
    let (head, mut rest) = text.split_at_checked(19)?;
    let digits = |from: usize, to: usize| {
        head[from..to].iter().try_fold(0_i64, |sum, byte| {
            if byte.is_ascii_digit() { Some(sum * 10 + i64::from(byte - b'0')) } else { None }
        })
    };
    let (year, month, day) = (digits(0, 4)?, digits(5, 7)?, digits(8, 10)?);
    let (hour, minute, second) = (digits(11, 13)?, digits(14, 16)?, digits(17, 19)?);
    let marks = head[4] == b'-' && head[7] == b'-' && head[13] == b':' && head[16] == b':';
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let fits = (1900..2200).contains(&year) && (1..=days).contains(&day) && hour < 24 && minute < 60 && second < 60;
    if !marks || !matches!(head[10], b'T' | b't' | b' ') || !fits || text.len() > 64 {
        return None;
    }
    let mut micros = 0;
    if let [b'.' | b',', behind @ ..] = rest {
        let count = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return None;
        }
        let digit = |place: usize| if place < count { i64::from(behind[place] - b'0') } else { 0 };
        micros = (0..6).fold(0, |sum, place| sum * 10 + digit(place));
        rest = &behind[count..];
    }
    let offset = match *rest {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), a, b, b':', c, d] if [a, b, c, d].iter().all(u8::is_ascii_digit) => {
            let two = |high: u8, low: u8| i64::from(high - b'0') * 10 + i64::from(low - b'0');
            let (hours, minutes) = (two(a, b), two(c, d));
            if hours > 14 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if sign == b'-' { -60 } else { 60 }
        }
        _ => return None,
    };
    // Days since 1970 of the proleptic Gregorian calendar, years counted from March.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before = years * 365 + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day - 1 - 719_468;
    Some((before * 86_400 + hour * 3600 + minute * 60 + second - offset) * 1_000_000 + micros)
}

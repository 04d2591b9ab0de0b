//! Values of an event as Python's decoders would give them, where the layout tells their place.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple};

use crate::json::{Kind, Leaf, unescape};
use crate::layout::Column;

/// A column of one event.
#[derive(Clone, Copy)]
pub struct Found {
    /// Where its value is.
    pub column: Column,
    /// Its value, where that is one of the event's.
    pub leaf: Option<Leaf>,
}

impl Found {
    /// Of an event with these values.
    #[must_use]
    pub fn of(column: Column, leaves: &[Leaf]) -> Self {
        let leaf = if let Column::Leaf(leaf) = column { leaves.get(leaf as usize).copied() } else { None };
        Self { column, leaf }
    }
}

/// The columns of an event with these values.
pub fn found(columns: &[Column], leaves: &[Leaf]) -> impl Iterator<Item = Found> {
    columns.iter().map(|&column| Found::of(column, leaves))
}

/// The values of `columns`.
pub fn values<'py>(py: Python<'py>, event: &[u8], columns: &[Found]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, columns.iter().map(|found| known(py, event, *found)).collect::<Vec<_>>())
}

/// The values of some fields, by name.
pub fn shown<'py>(
    py: Python<'py>,
    event: &[u8],
    names: &[Py<PyString>],
    fields: &[(u32, Found)],
) -> PyResult<Bound<'py, PyDict>> {
    let shown = PyDict::new(py);
    for &(name, found) in fields {
        shown.set_item(&names[name as usize], known(py, event, found))?;
    }
    Ok(shown)
}

/// The value of a column; an Ellipsis where decoders have to say it.
fn known<'py>(py: Python<'py>, event: &[u8], found: Found) -> Bound<'py, PyAny> {
    let unknown = || py.Ellipsis().into_bound(py);
    match (found.column, found.leaf) {
        (Column::Leaf(_), Some(leaf)) => value(py, event, leaf).unwrap_or_else(unknown),
        (Column::Null, _) => py.None().into_bound(py),
        (Column::Truth(truth), _) => PyBool::new(py, truth).to_owned().into_any(),
        _ => unknown(),
    }
}

/// A value; None for an array, and a number that readers take in more than one way.
#[must_use]
pub fn value<'py>(py: Python<'py>, event: &[u8], leaf: Leaf) -> Option<Bound<'py, PyAny>> {
    let inside = event.get(leaf.start as usize..leaf.end as usize)?;
    let text = std::str::from_utf8(inside).ok()?;
    let integer = || {
        let whole = text.parse::<i64>().map(|value| PyInt::new(py, value));
        whole.or_else(|_| text.parse::<u64>().map(|value| PyInt::new(py, value))).ok().map(Bound::into_any)
    };
    let float = || text.parse().ok().map(|value: f64| PyFloat::new(py, value).into_any());
    match leaf.kind {
        Kind::Empty => Some(PyString::new(py, "").into_any()),
        Kind::Text if leaf.escaped => {
            let mut out = Vec::new();
            unescape(inside, &mut out)?;
            Some(PyString::new(py, std::str::from_utf8(&out).ok()?).into_any())
        }
        Kind::Text => Some(PyString::new(py, text).into_any()),
        Kind::Int => integer(),
        Kind::Decimal => float(),
        Kind::Number if memchr::memchr3(b'.', b'e', b'E', inside).is_some() => float(),
        Kind::True => Some(PyBool::new(py, true).to_owned().into_any()),
        Kind::False => Some(PyBool::new(py, false).to_owned().into_any()),
        Kind::Null => Some(py.None().into_bound(py)),
        Kind::Number | Kind::List | Kind::EmptyList => None,
    }
}

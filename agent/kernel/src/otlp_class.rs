//! The classes `Otlp` and `Records` of the import: `otlp.rs` for Python.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyString};

use crate::lines::packed;
use crate::otlp::{Given, Names, Reader, Step};

/// The reader of OTLP's bodies.
#[pyclass(frozen)]
pub struct Otlp {
    names: Names,
    of_text: Py<PyAny>,
}

#[pymethods]
impl Otlp {
    /// `of_text` makes of a text the JSON of an object of its fields.
    #[new]
    fn new(
        ecs: HashMap<String, String>,
        levels: Vec<String>,
        severities: HashMap<String, i64>,
        of_text: Py<PyAny>,
    ) -> Self {
        let (ecs, severities) = (ecs.into_iter().collect(), severities.into_iter().collect());
        Self { names: Names::new(ecs, levels, severities), of_text }
    }

    /// A body, of which `take` gives the events.
    fn records(this: Py<Self>, body: PyBackedBytes, json: bool) -> Records {
        Records { otlp: this, body, reader: Reader::new(json), whole: false }
    }
}

/// The events of a body, some at a time.
#[pyclass]
pub struct Records {
    otlp: Py<Otlp>,
    body: PyBackedBytes,
    reader: Reader,
    /// Whether all are taken.
    #[pyo3(get)]
    whole: bool,
}

#[pymethods]
impl Records {
    /// Events one behind the other, and native 32-bit integers: where each ends. None: the rest is not read here.
    fn take<'py>(&mut self, py: Python<'py>) -> Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let otlp = self.otlp.get();
        let mut of_text = |text: &str| {
            let made = otlp.of_text.bind(py).call1((PyString::new(py, text),)).ok()?;
            Some(made.cast::<PyBytes>().ok()?.as_bytes().to_vec())
        };
        let mut given = Given { names: &otlp.names, of_text: &mut of_text };
        let (reader, body) = (&mut self.reader, &self.body);
        let made = catch_unwind(AssertUnwindSafe(|| {
            let mut step = Step::default();
            reader.step(body, &mut given, &mut step).map(|whole| (whole, step))
        }));
        let (whole, step) = made.ok().flatten()?;
        self.whole = whole;
        Some((PyBytes::new(py, &step.data), packed(py, &step.ends).ok()?))
    }
}

//! The import `vedette._kernel`: decides natively which rules an event surely does not match.

pub mod hs;
pub mod lines;
mod numbers;

use pyo3::prelude::*;

/// What Python imports.
#[pymodule]
mod _kernel {
    #[pymodule_export]
    use crate::lines::Lines;
}

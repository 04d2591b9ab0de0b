//! The import `vedette._kernel`: decides natively which rules an event surely does not match.

pub mod api;
pub mod events;
pub mod fields;
pub mod hs;
pub mod json;
pub mod layout;
pub mod lines;
mod numbers;
pub mod rules;

use pyo3::prelude::*;

/// What Python imports.
#[pymodule]
mod _kernel {
    #[pymodule_export]
    use crate::api::Events;
    #[pymodule_export]
    use crate::lines::{Lines, holds};
}

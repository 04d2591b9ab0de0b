//! The import `vedette._kernel`: decides natively which rules an event surely does not match.

pub mod hs;

use pyo3::prelude::*;

/// What Python imports.
#[pymodule]
mod _kernel {
    use pyo3::exceptions::PyValueError;
    use pyo3::prelude::*;

    use crate::hs::{Library, Scratch};

    /// The hits of one scan of `data` by a serialized database, as (pattern, end).
    ///
    /// `module`: the file of the imported extension module of the `hyperscan` wheel.
    #[pyfunction]
    fn hits(module: &str, database: &[u8], data: &[u8]) -> PyResult<Vec<(u32, u32)>> {
        let scan = || {
            let library = Library::open(module)?;
            let database = library.load(database)?;
            let mut scratch = Scratch::new(library);
            scratch.fit(&database)?;
            if scratch.scan(&database, data, usize::MAX) { Ok(scratch.hits.clone()) } else { Err("refused".to_owned()) }
        };
        scan().map_err(PyValueError::new_err)
    }
}

//! Bytes that this process does not own: the mapped file of a lookup, and the arrays that Python builds one from.
//!
//! Invariants:
//! - A lookup's file is immutable: it is written beside and renamed (`lookup/build.py`, `lookup/assemble.py`), never written in place.
//! - While a build function runs, Python holds on to the arrays it passed and changes none (`lookup/columns.py` and
//!   `lookup/gather.py` are their only owners); the buffer keeps them from being resized.
#![allow(unsafe_code)]

use std::ops::Deref;

use memmap2::{Mmap, MmapOptions};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

/// A whole file, mapped.
pub struct File(Mmap);

impl File {
    /// Map the open descriptor `file`.
    pub fn map(file: i32) -> std::io::Result<Self> {
        // SAFETY: the descriptor is open for as long as the caller, `Table::new`, runs, and the file does not change.
        unsafe { MmapOptions::new().map(file) }.map(Self)
    }
}

impl Deref for File {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// A buffer of Python's.
pub struct Bytes(PyBuffer<u8>);

impl<'py> FromPyObject<'_, 'py> for Bytes {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(PyBuffer::get(&given)?))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.0.item_count() == 0 || !self.0.is_c_contiguous() {
            return &[];
        }
        // SAFETY: a contiguous buffer of that many bytes, which lives as long as `self` and which nobody changes.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

//! The import `vedette._kernel`: decides natively which rules an event surely does not match, and makes events of OTLP.

pub mod api;
pub mod columns;
pub mod events;
pub mod fields;
pub mod header;
pub mod hs;
pub mod json;
pub mod layout;
pub mod lines;
mod lookup_ask;
mod lookup_build;
mod lookup_filter;
mod lookup_keys;
mod lookup_map;
mod lookup_read;
pub mod made;
mod memo;
mod numbers;
pub mod otlp;
mod otlp_class;
pub mod otlp_json;
pub mod otlp_protobuf;
pub mod outline;
pub mod rows;
pub mod rules;
pub mod shortlist;
pub mod sift;
pub mod structure;

use pyo3::prelude::*;

/// What Python imports.
#[pymodule]
mod _kernel {
    #[pymodule_export]
    use crate::api::Events;
    #[pymodule_export]
    use crate::lines::{Lines, holds};
    #[pymodule_export]
    use crate::lookup_build::{
        lookup_addresses, lookup_automaton, lookup_filter, lookup_hash, lookup_points, lookup_records, lookup_spread,
        lookup_symbols,
    };
    #[pymodule_export]
    use crate::lookup_read::Table;
    #[pymodule_export]
    use crate::otlp_class::Otlp;
}

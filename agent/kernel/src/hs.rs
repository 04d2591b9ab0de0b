//! Hyperscan, as the `hyperscan` wheel that Python has imported exports it. With `lookup_map.rs` the only `unsafe`.
//!
//! Invariants:
//! - Every function belongs to a module that is loaded already and never unloaded: `Library` keeps it open.
//! - A database does not change once it is loaded, so any thread may scan with it.
//! - A scratch serves one scan at a time (`&mut`), and was grown for a database before it is used with it (`fit`).
//! - The bytes of a database come from a bundle whose digest was checked: the library finds little damage itself.
//! - The callback neither panics nor calls the library.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};

type OnHit = unsafe extern "C" fn(c_uint, c_ulonglong, c_ulonglong, c_uint, *mut c_void) -> c_int;
type Deserialize = unsafe extern "C" fn(*const c_char, usize, *mut *mut c_void) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
type AllocScratch = unsafe extern "C" fn(*const c_void, *mut *mut c_void) -> c_int;
type Scan =
    unsafe extern "C" fn(*const c_void, *const c_char, c_uint, c_uint, *mut c_void, OnHit, *mut c_void) -> c_int;

/// The functions of the library.
#[derive(Clone, Copy)]
pub struct Library {
    deserialize: Deserialize,
    free_database: Free,
    alloc_scratch: AllocScratch,
    free_scratch: Free,
    scan: Scan,
}

impl Library {
    /// The library inside the extension module at `path`, which must be imported already.
    pub fn open(path: &str) -> Result<Self, String> {
        let file = CString::new(path).map_err(|error| error.to_string())?;
        // SAFETY: a terminated string; NOLOAD only looks up what is loaded. The handle stays open.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return Err(format!("{path} is not loaded"));
        }
        let symbol = |name: &CStr| {
            // SAFETY: an open handle, a terminated string.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if found.is_null() { Err(format!("{path} exports no {}", name.to_string_lossy())) } else { Ok(found) }
        };
        // SAFETY: these are the signatures in hs_common.h and hs_runtime.h of Hyperscan 5.
        unsafe {
            Ok(Self {
                deserialize: transmute::<*mut c_void, Deserialize>(symbol(c"hs_deserialize_database")?),
                free_database: transmute::<*mut c_void, Free>(symbol(c"hs_free_database")?),
                alloc_scratch: transmute::<*mut c_void, AllocScratch>(symbol(c"hs_alloc_scratch")?),
                free_scratch: transmute::<*mut c_void, Free>(symbol(c"hs_free_scratch")?),
                scan: transmute::<*mut c_void, Scan>(symbol(c"hs_scan")?),
            })
        }
    }

    /// A database from its serialized form.
    pub fn load(&self, bytes: &[u8]) -> Result<Database, String> {
        let mut raw = null_mut();
        // SAFETY: pointer and length of one slice, which the library copies from.
        let code = unsafe { (self.deserialize)(bytes.as_ptr().cast(), bytes.len(), &raw mut raw) };
        match (code, NonNull::new(raw)) {
            (0, Some(raw)) => Ok(Database { free: self.free_database, raw }),
            _ => Err(format!("Hyperscan database cannot be loaded: error {code}")),
        }
    }
}

/// A compiled set of patterns.
pub struct Database {
    free: Free,
    raw: NonNull<c_void>,
}

// SAFETY: it does not change.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: made by `load`, freed once.
        unsafe { (self.free)(self.raw.as_ptr()) };
    }
}

/// A pattern's number and where its match ends.
pub type Hit = (u32, u32);

/// The working memory of one scan at a time, and its hits.
pub struct Scratch {
    library: Library,
    raw: *mut c_void,
    /// The hits of the last scan, in the library's order.
    pub hits: Vec<Hit>,
}

// SAFETY: it belongs to whoever holds the `&mut`.
unsafe impl Send for Scratch {}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: made by `fit`, or null, which the library takes; freed once.
        unsafe { (self.library.free_scratch)(self.raw) };
    }
}

impl Scratch {
    /// One that fits no database yet.
    #[must_use]
    pub fn new(library: Library) -> Self {
        Self { library, raw: null_mut(), hits: Vec::new() }
    }

    /// Grow it for `database`; needed once before the first scan.
    pub fn fit(&mut self, database: &Database) -> Result<(), String> {
        // SAFETY: a live database; the library replaces the scratch.
        match unsafe { (self.library.alloc_scratch)(database.raw.as_ptr(), &raw mut self.raw) } {
            0 => Ok(()),
            code => Err(format!("Hyperscan scratch cannot be made: error {code}")),
        }
    }

    /// Scan `data`; its hits are in `hits` then. False when there were more than `most`, or the library refused.
    #[must_use]
    pub fn scan(&mut self, database: &Database, data: &[u8], most: usize) -> bool {
        self.hits.clear();
        let Ok(length) = c_uint::try_from(data.len()) else { return false };
        let mut sink = Sink { hits: &mut self.hits, most };
        // SAFETY: pointer and length of one slice; the scratch fits and is ours; `sink` outlives the call.
        let code = unsafe {
            (self.library.scan)(
                database.raw.as_ptr(),
                data.as_ptr().cast(),
                length,
                0,
                self.raw,
                on_hit,
                (&raw mut sink).cast(),
            )
        };
        code == 0
    }
}

struct Sink<'a> {
    hits: &'a mut Vec<Hit>,
    most: usize,
}

unsafe extern "C" fn on_hit(id: c_uint, _from: c_ulonglong, to: c_ulonglong, _: c_uint, sink: *mut c_void) -> c_int {
    // SAFETY: what `scan` passed.
    let sink = unsafe { &mut *sink.cast::<Sink>() };
    if sink.hits.len() >= sink.most {
        return 1;
    }
    sink.hits.push((id, to as u32));
    0
}

//! What passes between the two languages, and the only place where it is believed (I1).
//!
//! A value of these types is a promise by whoever made it: C, or this crate. Nobody else can: their fields are private.

#![expect(unsafe_code, reason = "what C passes is believed")]

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{ptr, slice};

use esker::{Error, Result};

/// Bytes: `len` of them at `data`, which may be NULL if there are none. They stay their owner's.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    /// The first of them.
    data: *const u8,
    /// How many they are.
    len: usize,
}

impl Slice {
    pub(crate) fn bytes(&self) -> Result<&[u8]> {
        if self.len == 0 {
            return Ok(&[]);
        }
        if self.data.is_null() || isize::try_from(self.len).is_err() {
            let reason = format!("a slice of {} bytes at {:p} is none", self.len, self.data);
            return Err(Error::invalid_argument(reason));
        }
        // SAFETY: not null, not longer than an object can be; by I1 there are so many bytes, which stay as they are during the call.
        Ok(unsafe { slice::from_raw_parts(self.data, self.len) })
    }
}

/// The bytes of a slice that may be missing.
pub(crate) fn maybe(slice: Option<&Slice>) -> Result<Option<&[u8]>> {
    slice.map(Slice::bytes).transpose()
}

/// For as long as whoever owns `bytes` says.
impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), len: bytes.len() }
    }
}

impl Default for Slice {
    fn default() -> Self {
        Self { data: ptr::null(), len: 0 }
    }
}

/// What a program gives to be given back to its functions, which any thread may call.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct State(*mut c_void);

// SAFETY: nothing here looks at what it points to; by I1 the program's functions may be called with it by any thread.
unsafe impl Send for State {}
// SAFETY: as above, by several at once.
unsafe impl Sync for State {}

/// The first of several.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Many<T>(*const T);

impl<T> Many<T> {
    /// They, if they are so many.
    pub(crate) fn of(&self, count: usize) -> Result<&[T]> {
        if count == 0 {
            return Ok(&[]);
        }
        let bytes = count.checked_mul(size_of::<T>()).and_then(|bytes| isize::try_from(bytes).ok());
        if self.0.is_null() || bytes.is_none() {
            return Err(Error::invalid_argument(format!("{count} items at {:p} are none", self.0)));
        }
        // SAFETY: not null, not longer than an object can be; by I1 there are so many of them.
        Ok(unsafe { slice::from_raw_parts(self.0, count) })
    }
}

/// For as long as whoever owns them says.
impl<T> From<&[T]> for Many<T> {
    fn from(items: &[T]) -> Self {
        Self(items.as_ptr())
    }
}

/// Text that ends with a zero.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    fn c_str(&self) -> Result<&CStr> {
        if self.0.is_null() {
            return Err(Error::invalid_argument("a text is NULL"));
        }
        // SAFETY: not null; by I1 it ends with a zero.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }

    /// It, which must be UTF-8.
    pub(crate) fn read(&self) -> Result<&str> {
        let text = self.c_str()?;
        text.to_str().map_err(|_| Error::invalid_argument(format!("{text:?} is not UTF-8")))
    }

    pub(crate) fn path(&self) -> Result<&Path> {
        Ok(Path::new(OsStr::from_bytes(self.c_str()?.to_bytes())))
    }
}

/// Where a result goes; not NULL.
#[repr(transparent)]
#[derive(Debug)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// For where it may be.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn put(self, value: T) {
        self.put_at(0, value);
    }

    /// At a place of an array, which is long enough (I1).
    pub(crate) fn put_at(&self, at: usize, value: T) {
        // SAFETY: by I1 there is room for so many.
        let place = unsafe { self.0.add(at) };
        // SAFETY: as above. Nothing is dropped: nobody says that there is anything.
        unsafe { place.write(value) };
    }
}

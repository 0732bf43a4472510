//! A value that was read.

use std::sync::Arc;

use esker::{CaskValue, PinnedSlice};

use crate::memory::Slice;

/// A value, which shares memory with the store where it can. Free it soon: it may keep a block or a whole file.
#[derive(Debug)]
pub struct Value(Held);

#[derive(Debug)]
enum Held {
    Db(PinnedSlice),
    Cask(CaskValue),
    Log(Arc<[u8]>),
    Own(Vec<u8>),
}

impl From<PinnedSlice> for Value {
    fn from(value: PinnedSlice) -> Self {
        Self(Held::Db(value))
    }
}

impl From<CaskValue> for Value {
    fn from(value: CaskValue) -> Self {
        Self(Held::Cask(value))
    }
}

impl From<Arc<[u8]>> for Value {
    fn from(value: Arc<[u8]>) -> Self {
        Self(Held::Log(value))
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self(Held::Own(value))
    }
}

/// As a result: NULL if there is none.
pub(crate) fn boxed(value: Option<impl Into<Value>>) -> Option<Box<Value>> {
    value.map(|value| Box::new(value.into()))
}

/// Its bytes, which live as long as it.
#[unsafe(no_mangle)]
pub extern "C" fn esker_value_bytes(value: &Value) -> Slice {
    let bytes: &[u8] = match &value.0 {
        Held::Db(value) => value,
        Held::Cask(value) => value,
        Held::Log(value) => value,
        Held::Own(value) => value,
    };
    bytes.into()
}

/// Frees a value; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_value_free(value: Option<Box<Value>>) {
    drop(value);
}

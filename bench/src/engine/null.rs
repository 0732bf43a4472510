//! No store: answers come from the generator. Its figures are the harness' own cost, to be taken off in thought.
//!
//! It keeps nothing, so the workload lets its answers pass (see [`crate::run`]): what it is for is the time between them.

use std::hint::black_box;

use super::{Engine, Pair};
use crate::Result;
use crate::data::Data;

struct Null {
    value: Vec<u8>,
}

pub(super) fn open(data: &Data) -> Box<dyn Engine> {
    let mut value = Vec::new();
    data.value(0, 1, &mut value);
    Box::new(Null { value })
}

impl Engine for Null {
    fn put(&self, batch: &[Pair]) -> Result<()> {
        black_box(batch);
        Ok(())
    }

    fn delete(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn get(&self, _: &[u8], show: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        show(Some(&self.value));
        Ok(())
    }

    fn exists(&self, _: &[u8]) -> Result<bool> {
        Ok(true)
    }

    fn scan(&self, _: &[u8], _: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        Ok(())
    }

    fn scan_keys(&self, _: &[u8], _: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

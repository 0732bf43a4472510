//! Walking over an ordered store.

use esker::{DbIterator, Error, PinnedSlice};

use crate::db::Db;
use crate::error::{Failure, attempt, give, hand_out};
use crate::family::Family;
use crate::memory::{Out, Slice};
use crate::read::ReadOptions;

/// A walk over the keys of a family in their order, of one moment. It stands on no entry until a seek.
#[derive(Debug)]
pub struct Iterator {
    walk: DbIterator,
    /// The value where it stands, once somebody asked for it.
    value: Option<PinnedSlice>,
}

impl Iterator {
    fn new(walk: DbIterator) -> Self {
        Self { walk, value: None }
    }

    fn step(&mut self, step: impl FnOnce(&mut DbIterator) -> esker::Result<()>) -> Failure {
        self.value = None;
        attempt(|| step(&mut self.walk))
    }
}

/// A walk over a family, as it is now or as `options` say.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_iterator(
    db: &Db,
    options: Option<&ReadOptions>,
    family: Option<&Family>,
    iterator: Out<Option<Box<Iterator>>>,
) -> Failure {
    hand_out(iterator, || {
        ReadOptions::with(options, |options| Ok(Iterator::new(db.db.iter_cf(db.family(family), options)?)))
    })
}

/// Walks that share out what one would show, in order, all of one moment, for one thread each. `iterators` has room for `parts`; `count` says how many
/// there are, which may be fewer.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_split(
    db: &Db,
    options: Option<&ReadOptions>,
    family: Option<&Family>,
    parts: usize,
    iterators: Out<Option<Box<Iterator>>>,
    count: Out<usize>,
) -> Failure {
    give(count, || {
        let walks = ReadOptions::with(options, |options| db.db.split_cf(db.family(family), options, parts))?;
        let count = walks.len();
        if count > parts {
            return Err(Error::invalid_argument(format!("{parts} parts have no room for {count}")));
        }
        for (at, walk) in walks.into_iter().enumerate() {
            iterators.put_at(at, Some(Box::new(Iterator::new(walk))));
        }
        Ok(count)
    })
}

/// How many keys a family has within the bounds of `options`, counted one by one.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_count(
    db: &Db,
    options: Option<&ReadOptions>,
    family: Option<&Family>,
    count: Out<u64>,
) -> Failure {
    give(count, || ReadOptions::with(options, |options| db.db.count_cf(db.family(family), options)))
}

/// Goes to the first entry.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iterator_seek_to_first(iterator: &mut Iterator) -> Failure {
    iterator.step(DbIterator::seek_to_first)
}

/// Goes to the last entry.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iterator_seek_to_last(iterator: &mut Iterator) -> Failure {
    iterator.step(DbIterator::seek_to_last)
}

/// Goes to the first entry whose key is not less than `key`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iterator_seek(iterator: &mut Iterator, key: Slice) -> Failure {
    iterator.step(|walk| walk.seek(key.bytes()?))
}

/// Goes to the last entry whose key is not greater than `key`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iterator_seek_for_prev(iterator: &mut Iterator, key: Slice) -> Failure {
    iterator.step(|walk| walk.seek_for_prev(key.bytes()?))
}

/// Goes to the next entry.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iterator_next(iterator: &mut Iterator) -> Failure {
    iterator.step(DbIterator::next)
}

/// Goes to the entry before.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iterator_prev(iterator: &mut Iterator) -> Failure {
    iterator.step(DbIterator::prev)
}

/// Shows the family as it is now, from the next seek on.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iterator_refresh(iterator: &mut Iterator) -> Failure {
    iterator.step(DbIterator::refresh)
}

/// Whether it stands on an entry.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iterator_valid(iterator: &Iterator) -> bool {
    iterator.walk.valid()
}

/// The key where it stands, until it moves; empty if it stands on no entry.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iterator_key(iterator: &Iterator) -> Slice {
    if iterator.walk.valid() { iterator.walk.key().into() } else { Slice::default() }
}

/// The value where it stands, until it moves. Read when it is asked for: who looks at keys only pays for keys only.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iterator_value(iterator: &mut Iterator, value: Out<Slice>) -> Failure {
    give(value, || {
        let read = match iterator.value.take() {
            Some(value) => value,
            None => iterator.walk.value()?,
        };
        Ok((&**iterator.value.insert(read)).into())
    })
}

/// The length of the value where it stands.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iterator_value_len(iterator: &Iterator, len: Out<u64>) -> Failure {
    give(len, || iterator.walk.value_len())
}

/// Frees a walk; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iterator_free(iterator: Option<Box<Iterator>>) {
    drop(iterator);
}

//! What a thread has seen of its keys at some moment, and looks at again later: it stays, whatever goes on.

use std::collections::VecDeque;

use esker::{ColumnFamily, Db, DbIterator, ReadOptions, Result, Snapshot};
use fastrand::Rng;

use super::ledger::{KEYS, Place, State, key, parse};
use super::life::Life;

/// Entries of a family, in order.
type Entries = VecDeque<(u16, u32)>;

/// What `state` has in a family.
pub(super) fn entries(state: &State, place: Place) -> Entries {
    state.range((place, 0)..=(place, u16::MAX)).map(|((_, n), serial)| (*n, *serial)).collect()
}

/// Whose view it is.
#[derive(Clone, Copy)]
pub(super) struct Viewer<'a> {
    pub(super) life: &'a Life,
    pub(super) db: &'a Db,
    pub(super) owner: u8,
}

impl Viewer<'_> {
    /// A key holds what the write of this number put, or nothing.
    pub(super) fn expect(&self, found: Option<&[u8]>, place: Place, n: u16, expected: Option<u32>, doing: &str) {
        let Self { life, owner, .. } = *self;
        let found = found.map(|found| life.serial_of(owner, n, found, doing));
        assert_eq!(found, expected, "{life}: {doing}: key {n} of thread {owner} in {place:?}");
    }

    /// Some keys of a family hold what `state` says.
    pub(super) fn look_at(
        &self,
        family: &ColumnFamily,
        place: Place,
        state: &State,
        snapshot: Option<Snapshot>,
        random: &mut Rng,
    ) {
        let doing = if snapshot.is_some() { "reading a snapshot" } else { "reading" };
        let options = ReadOptions { snapshot, fill_cache: random.bool(), ..ReadOptions::default() };
        let keys: Vec<u16> = (0..random.u16(1..8)).map(|_| random.u16(..KEYS)).collect();
        let found = if random.bool() {
            self.db.multi_get_cf(family, keys.iter().map(|n| key(self.owner, *n)), &options)
        } else {
            Ok(keys.iter().map(|n| self.db.get_cf(family, key(self.owner, *n), &options)).collect())
        };
        for (n, found) in keys.iter().zip(self.life.accepted(found, doing).into_iter().flatten()) {
            let Some(found) = self.life.accepted(found, doing) else { continue };
            self.expect(found.as_deref(), place, *n, state.get(&(place, *n)).copied(), doing);
        }
    }
}

/// An iterator, and what it has still to show of the keys of its thread.
pub(super) struct Walk {
    iterator: DbIterator,
    place: Place,
    left: Entries,
    is_backward: bool,
}

impl Walk {
    /// Over a family that holds what `state` says.
    ///
    /// # Errors
    /// As the store's.
    pub(super) fn begin(
        viewer: Viewer<'_>,
        family: &ColumnFamily,
        place: Place,
        state: &State,
        snapshot: Option<Snapshot>,
        is_backward: bool,
    ) -> Result<Self> {
        let options = ReadOptions { snapshot, ..ReadOptions::default() };
        let mut iterator = viewer.db.iter_cf(family, &options)?;
        if is_backward {
            iterator.seek_to_last()?
        } else {
            iterator.seek_to_first()?
        }
        Ok(Self { iterator, place, left: entries(state, place), is_backward })
    }

    /// A few steps on. Whether it has come to its end.
    ///
    /// # Errors
    /// As the iterator's.
    pub(super) fn go_on(&mut self, viewer: Viewer<'_>, steps: usize) -> Result<bool> {
        let Viewer { life, owner, .. } = viewer;
        let (doing, place) = ("walking", self.place);
        for _ in 0..steps {
            if !self.iterator.valid() {
                assert!(
                    self.left.is_empty(),
                    "{life}: {doing}: {:?} of thread {owner} in {place:?} are missing",
                    self.left
                );
                return Ok(true);
            }
            if let Some((_, n)) = parse(self.iterator.key()).filter(|(of, _)| *of == owner) {
                let value = self.iterator.value()?;
                let next = if self.is_backward { self.left.pop_back() } else { self.left.pop_front() };
                let Some((_, serial)) = next.filter(|(expected, _)| *expected == n) else {
                    panic!("{life}: {doing}: key {n} of thread {owner} in {place:?}, not {next:?}");
                };
                viewer.expect(Some(&value), place, n, Some(serial), doing);
            }
            if self.is_backward { self.iterator.prev()? } else { self.iterator.next()? }
        }
        Ok(false)
    }

    /// To its end.
    ///
    /// # Errors
    /// As the iterator's.
    pub(super) fn finish(mut self, viewer: Viewer<'_>) -> Result<()> {
        self.go_on(viewer, usize::MAX).map(drop)
    }
}

//! Writes that depend on what others wrote: asked in their turn, by whoever leads.
//!
//! - C1: a condition is asked when all that was written before its group can be seen, and told what those before it in the group write.
//! - C2: whoever is refused stays in the group with an empty batch, which gets no number, and waits with the others.
//!
//! Cost: a look at each request. With a condition, a wait for what was logged before to be in the memtables, and a copy of the keys that others of its
//! group write before it.

use std::collections::HashSet;
use std::fmt::Debug;
use std::ops::Range;

use esker_format::rocksdb::internal_key::ValueKind;
use esker_format::rocksdb::write_batch::Record;

use super::{Lead, Request};
use crate::family::Family;
use crate::store::Store;
use crate::{Error, Result};

/// What must hold when a request's turn comes, or it is not written.
pub(crate) trait Condition: Debug + Send {
    /// An error if it does not, which is that of the request alone.
    fn ask(&self, store: &Store, ahead: &Ahead) -> Result<()>;
}

/// From one key on and before another.
type Keys = Range<Box<[u8]>>;

/// What those write who go ahead in a group.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    keys: HashSet<(u32, Box<[u8]>)>,
    /// Of a family, each.
    ranges: Vec<(u32, Keys)>,
}

impl Ahead {
    /// Whether somebody writes to `key` of `family`.
    pub(crate) fn writes(&self, family: &Family, key: &[u8]) -> bool {
        let order = family.order;
        let has = |(id, keys): &(u32, Keys)| {
            *id == family.id && !order.is_before(key, &keys.start) && order.is_before(key, &keys.end)
        };
        self.ranges.iter().any(has) || (!self.keys.is_empty() && self.keys.contains(&(family.id, Box::from(key))))
    }

    fn add(&mut self, record: &Record<'_>) {
        match record.kind {
            ValueKind::RangeDeletion => self.ranges.push((record.cf, record.key.into()..record.value.into())),
            _ => _ = self.keys.insert((record.cf, record.key.into())),
        }
    }
}

/// A condition, and what came of it.
#[derive(Debug)]
pub(super) struct Asked {
    condition: Box<dyn Condition>,
    refused: Option<Error>,
}

impl Request {
    /// The same, under a condition.
    pub(crate) fn under(self, condition: Box<dyn Condition>) -> Self {
        Self { asked: Some(Box::new(Asked { condition, refused: None })), ..self }
    }

    /// An error if it was refused.
    pub(super) fn check_not_refused(&mut self) -> Result<()> {
        self.asked.take().and_then(|asked| asked.refused).map_or(Ok(()), Err)
    }
}

impl Store {
    /// Asks all conditions of a group.
    pub(super) fn ask_conditions(&self, lead: &Lead, group: &mut [Request]) -> Result<()> {
        let Some(last) = group.iter().rposition(|request| request.asked.is_some()) else { return Ok(()) };
        self.drain(lead)?;
        let mut ahead = Ahead::default();
        for (at, request) in group.iter_mut().enumerate().take(last + 1) {
            if let Some(asked) = &mut request.asked
                && let Err(error) = asked.condition.ask(self, &ahead)
            {
                asked.refused = Some(error);
                request.batch.clear();
                (request.values, request.user_bytes) = (None, 0);
            }
            if at < last {
                request.records().filter_map(|record| record.ok()).for_each(|record| ahead.add(&record));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use esker_env::sim::SimDisk;

    use super::*;
    use crate::{Db, ErrorKind, FamilyOptions, Options, Separation, Transaction, WriteBatch, WriteOptions};

    /// That all up to a number can be seen.
    #[derive(Debug)]
    struct Sees {
        all_up_to: u64,
        was_asked: Arc<AtomicBool>,
    }

    impl Condition for Sees {
        fn ask(&self, store: &Store, _: &Ahead) -> Result<()> {
            self.was_asked.store(true, Ordering::Relaxed);
            let seen = store.visible().get();
            if seen < self.all_up_to { Err(Error::new(ErrorKind::Conflict, seen.to_string())) } else { Ok(()) }
        }
    }

    /// Goal: who is asked sees what was logged before its turn came, though that was in no memtable then (C1).
    #[test]
    fn what_was_logged_before_is_waited_for() {
        // For who would not wait to be asked.
        const MOMENT: Duration = Duration::from_millis(20);
        let disk = SimDisk::new();
        let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
        let db = Db::open_with_env("/store", options, disk.env()).unwrap();
        let store = db.store();
        let request = |key: &str| {
            let mut batch = WriteBatch::new();
            batch.put(key, "").unwrap();
            store.request(batch, WriteOptions::default()).unwrap()
        };
        let all_up_to = store.visible().get() + 1;
        let was_asked = Arc::new(AtomicBool::new(false));
        let condition = Box::new(Sees { all_up_to, was_asked: was_asked.clone() });
        let (mut before, mut group) = ([request("before")], [request("after").under(condition)]);
        store.alone(|lead| store.write_group(lead, &mut before)).unwrap();
        std::thread::scope(|scope| {
            let asked = was_asked.clone();
            scope.spawn(move || {
                let begun = Instant::now();
                while !asked.load(Ordering::Relaxed) && begun.elapsed() < MOMENT {
                    std::thread::yield_now();
                }
                before.iter().for_each(|request| store.finish(request).unwrap());
            });
            store.alone(|lead| store.write_group(lead, &mut group)).unwrap();
        });
        group.iter().for_each(|request| store.finish(request).unwrap());
        group[0].check_not_refused().unwrap();
        assert!(was_asked.load(Ordering::Relaxed) && db.exists("after").unwrap());
    }

    /// Goal: of one group, too, nobody writes who has read what another writes before it; who is refused holds up nobody, uses up no number, leaves no
    /// value in a blob file, and is nobody's conflict.
    #[test]
    fn of_one_group_who_read_what_another_writes_before_it_is_refused() {
        for (separation, sync) in
            [(Separation::AtFlush, false), (Separation::AtWrite, false), (Separation::AtWrite, true)]
        {
            let disk = SimDisk::new();
            let family = FamilyOptions { separation, min_blob_size: 10, ..FamilyOptions::default() };
            let families = [("default".to_owned(), family)].into();
            let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
            let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
            let other = db.create_column_family("other", FamilyOptions::default()).unwrap();
            let (store, write) = (db.store(), WriteOptions { sync, ..WriteOptions::default() });
            let begin = |fill: &dyn Fn(&mut Transaction) -> Result<()>| {
                let mut transaction = db.transaction();
                fill(&mut transaction).unwrap();
                transaction
            };
            let long = [7; 1_000];
            // Each with whether it is written.
            let mut transactions = [
                (begin(&|it| it.get("x").and(it.put("y", long))), true),
                // Write skew.
                (begin(&|it| it.get("y").and(it.put("x", long))), false),
                // What is refused is not there.
                (begin(&|it| it.get("x").and(it.put("a", long))), true),
                // Another family's key of the same name; one of the plain batch below.
                (begin(&|it| it.get_cf(&other, "y").and(it.put("b", long))), true),
                (begin(&|it| it.get("plain").and(it.put("c", long))), false),
                (begin(&|it| it.get("r5").and(it.put("d", long))), false),
                (begin(&|it| it.get("s").and(it.get_cf(&other, "r5")).and(it.put("e", long))), true),
                (begin(&|it| it.exists_cf(&other, "z").and(it.delete_cf(&other, "z"))), true),
                (begin(&|it| it.exists_cf(&other, "z").and(it.put_cf(&other, "z", "1"))), false),
            ];
            let mut requests = transactions.iter_mut().map(|(it, _)| it.request(&write).unwrap());
            let mut plain = WriteBatch::new();
            plain.put("plain", long).unwrap();
            plain.delete_range("r", "s").unwrap();
            let mut group = vec![requests.next().unwrap(), store.request(plain, write).unwrap()];
            group.extend(requests);
            let before = store.visible().get();
            store.alone(|lead| store.write_group(lead, &mut group)).unwrap();
            group.iter().for_each(|request| store.finish(request).unwrap());
            assert_eq!(store.visible().get(), before + 7);
            group.remove(1);
            for (request, (_, is_written)) in group.iter_mut().zip(&transactions) {
                let answer = request.check_not_refused();
                assert_eq!(
                    answer.as_ref().err().map(Error::kind),
                    (!is_written).then_some(ErrorKind::Conflict),
                    "{answer:?}"
                );
            }
            let there = ["a", "b", "c", "d", "e", "plain", "x", "y"].map(|key| db.exists(key).unwrap());
            assert_eq!(there, [true, true, false, false, true, true, false, true]);
            db.flush().unwrap();
            let stats = db.stats();
            assert_eq!(stats.families[0].blob_garbage_bytes, 0, "{stats:?}");
            drop((transactions, db));
            let db = Db::open_with_env("/store", options, disk.after_process_death().env()).unwrap();
            assert_eq!(["a", "b", "c", "d", "e", "plain", "x", "y"].map(|key| db.exists(key).unwrap()), there);
        }
    }
}

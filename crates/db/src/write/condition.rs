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
    /// Whether somebody writes to `key` of the family of that id.
    pub(crate) fn writes(&self, family_id: u32, key: &[u8]) -> bool {
        let has = |(id, keys): &(u32, Keys)| *id == family_id && (&*keys.start..&*keys.end).contains(&key);
        self.ranges.iter().any(has) || (!self.keys.is_empty() && self.keys.contains(&(family_id, Box::from(key))))
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
    use esker_env::sim::SimDisk;

    use super::*;
    use crate::{Db, ErrorKind, FamilyOptions, Options, Separation, Transaction, WriteBatch, WriteOptions};

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

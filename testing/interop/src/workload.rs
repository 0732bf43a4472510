//! Writes that leave every kind of entry behind, and the contents that a reader must find afterwards.

use std::sync::Arc;

use esker::{
    ChecksumKind, ColumnFamily, Comparator, Compression, Db, FamilyOptions, Options, ReadOptions, Separation,
    StringAppendOperator, WriteBatch, WriteOptions,
};

use crate::contents::{Contents, Families, family, must};

/// A family whose small values stay in the tables and whose large ones leave them.
pub const MIXED: &str = "default";
/// A family all of whose values live in blob files, named as `db_bench` names its second family.
pub const SEPARATE: &str = "column_family_name_000001";
/// A family all of whose values live in the tables, under a name that is neither ASCII nor short.
pub const INLINE: &str = "naïve family: всё внутри";

/// From this size on values of [`MIXED`] are blobs, in bytes.
pub const MIN_BLOB_BYTES: usize = 512;

/// Options under which a few hundred KiB make several levels and several blob files.
pub fn small(compression: Compression, checksum: ChecksumKind) -> FamilyOptions {
    FamilyOptions {
        write_buffer_bytes: 64 << 10,
        min_blob_size: MIN_BLOB_BYTES as u64,
        blob_file_bytes: 64 << 10,
        blob_compression: compression,
        compression,
        checksum,
        target_file_bytes: 16 << 10,
        level_base_bytes: 32 << 10,
        level_multiplier: 4,
        merge_operator: Some(Arc::new(StringAppendOperator::default())),
        ..FamilyOptions::default()
    }
}

/// Options of a new store with the three families of this module; only the default family exists once it is open.
pub fn options(compression: Compression, checksum: ChecksumKind) -> Options {
    let mixed = small(compression, checksum);
    let separate = FamilyOptions { min_blob_size: 0, bloom_bits_per_key: 0.0, ..mixed.clone() };
    let inline = FamilyOptions { separation: Separation::Off, block_bytes: 512, restart_interval: 3, ..mixed.clone() };
    let families = [(MIXED, mixed), (SEPARATE, separate), (INLINE, inline)];
    Options {
        create_if_missing: true,
        families: families.into_iter().map(|(name, options)| (name.to_owned(), options)).collect(),
        ..Options::default()
    }
}

/// Numbers that look random and are the same on every run (SplitMix64, Steele et al. 2014).
#[derive(Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// Numbers that follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// Bytes of which about half compress away.
    pub fn value(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|at| if at % 64 < 32 { self.below(256) as u8 } else { b'=' }).collect()
    }

    /// One of about 900 keys: readable ones, binary ones with every byte, the empty one, and a few of 5 KiB.
    pub fn key(&mut self) -> Vec<u8> {
        let number = self.below(600);
        match self.below(12) {
            0 => vec![0xff; number as usize % 20],
            1 => vec![0x00; number as usize % 20],
            2..=4 => [&number.to_be_bytes()[6..], &[0xff, 0x00, b':', b' '], &number.to_le_bytes()[..2]].concat(),
            5 if number.is_multiple_of(10) => vec![b'k'; 5000 + number as usize],
            _ => format!("key/{number:08}").into_bytes(),
        }
    }

    /// From one key before another, in this order: mostly some that are neighbours, at times any.
    pub fn range(&mut self, order: &dyn Comparator) -> (Vec<u8>, Vec<u8>) {
        let (one, other) = if self.below(4) == 0 {
            (self.key(), self.key())
        } else {
            let begin = self.below(600);
            (format!("key/{begin:08}").into_bytes(), format!("key/{:08}", begin + 1 + self.below(30)).into_bytes())
        };
        if order.compare(&one, &other).is_gt() { (other, one) } else { (one, other) }
    }

    /// The size of a value: mostly small, some above [`MIN_BLOB_BYTES`], a few above one block of the log.
    pub fn value_bytes(&mut self) -> usize {
        (match self.below(40) {
            0 => 0,
            1..=24 => self.below(120),
            25..=37 => MIN_BLOB_BYTES as u64 - 8 + self.below(1500),
            38 => MIN_BLOB_BYTES as u64,
            _ => 33_000 + self.below(70_000),
        }) as usize
    }
}

/// Writes `count` puts, overwrites, deletions, of ranges too, and batches over all families of `db` and notes in `expected` what they leave.
#[track_caller]
pub fn write(db: &Db, expected: &mut Families, numbers: &mut Numbers, count: usize) {
    let options = WriteOptions::default();
    let names: Vec<String> = expected.keys().cloned().collect();
    for _ in 0..count {
        let name = &names[numbers.below(names.len() as u64) as usize];
        let target = family(db, name);
        let contents = expected.entry(name.clone()).or_default();
        match numbers.below(10) {
            0 => {
                let key = numbers.key();
                must("deleting", db.delete_cf(&target, &key, &options));
                contents.remove(&key);
            }
            1 => batch(db, expected, numbers, &names),
            2 => {
                // What is written and taken back at once leaves a pair of entries that compaction must drop together.
                let key = numbers.key();
                must("putting", db.put_cf(&target, &key, b"soon gone", &options));
                must("deleting", db.delete_cf(&target, &key, &options));
                contents.remove(&key);
            }
            5 if numbers.below(4) == 0 => {
                let order = target.options().comparator;
                let (begin, end) = numbers.range(order);
                must("deleting a range", db.delete_range_cf(&target, &begin, &end, &options));
                contents.retain(|key, _| order.compare(key, &begin).is_lt() || order.compare(key, &end).is_ge());
            }
            3 | 4 if target.options().merge_operator.is_some() => {
                let key = numbers.key();
                let operand = numbers.value(20);
                merge(db, &target, contents, key, &operand);
            }
            _ => {
                let key = numbers.key();
                let len = numbers.value_bytes();
                let value = numbers.value(len);
                must("putting", db.put_cf(&target, &key, &value, &options));
                contents.insert(key, value);
            }
        }
    }
}

/// Merges into a key of `family` and notes in `contents` what its operator makes of that.
#[track_caller]
fn merge(db: &Db, family: &ColumnFamily, contents: &mut Contents, key: Vec<u8>, operand: &[u8]) {
    let Some(operator) = family.options().merge_operator.clone() else { return };
    must("merging", db.merge_cf(family, &key, operand, &WriteOptions::default()));
    let merged = operator.full_merge(&key, contents.get(&key).map(Vec::as_slice), &[operand]);
    let merged = merged.ok_or_else(|| format!("{operator:?} refuses"));
    contents.insert(key, must("merging", merged));
}

#[track_caller]
fn batch(db: &Db, expected: &mut Families, numbers: &mut Numbers, names: &[String]) {
    let mut batch = WriteBatch::new();
    for _ in 0..1 + numbers.below(12) {
        let name = &names[numbers.below(names.len() as u64) as usize];
        let target = family(db, name);
        let contents = expected.entry(name.clone()).or_default();
        let key = numbers.key();
        if numbers.below(4) == 0 {
            must("adding a deletion", batch.delete_cf(&target, &key));
            contents.remove(&key);
        } else {
            let len = numbers.value_bytes();
            let value = numbers.value(len);
            must("adding a put", batch.put_cf(&target, &key, &value));
            contents.insert(key, value);
        }
    }
    must("writing a batch", db.write(batch, &WriteOptions::default()));
}

/// Deletes a third of what is there, overwrites a third, merges into a third where that can be, adds some, in every family: the changes one reader makes to
/// what another wrote.
#[track_caller]
pub fn change(db: &Db, expected: &mut Families, numbers: &mut Numbers) {
    let options = WriteOptions::default();
    for (name, contents) in expected.iter_mut() {
        let target = family(db, name);
        let keys: Vec<Vec<u8>> = contents.keys().cloned().collect();
        for key in keys {
            match numbers.below(3) {
                0 => {
                    must("deleting", db.delete_cf(&target, &key, &options));
                    contents.remove(&key);
                }
                1 => {
                    let len = numbers.value_bytes().min(4000);
                    let value = numbers.value(len);
                    must("overwriting", db.put_cf(&target, &key, &value, &options));
                    contents.insert(key, value);
                }
                _ => {
                    for _ in 0..numbers.below(3) {
                        let operand = numbers.value(8);
                        merge(db, &target, contents, key.clone(), &operand);
                    }
                }
            }
        }
        for number in 0..100 {
            let key = format!("new/{number:04}").into_bytes();
            let len = numbers.value_bytes().min(4000);
            let value = numbers.value(len);
            must("putting", db.put_cf(&target, &key, &value, &options));
            let got = must("getting", db.get_cf(&target, &key, &ReadOptions::default()));
            assert!(got.is_some_and(|got| got[..] == value[..]), "a write is not there when it was acknowledged");
            contents.insert(key, value);
        }
    }
}

/// Compacts every family, whole.
#[track_caller]
pub fn compact(db: &Db) {
    for family in db.column_families() {
        must("compacting", db.compact_range(&family, None, None));
    }
}

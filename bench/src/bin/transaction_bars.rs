//! Transactions that read two keys and write both, by Esker and by others, with locks and without.
//!
//! ```sh
//! cargo run --release --bin transaction_bars -- DIRECTORY                       # the table, about three minutes
//! cargo run --release --features rocksdb --bin transaction_bars -- DIRECTORY   # with RocksDB, built as ../README.md says
//! ```
//!
//! Each thread draws two of the keys, gets both for update, adds one to the number at the beginning of each value, and commits; in the order of the
//! keys, so that nobody is in a deadlock. Who is told of a conflict begins again. In the end the numbers must add up to twice the commits. Engines take
//! turns, each round in stores of their own, with write buffers of 64 MiB and LZ4; the middle round of each is told. Without sync every commit has reached the kernel when it
//! returns.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker_compare::Result;
use esker_compare::place::Place;

const VALUE_BYTES: usize = 100;
const ROUNDS: usize = 3;
const SECONDS: u64 = 2;
const WRITE_BUFFER_BYTES: usize = 64 << 20;

/// The key of that number: in no order of numbers.
fn key(number: u64) -> [u8; 16] {
    let mixed = u128::from(number.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    mixed.to_be_bytes()
}

fn number(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| value.first_chunk().copied()).map_or(0, u64::from_le_bytes)
}

fn value(number: u64) -> [u8; VALUE_BYTES] {
    let mut value = [7; VALUE_BYTES];
    if let Some(begin) = value.first_chunk_mut() {
        *begin = number.to_le_bytes();
    }
    value
}

/// A store with transactions.
trait Bank: Sync {
    /// Adds one to the numbers of both keys; `false` if another transaction came in between.
    fn add(&self, keys: [&[u8]; 2]) -> Result<bool>;

    fn number(&self, key: &[u8]) -> Result<u64>;
}

type Open = fn(&Path, bool) -> Result<Box<dyn Bank>>;

mod of_esker {
    use esker::{Db, ErrorKind, FamilyOptions, Options, TransactionOptions, WriteOptions};

    use super::{Bank, Duration, Path, Result, WRITE_BUFFER_BYTES, number, value};

    struct Store {
        db: Db,
        transactions: TransactionOptions,
        writing: WriteOptions,
    }

    pub(super) fn open(dir: &Path, sync: bool, locking: bool) -> Result<Box<dyn Bank>> {
        let family = FamilyOptions { write_buffer_bytes: WRITE_BUFFER_BYTES as u64, ..FamilyOptions::default() };
        let families = [("default".to_owned(), family)].into();
        let db = Db::open(dir, Options { create_if_missing: true, families, ..Options::default() })?;
        let transactions = TransactionOptions { locking, lock_timeout: Duration::from_secs(60) };
        Ok(Box::new(Store { db, transactions, writing: WriteOptions { sync, ..WriteOptions::default() } }))
    }

    impl Bank for Store {
        fn add(&self, keys: [&[u8]; 2]) -> Result<bool> {
            let mut transaction = self.db.transaction_with(&self.transactions);
            for key in keys {
                let had = number(transaction.get_for_update(key)?.as_deref());
                transaction.put(key, value(had + 1))?;
            }
            match transaction.commit(&self.writing) {
                Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
                committed => Ok(committed.map(|()| true)?),
            }
        }

        fn number(&self, key: &[u8]) -> Result<u64> {
            Ok(number(self.db.get(key)?.as_deref()))
        }
    }
}

mod of_fjall {
    use fjall::config::CompressionPolicy;
    use fjall::{
        CompressionType, KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode, Readable,
        SingleWriterTxDatabase, SingleWriterTxKeyspace,
    };

    use super::{Bank, Path, Result, WRITE_BUFFER_BYTES, number, value};

    fn options() -> KeyspaceCreateOptions {
        KeyspaceCreateOptions::default()
            .max_memtable_size(WRITE_BUFFER_BYTES as u64)
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
    }

    fn mode(sync: bool) -> PersistMode {
        if sync { PersistMode::SyncData } else { PersistMode::Buffer }
    }

    struct Optimistic {
        database: OptimisticTxDatabase,
        keyspace: OptimisticTxKeyspace,
        mode: PersistMode,
    }

    pub(super) fn open_optimistic(dir: &Path, sync: bool) -> Result<Box<dyn Bank>> {
        let database = OptimisticTxDatabase::builder(dir).worker_threads(2).open()?;
        let keyspace = database.keyspace("default", options)?;
        Ok(Box::new(Optimistic { database, keyspace, mode: mode(sync) }))
    }

    impl Bank for Optimistic {
        fn add(&self, keys: [&[u8]; 2]) -> Result<bool> {
            let mut transaction = self.database.write_tx()?.durability(Some(self.mode));
            for key in keys {
                let had = number(transaction.get(&self.keyspace, key)?.as_deref());
                transaction.insert(&self.keyspace, key, value(had + 1));
            }
            Ok(transaction.commit()?.is_ok())
        }

        fn number(&self, key: &[u8]) -> Result<u64> {
            Ok(number(self.keyspace.get(key)?.as_deref()))
        }
    }

    struct OneWriter {
        database: SingleWriterTxDatabase,
        keyspace: SingleWriterTxKeyspace,
        mode: PersistMode,
    }

    pub(super) fn open_one_writer(dir: &Path, sync: bool) -> Result<Box<dyn Bank>> {
        let database = SingleWriterTxDatabase::builder(dir).worker_threads(2).open()?;
        let keyspace = database.keyspace("default", options)?;
        Ok(Box::new(OneWriter { database, keyspace, mode: mode(sync) }))
    }

    impl Bank for OneWriter {
        fn add(&self, keys: [&[u8]; 2]) -> Result<bool> {
            let mut transaction = self.database.write_tx().durability(Some(self.mode));
            for key in keys {
                let had = number(transaction.get(&self.keyspace, key)?.as_deref());
                transaction.insert(&self.keyspace, key, value(had + 1));
            }
            transaction.commit()?;
            Ok(true)
        }

        fn number(&self, key: &[u8]) -> Result<u64> {
            Ok(number(self.keyspace.get(key)?.as_deref()))
        }
    }
}

#[cfg(feature = "rocksdb")]
mod of_rocksdb {
    use rocksdb::{
        BlockBasedOptions, DBCompressionType, ErrorKind, OptimisticTransactionDB, OptimisticTransactionOptions,
        Options, TransactionDB, TransactionDBOptions, TransactionOptions, WriteOptions,
    };

    use super::{Bank, Path, Result, WRITE_BUFFER_BYTES, number, value};

    fn options() -> Options {
        let mut table = BlockBasedOptions::default();
        table.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&table);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_write_buffer_size(WRITE_BUFFER_BYTES);
        options
    }

    fn writing(sync: bool) -> WriteOptions {
        let mut writing = WriteOptions::default();
        writing.set_sync(sync);
        writing
    }

    struct Locking {
        db: TransactionDB,
        sync: bool,
    }

    pub(super) fn open_locking(dir: &Path, sync: bool) -> Result<Box<dyn Bank>> {
        let mut locks = TransactionDBOptions::default();
        locks.set_txn_lock_timeout(60_000);
        locks.set_default_lock_timeout(60_000);
        Ok(Box::new(Locking { db: TransactionDB::open(&options(), &locks, dir)?, sync }))
    }

    impl Bank for Locking {
        fn add(&self, keys: [&[u8]; 2]) -> Result<bool> {
            let transaction = self.db.transaction_opt(&writing(self.sync), &TransactionOptions::default());
            for key in keys {
                let had = number(transaction.get_for_update(key, true)?.as_deref());
                transaction.put(key, value(had + 1))?;
            }
            transaction.commit()?;
            Ok(true)
        }

        fn number(&self, key: &[u8]) -> Result<u64> {
            Ok(number(self.db.get(key)?.as_deref()))
        }
    }

    struct Optimistic {
        db: OptimisticTransactionDB,
        sync: bool,
    }

    pub(super) fn open_optimistic(dir: &Path, sync: bool) -> Result<Box<dyn Bank>> {
        Ok(Box::new(Optimistic { db: OptimisticTransactionDB::open(&options(), dir)?, sync }))
    }

    impl Bank for Optimistic {
        fn add(&self, keys: [&[u8]; 2]) -> Result<bool> {
            let transaction = self.db.transaction_opt(&writing(self.sync), &OptimisticTransactionOptions::default());
            for key in keys {
                let had = number(transaction.get_for_update(key, true)?.as_deref());
                transaction.put(key, value(had + 1))?;
            }
            match transaction.commit() {
                Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain) => Ok(false),
                committed => Ok(committed.map(|()| true)?),
            }
        }

        fn number(&self, key: &[u8]) -> Result<u64> {
            Ok(number(self.db.get(key)?.as_deref()))
        }
    }
}

const ENGINES: &[(&str, Open)] = &[
    ("Esker, locks", |dir, sync| of_esker::open(dir, sync, true)),
    ("Esker, optimistic", |dir, sync| of_esker::open(dir, sync, false)),
    #[cfg(feature = "rocksdb")]
    ("RocksDB, locks", of_rocksdb::open_locking),
    #[cfg(feature = "rocksdb")]
    ("RocksDB, optimistic", of_rocksdb::open_optimistic),
    ("Fjall, one writer", of_fjall::open_one_writer),
    ("Fjall, optimistic", of_fjall::open_optimistic),
];

/// Keys, threads, whether commits are synced.
const SCENES: [(u64, u64, bool); 6] =
    [(300_000, 1, false), (300_000, 4, false), (20, 4, false), (300_000, 16, true), (20, 16, true), (2, 16, true)];

/// Commits a second, and conflicts for each.
fn run(dir: &Path, open: Open, (keys, threads, sync): (u64, u64, bool)) -> Result<(f64, f64)> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    fs::create_dir_all(dir)?;
    let bank = open(dir, sync)?;
    let (commits, conflicts) = (AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    let work = |thread: u64| -> Result<()> {
        let mut random = 0x2545_f491_4f6c_dd1d_u64.wrapping_mul(thread + 1);
        let mut draw = || {
            random ^= random >> 12;
            random ^= random << 25;
            random ^= random >> 27;
            (random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % keys
        };
        while began.elapsed() < Duration::from_secs(SECONDS) {
            for _ in 0..8 {
                let (one, mut other) = (draw(), draw());
                if one == other {
                    other = (one + 1) % keys;
                }
                let mut pair = [key(one), key(other)];
                pair.sort_unstable();
                while !bank.add([&pair[0], &pair[1]])? {
                    conflicts.fetch_add(1, Ordering::Relaxed);
                }
                commits.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    let done: Vec<Result<()>> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        all.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    done.into_iter().collect::<Result<()>>()?;
    let (seconds, commits) = (began.elapsed().as_secs_f64(), commits.load(Ordering::Relaxed));
    let sum = (0..keys).try_fold(0, |sum, number| Ok::<_, esker_compare::Failure>(sum + bank.number(&key(number))?))?;
    if sum != 2 * commits {
        return Err(format!("{commits} commits have added {sum}").into());
    }
    Ok((commits as f64 / seconds, conflicts.load(Ordering::Relaxed) as f64 / commits as f64))
}

fn main() -> Result<()> {
    let directory = std::env::args_os().nth(1).ok_or("a directory for the stores is needed")?;
    let place = Place::inside(Path::new(&directory))?;
    println!(
        "| | {} |",
        SCENES
            .map(|(keys, threads, sync)| {
                format!("{keys} keys, {threads} threads{}", if sync { ", synced" } else { "" })
            })
            .join(" | ")
    );
    println!("|---|{}", "---:|".repeat(SCENES.len()));
    let mut figures = vec![Vec::new(); ENGINES.len()];
    for scene in SCENES {
        let mut rounds = vec![Vec::new(); ENGINES.len()];
        for _ in 0..ROUNDS {
            for (&(name, open), rounds) in ENGINES.iter().zip(&mut rounds) {
                let figure =
                    run(&place.path().join("store"), open, scene).map_err(|error| format!("{name}: {error}"))?;
                rounds.push(figure);
            }
        }
        for (rounds, figures) in rounds.iter_mut().zip(&mut figures) {
            rounds.sort_unstable_by(|(one, _), (other, _)| one.total_cmp(other));
            figures.push(rounds.get(ROUNDS / 2).copied().unwrap_or_default());
        }
    }
    for ((name, _), figures) in ENGINES.iter().zip(figures) {
        let shown = figures.iter().map(|(rate, conflicts)| {
            if *conflicts > 0.005 { format!("{rate:.0} ({conflicts:.2} conflicts each)") } else { format!("{rate:.0}") }
        });
        println!("| {name} | {} |", shown.collect::<Vec<_>>().join(" | "));
    }
    Ok(())
}

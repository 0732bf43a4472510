//! Tables against a sorted list, damaged tables, and what is refused. On the simulated disk.

mod damage;
mod golden;
mod model;
mod refusal;
mod resident;
mod taken_in;

use std::path::Path;
use std::sync::Arc;

use esker_env::Env;
use esker_env::sim::SimDisk;
use esker_format::rocksdb::internal_key::{self, FileNumber, SequenceNumber, ValueKind};
use esker_format::rocksdb::order::Order;

use super::*;
use crate::Result;

/// Internal key and value.
type Entry = (Vec<u8>, Vec<u8>);

const PATH: &str = "/000007.sst";
const NUMBER: FileNumber = FileNumber::new(7);

fn entry(user_key: &str, sequence: u64, kind: ValueKind, value: &[u8]) -> Entry {
    let mut key = Vec::new();
    internal_key::append(&mut key, user_key.as_bytes(), SequenceNumber::new(sequence), kind);
    (key, value.to_vec())
}

fn lookup(user_key: &str, sequence: u64) -> Vec<u8> {
    internal_key::lookup(user_key.as_bytes(), SequenceNumber::new(sequence))
}

fn identity() -> TableIdentity {
    TableIdentity {
        column_family_id: 3,
        column_family_name: "letters".to_owned(),
        creation_time: 1_700_000_000,
        oldest_key_time: 1_600_000_000,
        db_id: "db".to_owned(),
        session_id: "session".to_owned(),
    }
}

fn write(env: &Env, options: &TableOptions, entries: &[Entry]) -> Result<TableSummary> {
    let mut writer = TableWriter::create(&*env.files, Path::new(PATH), NUMBER, options, &identity())?;
    for (key, value) in entries {
        writer.add(key, value)?;
    }
    writer.finish()
}

fn open(env: &Env) -> Result<Arc<Table>> {
    open_in(env, Order::BYTEWISE)
}

fn open_in(env: &Env, order: Order) -> Result<Arc<Table>> {
    let file_bytes = env.files.metadata(Path::new(PATH))?.len;
    Table::open(env.files.open(Path::new(PATH))?, file_bytes, &order.into(), Arc::new(BlockCache::new(1 << 20)))
}

fn table_of(options: &TableOptions, entries: &[Entry]) -> Arc<Table> {
    let env = SimDisk::new().env();
    write(&env, options, entries).unwrap();
    open_in(&env, options.order).unwrap()
}

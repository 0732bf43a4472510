//! A program written against raft-engine: nothing but the import is Esker's.

use esker_raft_engine as raft_engine;

use std::sync::Arc;

use protobuf::well_known_types::{Any, UInt64Value};
use raft_engine::env::DefaultFileSystem;
use raft_engine::{Command, Config, Engine, Error, LogBatch, MessageExt, ReadableSize, RecoveryMode};

#[derive(Clone)]
struct MessageExtTyped;

impl MessageExt for MessageExtTyped {
    type Entry = Any;

    fn index(e: &Self::Entry) -> u64 {
        e.type_url.parse().unwrap_or(0)
    }
}

fn entry(index: u64) -> Any {
    let mut entry = Any::new();
    entry.set_type_url(index.to_string());
    entry.set_value(vec![b'x'; 1024]);
    entry
}

fn state(index: u64) -> UInt64Value {
    let mut state = UInt64Value::new();
    state.set_value(index);
    state
}

#[test]
fn a_program_of_the_originals_runs_on_esker() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        dir: dir.path().join("log").to_str().unwrap().to_owned(),
        target_file_size: ReadableSize::kb(16),
        purge_threshold: ReadableSize::kb(64),
        batch_compression_threshold: ReadableSize::kb(0),
        recovery_mode: RecoveryMode::AbsoluteConsistency,
        enable_log_recycle: false,
        ..Default::default()
    };
    let engine = Engine::open(config.clone()).expect("Open raft engine");
    let mut batch = LogBatch::with_capacity(256);
    for index in 1..=200u64 {
        for region in 1..=3u64 {
            batch.add_entries::<MessageExtTyped>(region, &[entry(index)]).unwrap();
            batch.put_message(region, b"last_index".to_vec(), &state(index)).unwrap();
        }
        assert!(batch.approximate_size() > 3000);
        engine.write(&mut batch, index % 50 == 0).unwrap();
        assert!(batch.is_empty());
        for region in engine.purge_expired_files().unwrap() {
            let last = engine.get_message::<UInt64Value>(region, b"last_index").unwrap().unwrap();
            engine.compact_to(region, last.value - 7);
        }
        if index % 10 == 0 {
            engine.compact_to(1, index - 5);
        }
    }
    engine.sync().unwrap();
    assert_eq!((engine.first_index(1), engine.last_index(1)), (Some(195), Some(200)));
    assert!(engine.get_used_size() < 200 << 10);
    assert_eq!(engine.get_entry::<MessageExtTyped>(1, 200).unwrap(), Some(entry(200)));
    assert_eq!(engine.get_entry::<MessageExtTyped>(1, 201).unwrap(), None);
    let mut entries = Vec::new();
    assert_eq!(engine.fetch_entries_to::<MessageExtTyped>(1, 195, 201, Some(2500), &mut entries).unwrap(), 2);
    assert_eq!(engine.fetch_entries_to::<MessageExtTyped>(9, 1, 2, None, &mut entries).unwrap(), 0);
    let compacted = engine.fetch_entries_to::<MessageExtTyped>(1, 1, 2, None, &mut entries);
    assert!(matches!(compacted, Err(Error::EntryCompacted)));
    let missing = engine.fetch_entries_to::<MessageExtTyped>(1, 200, 202, None, &mut entries);
    assert!(matches!(missing, Err(Error::EntryNotFound)));
    let mut seen = Vec::new();
    engine
        .scan_messages::<UInt64Value, _>(2, None, None, true, |key, message| {
            seen.push((key.to_vec(), message.value));
            true
        })
        .unwrap();
    assert_eq!(seen, [(b"last_index".to_vec(), 200)]);
    batch.add_command(3, Command::Clean);
    batch.delete(2, b"last_index".to_vec());
    engine.write(&mut batch, true).unwrap();
    assert_eq!(engine.raft_groups(), [1, 2]);
    batch.add_entries::<MessageExtTyped>(1, &[entry(300)]).unwrap();
    assert!(matches!(engine.write(&mut batch, false), Err(Error::InvalidArgument(_))), "no panic");
    drop(engine);
    assert!(Engine::consistency_check(std::path::Path::new(&config.dir)).unwrap().is_empty());
    let target = dir.path().join("fork");
    Engine::fork(&config, Arc::new(DefaultFileSystem), &target).unwrap();
    let fork = Engine::open(Config { dir: target.to_str().unwrap().to_owned(), ..config }).unwrap();
    assert_eq!((fork.last_index(1), fork.get(2, b"last_index")), (Some(200), None));
}

//! A program written against raft-engine: nothing but the import is Esker's.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use esker_raft_engine as raft_engine;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use protobuf::descriptor::UninterpretedOption_NamePart;
use protobuf::well_known_types::{Any, UInt64Value};
use raft_engine::env::{DefaultFileSystem, FileSystem, ObfuscatedFileSystem, Permission};
use raft_engine::internals::{
    EventListener, FileBlockHandle, FileId, FilePipeLog, FileSeq, LogItemContent, LogQueue, OpType, PipeLog,
    PurgeManager,
};
use raft_engine::{Command, Config, Engine, Error, GlobalStats, LogBatch, MessageExt, ReadableSize, RecoveryMode};

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

#[test]
fn an_engine_runs_on_a_file_system_of_the_programs_own() {
    let dir = tempfile::tempdir().unwrap();
    let files = Arc::new(ObfuscatedFileSystem::default());
    let config = Config {
        dir: dir.path().join("log").to_str().unwrap().to_owned(),
        target_file_size: ReadableSize::kb(2),
        purge_threshold: ReadableSize::kb(4),
        batch_compression_threshold: ReadableSize::kb(1),
        ..Default::default()
    };
    let engine = opened(config.clone(), files.clone()).unwrap();
    let mut batch = LogBatch::default();
    for index in 1..=30 {
        batch.add_entries::<MessageExtTyped>(7, &[entry(index), entry(index + 1)]).unwrap();
        batch.put(7, b"key".to_vec(), index.to_string().into_bytes()).unwrap();
        engine.write(&mut batch, true).unwrap();
        if index % 10 == 0 {
            engine.compact_to(7, index - 3);
            engine.purge_expired_files().unwrap();
        }
    }
    let purged = engine.file_span(LogQueue::Append).0;
    assert!(purged > 1 && files.file_count() >= 1);
    drop(engine);

    // Only who knows how finds it again.
    let path = dir.path().join("log");
    assert!(Engine::open(config.clone()).is_err());
    let reopened = Engine::open_with_file_system(config.clone(), files.clone()).unwrap();
    assert_eq!((reopened.first_index(7), reopened.last_index(7)), (Some(27), Some(31)));
    let mut entries = Vec::new();
    reopened.fetch_entries_to::<MessageExtTyped>(7, 27, 32, None, &mut entries).unwrap();
    assert_eq!(entries, (27..32).map(entry).collect::<Vec<_>>());
    drop(reopened);
    assert_eq!(Engine::consistency_check_with_file_system(&path, files.clone()).unwrap(), []);

    let fork = dir.path().join("fork");
    let source = Config { enable_log_recycle: false, ..config.clone() };
    let made = Engine::fork(&source, files.clone(), &fork).unwrap();
    assert!(made.symlinked.is_empty() && !made.copied.is_empty(), "{made:?}");
    let forked = Config { dir: fork.to_str().unwrap().to_owned(), ..source };
    let forked = Engine::open_with_file_system(forked, files).unwrap();
    assert_eq!(forked.get_entry::<MessageExtTyped>(7, 31).unwrap(), Some(entry(31)));
}

#[test]
fn everything_that_was_written_can_be_dumped() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { dir: dir.path().to_str().unwrap().to_owned(), ..Default::default() };
    let engine = Engine::open(config).unwrap();
    let mut batch = LogBatch::default();
    batch.add_entries::<MessageExtTyped>(1, &[entry(5), entry(6)]).unwrap();
    batch.put(2, b"k".to_vec(), b"v".to_vec()).unwrap();
    batch.delete(2, b"k".to_vec());
    engine.write(&mut batch, false).unwrap();
    batch.add_command(1, Command::Compact { index: 6 });
    batch.add_command(2, Command::Clean);
    engine.write(&mut batch, true).unwrap();
    let items: Vec<_> = Engine::dump(dir.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(items.iter().map(|item| item.raft_group_id).collect::<Vec<_>>(), [1, 2, 2, 1, 2]);
    let LogItemContent::EntryIndexes(entries) = &items[0].content else { panic!("{:?}", items[0]) };
    assert_eq!(entries.0.iter().map(|entry| entry.index).collect::<Vec<_>>(), [5, 6]);
    assert_eq!(entries.0[1].entry_offset, entries.0[0].entry_len);
    let block = entries.0[0].entries.unwrap();
    let checksum_bytes = 4;
    assert_eq!(block.len, (entries.0[0].entry_len + entries.0[1].entry_len) as usize + checksum_bytes);
    let LogItemContent::Kv(put) = &items[1].content else { panic!("{:?}", items[1]) };
    assert_eq!((put.op_type, &put.value), (OpType::Put, &Some(b"v".to_vec())));
    assert_eq!(items[3].content, LogItemContent::Command(Command::Compact { index: 6 }));

    // A file alone, and one that is none; damage is an error, and what follows is read.
    let file = dir.path().join("0000000000000001.raftlog");
    assert_eq!(Engine::dump(&file).unwrap().count(), 5);
    assert!(matches!(Engine::dump(&dir.path().join("LOCK")), Err(Error::InvalidArgument(_))));
    assert!(matches!(Engine::dump(&dir.path().join("none")), Err(Error::InvalidArgument(_))));
    drop(engine);
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let items: Vec<_> = Engine::dump(dir.path()).unwrap().collect();
    assert!(items.len() == 4 && matches!(items[3], Err(Error::Corruption(_))), "{items:?}");
}

/// Parts of names, which have fields that must be there.
#[derive(Clone)]
struct Named;

impl MessageExt for Named {
    type Entry = UninterpretedOption_NamePart;

    fn index(_: &Self::Entry) -> u64 {
        1
    }
}

#[test]
fn entries_that_are_not_of_their_type_are_protobufs_errors() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(small_files(dir.path())).unwrap();
    let mut batch = LogBatch::default();
    let unfinished = batch.add_entries::<Named>(1, &[UninterpretedOption_NamePart::new()]);
    assert!(matches!(unfinished, Err(Error::Protobuf(_))) && batch.is_empty(), "{unfinished:?}");
    fill(&engine, 7..=7, 1..=1);
    let mut entries = Vec::new();
    let fetched = engine.fetch_entries_to::<Named>(7, 1, 2, None, &mut entries);
    assert!(matches!(fetched, Err(Error::Protobuf(_))) && entries.is_empty(), "{fetched:?}");
    assert!(matches!(engine.get_entry::<Named>(7, 1), Err(Error::Protobuf(_))));
}

#[test]
fn where_there_is_no_log_none_is_checked_or_forked_and_none_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = dir.path().join("nothing");
    assert!(matches!(Engine::consistency_check(&nothing), Err(Error::InvalidArgument(_))));
    assert_eq!(Engine::consistency_check(dir.path()).unwrap(), []);
    let source = Config { enable_log_recycle: false, ..small_files(&nothing) };
    let refused = Engine::fork(&source, Arc::new(DefaultFileSystem), dir.path().join("fork")).unwrap_err();
    assert!(refused.contains("there is no log"), "{refused}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Goal: a setting that was forgotten makes no log where the process happens to be. The original has the system's error, too.
#[test]
fn a_log_without_a_directory_is_not_opened() {
    let here = |name: &str| std::path::Path::new(name).exists();
    let refused = Engine::open(Config::default()).err();
    assert!(matches!(&refused, Some(Error::Io(error)) if error.kind() == std::io::ErrorKind::NotFound), "{refused:?}");
    assert!(!here("LOCK") && !here("0000000000000001.raftlog"));
}

/// Goal: an error's text says its kind once.
#[test]
fn an_errors_text_says_its_kind_once() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(Config { dir: dir.path().to_str().unwrap().to_owned(), ..Config::default() }).unwrap();
    let mut batch = LogBatch::default();
    batch.add_entries::<MessageExtTyped>(1, &[entry(1)]).unwrap();
    engine.write(&mut batch, false).unwrap();
    batch.add_entries::<MessageExtTyped>(1, &[entry(9)]).unwrap();
    let text = engine.write(&mut batch, false).unwrap_err().to_string();
    assert!(text.starts_with("Invalid Argument: ") && !text.contains("invalid argument"), "{text}");
}

#[test]
fn a_threads_writes_are_timed_part_by_part() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        dir: dir.path().to_str().unwrap().to_owned(),
        target_file_size: ReadableSize::kb(2),
        purge_threshold: ReadableSize::kb(4),
        ..Default::default()
    };
    let engine = Engine::open(config).unwrap();
    raft_engine::take_perf_context();
    let mut batch = LogBatch::default();
    for index in 1..=10 {
        batch.add_entries::<MessageExtTyped>(1, &[entry(index)]).unwrap();
        engine.write(&mut batch, true).unwrap();
    }
    let times = raft_engine::get_perf_context();
    let parts = [
        times.log_populating_duration,
        times.write_wait_duration,
        times.log_write_duration,
        times.log_rotate_duration,
        times.log_sync_duration,
        times.apply_duration,
    ];
    assert!(parts.iter().all(|part| !part.is_zero()), "{times:?}");
    assert!(times.log_write_duration > times.log_rotate_duration, "rotating is a part of writing: {times:?}");
}

/// A store that names both of the engine's parameters, and one that is generic in them.
struct Store {
    engine: Engine<DefaultFileSystem, FilePipeLog<DefaultFileSystem>>,
}

/// Nothing more is asked of a file system than that it is one.
fn opened<F: FileSystem>(config: Config, files: Arc<F>) -> raft_engine::Result<Engine<F>> {
    Engine::open_with_file_system(config, files)
}

fn last<F: FileSystem, P: PipeLog>(engine: &Engine<F, P>) -> Option<u64> {
    engine.last_index(7)
}

fn small_files(dir: &std::path::Path) -> Config {
    Config {
        dir: dir.to_str().unwrap().to_owned(),
        target_file_size: ReadableSize::kb(4),
        purge_threshold: ReadableSize::kb(8),
        batch_compression_threshold: ReadableSize::kb(0),
        ..Default::default()
    }
}

fn fill(engine: &Engine, regions: std::ops::RangeInclusive<u64>, indexes: std::ops::RangeInclusive<u64>) {
    for index in indexes {
        for region in regions.clone() {
            let mut batch = LogBatch::default();
            batch.add_entries::<MessageExtTyped>(region, &[entry(index)]).unwrap();
            batch.put_message(region, b"last_index".to_vec(), &state(index)).unwrap();
            engine.write(&mut batch, false).unwrap();
        }
    }
}

#[test]
fn files_are_given_up_on_demand() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store { engine: Engine::open(small_files(dir.path())).unwrap() };
    fill(&store.engine, 7..=7, 1..=40);
    let manager: &PurgeManager<FilePipeLog<DefaultFileSystem>> = store.engine.purge_manager();
    let (first, end) = store.engine.file_span(LogQueue::Append);
    assert!(end > first + 5);
    manager.must_rewrite_append_queue(Some(first + 2), None);
    assert!(store.engine.file_span(LogQueue::Append).0 > first + 2);
    manager.must_rewrite_append_queue(None, None);
    assert_eq!(store.engine.file_span(LogQueue::Append), (end + 1, end + 1));
    manager.must_rewrite_rewrite_queue();
    assert_eq!(last(&store.engine), Some(40));
    store.engine.compact_to(7, 40);
    store.engine.write(&mut clean(7), false).unwrap();
    manager.must_purge_all_stale();
    assert_eq!(manager.purge_expired_files().unwrap(), [0; 0]);
    let (first, end) = store.engine.file_span(LogQueue::Append);
    assert_eq!(first, end, "nobody needs any of them");

    let stats = GlobalStats::default();
    stats.add(LogQueue::Append, 3);
    stats.add(LogQueue::Rewrite, 5);
    stats.delete(LogQueue::Append, 1);
    stats.delete(LogQueue::Rewrite, 2);
    assert_eq!((stats.live_entries(LogQueue::Append), stats.live_entries(LogQueue::Rewrite)), (2, 3));
    stats.reset_rewrite_counters();
    assert_eq!((stats.rewrite_entries(), stats.deleted_rewrite_entries()), (3, 0));
}

/// Counts for each file what was written and is not visible yet, as the original's own listener does for the append queue.
#[derive(Default)]
struct Counts(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    files: BTreeMap<(bool, FileSeq), i64>,
    appended: BTreeMap<(bool, FileSeq), Vec<(u64, usize)>>,
    purged: Vec<FileId>,
    /// The first file that is not ready to be purged, beside those that are counted.
    held: Option<FileSeq>,
    asked: usize,
}

fn key(file: FileId) -> (bool, FileSeq) {
    (file.queue == LogQueue::Rewrite, file.seq)
}

impl EventListener for Counts {
    fn post_new_log_file(&self, file: FileId) {
        let mut counted = self.0.lock().unwrap();
        let (is_rewritten, number) = key(file);
        let last = counted.files.keys().rfind(|(queue, _)| *queue == is_rewritten).map(|(_, number)| *number);
        assert!(last.is_none_or(|last| last + 1 == number), "{last:?}, then {file:?}");
        counted.files.insert(key(file), 0);
    }

    fn on_append_log_file(&self, handle: FileBlockHandle) {
        let mut counted = self.0.lock().unwrap();
        // A file that was not told of, or was purged, is a failure.
        *counted.files.get_mut(&key(handle.id)).unwrap() += 1;
        counted.appended.entry(key(handle.id)).or_default().push((handle.offset, handle.len));
    }

    fn post_apply_memtables(&self, file: FileId) {
        let mut counted = self.0.lock().unwrap();
        let count = counted.files.get_mut(&key(file)).unwrap();
        *count -= 1;
        assert!(*count >= 0, "{file:?}");
    }

    fn first_file_not_ready_for_purge(&self, queue: LogQueue) -> Option<FileSeq> {
        let mut counted = self.0.lock().unwrap();
        counted.asked += 1;
        let unready = counted
            .files
            .iter()
            .find(|((is_rewritten, _), count)| *is_rewritten == (queue == LogQueue::Rewrite) && **count > 0);
        let unready = unready.map(|((_, number), _)| *number);
        [unready, counted.held].into_iter().flatten().min()
    }

    fn post_purge(&self, file: FileId) {
        let mut counted = self.0.lock().unwrap();
        let (is_rewritten, last) = key(file);
        counted.files.retain(|(queue, number), _| *queue != is_rewritten || *number > last);
        counted.purged.push(file);
    }
}

/// Every batch that a listener hears of becomes visible, in either queue, also where the rewrite queue is told only of what is gone.
#[test]
fn a_listener_hears_of_every_file_and_of_both_ends_of_every_batch() {
    let dir = tempfile::tempdir().unwrap();
    let counts = Arc::new(Counts::default());
    let open = || Engine::open_with_listeners(small_files(dir.path()), vec![counts.clone()]).unwrap();
    let engine = open();
    let settled = |what: &str| {
        let counted = counts.0.lock().unwrap();
        assert!(counted.files.values().all(|count| *count == 0), "{what}: {:?}", counted.files);
    };
    let manager = engine.purge_manager();
    fill(&engine, 1..=3, 1..=10);
    settled("written");
    let held = engine.file_span(LogQueue::Append).0 + 2;
    counts.0.lock().unwrap().held = Some(held);
    manager.must_rewrite_append_queue(None, None);
    assert_eq!(engine.file_span(LogQueue::Append).0, held, "a listener holds files back");
    counts.0.lock().unwrap().held = None;
    settled("moved");
    // Nothing is moved of these: the rewrite queue hears that they are gone.
    engine.write(&mut clean(1), false).unwrap();
    engine.compact_to(2, 8);
    let mut batch = LogBatch::default();
    batch.delete(3, b"last_index".to_vec());
    engine.write(&mut batch, false).unwrap();
    let before = counts.0.lock().unwrap().appended.values().map(Vec::len).sum::<usize>();
    manager.must_purge_all_stale();
    let after = counts.0.lock().unwrap().appended.values().map(Vec::len).sum::<usize>();
    assert_eq!(after, before + 1);
    settled("told of what is gone");
    manager.must_rewrite_rewrite_queue();
    settled("rewritten");
    fill(&engine, 4..=4, 1..=30);
    engine.purge_expired_files().unwrap();
    settled("purged");
    {
        let counted = counts.0.lock().unwrap();
        assert!(counted.asked > 0);
        let first_left = |queue| engine.file_span(queue).0;
        for queue in [LogQueue::Append, LogQueue::Rewrite] {
            let last = counted.purged.iter().rfind(|file| file.queue == queue).unwrap();
            assert_eq!(last.seq + 1, first_left(queue));
        }
        for batches in counted.appended.values() {
            let ends = batches.iter().map(|(offset, len)| offset + *len as u64);
            assert!(ends.zip(&batches[1..]).all(|(end, (next, _))| end == *next), "one behind the other: {batches:?}");
        }
    }
    drop(engine);
    *counts.0.lock().unwrap() = Counted::default();
    let engine = open();
    let found: Vec<_> = counts.0.lock().unwrap().files.keys().copied().collect();
    let spans = [LogQueue::Append, LogQueue::Rewrite].map(|queue| engine.file_span(queue));
    let expected =
        |(is_rewritten, (first, last)): (bool, (u64, u64))| (first..=last).map(move |number| (is_rewritten, number));
    assert_eq!(
        found,
        [false, true].into_iter().zip(spans).flat_map(expected).collect::<Vec<_>>(),
        "those that were found"
    );
}

/// The machine's file system, which keeps something about some files, also when they are gone, and counts reads.
#[derive(Default)]
struct Remembers {
    files: DefaultFileSystem,
    kept: Mutex<BTreeSet<PathBuf>>,
    fails: AtomicBool,
    reads: Arc<AtomicUsize>,
}

/// A reader that counts where it is set to.
struct Counting(<DefaultFileSystem as FileSystem>::Reader, Arc<AtomicUsize>);

impl Seek for Counting {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.seek(to)
    }
}

impl Read for Counting {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(bytes)
    }
}

impl FileSystem for Remembers {
    type Handle = <DefaultFileSystem as FileSystem>::Handle;
    type Reader = Counting;
    type Writer = <DefaultFileSystem as FileSystem>::Writer;

    fn create<P: AsRef<Path>>(&self, path: P) -> std::io::Result<Self::Handle> {
        self.files.create(path)
    }

    fn open<P: AsRef<Path>>(&self, path: P, permission: Permission) -> std::io::Result<Self::Handle> {
        self.files.open(path, permission)
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> std::io::Result<()> {
        self.files.delete(path)
    }

    fn rename<P: AsRef<Path>>(&self, from: P, to: P) -> std::io::Result<()> {
        self.files.rename(from, to)
    }

    fn delete_metadata<P: AsRef<Path>>(&self, path: P) -> std::io::Result<()> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(std::io::ErrorKind::PermissionDenied.into());
        }
        self.kept.lock().unwrap().remove(path.as_ref());
        Ok(())
    }

    fn exists_metadata<P: AsRef<Path>>(&self, path: P) -> bool {
        self.kept.lock().unwrap().contains(path.as_ref())
    }

    fn new_reader(&self, handle: Arc<Self::Handle>) -> std::io::Result<Self::Reader> {
        Ok(Counting(self.files.new_reader(handle)?, Arc::clone(&self.reads)))
    }

    fn new_writer(&self, handle: Arc<Self::Handle>) -> std::io::Result<Self::Writer> {
        self.files.new_writer(handle)
    }
}

/// Whatever a file system keeps about files that are gone goes, in both directories, beyond holes; that it cannot go is no error.
#[test]
fn what_is_kept_about_files_that_are_gone_goes() {
    let dir = tempfile::tempdir().unwrap();
    let spill = dir.path().join("spill");
    let config = Config { spill_dir: Some(spill.to_str().unwrap().to_owned()), ..small_files(&dir.path().join("log")) };
    let files = Arc::new(Remembers::default());
    let engine = Engine::open(config.clone()).unwrap();
    fill(&engine, 7..=7, 1..=40);
    engine.purge_manager().must_rewrite_append_queue(None, None);
    let (first, _) = engine.file_span(LogQueue::Append);
    assert!(first > 8);
    drop(engine);
    let name = |number: u64| format!("{number:016}.raftlog");
    let log = Path::new(&config.dir);
    let gone = [log.join(name(first - 1)), log.join(name(first - 5)), spill.join(name(first - 3)), log.join(name(1))];
    *files.kept.lock().unwrap() = gone.into_iter().chain([log.join(name(first))]).collect();
    files.fails.store(true, Ordering::Relaxed);
    drop(Engine::open_with_file_system(config.clone(), files.clone()).unwrap());
    assert_eq!(files.kept.lock().unwrap().len(), 5);
    files.fails.store(false, Ordering::Relaxed);
    drop(Engine::open_with_file_system(config.clone(), files.clone()).unwrap());
    assert_eq!(files.kept.lock().unwrap().iter().collect::<Vec<_>>(), [&log.join(name(first))]);
}

/// A fetch reads each packed batch, and unpacks it, once, however many entries it has, and whatever lies between them. The next takes none again.
#[test]
fn a_fetch_unpacks_each_batch_once() {
    const BATCHES: u64 = 20;
    // A short one is read by one call.
    const READS_OF_A_BATCH: usize = 1;
    let dir = tempfile::tempdir().unwrap();
    let config = Config { batch_compression_threshold: ReadableSize::kb(1), ..small_files(dir.path()) };
    let files = Arc::new(Remembers::default());
    let open = || Engine::open_with_file_system(config.clone(), files.clone()).unwrap();
    let engine = open();
    for batch in 0..BATCHES {
        let first = 1 + batch * 6;
        let mut batch = LogBatch::default();
        for from in [first, first + 3] {
            let entries: Vec<_> = (from..from + 3).map(entry).collect();
            batch.add_entries::<MessageExtTyped>(7, &entries).unwrap();
            batch.add_entries::<MessageExtTyped>(8, &entries).unwrap();
        }
        assert!(engine.write(&mut batch, false).unwrap() < 4 << 10, "it is packed");
    }
    drop(engine);
    let end = 1 + BATCHES * 6;
    let fetch = |engine: &Engine<Remembers>, max_size| {
        let (before, mut entries) = (files.reads.load(Ordering::Relaxed), Vec::new());
        engine.fetch_entries_to::<MessageExtTyped>(7, 1, end, max_size, &mut entries).unwrap();
        assert!(entries.into_iter().eq((1..end).map(entry)));
        files.reads.load(Ordering::Relaxed) - before
    };
    for max_size in [None, Some(usize::MAX)] {
        let engine = open();
        assert_eq!(fetch(&engine, max_size), BATCHES as usize * READS_OF_A_BATCH, "{max_size:?}");
        assert_eq!(fetch(&engine, max_size), 0, "{max_size:?}, again");
    }
}

/// What `compact_to` writes is a write of this thread's, too.
#[test]
fn compacting_is_timed() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(small_files(dir.path())).unwrap();
    fill(&engine, 1..=1, 1..=10);
    raft_engine::take_perf_context();
    assert_eq!((engine.compact_to(1, 1), engine.compact_to(9, 5)), (0, 0));
    assert!(raft_engine::get_perf_context().log_write_duration.is_zero(), "nothing was written");
    assert_eq!(engine.compact_to(1, 4), 3);
    let times = raft_engine::take_perf_context();
    assert!(!times.log_write_duration.is_zero() && !times.apply_duration.is_zero(), "{times:?}");
}

/// The original counts from the first index to where it is then, though there were fewer entries.
#[test]
fn compacting_says_how_far_the_first_index_went_up() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(small_files(dir.path())).unwrap();
    fill(&engine, 1..=2, 1..=10);
    assert_eq!((engine.compact_to(1, 4), engine.compact_to(1, 4), engine.compact_to(1, 2)), (3, 0, 0));
    assert_eq!((engine.compact_to(1, 100), engine.compact_to(1, 200)), (96, 0));
    assert_eq!((engine.compact_to(2, 100), engine.compact_to(3, 100)), (99, 0));
}

/// The original refuses one key of those that it calls internal; any other with their prefix is a user's.
#[test]
fn one_key_is_reserved() {
    let mut batch = LogBatch::default();
    assert!(matches!(batch.put(1, b"__\x01".to_vec(), Vec::new()), Err(Error::InvalidArgument(_))));
    for key in [&b"__"[..], b"__x", b"__\x01x", b"__\x02"] {
        batch.put(1, key.to_vec(), Vec::new()).unwrap();
    }
}

fn clean(region: u64) -> LogBatch {
    let mut batch = LogBatch::default();
    batch.add_command(region, Command::Clean);
    batch
}

#[cfg(feature = "scripting")]
mod scripts {
    use super::*;

    fn regions(dir: &std::path::Path) -> Vec<(u64, Option<u64>, Option<u64>)> {
        let engine = Engine::open(small_files(dir)).unwrap();
        let span = |region| (region, engine.first_index(region), engine.last_index(region));
        (1..=4).map(span).collect()
    }

    fn log() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(small_files(dir.path())).unwrap();
        fill(&engine, 1..=4, 1..=10);
        engine.compact_to(4, 6);
        dir
    }

    #[test]
    fn a_script_takes_items_out() {
        let whole = log();
        let before = regions(whole.path());
        Engine::unsafe_repair(whole.path(), None, String::new()).unwrap();
        assert_eq!(regions(whole.path()), before, "a script without functions changes nothing");

        let script = "
            fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast) {
                if id == 1 { return 1; }
                if id == 2 && ifirst == 5 && first == 1 && count == 4 { return 2; }
                0
            }
            fn filter_compact(id, first, count, rewrite_count, queue, compact_to) {
                if id == 4 && compact_to == 6 && first == 1 && count == 10 && queue == 0 { 1 } else { 0 }
            }";
        Engine::unsafe_repair(whole.path(), Some(LogQueue::Append), script.to_owned()).unwrap();
        let after = [(1, None, None), (2, Some(5), Some(10)), (3, Some(1), Some(10)), (4, Some(1), Some(10))];
        assert_eq!(regions(whole.path()), after);
        let engine = Engine::open(small_files(whole.path())).unwrap();
        assert_eq!(engine.get_entry::<MessageExtTyped>(2, 7).unwrap(), Some(entry(7)));
        assert_eq!(engine.get_message::<UInt64Value>(1, b"last_index").unwrap(), Some(state(10)), "keys stay");
    }

    #[test]
    fn what_is_wrong_with_a_script_is_told_and_changes_nothing() {
        let whole = log();
        let before = regions(whole.path());
        let open = Engine::open(small_files(whole.path())).unwrap();
        assert!(Engine::unsafe_repair(whole.path(), None, String::new()).is_err(), "the log is open");
        drop(open);
        for script in [
            "fn filter_append(",
            "fn filter_append(a, b, c, d, e, f, g) { 3 }",
            "fn filter_append(a, b, c, d, e, f, g) { nobody(a) }",
        ] {
            let error = Engine::unsafe_repair(whole.path(), None, script.to_owned()).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{script}: {error}");
        }
        let nowhere = whole.path().join("nowhere");
        assert!(Engine::unsafe_repair(&nowhere, None, String::new()).is_err() && !nowhere.exists());
        assert_eq!(regions(whole.path()), before);
    }
}

/// Goal: a child that is forked while a log is open is refused whatever can be refused, keys too.
#[test]
fn a_child_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { dir: dir.path().to_str().unwrap().to_owned(), ..Config::default() };
    let engine = Engine::open(config).unwrap();
    let mut batch = LogBatch::default();
    batch.add_entries::<MessageExtTyped>(1, &[entry(1)]).unwrap();
    batch.put_message(1, b"key".to_vec(), &state(1)).unwrap();
    engine.write(&mut batch, false).unwrap();
    let said = esker_torture::forked::in_a_child(|| {
        let refused = [
            engine.get_message::<UInt64Value>(1, b"key").map(drop),
            engine.scan_messages::<UInt64Value, _>(1, None, None, false, |_, _| true),
            engine.scan_raw_messages(1, None, None, true, |_, _| true),
            engine.get_entry::<MessageExtTyped>(1, 1).map(drop),
            engine.fetch_entries_to::<MessageExtTyped>(1, 1, 2, None, &mut Vec::new()).map(drop),
            engine.write(&mut LogBatch::default(), true).map(drop),
            engine.sync(),
            engine.purge_expired_files().map(drop),
            engine.purge_manager().purge_expired_files().map(drop),
        ];
        let kept = refused.iter().filter(|answer| !matches!(answer, Err(Error::Other(_))));
        format!("{:?}", kept.collect::<Vec<_>>())
    });
    assert_eq!(said, "[]");
    assert_eq!(engine.get_message::<UInt64Value>(1, b"key").unwrap(), Some(state(1)));
    assert_eq!(engine.get_entry::<MessageExtTyped>(1, 1).unwrap(), Some(entry(1)));
}

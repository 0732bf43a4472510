//! Whole directories: each engine opens what edits left of a store of its own, reads all of it, works on, closes, and opens it again.
//! Any of it may be refused with an error; nothing may panic, hang, or take memory without bound.

use std::sync::OnceLock;

use esker::env::sim::SimDisk;
use esker::raft::Version;
use esker::{
    Cask, CaskBatch, CaskDamage, CaskOptions, CaskWriteOptions, ChecksumKind, Compression, Db, FamilyOptions, LogBatch,
    Options, RaftLog, ReadOptions, ReclaimMode, Separation, WriteBatch, WriteOptions,
};

use super::image::{Image, read};
use crate::model::{backward, forward};

const STORE: &str = "/store";

/// The images of an engine, made once.
pub(super) fn images(kind: &str) -> &'static [Image] {
    static IMAGES: [OnceLock<Vec<Image>>; 3] = [const { OnceLock::new() }; 3];
    match kind {
        "open_db" => {
            IMAGES[0].get_or_init(|| vec![db_image(Shape::Open), db_image(Shape::Closed), db_image(Shape::AtWrite)])
        }
        "open_cask" => IMAGES[1].get_or_init(|| vec![cask_image(1), cask_image(3)]),
        "open_raft_log" => IMAGES[2].get_or_init(|| vec![raft_image(Version::V2), raft_image(Version::V1)]),
        _ => &[],
    }
}

fn edited(kind: &str, bytes: &[u8]) -> Option<(SimDisk, u8)> {
    let (wish, edits) = read(bytes)?;
    let images = images(kind);
    let image = images.get(usize::from(wish.image) % images.len())?;
    Some((image.edited(edits, wish.flags & 2 != 0), wish.flags))
}

/// What the process that wrote a Db left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A log with writes.
    Open,
    /// A clean end, and packed blocks and values.
    Closed,
    /// A log that points into blob files that were not ended.
    AtWrite,
}

fn db_options(shape: Shape) -> Options {
    let closed = shape == Shape::Closed;
    let family = FamilyOptions {
        separation: if shape == Shape::AtWrite { Separation::AtWrite } else { Separation::AtFlush },
        min_blob_size: 200,
        write_buffer_bytes: 64 << 10,
        block_bytes: 256,
        compression: if closed { Compression::Lz4 } else { Compression::None },
        blob_compression: if closed { Compression::Zstd } else { Compression::None },
        checksum: if closed { ChecksumKind::Xxh3 } else { ChecksumKind::Crc32c },
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        background_jobs: 0,
        cache_bytes: 1 << 20,
        reclaim_mode: ReclaimMode::Manual,
        families: [("default".to_owned(), family.clone()), ("second".to_owned(), family)].into(),
        ..Options::default()
    }
}

/// Tables in two levels, blob files with garbage, two families; a log with writes, or a clean end.
fn db_image(shape: Shape) -> Image {
    let (disk, options) = (SimDisk::new(), db_options(shape));
    let db = Db::open_with_env(STORE, options.clone(), disk.env()).expect("a fresh disk");
    let second = db.create_column_family("second", options.families["second"].clone()).expect("a new name");
    for round in 0..4u8 {
        let mut batch = WriteBatch::new();
        for n in (0..12u8).filter(|n| n % (round + 1) == 0) {
            batch.put([b'k', n], vec![round; usize::from(n) * 40]).expect("short");
        }
        batch.delete([b'k', round]).expect("short");
        batch.put_cf(&second, [round], b"second").expect("short");
        db.write(batch, &WriteOptions { sync: true, ..WriteOptions::default() }).expect("a healthy disk");
        match round {
            0 => db.compact_range(&db.default_column_family(), None, None).expect("a healthy disk"),
            1 | 2 => db.flush().expect("a healthy disk"),
            // Values and pointers that no table has.
            _ if shape == Shape::AtWrite => {
                (20..26u8).for_each(|n| db.put([b'k', n], vec![n; 250]).expect("a healthy disk"));
            }
            _ => {}
        }
    }
    if shape == Shape::Closed {
        db.close().expect("a healthy disk");
        return Image::new(&disk);
    }
    Image::new(&disk)
}

/// The ordered engine.
pub(super) fn db(bytes: &[u8]) {
    let Some((disk, flags)) = edited("open_db", bytes) else { return };
    let shapes = [Shape::Open, Shape::Closed, Shape::AtWrite];
    let mut options = db_options(shapes[usize::from(flags >> 3) % shapes.len()]);
    options.wal_recovery = match flags & 5 {
        0 => esker::RecoveryMode::PointInTime,
        1 => esker::RecoveryMode::SkipCorrupt,
        4 => esker::RecoveryMode::AbsoluteConsistency,
        _ => esker::RecoveryMode::TolerateTornTail,
    };
    for _ in 0..2 {
        let Ok(db) = Db::open_with_env(STORE, options.clone(), disk.env()) else { return };
        for family in db.column_families() {
            let _ = forward(&db, &family, &ReadOptions::default());
            let _ = backward(&db, &family, &ReadOptions::default());
        }
        for n in 0..12u8 {
            let _ = (db.get([b'k', n]), db.value_len([b'k', n]), db.get_range([b'k', n], 1..9));
        }
        let _ = db.check(&mut |_| {});
        let _ = (db.stats(), db.reclaim_plan(&db.default_column_family(), 0.1));
        let _ = db.put("k\u{3}", vec![7; 300]);
        let _ = db.flush();
        let _ = db.reclaim(&db.default_column_family(), 0.1);
        let _ = db.compact_range(&db.default_column_family(), None, None);
        let _ = db.close();
    }
}

fn cask_options(keep_versions: usize) -> CaskOptions {
    CaskOptions {
        create_if_missing: true,
        stripes: 2,
        file_bytes: 4 << 10,
        keep_versions,
        compression: if keep_versions > 1 { Compression::Lz4 } else { Compression::None },
        compression_bytes_min: 100,
        background_jobs: 0,
        open_threads: 0,
        ..CaskOptions::default()
    }
}

/// Sealed files with hints and files that grow; tombstones, batches, values that expire.
fn cask_image(keep_versions: usize) -> Image {
    let disk = SimDisk::new();
    let cask = Cask::open_with_env(STORE, cask_options(keep_versions), disk.env()).expect("a fresh disk");
    let brief = Some(std::time::Duration::from_secs(3600));
    for n in 0..90u8 {
        let key = [b'k', n % 30];
        // A thread keeps to one stripe by itself.
        let plain = CaskWriteOptions { stripe: Some(n.into()), ..CaskWriteOptions::default() };
        match n % 9 {
            3 => drop(cask.delete_with(key, &plain).expect("a healthy disk")),
            4 => {
                let options = CaskWriteOptions { ttl: brief, ..plain };
                cask.put_with(key, vec![n; 40], &options).map(drop).expect("a healthy disk");
            }
            5 => {
                let mut batch = CaskBatch::new();
                batch.put(key, vec![n; 200]).expect("short");
                batch.delete([b'k', (n + 1) % 30]).expect("short");
                cask.write(&batch, &plain).expect("a healthy disk");
            }
            _ => drop(cask.put_with(key, vec![n; usize::from(n) * 3], &plain).expect("a healthy disk")),
        }
    }
    cask.sync().expect("a healthy disk");
    Image::new(&disk)
}

/// The hash engine.
pub(super) fn cask(bytes: &[u8]) {
    let Some((disk, flags)) = edited("open_cask", bytes) else { return };
    if flags & 8 != 0 {
        let _ = Cask::repair_with_env(STORE, &disk.env());
    }
    for _ in 0..2 {
        let damage = if flags & 2 == 0 { CaskDamage::Serve } else { CaskDamage::Refuse };
        let options = CaskOptions { damage, ..cask_options(if flags & 4 == 0 { 1 } else { 3 }) };
        let Ok(cask) = Cask::open_with_env(STORE, options, disk.env()) else { return };
        for n in 0..30u8 {
            let _ = (cask.get([b'k', n]), cask.value_len([b'k', n]), cask.history([b'k', n]));
        }
        if let Ok(mut scan) = cask.scan() {
            while scan.advance().unwrap_or(false) {
                let _ = scan.value().map(drop);
                let _ = scan.version();
            }
        }
        let _ = cask.check(&mut |_| {});
        let _ = (cask.len(), cask.stats(), cask.put("k\u{3}", vec![7; 300]), cask.delete("k\u{7}"));
        let _ = cask.compact();
        let _ = cask.close();
    }
}

fn raft_options(version: Version) -> esker::raft::Options {
    esker::raft::Options {
        recovery_threads: 1,
        compress_from_bytes: 300,
        format_version: version,
        file_bytes: 2 << 10,
        purge_threshold_bytes: 8 << 10,
        recycle_files: version == Version::V2,
        ..esker::raft::Options::default()
    }
}

/// Both queues, recycled files, groups with entries, keys and neither.
fn raft_image(version: Version) -> Image {
    let disk = SimDisk::new();
    let log = RaftLog::open_with_env(STORE, raft_options(version), disk.env()).expect("a fresh disk");
    let mut batch = LogBatch::new();
    for n in 0..40u64 {
        let group = n % 4 + 1;
        let next = log.last_index(group).map_or(5, |last| last + 1);
        batch.add_entries(group, next, [vec![n as u8; 40], vec![n as u8; 500 - n as usize * 10]]).expect("short");
        batch.put(group, b"state", &n.to_le_bytes()).expect("short");
        match n {
            12 | 24 => batch.compact(1, next.saturating_sub(2)),
            30 => batch.clean(3),
            31 => batch.delete(2, b"state"),
            _ => {}
        }
        log.write(&mut batch, n % 3 == 0).expect("a healthy disk");
        if n == 20 {
            log.move_on(None).expect("a healthy disk");
            log.purge().expect("a healthy disk");
        }
    }
    log.sync().expect("a healthy disk");
    Image::new(&disk)
}

/// The Raft log.
pub(super) fn raft_log(bytes: &[u8]) {
    use esker::raft::RecoveryMode::{AbsoluteConsistency, TolerateAny, TolerateTail};
    let Some((disk, flags)) = edited("open_raft_log", bytes) else { return };
    let recovery_mode = match flags & 5 {
        0 => TolerateTail,
        1 | 5 => TolerateAny,
        _ => AbsoluteConsistency,
    };
    for _ in 0..2 {
        let options = esker::raft::Options { recovery_mode, ..raft_options(Version::V2) };
        let _ = RaftLog::check_with_env(STORE, &options, &disk.env(), &mut |_, _| {});
        let Ok(log) = RaftLog::open_with_env(STORE, options, disk.env()) else { return };
        let mut batch = LogBatch::new();
        for group in log.groups().into_iter().take(20) {
            if let Some((first, last)) = log.first_index(group).zip(log.last_index(group)) {
                let _ = log.entries(group, first, last.saturating_add(1).min(first.saturating_add(200)), Some(1 << 20));
                let _ = (log.entry(group, first), log.entry(group, last));
                let _ = batch.add_entries(group, last.saturating_add(1), [b"more"]);
            }
            let _ = log.keys(group, None, None);
        }
        let _ = log.write(&mut batch, true);
        let _ = (log.stats(), log.move_on(None), log.purge(), log.rewrite_again());
        let _ = log.close();
    }
}

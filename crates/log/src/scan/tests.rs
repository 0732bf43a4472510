use std::path::Path;
use std::result::Result;

use esker_env::sim::{Fault, SimDisk, Survivors};
use esker_format::checksum::{crc32c, mask};
use esker_format::compression::{Compression, compress};
use esker_format::rocksdb::log::Framer;
use esker_format::varint;

use super::*;
use crate::ErrorKind;
use crate::writer::LogWriter;

const PATH: &str = "/000007.log";
const MODES: [RecoveryMode; 4] = [
    RecoveryMode::AbsoluteConsistency,
    RecoveryMode::TolerateTornTail,
    RecoveryMode::PointInTime,
    RecoveryMode::SkipCorrupt,
];

/// SplitMix64: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Bytes that no single flipped bit makes zero: the rule does not see rot that looks like a missing sector.
    fn payload(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.next() as u8) | 0x82).collect()
    }
}

/// What a scan finds.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    records: Vec<Vec<u8>>,
    end: Result<LogEnd, ErrorKind>,
    skipped: (u64, u64),
}

fn scan_as(disk: &SimDisk, mode: RecoveryMode, is_last: bool) -> Found {
    let mut scanner = Scanner::open(disk, Path::new(PATH), mode, is_last, 7).unwrap();
    let mut records = Vec::new();
    let end = loop {
        match scanner.next() {
            Ok(Some((_, record))) => records.push(record.to_vec()),
            Ok(None) => break Ok(scanner.end()),
            Err(error) => {
                assert_eq!(error.path(), Some(Path::new(PATH)));
                assert!(error.offset().is_some());
                assert_eq!(scanner.next().unwrap_err().kind(), error.kind(), "the same again");
                break Err(error.kind());
            }
        }
    };
    Found { records, end, skipped: (scanner.skipped_count(), scanner.skipped_bytes()) }
}

fn scan(disk: &SimDisk, mode: RecoveryMode) -> Found {
    scan_as(disk, mode, true)
}

fn disk_with(bytes: Vec<u8>) -> SimDisk {
    let disk = SimDisk::new();
    disk.overwrite(Path::new(PATH), bytes);
    disk
}

fn framed(records: &[&[u8]]) -> Vec<u8> {
    let (mut framer, mut out) = (Framer::new(0), Vec::new());
    for record in records {
        framer.frame(record, &mut out);
    }
    out
}

/// A recyclable fragment of log `number`.
fn recyclable(type_byte: u8, number: u32, payload: &[u8]) -> Vec<u8> {
    let mut covered = vec![type_byte];
    covered.extend_from_slice(&number.to_le_bytes());
    covered.extend_from_slice(payload);
    let mut out = mask(crc32c(&covered)).to_le_bytes().to_vec();
    out.extend_from_slice(&(payload.len() as u16).to_le_bytes());
    out.extend_from_slice(&covered);
    out
}

fn clean(offset: usize) -> Result<LogEnd, ErrorKind> {
    Ok(LogEnd::Clean { offset: offset as u64 })
}

/// A log that was being written when the power went.
struct History {
    disk: SimDisk,
    records: Vec<Vec<u8>>,
    synced_count: usize,
    synced_bytes: u64,
}

impl History {
    /// Appends, groups, syncs and failed appends, `steps` of them; records up to `record_bytes_max`, mostly small.
    fn new(seed: u64, steps: usize, record_bytes_max: usize) -> Self {
        let disk = SimDisk::new();
        let random = &mut Random(seed);
        let file = disk.create(Path::new(PATH)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        if seed.is_multiple_of(2) {
            file.preallocate(random.below(400_000) as u64).unwrap();
        }
        let mut writer = LogWriter::new(file);
        let mut made = Self { disk, records: Vec::new(), synced_count: 0, synced_bytes: 0 };
        for _ in 0..steps {
            let record_bytes = match random.below(10) {
                0 => 1 + random.below(record_bytes_max),
                // Just about what is left of the block.
                1 => (BLOCK_BYTES - writer.len() as usize % BLOCK_BYTES + 4).saturating_sub(random.below(20)).max(1),
                _ => 1 + random.below(record_bytes_max.min(900)),
            };
            let record = random.payload(record_bytes);
            match random.below(12) {
                0..2 => {
                    writer.sync().unwrap();
                    (made.synced_count, made.synced_bytes) = (made.records.len(), writer.len());
                }
                2 => {
                    let kept_bytes = random.below(record_bytes + 7);
                    made.disk.fail_at(made.disk.op_count(), Fault::ShortWrite { kept_bytes });
                    writer.append(&[&record]).unwrap_err();
                }
                3 => {
                    let second_bytes = 1 + random.below(50);
                    let second = random.payload(second_bytes);
                    writer.append_all([&record[..], &second]).unwrap();
                    made.records.extend([record, second]);
                }
                _ => {
                    writer.append(&[&record]).unwrap();
                    made.records.push(record);
                }
            }
        }
        made
    }

    /// The log as power losses leave it, `count` of them.
    fn crashed(&self, count: u64) -> impl Iterator<Item = SimDisk> + '_ {
        let samples = (0..count).map(|seed| Survivors::Sample { seed });
        let all = [Survivors::Nothing, Survivors::Everything].into_iter().chain(samples);
        all.map(|survivors| self.disk.after_power_loss(survivors))
    }
}

#[test]
fn whole_logs_end_cleanly_in_every_mode() {
    let random = &mut Random(1);
    for record_bytes in [0, 1, 100, 5000, 32_761, 40_000, 100_000] {
        let records: Vec<_> = (0..20).map(|_| random.payload(record_bytes)).collect();
        let bytes = framed(&records.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let len = bytes.len();
        let disk = disk_with(bytes);
        for mode in MODES {
            let found = scan_as(&disk, mode, false);
            assert_eq!(found, Found { records: records.clone(), end: clean(len), skipped: (0, 0) });
        }
    }
}

#[test]
fn records_begin_where_the_scan_says() {
    let disk = SimDisk::new();
    let mut writer = LogWriter::new(disk.create(Path::new(PATH)).unwrap());
    let random = &mut Random(2);
    let expected: Vec<_> = (0..300)
        .map(|_| {
            let record_bytes = random.below(3000);
            let record = random.payload(record_bytes);
            (writer.append(&[&record]).unwrap(), record)
        })
        .collect();
    let mut scanner = Scanner::open(&disk, Path::new(PATH), RecoveryMode::default(), true, 7).unwrap();
    assert_eq!(scanner.end(), LogEnd::NotReached);
    for (offset, record) in expected {
        assert_eq!(scanner.next().unwrap(), Some((offset, &record[..])));
    }
    assert_eq!(scanner.next().unwrap(), None);
}

/// Goal: whoever begins at a record finds what a scan from the start finds from there on; in a recycled log, too, whose records say only by themselves that it
/// is one.
#[test]
fn a_scan_from_a_record_on_finds_the_rest() {
    let mut random = Random(3);
    let records: Vec<Vec<u8>> = (0..200).map(|n| random.payload([40, 900, 32 << 10, 70_000][n % 4])).collect();
    for is_recycled in [false, true] {
        let disk = SimDisk::new();
        let file = disk.env().files.create(Path::new(PATH)).unwrap();
        let mut log = if is_recycled { LogWriter::recyclable(file, 7) } else { LogWriter::new(file) };
        for record in &records {
            log.append(&[record]).unwrap();
        }
        let mut bytes = disk.file_bytes(Path::new(PATH)).unwrap();
        // A former life, and what was only allocated.
        bytes.extend(if is_recycled { recyclable(5, 6, b"former") } else { vec![0; 100_000] });
        let disk = disk_with(bytes);
        let open = || Scanner::open(&disk, Path::new(PATH), RecoveryMode::PointInTime, true, 7).unwrap();
        let (mut whole, mut offsets) = (open(), Vec::new());
        while let Some((offset, _)) = whole.next().unwrap() {
            offsets.push(offset);
        }
        assert_eq!(offsets.len(), records.len());
        for (n, &start) in offsets.iter().enumerate() {
            let mut scanner = open().from(start).unwrap();
            for (offset, record) in offsets.iter().zip(&records).skip(n).take(3) {
                assert_eq!(scanner.next().unwrap(), Some((*offset, &record[..])));
            }
            while scanner.next().unwrap().is_some() {}
            assert_eq!(scanner.end(), whole.end(), "from record {n} on, recycled: {is_recycled}");
        }
    }
}

/// A log as RocksDB's `wal_compression` writes it: what packs these says so first.
fn packed(records: &[Vec<u8>], packs: u8) -> Vec<u8> {
    let covered = [9, packs, 0, 0, 0];
    let mut log = mask(crc32c(&covered)).to_le_bytes().to_vec();
    log.extend_from_slice(&[4, 0]);
    log.extend_from_slice(&covered);
    let mut framer = Framer::new(log.len());
    for record in records {
        let mut frame = Vec::new();
        if !record.is_empty() {
            compress(Compression::Zstd, record, &mut frame).unwrap();
            let (_, length_bytes) = varint::get_u64(&frame).unwrap();
            frame.drain(..length_bytes);
        }
        framer.frame(&frame, &mut log);
    }
    log
}

/// Goal: packed records are what was packed, wherever a scan begins; what does not unpack is damage, and what is packed in another way unsupported.
#[test]
fn packed_records_are_unpacked() {
    let mut random = Random(4);
    let records: Vec<Vec<u8>> = (0..60).map(|n| random.payload([40, 0, 900, 32 << 10, 70_000][n % 5])).collect();
    let log = packed(&records, 7);
    let open = |log: &[u8], mode| Scanner::open(&disk_with(log.to_vec()), Path::new(PATH), mode, true, 7).unwrap();
    for mode in MODES {
        let found = scan(&disk_with(log.clone()), mode);
        assert_eq!(found, Found { records: records.clone(), end: clean(log.len()), skipped: (0, 0) }, "{mode:?}");
    }
    let (mut whole, mut offsets) = (open(&log, RecoveryMode::PointInTime), Vec::new());
    while let Some((offset, _)) = whole.next().unwrap() {
        offsets.push(offset);
    }
    for (n, &start) in offsets.iter().enumerate() {
        let mut scanner = open(&log, RecoveryMode::PointInTime).from(start).unwrap();
        assert_eq!(scanner.next().unwrap(), Some((start, &records[n][..])));
    }
    // Torn, as any other.
    let cut = scan(&disk_with(log[..log.len() - 600].to_vec()), RecoveryMode::PointInTime);
    assert!(matches!(cut.end, Ok(LogEnd::Torn { .. })) && cut.records == records[..59], "{:?}", cut.end);

    let kind = |log: &[u8], mode| scan(&disk_with(log.to_vec()), mode).end;
    assert_eq!(kind(&packed(&records, 4), RecoveryMode::SkipCorrupt), Err(ErrorKind::UnsupportedFormat));
    // Records with good checksums that were never packed, and one that was packed behind them.
    let (front, plain) = (packed(&[], 7), framed(&[b"never packed"]));
    let mixed = [front.clone(), plain.clone(), packed(&records[..1], 7)[front.len()..].to_vec()].concat();
    assert_eq!(kind(&mixed, RecoveryMode::PointInTime), Err(ErrorKind::Corruption));
    let found = scan(&disk_with(mixed), RecoveryMode::SkipCorrupt);
    assert_eq!((found.records, found.skipped), (records[..1].to_vec(), (1, plain.len() as u64)));
    // It says so where it is too late.
    assert_eq!(kind(&[plain, front].concat(), RecoveryMode::PointInTime), Err(ErrorKind::Corruption));
}

/// Goal: a rotten bit of the record that says how others are packed is damage, though there are zeroes behind; and who passes over it finds all of them, also
/// behind another that is no record.
#[test]
fn a_rotten_word_of_packing_costs_no_record() {
    let mut random = Random(5);
    let records: Vec<Vec<u8>> = (0..40).map(|_| random.payload(300)).collect();
    let covered = [130, 1, 2, 3];
    let passed_over = [&mask(crc32c(&covered)).to_le_bytes()[..], &[3, 0], &covered].concat();
    for (between, zeroes) in [(&[][..], 0), (&passed_over, 0), (&[], 70_000), (&passed_over, 70_000)] {
        let mut log = packed(&records, 7);
        log.splice(PACKED_BYTES..PACKED_BYTES, between.iter().copied());
        log.resize(log.len() + zeroes, 0);
        assert_eq!(scan(&disk_with(log.clone()), RecoveryMode::PointInTime).records, records);
        for bit in 0..8 * PACKED_BYTES {
            let mut log = log.clone();
            log[bit / 8] ^= 1 << (bit % 8);
            let what = format!("{} bytes between, {zeroes} zeroes, bit {bit}", between.len());
            let found = scan(&disk_with(log.clone()), RecoveryMode::PointInTime);
            assert_eq!((found.end, found.records.len()), (Err(ErrorKind::Corruption), 0), "{what}");
            assert!(scan(&disk_with(log), RecoveryMode::SkipCorrupt).records == records, "{what}");
        }
    }
}

#[test]
fn an_empty_log_and_one_of_zeroes_end_where_they_begin() {
    for len in [0, 1, 6, 7, 512, BLOCK_BYTES, 3 * BLOCK_BYTES + 5] {
        let disk = disk_with(vec![0; len]);
        for mode in MODES {
            assert_eq!(scan(&disk, mode).end, clean(0), "{len} zeroes, {mode:?}");
        }
    }
}

#[test]
fn space_allocated_in_advance_is_a_clean_end() {
    for zeroes in [1, 6, 7, 600, 100_000] {
        let mut bytes = framed(&[b"one", b"two"]);
        let len = bytes.len();
        bytes.resize(len + zeroes, 0);
        let disk = disk_with(bytes);
        for mode in MODES {
            let found = scan_as(&disk, mode, false);
            assert_eq!((found.end, found.records.len()), (clean(len), 2));
        }
    }
}

/// Up to the last byte that is not zero.
fn written(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Goal: what was only allocated behind a torn record does not count as lost with it.
#[test]
fn behind_a_torn_record_only_what_was_written_is_dropped() {
    let random = &mut Random(4);
    for (size, sectors) in [(5000, 2), (70_000, 80)] {
        let (small, torn) = (random.payload(100), random.payload(size));
        let begun = framed(&[&small]).len();
        let mut bytes = framed(&[&small, &torn]);
        let len = sectors * tear::SECTOR_BYTES;
        bytes.truncate(len);
        bytes.resize(len + 100_000, 0);
        let Ok(LogEnd::Torn { offset, dropped_bytes, is_followed, .. }) =
            scan(&disk_with(bytes), RecoveryMode::PointInTime).end
        else {
            panic!("{size} bytes are not torn")
        };
        assert_eq!((offset, dropped_bytes, is_followed), (begun as u64, (len - begun) as u64, false));
    }
}

#[test]
fn a_torn_tail_ends_the_log() {
    let random = &mut Random(3);
    let (small, large) = (random.payload(100), random.payload(70_000));
    let bytes = framed(&[&small, &large]);
    let begun = framed(&[&small]).len();
    for len in (begun + 1..bytes.len()).step_by(97).chain([bytes.len() - 1, BLOCK_BYTES, 2 * BLOCK_BYTES]) {
        let disk = disk_with(bytes[..len].to_vec());
        for mode in [RecoveryMode::PointInTime, RecoveryMode::TolerateTornTail] {
            let found = scan(&disk, mode);
            assert_eq!(found.records, std::slice::from_ref(&small));
            let Ok(LogEnd::Torn { offset, dropped_bytes, is_followed, .. }) = found.end else {
                panic!("{len} bytes, {mode:?}: {:?}", found.end)
            };
            let dropped = written(&bytes[..len]) - begun;
            assert_eq!((offset, dropped_bytes, is_followed), (begun as u64, dropped as u64, false));
        }
        assert_eq!(scan(&disk, RecoveryMode::AbsoluteConsistency).end, Err(ErrorKind::Corruption));
        assert_eq!(scan_as(&disk, RecoveryMode::TolerateTornTail, false).end, Err(ErrorKind::Corruption));
        assert!(matches!(scan_as(&disk, RecoveryMode::PointInTime, false).end, Ok(LogEnd::Torn { .. })));
        let skipped = scan(&disk, RecoveryMode::SkipCorrupt);
        assert_eq!((skipped.end, skipped.skipped), (clean(begun), (1, (len - begun) as u64)));
    }
}

#[test]
fn a_missing_sector_is_torn_and_says_that_more_follows() {
    let random = &mut Random(4);
    let records: Vec<_> = (0..40).map(|_| random.payload(1000)).collect();
    let mut bytes = framed(&records.iter().map(Vec::as_slice).collect::<Vec<_>>());
    bytes[4096..4608].fill(0);
    let disk = disk_with(bytes);
    let found = scan(&disk, RecoveryMode::PointInTime);
    assert_eq!(found.records, records[..4]);
    assert!(matches!(found.end, Ok(LogEnd::Torn { offset: 4028, is_followed: true, .. })), "{:?}", found.end);
    let skipped = scan(&disk, RecoveryMode::SkipCorrupt);
    assert_eq!(skipped.records, [&records[..4], &records[5..]].concat());
    assert_eq!(skipped.skipped, (1, 1007));
}

#[test]
fn a_lost_piece_too_small_to_tell_from_padding_is_torn_not_passed_over() {
    // The first piece takes just the last seven to ten bytes of the block.
    for left in HEADER_BYTES..HEADER_BYTES + 4 {
        let random = &mut Random(5);
        let first = random.payload(BLOCK_BYTES - HEADER_BYTES - left);
        let second = random.payload(600);
        let mut bytes = framed(&[&first, &second]);
        bytes[BLOCK_BYTES - left..BLOCK_BYTES].fill(0);
        let found = scan(&disk_with(bytes), RecoveryMode::PointInTime);
        assert_eq!(found.records, [first]);
        assert!(matches!(found.end, Ok(LogEnd::Torn { .. })), "{left} left: {:?}", found.end);
    }
}

#[test]
fn corruption_names_the_place_and_the_way_out() {
    let random = &mut Random(6);
    let records: Vec<_> = (0..100).map(|_| random.payload(1000)).collect();
    let mut bytes = framed(&records.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let offset = framed(&records[..50].iter().map(Vec::as_slice).collect::<Vec<_>>()).len();
    bytes[offset + 500] ^= 0x10;
    let disk = disk_with(bytes);
    for mode in MODES {
        let mut scanner = Scanner::open(&disk, Path::new(PATH), mode, true, 7).unwrap();
        let (mut count, mut error) = (0, None);
        loop {
            match scanner.next() {
                Ok(Some(_)) => count += 1,
                Ok(None) => break,
                Err(met) => {
                    error = Some(met);
                    break;
                }
            }
        }
        if mode == RecoveryMode::SkipCorrupt {
            assert!(error.is_none());
            assert_eq!((count, scanner.skipped_count(), scanner.skipped_bytes()), (99, 1, 1007));
            continue;
        }
        let error = error.unwrap();
        assert_eq!((count, error.kind()), (50, ErrorKind::Corruption));
        assert_eq!(error.offset(), Some(offset as u64));
        assert!(error.to_string().contains("SkipCorrupt"), "{error}");
    }
}

#[test]
fn skipping_goes_on_at_the_next_record_or_block() {
    let random = &mut Random(7);
    let records: Vec<_> = (0..100).map(|_| random.payload(1000)).collect();
    let whole = framed(&records.iter().map(Vec::as_slice).collect::<Vec<_>>());
    // The length of the second record: where the third begins is anyone's guess, so the block is lost, and with it
    // the record that begins in it and ends in the next.
    let mut bytes = whole.clone();
    bytes[1007 + 5] ^= 0x40;
    let found = scan(&disk_with(bytes), RecoveryMode::SkipCorrupt);
    let lost = BLOCK_BYTES.div_ceil(1007);
    assert_eq!(found.records, [&records[..1], &records[lost..]].concat());
    assert_eq!(found.skipped.0, 1);
}

#[test]
fn unsupported_kinds_are_said_so_in_every_mode() {
    for type_byte in [9, 10, 11, 12, 127] {
        let mut bytes = framed(&[b"one"]);
        let mut strange = recyclable(type_byte, 7, b"payload");
        if type_byte % 2 == 0 || type_byte == 9 {
            let covered = [&[type_byte][..], b"payload"].concat();
            strange = mask(crc32c(&covered)).to_le_bytes().to_vec();
            strange.extend_from_slice(&7u16.to_le_bytes());
            strange.extend_from_slice(&covered);
        }
        bytes.extend_from_slice(&strange);
        let disk = disk_with(bytes);
        for mode in MODES {
            assert_eq!(scan(&disk, mode).end, Err(ErrorKind::UnsupportedFormat), "{type_byte}, {mode:?}");
        }
    }
}

#[test]
fn kinds_that_may_be_ignored_are() {
    let mut bytes = recyclable(131, 7, b"which log went before");
    bytes.extend(recyclable(5, 7, b"one"));
    let len = bytes.len();
    let found = scan(&disk_with(bytes), RecoveryMode::AbsoluteConsistency);
    assert_eq!((found.records, found.end), (vec![b"one".to_vec()], clean(len)));
    // Records they are: a log ends behind them.
    let bytes = recyclable(131, 7, b"which log went before");
    let len = bytes.len();
    assert_eq!(scan(&disk_with(bytes), RecoveryMode::AbsoluteConsistency).end, clean(len));
}

#[test]
fn a_recycled_file_ends_where_its_former_life_begins() {
    let random = &mut Random(8);
    let own = [recyclable(5, 7, b"one"), recyclable(5, 7, b"two")].concat();
    let former: Vec<u8> = (0..50).flat_map(|_| recyclable(5, 3, &random.payload(200))).collect();
    let bytes = [&own[..], &former].concat();
    for mode in MODES {
        let found = scan(&disk_with(bytes.clone()), mode);
        assert_eq!((found.records.len(), found.end), (2, clean(own.len())));
    }
    // The former life cut in its middle looks like damage, and nothing can tell it from that.
    let bytes = [&own[..], &former[30..]].concat();
    let found = scan(&disk_with(bytes), RecoveryMode::PointInTime);
    assert_eq!(found.records.len(), 2);
    assert!(matches!(found.end, Ok(LogEnd::Torn { .. })), "{:?}", found.end);
    // The writer keeps zeroes ahead of itself: behind them nothing of this log was lost, unless a record of it follows.
    let left = [&own[..], &[0; 40], &former[30..]].concat();
    for mode in MODES {
        let found = scan(&disk_with(left.clone()), mode);
        assert_eq!((found.records.len(), found.end, found.skipped), (2, clean(own.len()), (0, 0)), "{mode:?}");
    }
    let hole = left.len().next_multiple_of(BLOCK_BYTES) - left.len();
    let followed = [&left[..], &vec![0; hole], &recyclable(5, 7, b"three")].concat();
    let found = scan(&disk_with(followed), RecoveryMode::SkipCorrupt);
    assert_eq!((found.records.len(), found.skipped.0), (3, 1));
    // Wherever that begins: here in the midst of the former life, in the same block and in a later one.
    for bytes in [
        [&own[..], &[0; 40], &former[30..500], &recyclable(5, 7, b"three"), &former[530..]].concat(),
        [&left[..], &former, &former, &former, &former, &former[..77], &recyclable(5, 7, b"three"), &former[100..]]
            .concat(),
    ] {
        let found = scan(&disk_with(bytes), RecoveryMode::PointInTime);
        assert!(matches!(found.end, Ok(LogEnd::Torn { .. })), "{:?}", found.end);
    }
}

#[test]
fn pieces_that_do_not_go_together_are_corruption() {
    let random = &mut Random(9);
    let large = random.payload(2 * BLOCK_BYTES);
    let bytes = framed(&[&large, b"behind"]);
    let no_beginning = bytes[BLOCK_BYTES..].to_vec();
    let found = scan(&disk_with(no_beginning.clone()), RecoveryMode::PointInTime);
    assert_eq!((found.records.len(), found.end), (0, Err(ErrorKind::Corruption)));
    let found = scan(&disk_with(no_beginning), RecoveryMode::SkipCorrupt);
    assert_eq!((found.records, found.skipped.0), (vec![b"behind".to_vec()], 1));

    let no_end = [&bytes[..BLOCK_BYTES], &framed(&[b"behind"])].concat();
    let found = scan(&disk_with(no_end.clone()), RecoveryMode::PointInTime);
    assert_eq!((found.records.len(), found.end), (0, Err(ErrorKind::Corruption)));
    let found = scan(&disk_with(no_end), RecoveryMode::SkipCorrupt);
    assert_eq!((found.records, found.skipped), (vec![b"behind".to_vec()], (1, BLOCK_BYTES as u64)));
}

#[test]
fn a_read_that_fails_is_no_end() {
    let disk = disk_with(framed(&[b"one", b"two"]));
    let mut scanner = Scanner::open(&disk, Path::new(PATH), RecoveryMode::default(), true, 7).unwrap();
    disk.fail_read_at(disk.read_count(), esker_env::sim::ReadFault::Eio);
    assert_eq!(scanner.next().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(scanner.end(), LogEnd::NotReached);
    assert_eq!(scanner.next().unwrap(), Some((0, &b"one"[..])));
}

/// Goal: a manifest's record is durable before the next is appended, so nothing that others follow is taken for the work of a power
/// loss: zeroes within it, a missing sector, a type that only recycled logs have. Its last record may be torn as any other.
#[test]
fn a_torn_record_of_a_manifest_is_its_last() {
    let mut edit = vec![0u8; 2000];
    (edit[0], edit[1999]) = (7, 7);
    let (kept, record) = (framed(&[b"kept"]), HEADER_BYTES + edit.len());
    let (at, whole) = (kept.len(), framed(&[b"kept", &edit, &edit]));
    let scan = |bytes: Vec<u8>| {
        let disk = disk_with(bytes);
        let scanner = Scanner::open(&disk, Path::new(PATH), RecoveryMode::PointInTime, true, 7).unwrap();
        let mut scanner = scanner.of_manifest();
        assert_eq!(scanner.next().unwrap().unwrap().1, b"kept");
        while scanner.next().map_err(|error| error.kind())?.is_some() {}
        Ok(scanner.end())
    };
    let torn = |offset: usize| move |end: Result<LogEnd, ErrorKind>| matches!(end, Ok(LogEnd::Torn { offset: at, .. }) if at == offset as u64);
    let damages: [fn(&mut [u8]); 4] = [
        |record| record[HEADER_BYTES] ^= 1,
        // Of a byte that follows the type, or its checksum would tell.
        |record| (record[6], record[HEADER_BYTES]) = (5, 8),
        |record| record[600..1000].fill(0x55),
        |record| record[..1100].fill(0),
    ];
    for (n, damage) in damages.into_iter().enumerate() {
        let mut bytes = whole.clone();
        damage(&mut bytes[at..]);
        assert_eq!(scan(bytes.clone()), Err(ErrorKind::Corruption), "{n}: others follow");
        bytes.truncate(at + record);
        assert!(torn(at)(scan(bytes)), "{n}: nothing follows");
    }
    // Far behind, too, and where no block begins with one.
    let mut far = framed(&[b"kept", &vec![9; BLOCK_BYTES + 2000], b"last"]);
    far[at + 600..BLOCK_BYTES + 600].fill(0);
    assert_eq!(scan(far), Err(ErrorKind::Corruption));
    // A piece of the same record may be there without its beginning.
    let mut long = framed(&[b"kept", &vec![9; 3 * BLOCK_BYTES]]);
    long[at..at + 600].fill(0);
    assert!(torn(at)(scan(long)));
}

/// Goal: a power loss costs no synced record, makes no hole, and is never taken for corruption.
/// Method: random histories on a disk that loses any subset of unsynced sectors; every image is scanned in all modes.
#[test]
fn after_power_loss_a_prefix_with_all_synced_records_is_found() {
    let mut torn_count = 0;
    for seed in 0..60 {
        let history = History::new(seed, 1 + seed as usize * 2, 90_000);
        for (index, disk) in history.crashed(25).enumerate() {
            let found = scan(&disk, RecoveryMode::PointInTime);
            let at = format!("history {seed}, image {index}");
            assert!(history.records.starts_with(&found.records), "{at}: no prefix");
            assert!(found.records.len() >= history.synced_count, "{at}: synced records are lost");
            match &found.end {
                Ok(LogEnd::Clean { .. }) => {}
                Ok(LogEnd::Torn { .. }) => torn_count += 1,
                end => panic!("{at}: {end:?}"),
            }
            let tolerant = scan(&disk, RecoveryMode::TolerateTornTail);
            assert_eq!(tolerant, found, "{at}");
            let absolute = scan(&disk, RecoveryMode::AbsoluteConsistency);
            assert_eq!(absolute.records, found.records, "{at}");
            assert_eq!(absolute.end.is_ok(), matches!(found.end, Ok(LogEnd::Clean { .. })), "{at}");
            let skipped = scan(&disk, RecoveryMode::SkipCorrupt);
            assert!(skipped.end.is_ok() && skipped.records.starts_with(&found.records), "{at}");
            let mut originals = history.records.iter();
            assert!(skipped.records.iter().all(|record| originals.any(|original| original == record)), "{at}: made up");
        }
    }
    assert!(torn_count > 300, "only {torn_count} images were torn");
}

/// Goal: a process that dies while it copies a record into preallocated space leaves an end, not damage.
/// Method: it dies within each append of a history in turn, with any stretch of its bytes in place.
#[test]
fn death_within_an_append_to_preallocated_space_ends_the_log_there() {
    let random = &mut Random(12);
    let records: Vec<Vec<u8>> = [40, 1, 700, 31_976, 7, 3000, 90, 40_000].map(|len| random.payload(len)).into();
    for dying in 0..records.len() {
        for round in 0..40 {
            let disk = SimDisk::new();
            let mut writer = LogWriter::new(disk.create(Path::new(PATH)).unwrap());
            writer.file().preallocate(200_000).unwrap();
            for record in &records[..dying] {
                writer.append(&[record]).unwrap();
            }
            let start = random.below(records[dying].len() + 7);
            let kept = if round == 0 { 0..usize::MAX } else { start..start + random.below(600) };
            disk.die_within(disk.op_count(), kept.clone());
            writer.append(&[&records[dying]]).unwrap_err();
            let left = disk.after_process_death();
            for mode in [RecoveryMode::PointInTime, RecoveryMode::TolerateTornTail] {
                let found = scan(&left, mode);
                assert_eq!(found.records, records[..dying], "{dying}, {kept:?}");
                assert!(found.end.is_ok(), "{dying}, {kept:?}: {:?}", found.end);
            }
        }
    }
}

/// Flips each of `bits` of the log alone: that is corruption, or changes nothing in the answers.
fn assert_flips_are_seen(history: &History, disk: &SimDisk, bits: impl Iterator<Item = u64>, at: &str) {
    let path = Path::new(PATH);
    let before = scan(disk, RecoveryMode::PointInTime);
    for bit in bits {
        assert!(disk.flip_bit(path, bit));
        let found = scan(disk, RecoveryMode::PointInTime);
        let seen = found.end == Err(ErrorKind::Corruption) || found == before;
        assert!(seen, "{at}, bit {bit} of {} synced bytes: {:?}", history.synced_bytes, found.end);
        assert!(before.records.starts_with(&found.records), "{at}, bit {bit}");
        assert!(disk.flip_bit(path, bit));
    }
}

/// Goal: no single flipped bit in what was synced is taken for a tear, and so passed over in silence.
#[test]
fn every_flipped_bit_in_the_synced_part_of_a_crashed_log_is_corruption() {
    for seed in 100..104 {
        let history = History::new(seed, 14, 300);
        for (index, disk) in history.crashed(1).enumerate() {
            let at = format!("history {seed}, image {index}");
            assert_flips_are_seen(&history, &disk, 0..history.synced_bytes * 8, &at);
        }
    }
    let random = &mut Random(10);
    for seed in 200..230 {
        let history = History::new(seed, 60, 90_000);
        let synced_bits = history.synced_bytes as usize * 8;
        for (index, disk) in history.crashed(2).enumerate() {
            let bits: Vec<_> = (0..25).filter(|_| synced_bits > 0).map(|_| random.below(synced_bits) as u64).collect();
            assert_flips_are_seen(&history, &disk, bits.into_iter(), &format!("history {seed}, image {index}"));
        }
    }
}

/// Goal: total on any bytes. Damage of all kinds, never a panic, never a record that was not written.
#[test]
fn garbage_gives_records_or_errors_and_nothing_else() {
    let random = &mut Random(11);
    for _ in 0..400 {
        let history = History::new(random.next(), 20, 40_000);
        let mut bytes = history.disk.file_bytes(Path::new(PATH)).unwrap();
        for _ in 0..1 + random.below(5) {
            if bytes.is_empty() {
                break;
            }
            let from = random.below(bytes.len());
            let to = (from + random.below(2000)).min(bytes.len());
            match random.below(4) {
                0 => bytes[from..to].fill(0),
                1 => bytes[from..to].fill_with(|| random.next() as u8),
                2 => drop(bytes.drain(from..to)),
                _ => bytes.truncate(to),
            }
        }
        let disk = disk_with(bytes);
        for mode in MODES {
            let found = scan(&disk, mode);
            for record in &found.records {
                assert!(history.records.contains(record), "{mode:?}");
            }
        }
    }
}

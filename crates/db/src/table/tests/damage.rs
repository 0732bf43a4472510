//! Damage is noticed, or does no harm.

use esker_format::rocksdb::order::Order;
use std::ops::RangeInclusive;

use esker_env::sim::{Fault, ReadFault};
use esker_env::{Access, Mapping, ReadFile};
use esker_format::compression::Compression;
use esker_format::rocksdb::block::{BlockLayout, IndexBuilder, IndexCursor, IndexFormat};
use esker_format::rocksdb::table::{BlockHandle, FOOTER_BYTES, Footer, MetaIndex, TRAILER_BYTES};

use super::*;
use crate::ErrorKind;
use crate::iterate::InternalIterator;

fn small_entries() -> Vec<Entry> {
    let mut entries = vec![entry("apple", 9, ValueKind::Value, b"fruit"), entry("apple", 3, ValueKind::Deletion, b"")];
    entries.extend((0..9).map(|number| entry(&format!("pear{number}"), 5, ValueKind::Value, &[b'x'; 24])));
    entries
}

/// Every answer of the table, or the first error.
fn answers(env: &Env) -> Result<Vec<Entry>> {
    let table = open(env)?;
    let mut answers = Vec::new();
    let mut iterator = table.iter(false);
    iterator.seek_to_first()?;
    while iterator.valid() {
        answers.push((iterator.key().to_vec(), iterator.value().to_vec()));
        iterator.next()?;
    }
    iterator.seek_to_last()?;
    while iterator.valid() {
        answers.push((iterator.key().to_vec(), iterator.value().to_vec()));
        iterator.prev()?;
    }
    for user_key in ["apple", "pear0", "pear5", "pear8", "plum"] {
        let hit = table.get(&lookup(user_key, 100), false)?;
        answers.extend(hit.map(|hit| (user_key.as_bytes().to_vec(), hit.value.into_vec())));
    }
    Ok(answers)
}

#[test]
fn every_flipped_bit_is_noticed_or_does_no_harm() {
    for (format_version, checksum, compression) in [
        (5, ChecksumKind::Xxh3, Compression::None),
        (5, ChecksumKind::Crc32c, Compression::Lz4),
        (6, ChecksumKind::Xxh3, Compression::None),
        (4, ChecksumKind::XxHash64, Compression::Zstd),
    ] {
        let options =
            TableOptions { block_bytes: 128, format_version, checksum, compression, ..TableOptions::default() };
        let disk = SimDisk::new();
        let env = disk.env();
        let file_bytes = write(&env, &options, &small_entries()).unwrap().file_bytes;
        let whole = answers(&env).unwrap();
        let mut harmless = Vec::new();
        for bit in 0..8 * file_bytes {
            assert!(disk.flip_bit(Path::new(PATH), bit));
            match answers(&env) {
                Ok(same) => {
                    assert!(same == whole, "bit {bit} of format version {format_version} changes an answer");
                    harmless.push(bit);
                }
                Err(error) => {
                    let expected = [ErrorKind::Corruption, ErrorKind::UnsupportedFormat];
                    assert!(expected.contains(&error.kind()), "bit {bit}: {error}");
                    assert!(error.path().is_some() && error.offset().is_some(), "{error}");
                }
            }
            assert!(disk.flip_bit(Path::new(PATH), bit));
        }
        // Only the footer has bits without a meaning: padding, and versions that read alike.
        let footer_at = 8 * (file_bytes - 53);
        assert!(harmless.iter().all(|bit| *bit >= footer_at), "{harmless:?}");
    }
}

#[test]
fn every_length_but_the_right_one_is_refused() {
    let disk = SimDisk::new();
    let env = disk.env();
    write(&env, &TableOptions::default(), &small_entries()).unwrap();
    let whole = disk.file_bytes(Path::new(PATH)).unwrap();
    for len in (0..whole.len()).step_by(3) {
        disk.overwrite(Path::new(PATH), whole[..len].to_vec());
        assert_eq!(open(&env).unwrap_err().kind(), ErrorKind::Corruption, "{len} bytes");
    }
    disk.overwrite(Path::new(PATH), whole.clone());
    let file = env.files.open(Path::new(PATH)).unwrap();
    let wrong = Table::open(file, 1, &Order::BYTEWISE.into(), Arc::new(BlockCache::new(0))).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Corruption);
}

#[test]
fn rot_after_opening_is_noticed_by_reads_and_by_check() {
    let disk = SimDisk::new();
    let env = disk.env();
    let file_bytes = write(&env, &TableOptions { block_bytes: 128, ..TableOptions::default() }, &small_entries())
        .unwrap()
        .file_bytes;
    let table = open(&env).unwrap();
    for bit in (0..8 * file_bytes).step_by(5) {
        disk.flip_bit(Path::new(PATH), bit);
        let checked = table.check(&mut |_, _| Ok(()));
        if bit < 8 * table.data_end() {
            assert_eq!(checked.unwrap_err().kind(), ErrorKind::Corruption, "bit {bit}");
        }
        disk.flip_bit(Path::new(PATH), bit);
    }
    assert!(table.check(&mut |_, _| Ok(())).is_ok());
}

/// Goal: who asks for all damage gets that of each block, and the entries of all others; of very many, how many more there are.
#[test]
fn a_check_goes_on_behind_a_damaged_block() {
    let disk = SimDisk::new();
    let env = disk.env();
    let entries: Vec<Entry> =
        (0..2000).map(|n| entry(&format!("{n:05}"), 1, ValueKind::Value, &[n as u8; 40])).collect();
    let options = TableOptions { block_bytes: 100, compression: Compression::None, ..TableOptions::default() };
    write(&env, &options, &entries).unwrap();
    let table = open(&env).unwrap();
    let step = table.data_end() / 200;
    for (damaged, told) in [(1, 1), (3, 3), (100, 100), (101, 101), (150, 101)] {
        let bits = || (0..damaged).map(|n| 8 * (n * step + 20));
        bits().for_each(|bit| assert!(disk.flip_bit(Path::new(PATH), bit)));
        let (mut seen, mut damage) = (0, Vec::new());
        let mut visit = |_: &[u8], _: &[u8]| {
            seen += 1;
            Ok(())
        };
        let check = table.check_on(&mut visit, &mut damage).unwrap();
        assert_eq!((damage.len(), check.entries), (told, seen), "{damaged} damaged");
        assert!(damage.iter().all(|error| error.kind() == ErrorKind::Corruption));
        assert!(2000 - 4 * damaged <= seen && seen < 2000);
        let last = damage.last().unwrap().to_string();
        assert_eq!(last.contains(" more of its blocks"), damaged > 100, "{last}");
        assert!(damaged != 150 || last.contains("50 more"), "{last}");
        bits().for_each(|bit| assert!(disk.flip_bit(Path::new(PATH), bit)));
    }
}

#[test]
fn check_passes_on_what_its_visitor_says() {
    let env = SimDisk::new().env();
    write(&env, &TableOptions::default(), &small_entries()).unwrap();
    let stop = open(&env).unwrap().check(&mut |_, _| Err(crate::Error::invalid_argument("stop"))).unwrap_err();
    assert_eq!(stop.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_read_that_fails_leaves_the_iterator_nowhere_and_can_be_repeated() {
    let disk = SimDisk::new();
    let env = disk.env();
    write(&env, &TableOptions { block_bytes: 128, ..TableOptions::default() }, &small_entries()).unwrap();
    let table = open(&env).unwrap();
    let mut iterator = table.iter(false);
    disk.fail_read_at(disk.read_count(), ReadFault::Eio);
    assert_eq!(iterator.seek_to_first().unwrap_err().kind(), ErrorKind::Io);
    assert!(!iterator.valid());
    iterator.seek_to_first().unwrap();
    assert!(iterator.valid());
    let mut count = 0;
    let mut failures = 0;
    // Of the second block, alone: what is read ahead of a walk is read again without what comes with it.
    disk.fail_read_at(disk.read_count(), ReadFault::Eio);
    while iterator.valid() {
        count += 1;
        failures += u32::from(iterator.next().is_err());
    }
    assert_eq!(failures, 1);
    assert!(count < 11);
}

#[test]
fn a_write_that_fails_at_any_call_is_reported_and_stays_reported() {
    let entries: Vec<Entry> =
        (0..16_000).map(|number| entry(&format!("{number:06}"), 1, ValueKind::Value, &[b'v'; 100])).collect();
    let options = TableOptions { compression: Compression::None, ..TableOptions::default() };
    let healthy = SimDisk::new();
    write(&healthy.env(), &options, &entries).unwrap();
    let operations = healthy.op_count();
    assert!(operations > 4);
    for operation in 0..operations {
        let disk = SimDisk::new();
        let env = disk.env();
        disk.fail_at(operation, Fault::NoSpace);
        let Ok(mut writer) = TableWriter::create(&*env.files, Path::new(PATH), NUMBER, &options, &identity()) else {
            continue;
        };
        // A careless caller goes on after errors; the end must still not look like success.
        let failures = entries.iter().filter(|(key, value)| writer.add(key, value).is_err()).count();
        let finished = writer.finish();
        assert!(failures > 0 || finished.is_err(), "operation {operation}");
        assert!(finished.is_err(), "operation {operation}");
    }
}

/// A file of which some bytes cannot be read.
#[derive(Debug)]
struct WithHole {
    file: Arc<dyn ReadFile>,
    bad: RangeInclusive<u64>,
}

impl ReadFile for WithHole {
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn len(&self) -> esker_env::Result<u64> {
        self.file.len()
    }
    fn identity(&self) -> esker_env::Result<(u64, u64)> {
        self.file.identity()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> esker_env::Result<usize> {
        if offset <= *self.bad.end() && offset + buffer.len() as u64 > *self.bad.start() {
            let error = std::io::Error::from(std::io::ErrorKind::Other);
            return Err(esker_env::Error::new("reading", self.path(), error).at(offset));
        }
        self.file.read_at(offset, buffer)
    }
    fn map(&self) -> esker_env::Result<Option<Arc<dyn Mapping>>> {
        Ok(None)
    }
    fn advise(&self, access: Access) {
        self.file.advise(access);
    }
}

/// Goal: what the device cannot read takes no readable block along, though neighbours are read together.
#[test]
fn a_scan_shows_every_entry_before_a_block_that_cannot_be_read() {
    let env = SimDisk::new().env();
    let entries: Vec<_> = (0..4000).map(|n| entry(&format!("pear{n:04}"), 5, ValueKind::Value, &[b'x'; 100])).collect();
    let options = TableOptions { block_bytes: 1024, compression: Compression::None, ..TableOptions::default() };
    let file_bytes = write(&env, &options, &entries).unwrap().file_bytes;
    let bad = open(&env).unwrap().data_end() / 2;
    let file = Arc::new(WithHole { file: env.files.open(Path::new(PATH)).unwrap(), bad: bad..=bad });
    let table = Table::open(file, file_bytes, &Order::BYTEWISE.into(), Arc::new(BlockCache::new(0))).unwrap();
    let (mut forward, mut backward) = (0, 0);
    let mut iterator = table.iter(false);
    iterator.seek_to_first().unwrap();
    let error = loop {
        assert_eq!(iterator.key(), entries[forward].0);
        forward += 1;
        if let Err(error) = iterator.next() {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::Io);
    iterator.seek_to_last().unwrap();
    while let Ok(()) = {
        backward += 1;
        assert_eq!(iterator.key(), entries[entries.len() - backward].0);
        iterator.prev()
    } {}
    // A block holds some eight entries.
    let missing = entries.len() - forward - backward;
    assert!((1..=10).contains(&missing), "{missing} entries between the {forward}th and the {backward}th from the end");
}

/// The entries in one index over `per_partition` blocks each, and over all of those; without properties.
fn partitioned(whole: &[u8], table: &Table, per_partition: usize) -> Vec<u8> {
    let format = IndexFormat { delta_encoded: true, user_keys: true, first_keys: false, order: Order::BYTEWISE };
    let index = table.footer.index.unwrap();
    let at = usize::try_from(index.offset).unwrap();
    let index = &whole[at..at + usize::try_from(index.bytes).unwrap()];
    let mut cursor = IndexCursor::new(BlockLayout::parse(index).unwrap(), format);
    let mut blocks = Vec::new();
    cursor.seek_to_first(index).unwrap();
    while cursor.valid() {
        blocks.push((cursor.separator().to_vec(), cursor.handle(index).unwrap()));
        cursor.next(index).unwrap();
    }
    let last = blocks.last().unwrap().1;
    let mut file = whole[..usize::try_from(last.offset + last.bytes).unwrap() + TRAILER_BYTES].to_vec();
    let checksum = table.footer.checksum;
    let mut add = |block: &[u8]| {
        let handle = BlockHandle { offset: file.len() as u64, bytes: block.len() as u64 };
        file.extend_from_slice(block);
        file.extend_from_slice(&checksum.trailer(block, Compression::None, handle.offset));
        handle
    };
    let mut top = IndexBuilder::new(1, true);
    for part in blocks.chunks(per_partition) {
        let mut partition = IndexBuilder::new(1, true);
        part.iter().for_each(|(separator, handle)| partition.add(separator, *handle));
        top.add(&part.last().unwrap().0, add(partition.finish()));
    }
    let index = add(top.finish());
    let meta_index = add(&MetaIndex::default().encode());
    let footer = Footer { meta_index, index: Some(index), ..table.footer };
    let raw = footer.encode(file.len() as u64);
    file.extend_from_slice(&raw);
    file
}

/// Goal: what an index leads to is told apart where the table has lost what it says of itself: nothing is made of a partition but its blocks.
#[test]
fn without_properties_partitions_of_the_index_are_not_taken_for_data() {
    let disk = SimDisk::new();
    let options = TableOptions { block_bytes: 256, ..TableOptions::default() };
    let name = |number: u64| format!("{number:08}");
    let entries: Vec<Entry> = (0..300).map(|n| entry(&name(n), 5, ValueKind::Value, &[b'x'; 24])).collect();
    write(&disk.env(), &options, &entries).unwrap();
    let (table, whole) = (open(&disk.env()).unwrap(), disk.file_bytes(Path::new(PATH)).unwrap());
    for per_partition in [1, 3, 100] {
        disk.overwrite(Path::new(PATH), partitioned(&whole, &table, per_partition));
        let file = disk.env().files.open(Path::new(PATH)).unwrap();
        let mut found = Vec::new();
        let visit = &mut |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            Ok(())
        };
        let salvaged = Remains::open(&*file).unwrap().read(Order::BYTEWISE, visit).unwrap();
        assert_eq!((salvaged.properties, salvaged.lost_blocks), (None, 0), "{per_partition} in each");
        assert!(found == entries, "{per_partition} in each: {} entries", found.len());
    }
}

/// Goal: without checksums, too, a rotten partition of the index, or a block whose compression reads as one of others', takes nothing else along.
#[test]
fn rot_that_no_checksum_finds_costs_its_own_part_of_a_table() {
    let disk = SimDisk::new();
    let plain =
        TableOptions { checksum: ChecksumKind::None, compression: Compression::None, ..TableOptions::default() };
    let options = TableOptions { block_bytes: 256, ..plain };
    let name = |number: u64| format!("{number:08}");
    let entries: Vec<Entry> = (0..300).map(|n| entry(&name(n), 5, ValueKind::Value, &[b'x'; 24])).collect();
    write(&disk.env(), &options, &entries).unwrap();
    let table = open(&disk.env()).unwrap();
    let mut file = partitioned(&disk.file_bytes(Path::new(PATH)).unwrap(), &table, 3);
    // What two levels of the index lead to.
    let handles = |file: &[u8], at: BlockHandle| -> Vec<BlockHandle> {
        let block = &file[at.offset as usize..][..at.bytes as usize];
        let format = IndexFormat { delta_encoded: true, user_keys: true, first_keys: false, order: Order::BYTEWISE };
        let mut cursor = IndexCursor::new(BlockLayout::parse(block).unwrap(), format);
        let mut handles = Vec::new();
        cursor.seek_to_first(block).unwrap();
        while cursor.valid() {
            handles.push(cursor.handle(block).unwrap());
            cursor.next(block).unwrap();
        }
        handles
    };
    let footer = Footer::decode(&file[file.len() - FOOTER_BYTES..], file.len() as u64).unwrap();
    let partitions = handles(&file, footer.index.unwrap());
    let block = handles(&file, partitions[0])[1];
    let end_of = |handle: BlockHandle| (handle.offset + handle.bytes) as usize;
    file[end_of(block)] = 2;
    file[end_of(partitions[2]) - 4..end_of(partitions[2])].fill(0xff);
    disk.overwrite(Path::new(PATH), file);
    let file = disk.env().files.open(Path::new(PATH)).unwrap();
    let mut found = Vec::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        found.push((key.to_vec(), value.to_vec()));
        Ok(())
    };
    let salvaged = Remains::open(&*file).unwrap().read(Order::BYTEWISE, visit).unwrap();
    assert_eq!(salvaged.lost_blocks, 2);
    assert!(found.iter().all(|entry| entries.contains(entry)));
    // Of four blocks, as large as others.
    let lost = entries.len() - found.len();
    assert!((20..40).contains(&lost), "{lost} are lost");
}

/// Goal: where no checksum tells rot from what a later release writes, a check calls it damage, which a repair mends: a block whose compression reads as
/// one of others', and a key whose kind does.
#[test]
fn rot_that_no_checksum_finds_is_damage() {
    let plain =
        TableOptions { checksum: ChecksumKind::None, compression: Compression::None, ..TableOptions::default() };
    let entries: Vec<Entry> = (0..9u64).map(|n| entry(&n.to_string(), 5, ValueKind::Value, b"value")).collect();
    for of_key in [false, true] {
        let disk = SimDisk::new();
        write(&disk.env(), &TableOptions { block_bytes: 4 << 10, ..plain.clone() }, &entries).unwrap();
        let table = open(&disk.env()).unwrap();
        assert_eq!(table.check(&mut |_, _| Ok(())).unwrap().entries, 9);
        let mut file = disk.file_bytes(Path::new(PATH)).unwrap();
        // The only block: three lengths, a key of one byte with its tag, of which the first byte is the kind, others, and a trailer of five bytes,
        // of which the first is the compression.
        let (rots, before) = if of_key { (4, 1) } else { (table.properties().data_bytes as usize - 5, 0) };
        assert_eq!(std::mem::replace(&mut file[rots], 0x7e), before);
        disk.overwrite(Path::new(PATH), file);
        let error = open(&disk.env()).unwrap().check(&mut |_, _| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
}

/// Tables whose footers differ in layout, checksums and what is beside the index.
fn of_all_footers() -> Vec<TableOptions> {
    let of = |format_version, checksum| TableOptions {
        block_bytes: 128,
        format_version,
        checksum,
        compression: Compression::None,
        ..TableOptions::default()
    };
    let kinds = [ChecksumKind::Xxh3, ChecksumKind::Crc32c, ChecksumKind::None];
    [5, 6, 4, 3, 7].into_iter().flat_map(|version| kinds.map(|kind| of(version, kind))).collect()
}

/// Goal: whatever a rotten byte makes of a footer, a newer version or no checksums, it is told as damage of this file, and costs no entry.
#[test]
fn a_rotten_byte_of_a_footer_is_damage_and_costs_nothing() {
    let entries = small_entries();
    for options in of_all_footers() {
        let disk = SimDisk::new();
        let what = format!("version {}, {:?}", options.format_version, options.checksum);
        write(&disk.env(), &options, &entries).unwrap();
        let whole = disk.file_bytes(Path::new(PATH)).unwrap();
        let (footer_at, mut passed) = (whole.len() - FOOTER_BYTES, Vec::new());
        for (at, flipped) in
            (footer_at..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit)).chain([(at, 0xff)]))
        {
            let mut rotten = whole.clone();
            rotten[at] ^= flipped;
            disk.overwrite(Path::new(PATH), rotten);
            let what = format!("{what}: byte {} of the footer, {flipped:#x}", at - footer_at);
            match open(&disk.env()).and_then(|table| table.check(&mut |_, _| Ok(()))) {
                Ok(_) => passed.push((at - footer_at, flipped)),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
                    assert!(error.path() == Some(Path::new(PATH)) && error.offset().is_some(), "{what}: {error}");
                }
            }
            let file = disk.env().files.open(Path::new(PATH)).unwrap();
            let mut found = Vec::new();
            let visit = &mut |key: &[u8], value: &[u8]| {
                found.push((key.to_vec(), value.to_vec()));
                Ok(())
            };
            let remains = Remains::open(&*file).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(remains.read(Order::BYTEWISE, visit).unwrap().lost_blocks, 0, "{what}");
            assert!(found == entries, "{what}: {} entries", found.len());
        }
        // Of versions 2 to 5 the properties say how they are read.
        assert!(passed.iter().all(|(at, _)| *at == 41 && options.format_version < 6), "{what}: {passed:?}");
    }
}

/// Goal: what may be whole and newer, or older than what is read, is not called damage, and whoever reads that learns of both.
#[test]
fn a_footer_that_may_be_another_versions_says_so() {
    let of = |format_version, claimed: u32, entries: &[Entry]| {
        let disk = SimDisk::new();
        let options = TableOptions { format_version, block_bytes: 128, ..TableOptions::default() };
        write(&disk.env(), &options, entries).unwrap();
        let mut file = disk.file_bytes(Path::new(PATH)).unwrap();
        let at = file.len() - FOOTER_BYTES;
        file[at + 41..at + 45].copy_from_slice(&claimed.to_le_bytes());
        if format_version == 6 {
            // As a later version's own checksum: none of version 6.
            file[at + 5..at + 9].fill(0x5a);
        }
        disk.overwrite(Path::new(PATH), file);
        open(&disk.env()).unwrap_err()
    };
    // Over several blocks, so that the index has whole keys, as one of version 1.
    let one_key: Vec<_> = (1..20).rev().map(|n| entry("apple", n, ValueKind::Value, &[b'x'; 24])).collect();
    for error in [of(6, 8, &small_entries()), of(3, 1, &one_key)] {
        assert_eq!(error.kind(), ErrorKind::UnsupportedFormat, "{error}");
        assert!(error.reason().contains("or its footer is damaged"), "{error}");
    }
    // Of version 1 there is no index like these.
    for (version, entries) in [(5, &one_key), (5, &small_entries()), (3, &small_entries())] {
        assert_eq!(of(version, 1, entries).kind(), ErrorKind::Corruption);
    }
}

//! Cask's files.

use esker_format::cask::data_file::DataFileHeader;
use esker_format::cask::hint::{Block, Builder, Entries, Footer, Mark};
use esker_format::cask::manifest::Manifest;
use esker_format::cask::record::{self, Record};
use esker_format::checksum::{crc32c, crc32c_extend};

/// `bytes`, and `bytes` with the CRC of those before `at` put there (Z2).
fn both(bytes: &[u8], at: usize, body: impl Fn(&[u8])) {
    body(bytes);
    let mut sealed = bytes.to_vec();
    let crc = crc32c(sealed.get(..at).unwrap_or_default()).to_le_bytes();
    sealed.iter_mut().skip(at).zip(crc).for_each(|(to, from)| *to = from);
    body(&sealed);
}

/// The head of a data file.
pub(super) fn data_file(bytes: &[u8]) {
    both(bytes, 28, |bytes| {
        if let Ok(header) = DataFileHeader::decode(bytes) {
            assert_eq!(DataFileHeader::decode(&header.encode()), Ok(header));
        }
    });
}

/// Records, one after the other.
pub(super) fn record(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(record) = Record::decode(rest) {
        let len = record.bytes();
        assert_eq!(record::peek_bytes(rest), Some(len));
        let Some((raw, behind)) = rest.split_at_checked(len as usize) else {
            panic!("longer than what it was read from")
        };
        let _ = record::checksum_holds(raw, 9);
        let mut again = Vec::new();
        record.encode(9, &mut again).expect("it was that long");
        assert!(record::checksum_holds(&again, 9));
        assert_eq!(Record::decode(&again), Ok(record));
        let _ = record.is_expired(u64::from(rest[0]));
        assert!(Record::plain_of(raw, record.key).is_none_or(|plain| plain == record));
        rest = behind;
    }
    let _ = record::peek_bytes(rest);
}

/// Hints: the blocks, and the end of the file.
pub(super) fn hint(bytes: &[u8]) {
    both(bytes, bytes.len().saturating_sub(4), |bytes| {
        if let Ok(footer) = Footer::decode(bytes) {
            // What is reserved is not kept.
            let again = [&bytes[..bytes.len() - 48], &footer.encode()].concat();
            assert_eq!(Footer::decode(&again), Ok(footer));
        }
    });
    let _ = Block::decode(bytes, 5);
    let mark = Mark { offset: u64::MAX - 300, version: bytes.len() as u64, bytes_left: bytes.len() };
    assert!(Entries::from_mark(mark, bytes).count() <= bytes.len());
    let mut sealed = bytes.to_vec();
    let crc = crc32c_extend(5, sealed.get(4..).unwrap_or_default()).to_le_bytes();
    let payload = (sealed.len().saturating_sub(24) as u32).to_le_bytes();
    sealed.iter_mut().skip(4).zip(payload).for_each(|(to, from)| *to = from);
    let crc = sealed.get(4..).map_or(crc, |rest| crc32c_extend(5, rest).to_le_bytes());
    sealed.iter_mut().zip(crc).for_each(|(to, from)| *to = from);
    let Ok((block, count)) = Block::decode(&sealed, 5) else { return };
    assert_eq!(count, sealed.len());
    let (mut builder, mut out) = (Builder::new(5), Vec::new());
    let mut entries = Vec::new();
    let mut walk = block.entries();
    loop {
        let mark = walk.mark();
        let next = walk.next();
        let rest = &sealed[sealed.len() - mark.bytes_left..];
        let Some(Ok(entry)) = next else { break };
        assert!(Entries::from_mark(mark, rest).next() == Some(Ok(entry)), "an entry is found from its mark");
        builder.add(&entry, &mut out);
        entries.push(entry);
        assert!(entries.len() <= bytes.len());
    }
    builder.finish(esker_format::cask::file_name::FileNumber::MAX, 0, &mut out);
    let footer = Footer::decode(&out).expect("what was built decodes");
    assert_eq!(footer.record_count, entries.len() as u64);
    let mut rest = &out[..footer.block_bytes as usize];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (block, count) = Block::decode(rest, 5).expect("its blocks too");
        found.extend(block.entries().map(|entry| entry.expect("and their entries")));
        rest = &rest[count..];
    }
    assert!(found == entries);
}

/// The manifest.
pub(super) fn manifest(bytes: &[u8]) {
    both(bytes, bytes.len().saturating_sub(4), |bytes| {
        if let Ok(manifest) = Manifest::decode(bytes) {
            assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
        }
    });
}

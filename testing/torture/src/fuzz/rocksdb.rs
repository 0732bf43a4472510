//! RocksDB's files but for tables.

use esker_format::checksum::{crc32c, mask};
use esker_format::rocksdb::blob::holes::{behind_hole, has_hole};
use esker_format::rocksdb::blob::{BlobFileHeader, BlobFooter, BlobIndex, BlobRecordHeader};
use esker_format::rocksdb::internal_key::{self, InternalKey, SequenceNumber, ValueKind};
use esker_format::rocksdb::log::{self, Framer, Reader};
use esker_format::rocksdb::log_note::LogNote;
use esker_format::rocksdb::options_file::{self, OptionsFile};
use esker_format::rocksdb::order::{Order, ReverseBytewiseComparator};
use esker_format::rocksdb::prefix::PrefixExtractor;
use esker_format::rocksdb::version_edit::VersionEdit;
use esker_format::rocksdb::write_batch::{self, WriteBatch};

/// Reads any log to its end, with its checksums and with good ones; frames the bytes as records, and finds them again.
pub(super) fn log(bytes: &[u8]) {
    let sealed = sealed_log(bytes);
    for (bytes, number) in [(bytes, None), (bytes, Some(7)), (&sealed, None), (&sealed, Some(7))] {
        let mut reader = Reader::new(bytes, number);
        let (mut records, mut last) = (0u64, 0);
        while let Some(record) = reader.next() {
            if let Ok((offset, _)) = record {
                assert!(records == 0 || offset > last, "records lie one after the other");
                (records, last) = (records + 1, offset);
            }
            assert!(reader.offset() <= bytes.len() as u64);
        }
    }
    let pieces: Vec<&[u8]> = bytes.chunks(usize::from(bytes.first().copied().unwrap_or(0)) * 97 + 1).collect();
    let (mut framer, mut framed) = (Framer::new(0), Vec::new());
    for piece in &pieces {
        let expected = framed.len() + framer.framed_bytes(piece.len());
        framer.frame(piece, &mut framed);
        assert_eq!(framed.len(), expected);
    }
    let mut reader = Reader::new(&framed, None);
    for piece in &pieces {
        let (_, record) = reader.next().expect("as many records as were framed").expect("they are whole");
        assert!(record == *piece);
    }
    assert!(reader.next().is_none());
}

/// The same with a good checksum in each header (Z2), as one fragment leads to the next.
fn sealed_log(bytes: &[u8]) -> Vec<u8> {
    let mut sealed = bytes.to_vec();
    for block in sealed.chunks_mut(log::BLOCK_BYTES) {
        let mut rest = block;
        while let Some(&[_, _, _, _, l0, l1, type_byte]) = rest.first_chunk::<{ log::HEADER_BYTES }>() {
            let is_recyclable = matches!(type_byte, 5..=8) || (type_byte >= 10 && type_byte % 2 == 1);
            let header_bytes = if is_recyclable { log::RECYCLABLE_HEADER_BYTES } else { log::HEADER_BYTES };
            let end = header_bytes + usize::from(u16::from_le_bytes([l0, l1]));
            let Some((fragment, behind)) = std::mem::take(&mut rest).split_at_mut_checked(end) else { break };
            let crc = mask(crc32c(&fragment[log::HEADER_BYTES - 1..])).to_le_bytes();
            fragment[..4].copy_from_slice(&crc);
            rest = behind;
        }
    }
    sealed
}

/// What decodes, decodes to records that can be appended one by one.
pub(super) fn write_batch(bytes: &[u8]) {
    let _ = write_batch::header(bytes);
    if let Some(note) = LogNote::of_batch(bytes) {
        let again = note.to_batch(SequenceNumber::new(7)).expect("it is short");
        assert_eq!(LogNote::of_batch(again.bytes()), Some(note));
    }
    let records: Result<Vec<_>, _> = write_batch::records(bytes).collect();
    let Ok(batch) = WriteBatch::decode(bytes.to_vec()) else { return };
    let records = records.expect("a batch that decodes has records that do");
    let counted = records.iter().filter(|record| record.is_counted()).count();
    assert_eq!(counted, batch.count() as usize);
    assert!(batch.bytes() == bytes && batch.len_bytes() == bytes.len() && batch.is_empty() == records.is_empty());
    let mut pointed = WriteBatch::new();
    let is_pointed = |place: usize| place % 3 != 1 && records[place].is_counted();
    batch.point(&mut pointed, |place| is_pointed(place).then_some(&b"index"[..])).expect("indexes are short");
    let pointed = WriteBatch::decode(pointed.bytes().to_vec()).expect("a batch with pointers is a batch");
    assert!(pointed.records().count() == records.len() && pointed.sequence() == batch.sequence());
    for (place, (now, before)) in pointed.records().zip(&records).enumerate() {
        let now = now.expect("its records decode");
        let (kind, value) =
            if is_pointed(place) { (ValueKind::BlobIndex, &b"index"[..]) } else { (before.kind, before.value) };
        assert_eq!((now.kind, now.cf, now.key, now.value), (kind, before.cf, before.key, value));
    }
    let mut doubled = batch.clone();
    if doubled.append(&batch).is_ok() {
        assert_eq!(doubled.records().filter(|record| record.is_ok()).count(), 2 * records.len());
        assert_eq!(doubled.sequence(), batch.sequence());
        WriteBatch::decode(doubled.bytes().to_vec()).expect("two batches are a batch");
    }
}

/// Keys keep their order, and separators lie where they should.
pub(super) fn internal_key(bytes: &[u8]) {
    let _ = InternalKey::decode(bytes).map(|key| assert!(key.user_key.len() + 8 == bytes.len()));
    let middle = bytes.first().map_or(0, |&first| usize::from(first) % bytes.len());
    let (a, b) = bytes.split_at(middle);
    for order in [Order::BYTEWISE, Order::new(&ReverseBytewiseComparator)] {
        assert_eq!(order.compare_internal(a, b), order.compare_internal(b, a).reverse());
        let number = SequenceNumber::new(b.len() as u64);
        let (low, high) = (internal_key::lookup(a, number), internal_key::lookup(b, number));
        if order.compare_internal(&low, &high).is_lt() {
            let between = order.shortest_separator(&low, &high);
            assert!(order.compare_internal(&low, &between).is_le() && order.compare_internal(&between, &high).is_lt());
        }
        assert!(order.compare_internal(&low, &order.shortest_successor(&low)).is_le());
    }
}

/// What decodes is encoded to what decodes alike.
pub(super) fn version_edit(bytes: &[u8]) {
    let Ok(edit) = VersionEdit::decode(bytes) else { return };
    let mut again = Vec::new();
    edit.encode(&mut again);
    let decoded = VersionEdit::decode(&again).unwrap_or_else(|error| panic!("{error}: {edit:?}"));
    assert_eq!(decoded, edit);
}

/// Header, record and footer of a blob file, the index that points into one, and the way past holes.
pub(super) fn blob(bytes: &[u8]) {
    let (at, end) = (bytes.first().map_or(0, |&first| usize::from(first).min(bytes.len())) as u64, bytes.len() as u64);
    let read = |offset: u64, out: &mut [u8]| {
        out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
        Ok::<_, std::convert::Infallible>(())
    };
    let Ok(behind) = behind_hole(at, end, read);
    assert!(behind.is_none_or(|behind| behind > at && behind <= end));
    assert!(behind.is_none() || has_hole(0, bytes));
    if let Ok(index) = BlobIndex::decode(bytes) {
        let mut again = Vec::new();
        index.encode(&mut again);
        assert_eq!(BlobIndex::decode(&again), Ok(index));
        let _ = index.record_offset(bytes.len());
    }
    if let Ok(header) = BlobFileHeader::decode(bytes) {
        assert_eq!(BlobFileHeader::decode(&header.encode()), Ok(header));
    }
    for crc_at in [None, Some((24, 24)), Some((28, 28))] {
        let mut bytes = bytes.to_vec();
        if let Some((covered, at)) = crc_at {
            let crc = mask(crc32c(bytes.get(..covered).unwrap_or_default())).to_le_bytes();
            bytes.iter_mut().skip(at).zip(crc).for_each(|(to, from)| *to = from);
        }
        if let Ok(header) = BlobRecordHeader::decode(&bytes) {
            assert_eq!(BlobRecordHeader::decode(&header.encode()), Ok(header));
            let _ = (header.record_bytes(), header.check(&bytes, &bytes), header.check_crc(0));
        }
        if let Ok(footer) = BlobFooter::decode(&bytes) {
            assert_eq!(BlobFooter::decode(&footer.encode()), Ok(footer));
        }
    }
}

/// What parses is printed as what parses alike.
pub(super) fn options_file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    assert_eq!(options_file::unescape(&options_file::escape(&text)), text);
    if let Some(prefix) = PrefixExtractor::parse(&text) {
        assert_eq!(PrefixExtractor::parse(&prefix.to_string()), Some(prefix));
        let _ = (prefix.of(bytes), prefix.of_range(bytes, text.as_bytes()));
    }
    let Ok(file) = OptionsFile::parse(bytes) else { return };
    let printed = file.to_string();
    let again = OptionsFile::parse(printed.as_bytes()).unwrap_or_else(|error| panic!("{error}: {printed}"));
    assert_eq!(again.to_string(), printed);
    for name in file.family_names() {
        for section in [file.family(name), file.table(name), file.database()].into_iter().flatten() {
            for key in ["write_buffer_size", "block_size", "compression", "filter_policy", "bloom_locality"] {
                let _ = (section.get_u64(key), section.get_i64(key), section.get_f64(key), section.get_bool(key));
            }
            let _ = (section.get_bloom_bits(), section.get("prefix_extractor").map(PrefixExtractor::parse));
        }
    }
}

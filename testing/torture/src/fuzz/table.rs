//! The parts of a table.

use esker_format::checksum::{ChecksumKind, block_checksum};
use esker_format::compression::Compression;
use esker_format::rocksdb::block::{
    BlockBuilder, BlockCursor, BlockDirectory, BlockLayout, IndexCursor, IndexFormat, KeyOrder, put_together,
};
use esker_format::rocksdb::order::{Order, ReverseBytewiseComparator};
use esker_format::rocksdb::table::{BlockHandle, FOOTER_BYTES, Footer, MetaIndex, TableProperties};
use esker_format::rocksdb::{blob_refs, filter};

/// A cursor ends wherever it goes; what it read, built again, is read alike.
pub(super) fn block(bytes: &[u8]) {
    let (target, block) = bytes.split_at(bytes.len().min(12));
    // What lies apart is put together first, and grows by nothing.
    let Ok(together) = put_together(block.to_vec()) else { return };
    assert!(together.len() <= block.len());
    let block = &*together;
    let Ok(layout) = BlockLayout::parse(block) else { return };
    let mut cursor = BlockCursor::new(layout);
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut walked = cursor.seek_to_first(block);
    while walked.is_ok() && cursor.valid() {
        entries.push((cursor.key().to_vec(), cursor.value(block).to_vec()));
        // An entry takes three bytes at least, whatever the restarts say.
        assert!(entries.len() <= block.len());
        walked = cursor.next(block);
    }
    let mut steps = 0;
    let mut back = cursor.seek_to_last(block);
    while back.is_ok() && cursor.valid() && steps < 200 {
        steps += 1;
        back = cursor.prev(block);
    }
    let orders = [Order::BYTEWISE, Order::new(&ReverseBytewiseComparator)];
    for order in orders.into_iter().flat_map(|order| [KeyOrder::Internal(order), KeyOrder::User(order)]) {
        let _ = cursor.seek(block, target, order);
        let _ = (cursor.prev(block), cursor.next(block));
        let _ = cursor.seek_within(block, target, order, 1..usize::from(target.first().copied().unwrap_or(0)));
    }
    if let Some(directory) = BlockDirectory::of(block) {
        let _ = (cursor.seek_with(&directory, block, target), cursor.next(block), cursor.prev(block));
    }
    let interval = usize::from(target.first().copied().unwrap_or(0)) % 20 + 1;
    if walked.is_ok() && entries.is_sorted() {
        build_again(&entries, interval);
    }
    if walked.is_ok() {
        search_alike(entries, target, interval);
    }
}

/// A search with the directory ends where one without it does.
fn search_alike(mut entries: Vec<(Vec<u8>, Vec<u8>)>, target: &[u8], interval: usize) {
    entries.retain(|(key, _)| key.len() >= 8);
    entries.sort_by(|(a, _), (b, _)| Order::BYTEWISE.compare_internal(a, b));
    entries.dedup_by(|(a, _), (b, _)| Order::BYTEWISE.compare_internal(a, b).is_eq());
    let mut builder = BlockBuilder::new(interval);
    entries.iter().for_each(|(key, value)| builder.add(key, value));
    let block = builder.finish();
    let Some(directory) = BlockDirectory::of(block) else { return };
    let layout = BlockLayout::parse(block).expect("what was built parses");
    let targets = entries.iter().map(|(key, _)| key.as_slice()).step_by(3).take(40).chain([target]);
    for target in targets.filter(|target| target.len() >= 8) {
        let (mut with, mut without) = (BlockCursor::new(layout), BlockCursor::new(layout));
        with.seek_with(&directory, block, target).expect("and is searched");
        without.seek(block, target, KeyOrder::Internal(Order::BYTEWISE)).expect("in both ways");
        assert!(with.valid() == without.valid() && (!with.valid() || with.key() == without.key()), "{target:?}");
    }
}

fn build_again(entries: &[(Vec<u8>, Vec<u8>)], interval: usize) {
    let mut builder = BlockBuilder::new(interval);
    entries.iter().for_each(|(key, value)| builder.add(key, value));
    let block = builder.finish();
    let mut cursor = BlockCursor::new(BlockLayout::parse(block).expect("what was built parses"));
    cursor.seek_to_first(block).expect("and is read");
    for (key, value) in entries {
        assert!(cursor.valid() && cursor.key() == key && cursor.value(block) == value);
        cursor.next(block).expect("to its end");
    }
    assert!(!cursor.valid());
}

/// The same for an index, in each of its eight formats and two orders.
pub(super) fn index_block(bytes: &[u8]) {
    let Some((&format, rest)) = bytes.split_first() else { return };
    let (target, block) = rest.split_at(rest.len().min(12));
    let Ok(layout) = BlockLayout::parse(block) else { return };
    let format = IndexFormat {
        delta_encoded: format & 1 != 0,
        user_keys: format & 2 != 0,
        first_keys: format & 4 != 0,
        order: if format & 8 != 0 { Order::new(&ReverseBytewiseComparator) } else { Order::BYTEWISE },
    };
    let mut cursor = IndexCursor::new(layout, format);
    let mut steps = 0;
    let mut walked = cursor.seek_to_first(block);
    while walked.is_ok() && cursor.valid() {
        let _ = (cursor.handle(block).map(|handle| handle.stored_bytes(1 << 20)), cursor.separator().len());
        steps += 1;
        assert!(steps <= block.len());
        walked = cursor.next(block);
    }
    let mut back = cursor.seek_to_last(block);
    while back.is_ok() && cursor.valid() && steps > 0 {
        steps -= 1;
        back = cursor.prev(block);
    }
    let _ = cursor.seek(block, target);
    let _ = cursor.seek_within(block, target, 1..usize::from(target.first().copied().unwrap_or(0)));
    let _ = (0..layout.restart_count().min(40)).try_for_each(|at| cursor.restart_user_key(block, at).map(drop));
}

/// Any bytes are a filter, and none of them forgets a key that it was built from.
pub(super) fn filter(bytes: &[u8]) {
    let (key, block) = bytes.split_at(bytes.len().min(9));
    let _ = filter::may_contain(block, key);
    let bits = bytes.first().map_or(1.0, |&first| f64::from(first) / 4.0);
    if let Some(mut builder) = filter::FilterBuilder::new(bits) {
        let keys: Vec<&[u8]> = block.chunks(7).collect();
        keys.iter().for_each(|key| builder.add(key));
        let built = builder.finish();
        assert!(keys.iter().all(|key| filter::may_contain(&built, key)));
    }
}

/// Footer, with its checksum and with a good one, handles, and the trailers that go by it.
pub(super) fn footer(bytes: &[u8]) {
    for file_bytes in [bytes.len() as u64, 1 << 40] {
        for bytes in [Some(bytes), sealed_footer(bytes, file_bytes).as_deref()].into_iter().flatten() {
            let Ok(footer) = Footer::decode(bytes, file_bytes) else { continue };
            let raw = footer.encode(file_bytes - FOOTER_BYTES as u64);
            let again = Footer::decode(&raw, file_bytes).expect("what was decoded is encoded");
            assert_eq!(again.checksum, footer.checksum);
            assert_eq!(again.index, footer.index);
            let _ = footer.checksum.verify(bytes, 0);
            let mut stored = bytes.to_vec();
            stored.extend_from_slice(&footer.checksum.trailer(bytes, Compression::None, 4096));
            let (data, compression) = footer.checksum.verify(&stored, 4096).expect("its own trailer");
            assert!(data == bytes && compression == Compression::None);
        }
    }
    if let Ok((handle, count)) = BlockHandle::decode(bytes) {
        assert!(count <= bytes.len());
        let _ = (handle.end(), handle.stored_bytes(u64::MAX));
        let mut raw = Vec::new();
        handle.encode(&mut raw);
        assert_eq!(BlockHandle::decode(&raw), Ok((handle, raw.len())));
    }
}

/// As it would be with the checksum that a footer of version 6 has of itself (Z2).
fn sealed_footer(bytes: &[u8], file_bytes: u64) -> Option<Vec<u8>> {
    let start = bytes.len().checked_sub(FOOTER_BYTES)?;
    let mut sealed = bytes.to_vec();
    let footer = &mut sealed[start..];
    let kind = ChecksumKind::from_u8(footer[0]).ok()?;
    let base_context = u32::from_le_bytes(*footer[9..].first_chunk()?);
    let offset = file_bytes.checked_sub(FOOTER_BYTES as u64)?;
    footer[5..9].fill(0);
    let (last, head) = footer.split_last()?;
    let context = base_context ^ (offset as u32).wrapping_add((offset >> 32) as u32);
    let checksum = block_checksum(kind, head, *last).wrapping_add(context);
    footer[5..9].copy_from_slice(&checksum.to_le_bytes());
    Some(sealed)
}

/// Metaindex, properties, and the property that Esker adds.
pub(super) fn meta_blocks(bytes: &[u8]) {
    if let Ok(index) = MetaIndex::decode(bytes) {
        let again = MetaIndex::decode(&index.encode()).expect("what was decoded is encoded");
        assert!(again.entries().eq(index.entries()));
        let _ = index.get("rocksdb.properties");
    }
    if let Ok(properties) = TableProperties::decode(bytes) {
        let again = TableProperties::decode(&properties.encode()).expect("what was decoded is encoded");
        assert_eq!(again.entries(), properties.entries());
        let _ = (properties.index_type(), properties.index_format(Order::BYTEWISE), properties.has_whole_key_filter());
        let _ = (properties.external_version(), properties.timestamps_were_cut());
    }
    let _ = TableProperties::external_sequence_range(bytes).map(|range| assert!(range.end <= bytes.len()));
    if let Ok(refs) = blob_refs::decode(bytes) {
        assert_eq!(blob_refs::decode(&blob_refs::encode(&refs)), Ok(refs));
    }
}

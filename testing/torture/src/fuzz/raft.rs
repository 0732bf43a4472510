//! raft-engine's files.

use esker_format::raft::closed::{self, Closed};
use esker_format::raft::crc32;
use esker_format::raft::entries::{self, Packing};
use esker_format::raft::file_header::FileHeader;
use esker_format::raft::item::{self, Action, Items};
use esker_format::raft::log_batch::{self, BatchHeader, HEADER_BYTES};

/// The header of a file.
pub(super) fn file_header(bytes: &[u8]) {
    if let Ok(header) = FileHeader::decode(bytes) {
        let mut raw = Vec::new();
        header.encode(&mut raw);
        assert_eq!(raw.len(), header.len_bytes());
        assert_eq!(FileHeader::decode(&raw), Ok(header));
    }
}

/// The note of a close, with and without a good checksum.
pub(super) fn closed(bytes: &[u8]) {
    let _ = Closed::decode(bytes);
    let (body, _) = bytes.split_at(bytes.len().saturating_sub(4).min(closed::LEN_BYTES - 4));
    if let Ok(closed) = Closed::decode(&[body, &crc32(body).to_le_bytes()].concat()) {
        assert_eq!(Closed::decode(&closed.encode()), Ok(closed));
    }
}

/// A whole batch as it stands in a file: header, entries, items, with and without good checksums.
pub(super) fn log_batch(bytes: &[u8]) {
    let Some((raw, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return };
    let Ok(header) = BatchHeader::decode(raw) else { return };
    assert_eq!(BatchHeader::decode(&header.encode()), Ok(header));
    let part = |range: std::ops::Range<u64>| bytes.get(range.start as usize..range.end as usize);
    for (range, salt) in [(header.entries(), 0), (header.items(), 3)] {
        let Some(block) = part(range).filter(|block| block.len() > log_batch::CHECKSUM_BYTES) else { continue };
        let _ = log_batch::checked("block", block, salt);
        let (body, _) = block.split_at(block.len() - log_batch::CHECKSUM_BYTES);
        let sealed = [body, &(crc32(body) ^ salt).to_le_bytes()].concat();
        assert!(log_batch::checked("block", &sealed, salt).expect("its own checksum") == body);
        items(body);
        if header.packing == Packing::Lz4 {
            entries(body);
        }
    }
}

/// Items, from the front and from every place between.
pub(super) fn items(bytes: &[u8]) {
    let Ok(mut items) = Items::new(bytes) else { return };
    let (mut again, mut count) = (Vec::new(), 0u64);
    let mut place = items.place();
    while let Ok(Some(item)) = items.read() {
        let mut at_place = Items::at(bytes, place);
        assert_eq!(at_place.read(), Ok(Some(item.clone())), "an item is found where it was");
        place = items.place();
        count += 1;
        let _ = item.atomic_marker();
        match item.action {
            Action::Entries(entries) => {
                let ends: Vec<u32> = entries.ranges().map(|range| range.end).collect();
                assert_eq!(ends.len() as u64, entries.count);
                item::put_entries(&mut again, item.group, entries.first_index, ends.into_iter());
            }
            Action::Clean => item::put_clean(&mut again, item.group),
            Action::Compact { index } => item::put_compact(&mut again, item.group, index),
            Action::Put { key, value } => item::put_put(&mut again, item.group, key, value),
            Action::Delete { key } => item::put_delete(&mut again, item.group, key),
        }
        assert!(count <= bytes.len() as u64, "an item takes three bytes at least");
    }
    let mut copy = Items::of_body(&again, count);
    for _ in 0..count {
        assert!(copy.read().expect("what was read is written").is_some());
    }
}

/// Packed entries.
pub(super) fn entries(bytes: &[u8]) {
    let (mut out, mut packed) = (Vec::new(), Vec::new());
    let unpacked = entries::unpack(bytes, &mut out);
    if let Ok(raw_bytes) = entries::raw_bytes(bytes)
        && raw_bytes < 1 << 20
    {
        let mut into = vec![0; raw_bytes];
        assert_eq!(entries::unpack_into(bytes, &mut into).is_ok(), unpacked.is_ok());
        assert!(unpacked.is_err() || into == out);
        let _ = entries::unpack_front(bytes, &mut into, raw_bytes / 2);
    }
    if entries::pack(bytes, &mut packed).expect("short enough") {
        entries::unpack(&packed, &mut out).expect("what was packed unpacks");
        assert!(out == bytes);
        let wanted = bytes.len() / 2;
        let count = entries::unpack_front(&packed, &mut out, wanted).expect("its front unpacks, too");
        assert!(count >= wanted && out[..count] == bytes[..count]);
    }
}

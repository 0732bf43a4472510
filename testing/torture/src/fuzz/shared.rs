//! What all formats are made of: integers, compression, names.

use esker_format::compression::{self, Compression, Dictionary};
use esker_format::cursor::Cursor;
use esker_format::{cask, file_name, raft, varint};

/// Longest value that decompression may make here.
const RAW_BYTES_MAX: usize = 1 << 20;

/// Integers read back as written, and every read of a cursor moves or fails.
pub(super) fn varint(bytes: &[u8]) {
    if let Some((value, count)) = varint::get_u64(bytes) {
        assert!(count <= varint::VARINT64_BYTES_MAX && count <= bytes.len());
        let mut again = Vec::new();
        varint::put_u64(&mut again, value);
        assert!(again.len() <= count && again.len() == varint::len_u64(value));
        assert_eq!(varint::get_u64(&again), Some((value, again.len())));
        let narrow = varint::get_u32(bytes);
        assert!(narrow.is_none_or(|(number, _)| u64::from(number) == value));
    }
    let mut cursor = Cursor::new(bytes);
    for step in 0.. {
        let before = (cursor.offset(), cursor.rest().len());
        let done = match step % 6 {
            0 => cursor.u8("byte").is_ok(),
            1 => cursor.varint64("number").is_ok(),
            2 => cursor.prefixed("string").is_ok(),
            3 => cursor.varint32("number").is_ok(),
            4 => cursor.u16("number").is_ok(),
            _ => cursor.u64("number").is_ok(),
        };
        if !done {
            assert_eq!((cursor.offset(), cursor.rest().len()), before, "a failed read moves");
            break;
        }
        assert_eq!(cursor.offset() as usize + cursor.rest().len(), bytes.len());
        assert!(cursor.rest().len() < before.1, "a read that reads nothing");
    }
}

/// Anything packed comes back; anything else is refused within the bound.
pub(super) fn compression(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let kinds = Compression::ALL;
    let kind = kinds[usize::from(*kind) % kinds.len()];
    let (mut out, mut packed) = (Vec::new(), Vec::new());
    let front = |packed: &[u8]| packed[..packed.len().min(compression::RAW_LEN_BYTES_MAX)].to_vec();
    let said = compression::raw_len(kind, &front(bytes), bytes.len(), RAW_BYTES_MAX);
    if compression::decompress(kind, bytes, &mut out, RAW_BYTES_MAX).is_ok() {
        assert_eq!(said, Ok(out.len()));
    }
    assert!(out.len() <= RAW_BYTES_MAX);
    let (dictionary, in_sight) = bytes.split_at(bytes.len() / 2);
    let _ = Dictionary::new(dictionary.to_vec()).decompress(kind, in_sight, &mut out, RAW_BYTES_MAX);
    assert!(out.len() <= RAW_BYTES_MAX);
    let _ = compression::unpack_frame(bytes, &mut out, RAW_BYTES_MAX);
    assert!(out.len() <= RAW_BYTES_MAX);
    compression::compress(kind, bytes, &mut packed).expect("short enough for every kind");
    compression::decompress(kind, &packed, &mut out, bytes.len()).expect("what was packed unpacks");
    assert!(out == bytes);
    assert_eq!(compression::raw_len(kind, &front(&packed), packed.len(), bytes.len()), Ok(bytes.len()));
    if !bytes.is_empty() {
        assert!(compression::decompress(kind, &packed, &mut out, bytes.len() - 1).is_err(), "beyond the bound");
    }
}

/// A name that parses is printed as one that parses alike.
pub(super) fn file_names(bytes: &[u8]) {
    let name = String::from_utf8_lossy(bytes);
    if let Some(parsed) = file_name::FileName::parse(&name) {
        assert_eq!(file_name::FileName::parse(&parsed.name()), Some(parsed));
    }
    if let Some(parsed) = raft::file_name::FileName::parse(&name) {
        assert_eq!(raft::file_name::FileName::parse(&parsed.to_string()), Some(parsed));
    }
    if let Some(parsed) = cask::file_name::FileName::parse(&name) {
        assert_eq!(cask::file_name::FileName::parse(&parsed.name()), Some(parsed));
    }
}

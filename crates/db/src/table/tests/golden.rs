//! The bytes of a small table are a promise to files already on disk. `sst_dump` of RocksDB 7.8 accepts this one.

use super::*;

fn golden_table() -> Vec<u8> {
    let disk = SimDisk::new();
    let options = TableOptions { compression: Compression::None, restart_interval: 2, ..TableOptions::default() };
    let entries = [
        entry("apple", 3, ValueKind::Value, b"red"),
        entry("apply", 2, ValueKind::Deletion, b""),
        entry("banana", 1, ValueKind::Value, b"long"),
    ];
    write(&disk.env(), &options, &entries).unwrap();
    disk.file_bytes(Path::new(PATH)).unwrap()
}

#[test]
fn golden_bytes() {
    let file = golden_table();
    #[rustfmt::skip]
    let data_block = [
        0, 13, 3, b'a', b'p', b'p', b'l', b'e', 1, 3, 0, 0, 0, 0, 0, 0, b'r', b'e', b'd',
        4, 9, 0, b'y', 0, 2, 0, 0, 0, 0, 0, 0,
        0, 14, 4, b'b', b'a', b'n', b'a', b'n', b'a', 1, 1, 0, 0, 0, 0, 0, 0, b'l', b'o', b'n', b'g',
        0, 0, 0, 0, 31, 0, 0, 0,
        2, 0, 0, 0,
        // Not compressed; XXH3.
        0,
    ];
    assert_eq!(file[..data_block.len()], data_block);
    // The filter: one line of 64 bytes, six probes for each of three keys.
    let filter_at = data_block.len() + 4;
    let bits: u32 = file[filter_at..filter_at + 64].iter().map(|byte| byte.count_ones()).sum();
    assert!((10..=18).contains(&bits), "{bits}");
    assert_eq!(file[filter_at + 64..filter_at + 70], [0xff, 0, 6, 0, 0, 0]);
    assert_eq!((file.len(), esker_format::checksum::crc32c(&file)), (989, 0xc82c_4e65));
}

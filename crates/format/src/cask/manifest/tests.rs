use proptest::prelude::*;

use super::*;

fn manifest() -> Manifest {
    let number = |n| FileNumber::new(n).unwrap();
    Manifest {
        store_id: *b"0123456789abcdef",
        keep_versions: 7,
        next_file: 9,
        next_version: 1000,
        files: vec![
            File {
                number: number(3),
                state: FileState::Sealed { data_bytes: 4096, record_count: 17 },
                salt: 0xdead_beef,
                clean_as_of: 5,
            },
            File { number: number(8), state: FileState::Open { durable_bytes: 0 }, salt: 1, clean_as_of: 900 },
        ],
    }
}

/// These bytes are a promise to files already on disk.
#[test]
fn golden_bytes() {
    // The second as it was before there was the field `keep versions`.
    for (keep_versions, crc) in [(7, b"\x5f\x9e\x54\x30"), (0, b"\xe4\x0c\xed\x62")] {
        let manifest = Manifest { keep_versions, ..manifest() };
        let mut raw = manifest.encode();
        let expected = [
            &b"eskrmani\x01\0\x07\0\x30123456789abcdef\x09\0\0\0\xe8\x03\0\0\0\0\0\0\x02\0\0\0"[..],
            b"\x03\0\0\0\x01\0\0\0\xef\xbe\xad\xde\x05\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\x11\0\0\0\0\0\0\0\0\0\0\0",
            b"\x08\0\0\0\0\0\0\0\x01\0\0\0\x84\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            crc,
        ]
        .concat();
        assert_eq!(Manifest::decode(&raw).unwrap(), manifest);
        raw[10] = 7;
        assert_eq!(raw, expected, "{raw:02x?}");
    }
}

#[test]
fn every_flipped_bit_and_missing_byte_is_noticed() {
    let raw = manifest().encode();
    for bit in 0..raw.len() * 8 {
        let mut damaged = raw.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Manifest::decode(&damaged).is_err(), "bit {bit}");
    }
    for len in 0..raw.len() {
        assert!(Manifest::decode(&raw[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn numbers_ascend_and_stay_below_the_next() {
    let mut twice = manifest();
    twice.files[1].number = twice.files[0].number;
    assert_eq!(Manifest::decode(&twice.encode()).unwrap_err().field, "number");
    let beyond = Manifest { next_file: 8, ..manifest() };
    assert_eq!(Manifest::decode(&beyond.encode()).unwrap_err().field, "number");
}

/// Goal: no file gets number 0, which stands for none where keys are looked up; no version is followed by lower ones.
#[test]
fn what_no_store_counts_to_is_refused() {
    let mut zero = manifest();
    zero.files[0].number = FileNumber::new(0).unwrap();
    let none = Manifest { next_file: 0, files: Vec::new(), ..manifest() };
    let far = Manifest { next_version: VERSION_MAX + 1, ..manifest() };
    for (manifest, field) in [(zero, "number"), (none, "next file"), (far, "next version")] {
        assert_eq!(Manifest::decode(&manifest.encode()).unwrap_err().field, field);
    }
    assert!(Manifest::decode(&Manifest { next_version: VERSION_MAX, ..manifest() }.encode()).is_ok());
}

proptest! {
    #[test]
    fn any_bytes_give_a_manifest_or_an_error(mut raw in proptest::collection::vec(any::<u8>(), 0..300)) {
        let head: Vec<u8> = MAGIC.into_iter().chain(VERSION.to_le_bytes()).collect();
        for (place, byte) in raw.iter_mut().zip(head) {
            *place = byte;
        }
        // With a CRC that holds, so that the rest is looked at.
        let crc = crc32c(&raw);
        raw.extend_from_slice(&crc.to_le_bytes());
        if let Ok(found) = Manifest::decode(&raw) {
            prop_assert_eq!(Manifest::decode(&found.encode()).unwrap(), found);
        }
    }
}

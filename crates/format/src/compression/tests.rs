use proptest::prelude::*;

use super::*;

const ALL: [Compression; 6] = Compression::ALL;

fn packed(kind: Compression, raw: &[u8]) -> Vec<u8> {
    let mut out = b"old".to_vec();
    compress(kind, raw, &mut out).unwrap();
    out
}

fn unpacked(kind: Compression, compressed: &[u8], limit_bytes: usize) -> Result<Vec<u8>, DecodeError> {
    let mut out = b"old".to_vec();
    decompress(kind, compressed, &mut out, limit_bytes).map(|()| out)
}

#[test]
fn golden_bytes() {
    let raw = [b'a'; 100];
    assert_eq!(packed(Compression::Snappy, b"hi"), b"\x02\x04hi");
    assert_eq!(packed(Compression::Lz4, b"hi"), b"\x02\x20hi");
    assert_eq!(packed(Compression::Zstd, b"hi"), b"\x02\x28\xb5\x2f\xfd\x20\x02\x11\x00\x00hi");
    // Written by the original libraries.
    let zstd = b"\x64\x28\xb5\x2f\xfd\x20\x64\x45\x00\x00\x10\x61\x61\x01\x00\x3f\x01\x2c";
    assert_eq!(unpacked(Compression::Zstd, zstd, 100).unwrap(), raw);
    assert_eq!(unpacked(Compression::Zlib, b"\x64\x4b\x4c\xa4\x3d\x00\x00", 100).unwrap(), raw);
    assert_eq!(unpacked(Compression::Lz4, b"\x64\x1fa\x01\x00\x4b\x50aaaaa", 100).unwrap(), raw);
    assert_eq!(unpacked(Compression::Snappy, b"\x64\x00a\xfe\x01\x00\x8a\x01\x00", 100).unwrap(), raw);
}

#[test]
fn empty_and_large_inputs_read_back() {
    let large: Vec<u8> = (0..400_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
    for kind in ALL {
        for raw in [&b""[..], b"x", &large] {
            let compressed = packed(kind, raw);
            assert_eq!(unpacked(kind, &compressed, raw.len()).unwrap(), raw, "{kind:?}");
            assert!(raw.is_empty() || unpacked(kind, &compressed, raw.len() - 1).is_err(), "{kind:?}");
        }
    }
}

#[test]
fn bytes_stored_for_want_of_memory_read_back() {
    for len in [0, 1, 14, 15, 16, 269, 270, 271, 65_536, 65_537, 131_072, 131_073, 300_000] {
        let raw: Vec<u8> = (0..len as u32).map(|n| (n * 31) as u8).collect();
        let stored = |store: fn(&[u8], &mut Vec<u8>), prefix: bool| {
            let mut out = Vec::new();
            if prefix {
                varint::put_u64(&mut out, len as u64);
            }
            store(&raw, &mut out);
            out
        };
        assert_eq!(unpacked(Compression::Snappy, &stored(store_snappy, false), len).unwrap(), raw);
        assert_eq!(unpacked(Compression::Zlib, &stored(store_zlib, true), len).unwrap(), raw);
        assert_eq!(unpacked(Compression::Lz4, &stored(store_lz4, true), len).unwrap(), raw);
        assert_eq!(unpacked(Compression::Zstd, &stored(store_zstd, true), len).unwrap(), raw);
    }
}

#[test]
fn a_promise_that_the_input_cannot_keep_allocates_nothing() {
    let mut bomb = Vec::new();
    varint::put_u64(&mut bomb, 1 << 40);
    bomb.extend_from_slice(b"0123456789");
    for kind in [Compression::Zlib, Compression::Lz4, Compression::Zstd, Compression::Snappy] {
        let mut out = Vec::new();
        assert!(decompress(kind, &bomb, &mut out, usize::MAX).is_err());
        assert_eq!(out.capacity(), 0, "{kind:?}");
    }
}

#[test]
fn the_best_ratio_of_each_kind_is_within_what_is_believed() {
    let raw = vec![0; 16 << 20];
    for kind in ALL {
        assert_eq!(unpacked(kind, &packed(kind, &raw), raw.len()).unwrap(), raw, "{kind:?}");
    }
    // A block of repeated bytes: the densest that Zstandard has.
    let mut densest = b"\x80\x80\x08\x28\xb5\x2f\xfd\x00\x58".to_vec();
    densest.extend_from_slice(b"\x03\x00\x10\x00");
    assert_eq!(unpacked(Compression::Zstd, &densest, 1 << 20).unwrap(), vec![0; 131_072]);
}

#[test]
fn names_and_bytes_agree() {
    for kind in ALL {
        assert_eq!(Compression::from_u8(kind.as_u8()), Ok(kind));
        assert_eq!(Compression::from_option_name(kind.option_name()), Some(kind));
    }
    assert_eq!(Compression::from_u8(64), Ok(Compression::Zstd));
    assert_eq!(Compression::from_option_name("kZSTDNotFinalCompression"), Some(Compression::Zstd));
    for byte in [3, 6, 8, 63, 65, 0x80, 0xff] {
        assert_eq!(Compression::from_u8(byte).unwrap_err().kind, crate::DecodeErrorKind::Unsupported);
    }
}

proptest! {
    #[test]
    fn what_is_packed_unpacks(raw in proptest::collection::vec(0u8..4, 0..2000)) {
        for kind in ALL {
            let packed = packed(kind, &raw);
            prop_assert_eq!(unpacked(kind, &packed, 2000).unwrap(), &raw[..]);
            let front = &packed[..packed.len().min(RAW_LEN_BYTES_MAX)];
            prop_assert_eq!(raw_len(kind, front, packed.len(), 2000).unwrap(), raw.len());
        }
    }

    #[test]
    fn any_bytes_give_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for kind in ALL {
            let raw = unpacked(kind, &bytes, 1 << 16);
            let front = &bytes[..bytes.len().min(RAW_LEN_BYTES_MAX)];
            let promised = raw_len(kind, front, bytes.len(), 1 << 16);
            prop_assert!(raw.is_err() || promised.is_ok_and(|len| raw.is_ok_and(|raw| raw.len() == len)));
        }
    }

    #[test]
    fn damaged_bytes_give_a_value_or_an_error(
        raw in proptest::collection::vec(0u8..4, 0..300), at in any::<prop::sample::Index>(), bit in 0u8..8,
    ) {
        for kind in ALL {
            let mut compressed = packed(kind, &raw);
            if !compressed.is_empty() {
                let at = at.index(compressed.len());
                compressed[at] ^= 1u8 << bit;
            }
            let _ = unpacked(kind, &compressed, 1 << 16);
        }
    }
}

/// Goal: what was packed in sight of a dictionary comes out with it, what was not comes out, too; another dictionary, or a broken one, is an error or other
/// bytes, nothing worse.
#[test]
fn a_dictionary_unpacks_what_was_packed_in_sight_of_it() {
    let sample: Vec<u8> =
        (0..4000u32).flat_map(|n| (n.wrapping_mul(n).wrapping_mul(2_654_435)).to_le_bytes()).collect();
    let dictionary = Dictionary::new(sample.clone());
    let raw = [&sample[600..1900], &b"and what it has not"[..], &sample[9000..9700]].concat();
    let prefixed = |packed: &[u8]| {
        let mut framed = Vec::new();
        varint::put_u64(&mut framed, raw.len() as u64);
        framed.extend_from_slice(packed);
        framed
    };
    let deflated = {
        let mut context = Compress::new_with_window_bits(flate2::Compression::new(6), false, 14);
        context.set_dictionary(&sample).unwrap();
        let mut out = Vec::with_capacity(10_000);
        context.compress_vec(&raw, &mut out, FlushCompress::Finish).unwrap();
        out
    };
    let zstd = zstd::bulk::Compressor::with_dictionary(3, &sample).unwrap().compress(&raw).unwrap();
    let packed = [
        (Compression::Lz4, prefixed(&lz4_flex::block::compress_with_dict(&raw, &sample))),
        (Compression::Zlib, prefixed(&deflated)),
        (Compression::Zstd, prefixed(&zstd)),
    ];
    let mut out = Vec::new();
    for (kind, packed) in packed {
        assert!(packed.len() < raw.len() / 4, "{kind:?}: {} bytes", packed.len());
        dictionary.decompress(kind, &packed, &mut out, 10_000).unwrap();
        assert_eq!(out, raw, "{kind:?}");
        let without = decompress(kind, &packed, &mut out, 10_000);
        assert!(without.is_err() && out.is_empty(), "{kind:?}");
        let other = Dictionary::new(sample.iter().rev().copied().collect());
        let by_other = other.decompress(kind, &packed, &mut out, 10_000);
        assert!(by_other.is_err() || out != raw, "{kind:?}");
        assert!(dictionary.decompress(kind, &packed, &mut out, raw.len() - 1).is_err());
        for end in 0..packed.len() {
            assert!(dictionary.decompress(kind, &packed[..end], &mut out, 10_000).is_err(), "{kind:?}, {end}");
        }
        for at in 0..packed.len() {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x11;
            let _ = dictionary.decompress(kind, &damaged, &mut out, 10_000);
        }
    }
    for kind in Compression::ALL {
        let mut packed = Vec::new();
        compress(kind, &raw, &mut packed).unwrap();
        dictionary.decompress(kind, &packed, &mut out, 10_000).unwrap();
        assert_eq!(out, raw, "{kind:?}");
    }
    // It begins as what Zstandard's trainer makes, and is none.
    let mut untrue = 0xec30_a437u32.to_le_bytes().to_vec();
    untrue.extend_from_slice(&sample);
    let error = Dictionary::new(untrue).decompress(Compression::Zstd, &prefixed(&zstd), &mut out, 10_000).unwrap_err();
    assert_eq!((error.field, error.kind), ("compression dictionary", crate::DecodeErrorKind::Corrupt));
}

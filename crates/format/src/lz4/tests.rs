use proptest::prelude::*;

use super::strides::{self, INPUT_BYTES_MAX};
use super::*;

/// What our own packer makes of it, if it is for that.
fn own(raw: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0; packed_bytes_max(raw.len())];
    let count = strides::pack(raw, &mut out)?;
    out.truncate(count);
    Some(out)
}

fn patient(raw: &[u8]) -> Vec<u8> {
    lz4_flex::block::compress(raw)
}

fn noise(count: usize) -> Vec<u8> {
    let mut random = 1u32;
    let mut byte = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 24) as u8
    };
    (0..count).map(|_| byte()).collect()
}

/// Words in random order: all copies are short.
fn text(words: usize) -> String {
    let word = |byte: u8| ["ridge ", "gravel ", "sand ", "a moraine ", "till "][usize::from(byte % 5)];
    noise(words).into_iter().map(word).collect()
}

#[test]
fn what_repeats_is_packed_and_what_does_not_hardly_grows() {
    for count in [0, 1, 11, 12, 13, 100, 1_000, 8_000, INPUT_BYTES_MAX] {
        assert!(own(&noise(count)).unwrap().len() <= count + count / 255 + 16);
        assert!(own(&vec![0; count]).unwrap().len() <= count.min(20) + 1 + count / 255);
    }
}

/// Pieces that come twice, of lengths and at distances that suit no stride, behind heads that are much the same.
#[test]
fn strides_miss_no_more_than_a_look_at_each_byte() {
    let noise = noise(1 << 20);
    let mut pieces = noise.as_slice();
    for (piece_bytes, gap_bytes) in [(33, 0), (50, 0), (50, 17), (61, 3), (100, 90), (150, 300), (400, 5), (1000, 1000)]
    {
        let mut raw = Vec::new();
        while raw.len() < 16_000 {
            let (piece, rest) = pieces.split_at(piece_bytes);
            let (gap, rest) = rest.split_at(gap_bytes);
            pieces = rest;
            for part in [b"head of a piece".as_slice(), piece, gap, piece] {
                raw.extend_from_slice(part);
            }
        }
        for raw in [&raw[..1_000], &raw[7..4_000], &raw[..]] {
            let (own, patient) = (own(raw).unwrap().len(), patient(raw).len());
            // The head that came before is shorter than a stride.
            let most = patient + patient / 50 + 15;
            assert!(own <= most, "{own} against {patient} of {} in {piece_bytes}, {gap_bytes}", raw.len());
        }
    }
}

#[test]
fn a_short_text_is_packed_as_well_as_by_a_patient_packer_and_a_long_one_is_left_to_that() {
    let text = text(6_000);
    for count in [100, 500, 1_000, 2_000, 4_096] {
        let (own, patient) = (own(&text.as_bytes()[..count]).unwrap().len(), patient(&text.as_bytes()[..count]).len());
        assert!(own <= patient + patient / 20, "{own} against {patient} of {count}");
    }
    assert_eq!(own(text.as_bytes()), None);
    let mut out = vec![0; packed_bytes_max(text.len())];
    let count = pack(text.as_bytes(), &mut out).unwrap();
    assert_eq!(out[..count], patient(text.as_bytes()));
}

#[test]
fn what_is_unpacked_ends_where_the_block_does() {
    let twice: Vec<u8> = noise(2_000).chunks(50).flat_map(|piece| [piece, piece].concat()).collect();
    for raw in [twice, text(300).into_bytes(), b"sand".to_vec()] {
        let mut packed = patient(&raw);
        let mut out = vec![0; raw.len()];
        assert_eq!(unpack(&packed, &mut out).unwrap(), raw.len());
        assert_eq!(out, raw);
        assert!(unpack(&packed[..packed.len() - 1], &mut out).ok() != Some(raw.len()));
        packed.push(0);
        assert!(unpack(&packed, &mut out).ok() != Some(raw.len()));
    }
    assert_eq!(unpack(&[0], &mut []).unwrap(), 0);
}

#[test]
fn what_does_not_fit_is_refused() {
    let random = noise(5_000);
    for room in (0..5_000).step_by(7) {
        assert_eq!(strides::pack(&random, &mut vec![0; room]), None);
        assert_eq!(pack(&random, &mut vec![0; room]), None);
    }
    assert_eq!(strides::pack(&vec![0; INPUT_BYTES_MAX + 1], &mut vec![0; INPUT_BYTES_MAX * 2]), None);
    assert!(pack(&vec![0; INPUT_BYTES_MAX + 1], &mut vec![0; INPUT_BYTES_MAX * 2]).is_some());
}

proptest! {
    /// Copies of every length and distance, literals of every length, ends near and far.
    #[test]
    fn packed_blocks_read_back(
        parts in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..80), 0usize..400, 1usize..5000), 0..60),
        short in any::<bool>(),
    ) {
        let mut raw = Vec::new();
        for (literals, count, distance) in parts {
            raw.extend_from_slice(&literals);
            for _ in 0..if short { count / 20 } else { count } {
                let at = raw.len().checked_sub(distance).and_then(|at| raw.get(at).copied());
                raw.push(at.unwrap_or(7));
            }
        }
        raw.truncate(INPUT_BYTES_MAX);
        if let Some(packed) = own(&raw) {
            prop_assert_eq!(&lz4_flex::block::decompress(&packed, raw.len()).unwrap(), &raw);
            let mut out = vec![0; raw.len()];
            prop_assert_eq!(unpack(&packed, &mut out).unwrap(), raw.len());
            prop_assert_eq!(&out, &raw);
        }
        // What others have packed, too, up to every place.
        let packed = patient(&raw);
        let mut out = vec![0; raw.len()];
        prop_assert_eq!(unpack(&packed, &mut out).unwrap(), raw.len());
        prop_assert_eq!(&out, &raw);
        for wanted in [0, 1.min(raw.len()), raw.len() / 3, raw.len() / 2, raw.len().saturating_sub(1), raw.len()] {
            let mut out = vec![0; raw.len()];
            let count = unpack_front(&packed, &mut out, wanted).unwrap();
            prop_assert!(count >= wanted && out[..count] == raw[..count]);
        }
        prop_assert_eq!(unpack_front(&packed, &mut vec![0; raw.len() + 1], raw.len() + 1), None);
        prop_assert!(raw.is_empty() || unpack_front(&packed, &mut vec![0; raw.len() - 1], raw.len()).is_none());
    }

    #[test]
    fn unpacking_is_total(packed in proptest::collection::vec(any::<u8>(), 0..300), room in 0usize..3000, wanted in 0usize..4000) {
        let mut out = vec![0; room];
        let count = unpack_front(&packed, &mut out, wanted);
        prop_assert!(count.is_none_or(|count| count >= wanted && count <= room));
    }

    /// Of damaged blocks the same comes out as of other unpackers. What the C library refuses, whose rules for the end of a block are the stricter
    /// ones, may be refused.
    #[test]
    fn damage_is_unpacked_as_others_do(
        words in proptest::collection::vec(0u8..4, 20..400), at: proptest::sample::Index, byte: u8,
    ) {
        let raw: Vec<u8> = words.iter().flat_map(|word| [*word; 7]).collect();
        let mut packed = lz4_flex::block::compress(&raw);
        *at.get_mut(&mut packed) = byte;
        let mut own = vec![0; raw.len()];
        let unpacked = unpack_front(&packed, &mut own, raw.len()).map(|len| &own[..len]);
        if let Ok(strict) = lz4::block::decompress(&packed, Some(raw.len() as i32)) && strict.len() == raw.len() {
            prop_assert_eq!(unpacked, Some(&*strict));
        }
        if let Ok(lenient) = lz4_flex::block::decompress(&packed, raw.len()) && lenient.len() == raw.len() {
            prop_assert!(unpacked.is_none_or(|own| own == lenient));
        }
    }

    /// Such as a block that the C library refuses, since its last copy is too near to its end.
    #[test]
    fn a_copy_near_the_end_is_unpacked_or_refused(distance in 1u8..8, count in 0u8..15, last in 0u8..12) {
        let mut packed = vec![7 << 4 | count, 1, 2, 3, 4, 5, 6, 7, distance, 0, last << 4];
        packed.extend(vec![9; last.into()]);
        let raw = lz4_flex::block::decompress(&packed, 64).unwrap();
        let mut own = vec![0; raw.len()];
        prop_assert!(unpack(&packed, &mut own).map_or(true, |len| own[..len] == raw));
        prop_assert!(unpack_front(&packed, &mut own, raw.len()).is_none_or(|len| own[..len] == raw));
    }
}

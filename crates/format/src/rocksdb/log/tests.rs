use proptest::prelude::*;

use super::*;
use crate::DecodeErrorKind;

/// `ldb put key value` on an empty store.
const PUT: &[u8] = b"\x10\x23\x44\xb5\x17\x00\x01\
    \x02\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x03key\x05value";

/// `db_bench` putting four bytes under four, with recycled logs, in 000004.log.
const RECYCLABLE_PUT: &[u8] = b"\xd2\xa1\x6b\x37\x17\x00\x05\x04\x00\x00\x00\
    \x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x04\x00\x00\x00\x00\x04\x5e\x7b\x56\x68";

fn framed(records: &[&[u8]]) -> Vec<u8> {
    let mut framer = Framer::default();
    let mut log = Vec::new();
    for record in records {
        let expected = log.len() + framer.framed_bytes(record.len());
        framer.frame(record, &mut log);
        assert_eq!(log.len(), expected);
        assert_eq!(framer, Framer::at(log.len() as u64));
    }
    log
}

fn read(log: &[u8], number: Option<u32>) -> (Vec<Vec<u8>>, Vec<DecodeError>) {
    let mut reader = Reader::new(log, number);
    let (mut records, mut errors) = (Vec::new(), Vec::new());
    while let Some(next) = reader.next() {
        match next {
            Ok((_, record)) => records.push(record.to_vec()),
            Err(error) => errors.push(error),
        }
    }
    (records, errors)
}

/// A fragment of any type, as a writer would have made it.
fn fragment(type_byte: u8, number: Option<u32>, payload: &[u8]) -> Vec<u8> {
    let mut covered = vec![type_byte];
    covered.extend(number.into_iter().flat_map(u32::to_le_bytes));
    covered.extend_from_slice(payload);
    let mut out = mask(crc32c(&covered)).to_le_bytes().to_vec();
    out.extend_from_slice(&(payload.len() as u16).to_le_bytes());
    out.extend_from_slice(&covered);
    out
}

#[test]
fn golden_bytes() {
    assert_eq!(framed(&[&PUT[7..]]), PUT);
    assert_eq!(read(PUT, None), (vec![PUT[7..].to_vec()], vec![]));
    assert_eq!(fragment(5, Some(4), &RECYCLABLE_PUT[11..]), RECYCLABLE_PUT);
    assert_eq!(read(RECYCLABLE_PUT, Some(4)), (vec![RECYCLABLE_PUT[11..].to_vec()], vec![]));
    assert_eq!(next_fragment(RECYCLABLE_PUT, 0, Some(5)), Fragment::StaleRecycled);
}

#[test]
fn table_is_true() {
    let parts = [&PUT[7..19], &b""[..], &PUT[19..]];
    let mut log = Vec::new();
    Framer::new(0).frame_parts(&parts, &mut log);
    assert_eq!(log, PUT);
    let expected = Fragment::Whole { kind: FragmentKind::Full, payload: 7..30, next: 30, recyclable: false };
    assert_eq!(next_fragment(&log, 0, Some(9)), expected);
    for offset in 0..log.len() {
        for bit in 0..8 {
            let mut damaged = log.clone();
            damaged[offset] ^= 1u8 << bit;
            let found = next_fragment(&damaged, 0, None);
            assert!(matches!(found, Fragment::Damaged { .. }), "bit {bit} of byte {offset}: {found:?}");
        }
    }
}

#[test]
fn records_of_every_length_around_a_block_read_back() {
    for lead in [0, 1, 100, 32_747, 32_754, 32_755, 32_756, 32_760, 32_761] {
        for len in [0, 1, 5, 7, 32_754, 32_755, 32_760, 32_761, 32_762, 65_522, 65_523, 100_000] {
            let records = [&vec![1; lead][..], &vec![2; len], b"end"];
            let (found, errors) = read(&framed(&records), None);
            assert_eq!((found, errors), (records.map(<[u8]>::to_vec).to_vec(), vec![]), "{lead} {len}");
        }
    }
}

#[test]
fn headers_beside_the_payload_are_those_of_a_framed_record() {
    for lead in [0, 100, 32_747, 32_754, 32_755, 32_758, 32_761] {
        for len in [0, 1, 7, 32_754, 32_761, 32_762, 65_522, 65_523, 100_000] {
            let (first, second) = (vec![1; lead], vec![2; len]);
            let expected = framed(&[&first, &second]);
            let mut log = framed(&[&first]);
            let mut framer = Framer::at(log.len() as u64);
            let (mut left, mut begins) = (&second[..], true);
            while begins || !left.is_empty() {
                let front = framer.next_header(left, begins);
                log.resize(log.len() + front.padding, 0);
                log.extend_from_slice(front.header());
                log.extend_from_slice(&left[..front.held]);
                (left, begins) = (&left[front.held..], false);
            }
            assert!(log == expected && framer == Framer::at(log.len() as u64), "{lead} {len}");
        }
    }
}

#[test]
fn recyclable_records_are_those_of_rocksdb_and_are_read_back_at_every_place_of_a_block() {
    let mut golden = Vec::new();
    Framer::default().recyclable(Some(4)).frame(&RECYCLABLE_PUT[11..], &mut golden);
    assert_eq!(golden, RECYCLABLE_PUT);
    for lead in [0, 100, 32_730, 32_744, 32_746, 32_747, 32_750, 32_751, 32_757] {
        for len in [0, 1, 7, 11, 32_750, 32_757, 32_758, 65_514, 65_515, 100_000] {
            let records = [vec![1; lead], vec![2; len], b"end".to_vec()];
            let mut framer = Framer::default().recyclable(Some(9));
            let mut log = Vec::new();
            for record in &records[..2] {
                let expected = log.len() + framer.framed_bytes(record.len());
                framer.frame(record, &mut log);
                assert_eq!(log.len(), expected);
                assert_eq!(framer, Framer::at(log.len() as u64).recyclable(Some(9)));
            }
            let mut beside = framer;
            framer.frame(&records[2], &mut log);
            let front = beside.next_header(&records[2], true);
            let tail = [&vec![0; front.padding], front.header(), &records[2]].concat();
            assert!(log.ends_with(&tail) && beside == framer);
            assert_eq!(read(&log, Some(9)), (records.to_vec(), vec![]), "{lead} {len}");
            assert_eq!(next_fragment(&log, 0, Some(8)), Fragment::StaleRecycled);
        }
    }
}

#[test]
fn offsets_are_where_records_begin() {
    let log = framed(&[&[1; 40_000], b"a", b"b"]);
    let mut reader = Reader::new(&log, None);
    let mut offsets = Vec::new();
    while let Some(next) = reader.next() {
        offsets.push(next.unwrap().0);
    }
    assert_eq!(offsets, [0, 40_014, 40_022]);
    assert_eq!(reader.offset(), log.len() as u64);
}

#[test]
fn a_torn_tail_ends_the_log() {
    let log = framed(&[b"first", b"second"]);
    for len in 13..log.len() {
        let (records, errors) = read(&log[..len], None);
        assert_eq!(records, [b"first".to_vec()][..usize::from(len >= 12)]);
        assert_eq!(errors.len(), 1, "{len}");
    }
    let (records, errors) = read(&framed(&[&[7; 50_000]])[..BLOCK_BYTES], None);
    assert_eq!((records.len(), errors.len(), errors[0].offset), (0, 1, 0));
}

#[test]
fn zeroes_are_the_end_of_a_preallocated_log() {
    let mut log = framed(&[b"first"]);
    log.resize(100_000, 0);
    assert_eq!(read(&log, None), (vec![b"first".to_vec()], vec![]));
    assert_eq!(next_fragment(&log[..BLOCK_BYTES], 12, None), Fragment::Zeroes);
    for zeroes in 1..2 * HEADER_BYTES {
        log.truncate(12 + zeroes);
        assert_eq!(read(&log, None), (vec![b"first".to_vec()], vec![]), "{zeroes}");
        assert_eq!(next_fragment(&log, 12, None), Fragment::Zeroes);
        log.resize(100_000, 0);
    }
}

/// Goal: no record is made of what lies before and behind a block that was lost.
#[test]
fn pieces_are_not_joined_across_zeroes() {
    let mut log = framed(&[&[7; 80_000], b"last"]);
    log[BLOCK_BYTES..2 * BLOCK_BYTES].fill(0);
    let (records, errors) = read(&log, None);
    assert!(records == [b"last".to_vec()], "{:?}", records.iter().map(Vec::len).collect::<Vec<_>>());
    let errors: Vec<_> = errors.iter().map(|error| (error.field, error.offset)).collect();
    assert_eq!(errors, [("record", 0), ("type", 2 * BLOCK_BYTES as u64)]);
}

#[test]
fn what_follows_damage_in_the_next_block_is_found() {
    let mut log = framed(&[b"first", &[1; 32_000], &[2; 32_000], b"last"]);
    log[20] ^= 1;
    let (records, errors) = read(&log, None);
    assert_eq!(records, [b"first".to_vec(), b"last".to_vec()]);
    assert_eq!(
        errors.iter().map(|error| (error.field, error.offset)).collect::<Vec<_>>(),
        [("crc", 12), ("type", 32_768)]
    );
}

#[test]
fn recyclable_records_are_read_and_those_of_another_log_end_it() {
    let mut log = fragment(6, Some(7), b"ab");
    log.extend(fragment(7, Some(7), b"cd"));
    log.extend(fragment(8, Some(7), b"ef"));
    log.extend(fragment(5, Some(6), b"stale"));
    assert_eq!(read(&log, Some(7)), (vec![b"abcdef".to_vec()], vec![]));
    assert_eq!(read(&log, None).0.len(), 2);
    // A flipped number is damage, not the end of the log.
    log[7] ^= 1;
    assert_eq!(read(&log, Some(7)).1[0].field, "crc");
}

#[test]
fn padding_before_a_recyclable_header_is_not_the_end() {
    let mut log = fragment(5, Some(7), &[1; BLOCK_BYTES - 11 - 9]);
    log.resize(BLOCK_BYTES, 0);
    log.extend(fragment(5, Some(7), b"next"));
    assert_eq!(next_fragment(&log, BLOCK_BYTES - 9, Some(7)), Fragment::EndOfBlock);
    assert_eq!(read(&log, Some(7)).0.len(), 2);
}

#[test]
fn what_may_be_ignored_is_and_the_rest_is_unsupported() {
    for type_byte in 9..=255 {
        let number = is_recyclable(type_byte).then_some(7);
        let log = fragment(type_byte, number, b"?");
        let found = next_fragment(&log, 0, Some(7));
        if type_byte >= 128 {
            assert_eq!(found, Fragment::Ignored { next: log.len() });
        } else {
            let Fragment::Damaged { reason, .. } = found else { panic!("{type_byte}") };
            assert_eq!(reason.kind, DecodeErrorKind::Unsupported);
        }
    }
}

#[test]
fn an_empty_beginning_without_an_end_is_forgiven() {
    let mut log = fragment(2, None, b"");
    log.extend(fragment(1, None, b"whole"));
    assert_eq!(read(&log, None), (vec![b"whole".to_vec()], vec![]));
    let mut log = fragment(2, None, b"x");
    log.extend(fragment(1, None, b"whole"));
    let (records, errors) = read(&log, None);
    assert_eq!((records, errors.len(), errors[0].offset), (vec![b"whole".to_vec()], 1, 8));
}

proptest! {
    #[test]
    fn what_is_framed_reads_back(records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20_000), 0..8)) {
        let views: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(read(&framed(&views), Some(3)), (records, vec![]));
    }

    #[test]
    fn a_flipped_bit_never_changes_a_record(
        lens in proptest::collection::vec(0usize..20_000, 1..6), at in any::<prop::sample::Index>(), bit in 0u32..8,
    ) {
        let records: Vec<Vec<u8>> = lens.iter().enumerate().map(|(n, &len)| vec![n as u8 + 1; len]).collect();
        let views: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let mut log = framed(&views);
        let at = at.index(log.len());
        log[at] ^= 1u8 << bit;
        for found in read(&log, None).0 {
            prop_assert!(records.contains(&found));
        }
    }

    #[test]
    fn any_bytes_give_fragments_or_errors(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..400, number in any::<Option<u32>>()) {
        let _ = next_fragment(&bytes, at, number);
        let _ = read(&bytes, number);
    }
}

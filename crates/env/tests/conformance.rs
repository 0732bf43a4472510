//! Goal: the simulated disk answers as the real one does, so that what holds on one holds on the other.
//! Method: every case runs on both, with the same asserts, down to the kinds of errors.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use esker_env::sim::SimDisk;
use esker_env::{Access, DirEntry, Env, FileKind, FileSystem, PAD_BYTES, ReadRequest, Result, read_many};

/// A machine and an empty directory on it.
struct Place {
    env: Env,
    root: PathBuf,
}

impl Place {
    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn files(&self) -> &dyn FileSystem {
        self.env.files.as_ref()
    }

    /// Writes a file in one go.
    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.at(name);
        self.files().create(&path).unwrap().append(&[bytes]).unwrap();
        path
    }

    fn names(&self) -> Vec<String> {
        self.files().list(&self.root).unwrap().into_iter().map(|entry| entry.name).collect()
    }
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("a call succeeded that must fail"),
        Err(error) => error.kind(),
    }
}

/// One test for each case and each machine.
macro_rules! on_both {
    ($($case:ident)*) => {
        mod os {
            $(#[test] fn $case() {
                let dir = tempfile::tempdir().unwrap();
                super::$case(&super::Place { env: esker_env::Env::os(), root: dir.path().to_owned() });
            })*
        }
        mod sim {
            $(#[test] fn $case() {
                let disk = super::SimDisk::new();
                let root = std::path::PathBuf::from("/store");
                esker_env::FileSystem::create_dir_all(&disk, &root).unwrap();
                super::$case(&super::Place { env: disk.env(), root });
            })*
        }
    };
}

on_both! {
    appended_parts_read_back_in_order
    many_parts_are_one_append
    zeroes_at_the_end_are_left_out_but_for_some
    a_read_past_the_end_is_short
    an_exact_read_past_the_end_is_an_unexpected_end
    many_reads_each_have_their_own_result
    a_large_batch_of_two_files_in_any_order_is_read_whole
    a_map_is_the_whole_file
    a_map_outlives_handle_and_name
    truncating_cuts_and_appending_goes_on_there
    reopening_cuts_what_lies_behind
    what_is_held_is_given_back_by_cutting_the_file
    preallocating_does_not_change_where_appends_go
    appends_of_all_sizes_go_to_preallocated_blocks_and_beyond
    what_synced_appends_take_along_is_zeroes_and_counts_for_nothing
    zeroes_follow_what_is_appended_to_a_padded_file_until_it_is_sealed
    runs_of_appends_of_each_kind_follow_one_another
    a_preallocated_file_is_cut_and_goes_on
    a_window_shows_what_was_appended_and_nothing_else
    what_is_appended_to_a_sealed_file_may_be_cut_though_a_window_was_lent
    a_recycled_file_is_written_over_and_keeps_its_old_end
    a_recycled_file_takes_appends_of_all_sizes_and_zeroes_follow_them
    a_taken_name_cannot_be_created
    missing_files_are_not_found
    directories_are_not_files_and_files_not_directories
    directories_are_made_with_their_parents_and_again
    names_are_listed_sorted_with_their_kinds
    renaming_replaces
    renaming_directories_moves_what_is_in_them
    links_share_one_file
    a_handle_outlives_the_name
    directories_are_removed_only_empty
    a_punched_range_reads_as_zeroes_and_is_given_back
    space_is_available
    a_lock_excludes_until_dropped
    a_lock_follows_the_file_not_the_path
    a_directory_is_shared_by_many_or_claimed_by_one
    small_files_are_written_whole
    errors_say_what_where_and_why
    threads_run_and_are_waited_for
    clocks_advance_while_sleeping
    entropy_does_not_repeat_itself
    one_thread_may_sync_while_another_appends
}

fn appended_parts_read_back_in_order(place: &Place) {
    let path = place.at("a");
    let file = place.files().create(&path).unwrap();
    assert!(file.is_empty());
    file.append(&[b"one", b"", b" two"]).unwrap();
    file.append(&[]).unwrap();
    file.append(&[b""]).unwrap();
    file.append(&[b" three"]).unwrap();
    assert_eq!((file.len(), file.path()), (13, path.as_path()));
    file.sync().unwrap();
    let reader = place.files().open(&path).unwrap();
    assert_eq!((reader.len().unwrap(), reader.is_empty().unwrap(), reader.path()), (13, false, path.as_path()));
    assert_eq!(place.files().read(&path).unwrap(), b"one two three");
    file.append(&[b"!"]).unwrap();
    let mut tail = [0; 6];
    assert_eq!(reader.read_at(8, &mut tail).unwrap(), 6);
    assert_eq!(&tail, b"three!", "an open reader sees what is appended later");
}

fn many_parts_are_one_append(place: &Place) {
    let file = place.files().create(&place.at("a")).unwrap();
    let parts: Vec<Vec<u8>> = (0..3000u32).map(|part| vec![part as u8; (part % 7) as usize]).collect();
    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    file.append(&slices).unwrap();
    assert_eq!(place.files().read(&place.at("a")).unwrap(), parts.concat());
    assert_eq!(file.len(), parts.concat().len() as u64);
}

fn zeroes_at_the_end_are_left_out_but_for_some(place: &Place) {
    let path = place.at("a");
    let file = place.files().create(&path).unwrap();
    let mut bytes = Vec::new();
    // Nothing, zeroes alone, pieces that end with them, and data behind many of them.
    for (data, zeroes) in [(0, 0), (0, 3), (1, 0), (70_000, 200_000), (1, 1 << 16), (65_535, 1), (9, 300_000), (5, 10)]
    {
        let part = [vec![7; data], vec![0; zeroes]].concat();
        file.append(&[&part]).unwrap();
        bytes.extend(part);
        let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for kept in [0, 2, 100, 1 << 30] {
            let expected = &bytes[..bytes.len().min(written + kept)];
            let (read, len) = place.files().read_written(&path, kept).unwrap();
            assert!(
                read == expected && len == bytes.len() as u64,
                "{} bytes, {kept} kept: {}",
                bytes.len(),
                read.len()
            );
        }
    }
}

fn a_read_past_the_end_is_short(place: &Place) {
    let reader = place.files().open(&place.write("a", b"abcdef")).unwrap();
    let mut buffer = [9; 4];
    assert_eq!(reader.read_at(4, &mut buffer).unwrap(), 2);
    assert_eq!(&buffer, b"ef\x09\x09");
    assert_eq!(reader.read_at(6, &mut buffer).unwrap(), 0);
    assert_eq!(reader.read_at(1 << 40, &mut buffer).unwrap(), 0);
    assert_eq!(reader.read_at(0, &mut []).unwrap(), 0);
    reader.advise(Access::Random);
    reader.advise(Access::Sequential);
}

fn an_exact_read_past_the_end_is_an_unexpected_end(place: &Place) {
    let reader = place.files().open(&place.write("a", b"abcdef")).unwrap();
    let mut buffer = [0; 4];
    reader.read_exact_at(2, &mut buffer).unwrap();
    assert_eq!(&buffer, b"cdef");
    let error = reader.read_exact_at(3, &mut buffer).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::UnexpectedEof, Some(3)));
}

fn many_reads_each_have_their_own_result(place: &Place) {
    let reader = place.files().open(&place.write("a", b"abcdefgh")).unwrap();
    let (mut last, mut beyond, mut first) = ([0; 3], [0; 3], [0; 3]);
    let mut requests = [
        ReadRequest::new(&*reader, 5, &mut last),
        ReadRequest::new(&*reader, 7, &mut beyond),
        ReadRequest::new(&*reader, 0, &mut first),
    ];
    read_many(&mut requests);
    let offsets = requests.each_ref().map(|request| request.offset);
    assert_eq!(offsets, [5, 7, 0], "the caller's order stays");
    let kinds = requests.map(|request| request.result.err().map(|error| error.kind()));
    assert_eq!(kinds, [None, Some(ErrorKind::UnexpectedEof), None]);
    assert_eq!((&last, &first), (b"fgh", b"abc"));
    read_many(&mut []);
}

fn a_large_batch_of_two_files_in_any_order_is_read_whole(place: &Place) {
    let bytes: Vec<u8> = (0..300_000u32).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let path = place.write("a", &bytes);
    place.files().reopen(&path, bytes.len() as u64).unwrap().sync().unwrap();
    let backward: Vec<u8> = bytes.iter().rev().copied().collect();
    let other = place.files().open(&place.write("b", &backward)).unwrap();
    let reader = place.files().open(&path).unwrap();
    reader.advise(Access::Random);
    // Hints, right or wrong, change no answer.
    let len = bytes.len() as u64;
    for range in [0..len, 5..5, len - 1..len + 10, len + 10..u64::MAX] {
        reader.will_read(range);
    }
    let places: Vec<usize> = (0..200).map(|index| index * 524_287 % (bytes.len() - 9000)).collect();
    let mut buffers: Vec<Vec<u8>> = places.iter().map(|place| vec![0; place % 9000]).collect();
    let mut requests: Vec<ReadRequest<'_>> = Vec::new();
    for (index, (place, buffer)) in places.iter().zip(&mut buffers).enumerate() {
        let file = if index % 3 == 0 { &other } else { &reader };
        requests.push(ReadRequest::new(&**file, *place as u64, buffer));
    }
    read_many(&mut requests);
    assert!(requests.iter().all(|request| request.result.is_ok()));
    for (index, (place, buffer)) in places.iter().zip(&buffers).enumerate() {
        let of_file = if index % 3 == 0 { &backward } else { &bytes };
        assert_eq!(buffer[..], of_file[*place..place + buffer.len()]);
    }
}

fn a_map_is_the_whole_file(place: &Place) {
    let bytes: Vec<u8> = (0..10_000u32).map(|byte| (byte % 251) as u8).collect();
    let full = place.files().open(&place.write("full", &bytes)).unwrap();
    let empty = place.files().open(&place.write("empty", b"")).unwrap();
    assert_eq!(full.map().unwrap().unwrap().bytes(), bytes);
    assert_eq!(empty.map().unwrap().unwrap().bytes(), b"");
}

fn a_map_outlives_handle_and_name(place: &Place) {
    let path = place.write("a", b"still here");
    let map = place.files().open(&path).unwrap().map().unwrap().unwrap();
    place.files().remove(&path).unwrap();
    let read_elsewhere = std::thread::spawn(move || map.bytes().to_vec());
    assert_eq!(read_elsewhere.join().unwrap(), b"still here");
}

fn truncating_cuts_and_appending_goes_on_there(place: &Place) {
    let path = place.at("a");
    let file = place.files().create(&path).unwrap();
    file.append(&[b"abcdef"]).unwrap();
    assert_eq!(kind(file.truncate(7)), ErrorKind::InvalidInput);
    file.truncate(6).unwrap();
    file.truncate(2).unwrap();
    assert_eq!(file.len(), 2);
    file.append(&[b"XY"]).unwrap();
    assert_eq!(place.files().read(&path).unwrap(), b"abXY");
}

fn reopening_cuts_what_lies_behind(place: &Place) {
    let path = place.write("a", b"abcdef");
    assert_eq!(kind(place.files().reopen(&path, 7)), ErrorKind::InvalidInput);
    let file = place.files().reopen(&path, 4).unwrap();
    assert_eq!((file.len(), place.files().metadata(&path).unwrap().len), (4, 4));
    file.append(&[b"!"]).unwrap();
    drop(file);
    let whole = place.files().reopen(&path, 5).unwrap();
    whole.append(&[b"?"]).unwrap();
    assert_eq!(place.files().read(&path).unwrap(), b"abcd!?");
}

fn what_is_held_is_given_back_by_cutting_the_file(place: &Place) {
    let path = place.at("a");
    let file = place.files().create(&path).unwrap();
    let held = |len| {
        let is_held = file.hold(len).unwrap();
        (is_held, place.files().metadata(&path).unwrap().allocated)
    };
    let (is_held, allocated) = held(1 << 20);
    assert!(if is_held { allocated >= 1 << 20 } else { allocated == 0 }, "{allocated}");
    let (again, more) = held(2 << 20);
    assert!(again == is_held && (!is_held || more >= 2 << 20), "{more}");
    assert_eq!(held(5), (is_held, more), "less than there is asks for nothing");
    file.sync().unwrap();
    file.truncate(0).unwrap();
    assert_eq!(place.files().metadata(&path).unwrap().allocated, 0);
    let (again, allocated) = held(100 << 10);
    assert!(again == is_held && allocated < 1 << 20, "{allocated}");
}

fn preallocating_does_not_change_where_appends_go(place: &Place) {
    let path = place.at("a");
    let file = place.files().create(&path).unwrap();
    file.append(&[b"abc"]).unwrap();
    let reserved = file.preallocate(1 << 20).unwrap();
    let found = place.files().metadata(&path).unwrap();
    assert_eq!(file.len(), 3);
    if reserved {
        assert!(found.allocated >= 1 << 20, "{found:?}");
    }
    assert_eq!(file.preallocate(2).unwrap(), reserved, "less than there is asks for nothing");
    file.append(&[b"def"]).unwrap();
    file.sync().unwrap();
    file.append(&[b"g"]).unwrap();
    assert_eq!(without_zeroes(place, "a"), b"abcdefg");
    file.seal().unwrap();
    file.seal().unwrap();
    file.sync().unwrap();
    let found = place.files().metadata(&path).unwrap();
    assert!(found.len == 7 && found.allocated < 1 << 20, "{found:?}");
    assert_eq!(place.files().read(&path).unwrap(), b"abcdefg");
}

/// What `name` holds, without the zeroes that a preallocated file may end with.
fn without_zeroes(place: &Place, name: &str) -> Vec<u8> {
    let mut bytes = place.files().read(&place.at(name)).unwrap();
    let len = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(len);
    bytes
}

/// Every size, alone and in parts, with syncs between, over the end of what was preallocated.
fn appends_of_all_sizes_go_to_preallocated_blocks_and_beyond(place: &Place) {
    let path = place.at("a");
    let file = place.files().create(&path).unwrap();
    file.preallocate(1 << 20).unwrap();
    let mut expected = Vec::new();
    for round in 0..350usize {
        let len = [1, 3, 7, 8, 9, 120, 1000, 4096, 5000, 33_000, 70_000][round * 7 % 11] + round % 5;
        let bytes: Vec<u8> = (0..len).map(|byte| (byte * 31 + round) as u8 | 1).collect();
        let (first, rest) = bytes.split_at(round % 12 % len);
        file.append(&[first, b"", rest]).unwrap();
        expected.extend_from_slice(&bytes);
        if round % 10 == 0 {
            file.sync().unwrap();
        }
        if round == 100 {
            assert_eq!(without_zeroes(place, "a"), expected);
            file.preallocate(2 << 20).unwrap();
        }
    }
    assert!(expected.len() > 3 << 20 && file.len() == expected.len() as u64);
    file.seal().unwrap();
    assert!(place.files().read(&path).unwrap() == expected);
}

/// Appends of all sizes, with syncs and cuts between: nothing but what was appended, and zeroes to the end of a piece.
fn zeroes_follow_what_is_appended_to_a_padded_file_until_it_is_sealed(place: &Place) {
    let path = place.at("a");
    let file = place.files().create(&path).unwrap();
    file.pad();
    let mut expected = Vec::new();
    let mut is_ever_longer = false;
    for round in 0..200usize {
        let len = [120, 1000, 4096, 5000, 18_000, 33_000, 70_000][round % 7] + round % 5;
        let bytes: Vec<u8> = (0..len).map(|byte| (byte * 31 + round) as u8 | 1).collect();
        let (first, rest) = bytes.split_at(round % 12);
        file.append(&[first, b"", rest]).unwrap();
        expected.extend_from_slice(&bytes);
        assert_eq!(file.len(), expected.len() as u64);
        let found = place.files().read(&path).unwrap();
        assert!(found.starts_with(&expected) && found[expected.len()..].iter().all(|&byte| byte == 0));
        let pieces = file.len().next_multiple_of(PAD_BYTES);
        assert!(found.len() as u64 == file.len() || found.len() as u64 == pieces, "{} of {}", found.len(), file.len());
        is_ever_longer |= found.len() > expected.len();
        match round % 23 {
            7 => file.sync().unwrap(),
            15 => {
                expected.truncate(expected.len() - len / 2);
                file.truncate(expected.len() as u64).unwrap();
                assert_eq!(place.files().metadata(&path).unwrap().len, file.len());
            }
            _ => {}
        }
    }
    assert!(is_ever_longer);
    file.seal().unwrap();
    assert!(place.files().read(&path).unwrap() == expected);
    file.append(&[b"behind"]).unwrap();
    expected.extend_from_slice(b"behind");
    assert!(place.files().read(&path).unwrap() == expected, "and none any more");
}

/// Appends that are each synced may take zeroes along, to where blocks were preallocated: whoever looks after a process died there finds
/// what was appended, and nothing else, also where it was cut and goes on, and at the end of the blocks.
fn what_synced_appends_take_along_is_zeroes_and_counts_for_nothing(place: &Place) {
    let path = place.at("a");
    let file = place.files().create(&path).unwrap();
    let reserved = 300 << 10;
    file.preallocate(reserved).unwrap();
    let mut expected = Vec::new();
    for round in 0..90usize {
        let bytes = vec![round as u8 + 1; [5000, 1, 700, 4096, 9000, 3, 8192][round % 7]];
        file.append(&[&bytes]).unwrap();
        expected.extend_from_slice(&bytes);
        assert_eq!(file.len(), expected.len() as u64);
        if round == 20 {
            expected.truncate(expected.len() - 10_000);
            file.truncate(expected.len() as u64).unwrap();
            file.preallocate(reserved).unwrap();
        }
        if round % 9 != 8 {
            file.sync().unwrap();
        }
        let found = place.files().read(&path).unwrap();
        assert!(found.len() as u64 <= reserved.max(expected.len() as u64), "round {round}: {}", found.len());
        let (whole, behind) = found.split_at(expected.len());
        assert!(whole == expected && behind.iter().all(|&byte| byte == 0), "round {round}");
    }
    assert!(expected.len() as u64 > reserved);
    file.seal().unwrap();
    assert!(place.files().read(&path).unwrap() == expected);
}

/// Small and large appends, synced or not, in runs of each: which of them are copied, which take zeroes along, and which are set off for
/// the device before they are synced, never shows.
fn runs_of_appends_of_each_kind_follow_one_another(place: &Place) {
    let path = place.at("a");
    let file = place.files().create(&path).unwrap();
    let reserved = 6 << 20;
    file.preallocate(reserved).unwrap();
    let mut window = file.window().unwrap();
    let mut expected = Vec::new();
    let mut number = 0;
    for (bytes, syncs) in [(40_000, true), (700, false), (30_000, true), (900, true), (20_000, false)].repeat(2) {
        for _ in 0..20 {
            number += 1;
            let part = vec![number as u8 | 1; bytes];
            file.append(&[&part[..bytes / 3], &part[bytes / 3..]]).unwrap();
            expected.extend_from_slice(&part);
            if number % 3 == 0 {
                file.begin_sync();
            }
            if syncs {
                file.sync().unwrap();
            }
            if let Some(window) = &window {
                assert!(window.appended(0..expected.len() as u64).unwrap() == expected, "{number}");
            }
        }
        let found = place.files().read(&path).unwrap();
        let (whole, behind) = found.split_at(expected.len());
        assert!(whole == expected && behind.iter().all(|&byte| byte == 0), "{number}");
        if number == 100 {
            file.preallocate(reserved + 1).unwrap();
            window = file.window().unwrap();
        }
    }
    assert!(number > 100 && (expected.len() as u64) < reserved);
    file.seal().unwrap();
    assert!(place.files().read(&path).unwrap() == expected);
}

fn a_preallocated_file_is_cut_and_goes_on(place: &Place) {
    let path = place.at("a");
    let file = place.files().create(&path).unwrap();
    file.preallocate(64 << 10).unwrap();
    for _ in 0..10 {
        file.append(&[b"0123456789"]).unwrap();
    }
    file.truncate(35).unwrap();
    assert_eq!((file.len(), place.files().metadata(&path).unwrap().len), (35, 35));
    file.append(&[b"abc"]).unwrap();
    assert!(place.files().read(&path).unwrap().ends_with(b"01234abc"));
    file.preallocate(64 << 10).unwrap();
    for _ in 0..3 {
        file.append(&[b"def"]).unwrap();
    }
    assert!(without_zeroes(place, "a").ends_with(b"01234abcdefdefdef"));
    drop(file);
    let found = without_zeroes(place, "a").len() as u64;
    assert_eq!(found, 47);
    let again = place.files().reopen(&path, found).unwrap();
    again.append(&[b"!"]).unwrap();
    assert_eq!(place.files().read(&path).unwrap().len(), 48);
}

/// Readers of the window check what the writer appends, while it does, and after the file is gone.
fn a_window_shows_what_was_appended_and_nothing_else(place: &Place) {
    const LINES: u64 = 20_000;
    let line = |number: u64| format!("{number:015}\n").into_bytes();
    let path = place.at("a");
    let file = place.files().create(&path).unwrap();
    file.append(&[&line(0)]).unwrap();
    file.preallocate(LINES * 16 + 5).unwrap();
    let Some(window) = file.window().unwrap() else { return };
    let last = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut last = 0;
            while last + 1 < LINES {
                let next = last + 1;
                if let Some(bytes) = window.appended(next * 16..next * 16 + 16) {
                    assert_eq!(bytes, line(next));
                    last = next;
                }
            }
            last
        });
        for number in 1..LINES {
            file.append(&[&line(number)[..5], &line(number)[5..]]).unwrap();
            if number % 5000 == 0 {
                file.sync().unwrap();
            }
        }
        reader.join().unwrap()
    });
    assert_eq!(last, LINES - 1);
    let end = LINES * 16;
    assert_eq!((window.appended(end..end), window.appended(end - 1..end + 1)), (Some(&b""[..]), None));
    #[expect(clippy::reversed_empty_ranges, reason = "what no caller should ask for")]
    let reversed = 5..3;
    assert_eq!((window.appended(reversed), window.appended(end..u64::MAX)), (None, None));
    assert_eq!(kind(file.truncate(end - 16)), ErrorKind::InvalidInput, "a reader may be looking at it");
    file.append(&[b"four", b"s"]).unwrap();
    file.append(&[&[1; 100_000]]).unwrap();
    assert_eq!(window.appended(end..end + 5), Some(&b"fours"[..]));
    assert_eq!(window.appended(end..end + 6), None, "the window ends there");
    file.seal().unwrap();
    drop(file);
    place.files().remove(&path).unwrap();
    assert_eq!(window.appended(16..32), Some(line(1).as_slice()));
    assert_eq!(window.appended(end..end + 5), Some(&b"fours"[..]));
}

fn what_is_appended_to_a_sealed_file_may_be_cut_though_a_window_was_lent(place: &Place) {
    let path = place.at("a");
    let file = place.files().create(&path).unwrap();
    file.preallocate(64 << 10).unwrap();
    file.append(&[b"lent"]).unwrap();
    let window = file.window().unwrap();
    file.seal().unwrap();
    for _ in 0..2 {
        file.append(&[b"behind"]).unwrap();
        if let Some(window) = &window {
            assert_eq!((window.appended(0..4), window.appended(0..5)), (Some(&b"lent"[..]), None));
            assert_eq!(kind(file.truncate(3)), ErrorKind::InvalidInput, "a reader may be looking at it");
        }
        file.truncate(4).unwrap();
    }
    assert_eq!(place.files().read(&path).unwrap(), b"lent");
}

fn a_recycled_file_is_written_over_and_keeps_its_old_end(place: &Place) {
    let old = place.write("old", &[b'o'; 10_000]);
    let path = place.at("new");
    let file = place.files().recycle(&old, &path).unwrap();
    assert_eq!((file.len(), file.path(), place.names()), (0, path.as_path(), vec!["new".to_owned()]));
    assert_eq!(place.files().read(&path).unwrap(), vec![b'o'; 10_000], "nothing is cut off");
    file.append(&[b"n", b"ew"]).unwrap();
    file.append(&[&[b'n'; 5000]]).unwrap();
    file.sync().unwrap();
    assert_eq!(file.len(), 5003);
    let bytes = place.files().read(&path).unwrap();
    assert_eq!((bytes.len(), &bytes[..4], &bytes[5003..5011]), (10_000, &b"newn"[..], &[0; 8][..]));
    assert_eq!(bytes.last(), Some(&b'o'));
    file.truncate(5000).unwrap();
    file.append(&[b"more"]).unwrap();
    file.seal().unwrap();
    let bytes = place.files().read(&path).unwrap();
    assert_eq!((bytes.len(), &bytes[4996..]), (5004, &b"nnnnmore"[..]));
    assert_eq!(kind(place.files().recycle(&old, &path)), ErrorKind::NotFound);
}

/// Goal: a recycled file behaves as a preallocated one, and ends in zeroes for who scans it (AppendFile, "Recycled files").
fn a_recycled_file_takes_appends_of_all_sizes_and_zeroes_follow_them(place: &Place) {
    const OLD: usize = 300_000;
    for preallocated in [0, 1, OLD, OLD + 100_000] {
        let old = place.write("old", &[b'o'; OLD]);
        let path = place.at("new");
        let file = place.files().recycle(&old, &path).unwrap();
        file.append(&[b"head"]).unwrap();
        if preallocated > 0 {
            file.preallocate(preallocated as u64).unwrap();
        }
        let window = file.window().unwrap();
        let mut expected = b"head".to_vec();
        let sizes = [4092, 4096, 1, 7, 8, 9, 100, 4088, 16_384, 100_000, 20, 4095, 65_536, 3, 90_000, 30_000, 5];
        for (count, size) in sizes.into_iter().enumerate() {
            let part = vec![b'a' + count as u8; size];
            let (front, back) = part.split_at(size / 3);
            file.append(&[front, back]).unwrap();
            expected.extend_from_slice(&part);
            assert_eq!(file.len(), expected.len() as u64);
            let bytes = place.files().read(&path).unwrap();
            assert!(bytes.starts_with(&expected), "append {count} of {size} bytes, {preallocated} preallocated");
            let behind = &bytes[expected.len()..];
            assert!(behind.iter().take(8).all(|byte| *byte == 0), "append {count} of {size} bytes");
            if let Some(shown) = window.as_ref().and_then(|window| window.appended(0..expected.len() as u64)) {
                assert_eq!(shown, expected);
            }
            if count % 5 == 2 {
                file.sync().unwrap();
            }
        }
        assert!(expected.len() > OLD);
        file.seal().unwrap();
        assert_eq!(place.files().read(&path).unwrap(), expected);
        place.files().remove(&path).unwrap();
    }
}

fn a_taken_name_cannot_be_created(place: &Place) {
    let path = place.write("a", b"mine");
    assert_eq!(kind(place.files().create(&path)), ErrorKind::AlreadyExists);
    assert_eq!(kind(place.files().create(&place.root)), ErrorKind::AlreadyExists);
    assert_eq!(kind(place.files().link(&path, &path)), ErrorKind::AlreadyExists);
    assert_eq!(kind(place.files().create_dir_all(&path)), ErrorKind::AlreadyExists);
    assert_eq!(place.files().read(&path).unwrap(), b"mine");
}

fn missing_files_are_not_found(place: &Place) {
    let files = place.files();
    let (none, below) = (place.at("none"), place.at("none/a"));
    let there = place.write("a", b"");
    assert_eq!(kind(files.open(&none)), ErrorKind::NotFound);
    assert_eq!(kind(files.reopen(&none, 0)), ErrorKind::NotFound);
    assert_eq!(kind(files.create(&below)), ErrorKind::NotFound);
    assert_eq!(kind(files.lock(&below)), ErrorKind::NotFound);
    assert_eq!(kind(files.metadata(&none)), ErrorKind::NotFound);
    assert_eq!(kind(files.list(&none)), ErrorKind::NotFound);
    assert_eq!(kind(files.rename(&none, &there)), ErrorKind::NotFound);
    assert_eq!(kind(files.rename(&there, &below)), ErrorKind::NotFound);
    assert_eq!(kind(files.link(&none, &below)), ErrorKind::NotFound);
    assert_eq!(kind(files.link(&there, &below)), ErrorKind::NotFound);
    assert_eq!(kind(files.remove(&none)), ErrorKind::NotFound);
    assert_eq!(kind(files.remove_dir(&none)), ErrorKind::NotFound);
    assert_eq!(kind(files.sync_dir(&none)), ErrorKind::NotFound);
    assert_eq!(kind(files.punch_hole(&none, 0..1)), ErrorKind::NotFound);
    assert_eq!(kind(files.space(&none)), ErrorKind::NotFound);
    assert_eq!(kind(files.read(&none)), ErrorKind::NotFound);
    assert_eq!(place.names(), ["a"]);
}

fn directories_are_not_files_and_files_not_directories(place: &Place) {
    let files = place.files();
    let (dir, file) = (place.at("dir"), place.write("file", b""));
    files.create_dir_all(&dir).unwrap();
    let through = file.join("a");
    assert_eq!(kind(files.open(&dir)), ErrorKind::IsADirectory);
    assert_eq!(kind(files.reopen(&dir, 0)), ErrorKind::IsADirectory);
    assert_eq!(kind(files.punch_hole(&dir, 0..1)), ErrorKind::IsADirectory);
    assert_eq!(kind(files.lock(&dir)), ErrorKind::IsADirectory);
    assert_eq!(kind(files.rename(&file, &dir)), ErrorKind::IsADirectory);
    assert_eq!(kind(files.rename(&dir, &file)), ErrorKind::NotADirectory);
    assert_eq!(kind(files.link(&dir, &place.at("b"))), ErrorKind::PermissionDenied);
    assert_eq!(kind(files.list(&file)), ErrorKind::NotADirectory);
    assert_eq!(kind(files.sync_dir(&file)), ErrorKind::NotADirectory);
    assert_eq!(kind(files.remove_dir(&file)), ErrorKind::NotADirectory);
    assert_eq!(kind(files.create(&through)), ErrorKind::NotADirectory);
    assert_eq!(kind(files.open(&through)), ErrorKind::NotADirectory);
    assert_eq!(kind(files.metadata(&through)), ErrorKind::NotADirectory);
    assert_eq!(kind(files.create_dir_all(&through)), ErrorKind::NotADirectory);
    if cfg!(target_os = "linux") {
        assert_eq!(kind(files.remove(&dir)), ErrorKind::IsADirectory);
    }
}

fn directories_are_made_with_their_parents_and_again(place: &Place) {
    let dir = place.at("a/b/c");
    place.files().create_dir_all(&dir).unwrap();
    place.files().create_dir_all(&dir).unwrap();
    place.files().create_dir_all(&place.at("a/b")).unwrap();
    assert_eq!(place.files().metadata(&dir).unwrap().kind, FileKind::Directory);
    place.write("a/b/c/file", b"x");
    place.files().sync_dir(&dir).unwrap();
}

fn names_are_listed_sorted_with_their_kinds(place: &Place) {
    for name in ["000010.sst", "CURRENT", "000002.log"] {
        place.write(name, b"");
    }
    place.files().create_dir_all(&place.at("archive")).unwrap();
    let entry = |name: &str, kind| DirEntry { name: name.to_owned(), kind };
    let expected = [
        entry("000002.log", FileKind::File),
        entry("000010.sst", FileKind::File),
        entry("CURRENT", FileKind::File),
        entry("archive", FileKind::Directory),
    ];
    assert_eq!(place.files().list(&place.root).unwrap(), expected);
}

fn renaming_replaces(place: &Place) {
    let (new, old) = (place.write("new", b"new"), place.write("old", b"old"));
    let reader = place.files().open(&old).unwrap();
    place.files().rename(&new, &old).unwrap();
    assert_eq!(place.names(), ["old"]);
    assert_eq!(place.files().read(&old).unwrap(), b"new");
    let mut bytes = [0; 3];
    reader.read_exact_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"old", "an open handle stays with the file it opened");
    place.files().rename(&old, &old).unwrap();
    place.files().link(&old, &new).unwrap();
    place.files().rename(&old, &new).unwrap();
    assert_eq!(place.names(), ["new", "old"], "two names of one file stay two names");
}

fn renaming_directories_moves_what_is_in_them(place: &Place) {
    let files = place.files();
    files.create_dir_all(&place.at("a/b")).unwrap();
    place.write("a/b/file", b"x");
    assert_eq!(kind(files.rename(&place.at("a"), &place.at("a/b/c"))), ErrorKind::InvalidInput);
    files.create_dir_all(&place.at("empty")).unwrap();
    files.rename(&place.at("a"), &place.at("empty")).unwrap();
    assert_eq!(place.names(), ["empty"]);
    assert_eq!(files.read(&place.at("empty/b/file")).unwrap(), b"x");
    files.create_dir_all(&place.at("other")).unwrap();
    let refused = kind(files.rename(&place.at("other"), &place.at("empty")));
    // POSIX has either; XFS the second.
    assert!(matches!(refused, ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists), "{refused}");
    files.rename(&place.at("empty/b/file"), &place.at("other/file")).unwrap();
    assert_eq!(files.read(&place.at("other/file")).unwrap(), b"x");
}

/// The simulated disk has none.
#[test]
fn a_symbolic_link_is_one_name_more() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place { env: Env::os(), root: dir.path().to_owned() };
    let (file, link) = (place.write("file", b"bytes"), place.at("link"));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let metadata = |path: &Path| place.files().metadata(path).unwrap();
    assert_eq!((metadata(&file).links, metadata(&link).links), (1, 2));
    assert_eq!((metadata(&link).kind, metadata(&link).len), (FileKind::File, 5));
    std::fs::remove_file(file).unwrap();
    assert_eq!(place.files().metadata(&link).unwrap_err().kind(), ErrorKind::NotFound);
}

fn links_share_one_file(place: &Place) {
    let (first, second) = (place.at("a"), place.at("b"));
    let file = place.files().create(&first).unwrap();
    assert_eq!(place.files().metadata(&first).unwrap().links, 1);
    place.files().link(&first, &second).unwrap();
    let other = place.write("other", b"shared");
    let [first_is, second_is, other_is] =
        [&first, &second, &other].map(|path| place.files().metadata(path).unwrap().identity);
    assert!(first_is == second_is && first_is != other_is);
    for mapped in [false, true] {
        let open = esker_env::open_sealed(place.files(), &second, mapped).unwrap();
        assert_eq!(open.identity().unwrap(), first_is);
        let open = esker_env::open_sealed(place.files(), &other, mapped).unwrap();
        assert_eq!(open.identity().unwrap(), other_is);
    }
    file.append(&[b"shared"]).unwrap();
    assert_eq!(place.files().metadata(&second).unwrap().links, 2);
    place.files().remove(&first).unwrap();
    assert_eq!(place.files().read(&second).unwrap(), b"shared");
    assert_eq!(place.files().metadata(&second).unwrap().links, 1);
}

fn a_handle_outlives_the_name(place: &Place) {
    let path = place.at("a");
    let file = place.files().create(&path).unwrap();
    file.append(&[b"abc"]).unwrap();
    let reader = place.files().open(&path).unwrap();
    place.files().remove(&path).unwrap();
    place.files().sync_dir(&place.root).unwrap();
    file.append(&[b"def"]).unwrap();
    file.sync().unwrap();
    let mut bytes = [0; 6];
    reader.read_exact_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"abcdef");
    place.write("a", b"another");
    assert_eq!(reader.len().unwrap(), 6);
}

fn directories_are_removed_only_empty(place: &Place) {
    place.files().create_dir_all(&place.at("dir")).unwrap();
    let file = place.write("dir/a", b"");
    assert_eq!(kind(place.files().remove_dir(&place.at("dir"))), ErrorKind::DirectoryNotEmpty);
    place.files().remove(&file).unwrap();
    place.files().remove_dir(&place.at("dir")).unwrap();
    assert_eq!(place.names(), [""; 0]);
}

fn a_punched_range_reads_as_zeroes_and_is_given_back(place: &Place) {
    let bytes = vec![7u8; 64 << 10];
    let path = place.at("a");
    let file = place.files().create(&path).unwrap();
    file.append(&[&bytes]).unwrap();
    file.sync().unwrap();
    let before = place.files().metadata(&path).unwrap();
    match place.files().punch_hole(&path, 5000..50_000) {
        Ok(()) => {}
        Err(error) => return assert_eq!(error.kind(), ErrorKind::Unsupported),
    }
    let after = place.files().metadata(&path).unwrap();
    assert_eq!((after.len, before.len), (64 << 10, 64 << 10));
    assert!(after.allocated < before.allocated, "{before:?} {after:?}");
    let mut expected = bytes;
    expected[5000..50_000].fill(0);
    assert_eq!(place.files().read(&path).unwrap(), expected);
    place.files().punch_hole(&path, 10..10).unwrap();
    place.files().punch_hole(&path, 1 << 20..2 << 20).unwrap();
    assert_eq!(place.files().read(&path).unwrap(), expected);
    place.files().punch_hole(&path, 60_000..1 << 20).unwrap();
    expected[60_000..].fill(0);
    assert_eq!(place.files().read(&path).unwrap(), expected);
}

fn space_is_available(place: &Place) {
    let space = place.files().space(&place.root).unwrap();
    assert!(space.total > 0 && space.available <= space.total, "{space:?}");
    let of_a_file = place.files().space(&place.write("a", b"")).unwrap();
    assert_eq!(of_a_file.total, space.total);
}

fn a_lock_excludes_until_dropped(place: &Place) {
    let path = place.at("LOCK");
    let lock = place.files().lock(&path).unwrap();
    assert_eq!(place.files().metadata(&path).unwrap().len, 0);
    assert_eq!(kind(place.files().lock(&path)), ErrorKind::WouldBlock);
    assert_eq!(kind(place.files().lock(&path)), ErrorKind::WouldBlock, "a refused attempt does not give the lock up");
    drop(lock);
    let again = place.files().lock(&path).unwrap();
    drop(place.files().lock(&place.at("OTHER")).unwrap());
    drop(again);
}

fn a_lock_follows_the_file_not_the_path(place: &Place) {
    let path = place.at("LOCK");
    let lock = place.files().lock(&path).unwrap();
    place.files().link(&path, &place.at("ALIAS")).unwrap();
    assert_eq!(kind(place.files().lock(&place.at("ALIAS"))), ErrorKind::WouldBlock);
    assert_eq!(kind(place.files().lock(&place.at("./LOCK"))), ErrorKind::WouldBlock);
    drop(lock);
    place.files().lock(&place.at("ALIAS")).unwrap();
}

fn a_directory_is_shared_by_many_or_claimed_by_one(place: &Place) {
    let files = place.files();
    let claim = || files.claim_dir(&place.root);
    let first = files.share_dir(&place.root).unwrap();
    let second = files.share_dir(&place.root).unwrap();
    assert_eq!(kind(claim()), ErrorKind::WouldBlock);
    drop(first);
    assert_eq!(kind(claim()), ErrorKind::WouldBlock, "one of two is left");
    drop(second);
    let alone = claim().unwrap();
    assert_eq!(kind(claim()), ErrorKind::WouldBlock);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| drop(files.share_dir(&place.root).unwrap()));
        drop(alone);
        waits.join().unwrap();
    });
    drop(files.lock(&place.at("LOCK")).unwrap());
    drop(claim().unwrap());
    assert_eq!(kind(files.claim_dir(&place.at("missing"))), ErrorKind::NotFound);
}

fn small_files_are_written_whole(place: &Place) {
    let (path, temporary) = (place.at("CURRENT"), place.at("000003.dbtmp"));
    place.files().write_atomically(&path, &temporary, b"MANIFEST-000001\n").unwrap();
    place.write("000003.dbtmp", b"left over by a crash");
    place.files().write_atomically(&path, &temporary, b"MANIFEST-000005\n").unwrap();
    assert_eq!(place.files().read(&path).unwrap(), b"MANIFEST-000005\n");
    assert_eq!(place.names(), ["CURRENT"]);
    assert_eq!(place.files().read_small(&path).unwrap(), b"MANIFEST-000005\n");
}

/// Goal: however long a file has become that nobody writes a long one of, reading it takes no memory.
#[test]
fn a_small_file_that_is_endless_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("CURRENT");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let error = Env::os().files.read_small(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

/// Goal: what waits for another end, or has no bytes at places, is refused at once, whatever it is to be opened for.
#[test]
fn pipes_sockets_and_devices_are_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let (pipe, socket, device) = (dir.path().join("pipe"), dir.path().join("socket"), dir.path().join("device"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::os::unix::fs::symlink("/dev/null", &device).unwrap();
    let (told, tells) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let files = Env::os().files;
        for (path, words) in [(&pipe, "a named pipe"), (&socket, "a socket"), (&device, "a device")] {
            let errors = [
                files.open(path).map(drop),
                files.read_small(path).map(drop),
                files.reopen(path, 0).map(drop),
                files.recycle(path, path).map(drop),
                files.punch_hole(path, 0..1),
                files.lock(path).map(drop),
            ];
            told.send(errors.map(|opened| (words, opened.unwrap_err().to_string()))).unwrap();
        }
    });
    for _ in 0..3 {
        let errors = tells.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(errors.iter().all(|(words, error)| error.contains(words)), "{errors:?}");
    }
}

fn errors_say_what_where_and_why(place: &Place) {
    let path = place.at("none");
    let error = place.files().open(&path).unwrap_err();
    assert_eq!((error.doing(), error.path()), ("opening", path.as_path()));
    let expected = format!("opening {}: No such file or directory (os error 2)", path.display());
    assert_eq!(error.to_string(), expected);
    assert!(!error.is_exhausted());
}

fn threads_run_and_are_waited_for(place: &Place) {
    let done = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&done);
    let work = Box::new(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let mut thread = place.env.threads.spawn("esker-\0test", work).unwrap();
    assert!(thread.join() && thread.join());
    assert_eq!(done.load(Ordering::SeqCst), 1);
    let mut unlucky = place.env.threads.spawn("unlucky", Box::new(|| panic!("on purpose"))).unwrap();
    assert!(!unlucky.join() && !unlucky.join());
}

fn clocks_advance_while_sleeping(place: &Place) {
    let clock = &place.env.clock;
    let before = clock.monotonic();
    clock.sleep(Duration::from_millis(2));
    assert!(clock.monotonic() >= before + Duration::from_millis(2));
    assert!(clock.unix_seconds() > 1_500_000_000);
}

fn entropy_does_not_repeat_itself(place: &Place) {
    let (mut first, mut second) = ([0; 21], [0; 21]);
    place.env.entropy.fill(&mut first);
    place.env.entropy.fill(&mut second);
    assert_ne!(first, second);
    assert_ne!(first[16..], [0; 5], "the end is filled too");
    place.env.entropy.fill(&mut []);
}

fn one_thread_may_sync_while_another_appends(place: &Place) {
    let path = place.at("a");
    let file = place.files().create(&path).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..200).for_each(|_| file.append(&[b"0123456789", b"abcdef"]).unwrap()));
        }
        scope.spawn(|| (0..5).for_each(|_| file.sync().unwrap()));
    });
    assert_eq!(place.files().read(&path).unwrap(), b"0123456789abcdef".repeat(400));
}

/// Goal: a preallocation that does not fit leaves file and room as they were: what a file system got hold of before it ran out is given back.
fn a_preallocation_that_does_not_fit_takes_nothing(place: &Place) {
    let available = || place.files().space(&place.root).unwrap().available;
    let file = place.files().create(&place.at("file")).unwrap();
    file.append(&[b"before"]).unwrap();
    file.sync().unwrap();
    let expect_nothing_taken = || {
        let (len, before) = (place.files().metadata(file.path()).unwrap().len, available());
        let error = file.preallocate(before * 4).unwrap_err();
        assert!(error.is_exhausted(), "{error}");
        assert_eq!(place.files().metadata(file.path()).unwrap().len, len);
        // A block in which it is written down where blocks are may stay.
        assert!(available() >= before - 4096, "{} of {before} bytes are left", available());
    };
    expect_nothing_taken();
    // What an earlier one got stays.
    file.preallocate(1 << 20).unwrap();
    expect_nothing_taken();
    assert!(place.files().metadata(file.path()).unwrap().allocated >= 1 << 20);
    file.append(&[b", behind"]).unwrap();
    file.seal().unwrap();
    assert_eq!(place.files().read(file.path()).unwrap(), b"before, behind");
    place.files().remove(file.path()).unwrap();
}

/// On the real system only where `ESKER_TEST_SMALL_DIR` names a directory on a file system that may be filled: see CONTRIBUTING.
#[test]
fn preallocations_that_do_not_fit_take_nothing() {
    let disk = SimDisk::new();
    let root = PathBuf::from("/store");
    disk.create_dir_all(&root).unwrap();
    disk.set_capacity(Some(8 << 20));
    a_preallocation_that_does_not_fit_takes_nothing(&Place { env: disk.env(), root });
    if let Some(root) = std::env::var_os("ESKER_TEST_SMALL_DIR").map(PathBuf::from) {
        a_preallocation_that_does_not_fit_takes_nothing(&Place { env: Env::os(), root });
    }
}

#[test]
fn the_parent_of_a_bare_name_is_here() {
    let disk = SimDisk::new();
    disk.write_atomically(Path::new("CURRENT"), Path::new("tmp"), b"x").unwrap();
    assert_eq!(disk.paths(), [Path::new("/CURRENT")]);
    let here = Env::os().files;
    here.sync_dir(Path::new("")).unwrap();
    let at = std::env::current_dir().unwrap();
    for (path, absolute) in
        [("", at.clone()), ("data", at.join("data")), ("./a/../b", at.join("a/../b")), ("/x", "/x".into())]
    {
        assert_eq!(here.absolute(Path::new(path)).unwrap(), absolute);
        assert_eq!(
            disk.absolute(Path::new(path)).unwrap(),
            Path::new(path),
            "a simulated disk has no place where one is"
        );
    }
    assert_eq!(here.list(Path::new("")).unwrap(), here.list(Path::new(".")).unwrap());
}

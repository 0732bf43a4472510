//! D1, D4, S1, S2: what becomes of bytes.

use super::*;
use std::collections::BTreeSet;

#[test]
fn synced_bytes_survive_and_unsynced_ones_may_not() {
    let disk = store();
    let file = create_durable(&disk, "a", b"synced");
    file.append(&[b" not"]).unwrap();
    assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap(), b"synced");
    assert_eq!(after(&disk, Survivors::Everything, "a").unwrap(), b"synced not");
    for left in samples(&disk) {
        assert!(left.file_bytes(&path("a")).unwrap().starts_with(b"synced"));
    }
    file.sync().unwrap();
    assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap(), b"synced not");
}

#[test]
fn a_sync_of_another_file_or_of_the_directory_saves_no_bytes() {
    let disk = store();
    create_durable(&disk, "a", b"").append(&[b"bytes"]).unwrap();
    create_durable(&disk, "b", b"others").sync().unwrap();
    assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap(), b"");
}

#[test]
fn each_unsynced_sector_survives_or_not_and_the_length_with_it() {
    let disk = store();
    let file = create_durable(&disk, "a", &[1; 700]);
    file.append(&[&[2; 1000]]).unwrap();
    let found = outcomes(&disk, |disk| disk.file_bytes(&path("a")).unwrap());
    let mut sector_choices = std::collections::BTreeSet::new();
    let mut lengths = std::collections::BTreeSet::new();
    for bytes in &found {
        assert_eq!(bytes[..700], [1; 700], "what was synced stays");
        lengths.insert(bytes.len());
        // Sectors end at 1024, 1536 and with the file; each is all new or all zeroes.
        let mut choice = Vec::new();
        for range in [700..1024, 1024..1536, 1536..1700] {
            let part = bytes.get(range.start..range.end.min(bytes.len())).unwrap_or_default();
            assert!(part.iter().all(|&byte| byte == 2) || part.iter().all(|&byte| byte == 0));
            choice.push(part.first().copied());
        }
        if bytes.len() == 1700 {
            sector_choices.insert(choice);
        }
    }
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [700, 1024, 1536, 1700]);
    assert_eq!(sector_choices.len(), 8, "every subset of three sectors");
}

#[test]
fn an_unsynced_truncation_may_be_undone_whole() {
    let disk = store();
    let file = create_durable(&disk, "a", &[1; 1200]);
    file.truncate(600).unwrap();
    assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap(), [1; 1200]);
    assert_eq!(after(&disk, Survivors::Everything, "a").unwrap(), [1; 600]);
    for bytes in outcomes(&disk, |disk| disk.file_bytes(&path("a")).unwrap()) {
        assert!([600, 1024, 1200].contains(&bytes.len()));
        assert_eq!(bytes[..600], [1; 600]);
        assert!(bytes.iter().skip(1024).all(|&byte| byte == 1), "sectors behind the cut are as they were");
    }
    file.append(&[&[2; 100]]).unwrap();
    assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap(), [1; 1200]);
    file.sync().unwrap();
    assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap(), [[1; 600].as_slice(), &[2; 100]].concat());
}

#[test]
fn an_unsynced_hole_may_be_undone_sector_by_sector() {
    let disk = store();
    create_durable(&disk, "a", &[1; 8192]);
    disk.punch_hole(&path("a"), 4096..8192).unwrap();
    assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap(), [1; 8192]);
    assert!(outcomes(&disk, |disk| disk.file_bytes(&path("a")).unwrap()).len() > 100);
    let whole = disk.after_power_loss(Survivors::Everything);
    assert_eq!(whole.metadata(&path("a")).unwrap().allocated, 4096);
    let none = disk.after_power_loss(Survivors::Nothing);
    assert_eq!(none.metadata(&path("a")).unwrap().allocated, 8192);
}

#[test]
fn bytes_that_a_failed_sync_dropped_come_back_only_if_the_device_had_got_to_them() {
    let disk = store();
    let file = create_durable(&disk, "a", b"old ");
    file.append(&[b"lost "]).unwrap();
    disk.fail_at(disk.op_count(), Fault::Eio);
    assert_eq!(file.sync().unwrap_err().io().raw_os_error(), Some(5));
    assert_eq!(disk.file_bytes(&path("a")).unwrap(), b"old lost ", "readable until the power goes");
    assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap(), b"old ");
    file.append(&[b"new"]).unwrap();
    file.sync().unwrap();
    for survivors in [Survivors::Nothing, Survivors::Everything] {
        assert_eq!(after(&disk, survivors, "a").unwrap(), b"old \0\0\0\0\0new");
    }
    let sampled = outcomes(&disk, |disk| disk.file_bytes(&path("a")).unwrap());
    assert_eq!(sampled, [b"old \0\0\0\0\0new", b"old lost new"]);
    file.sync().unwrap();
    let next = disk.after_process_death();
    assert_eq!(next.file_bytes(&path("a")).unwrap(), b"old lost new", "the processes see what is in memory");
    assert_eq!(after(&next, Survivors::Everything, "a").unwrap(), b"old \0\0\0\0\0new");
}

#[test]
fn what_a_failed_sync_dropped_may_go_from_memory_page_by_page() {
    const PAGE: usize = 4096;
    let whole = [vec![1; 100], vec![2; 3 * PAGE]].concat();
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let disk = store();
        disk.evict_after_failed_syncs(Some(seed));
        let file = create_durable(&disk, "a", &whole[..100]);
        file.append(&[&whole[100..]]).unwrap();
        assert_eq!(disk.file_bytes(&path("a")).unwrap(), whole, "nothing goes before a sync fails");
        assert!(!disk.has_evicted());
        disk.fail_at(disk.op_count(), Fault::Eio);
        file.sync().unwrap_err();
        let left = disk.file_bytes(&path("a")).unwrap();
        assert_eq!((left.len(), &left[..100]), (whole.len(), &whole[..100]), "length and synced bytes stay");
        let gone: Vec<bool> = (0..4).map(|page| left[(page * PAGE + 100).min(left.len() - 1)] == 0).collect();
        for (at, (&byte, &was)) in left.iter().zip(&whole).enumerate().skip(100) {
            assert_eq!(byte, if gone[at / PAGE] { 0 } else { was }, "byte {at}");
        }
        assert_eq!(disk.has_evicted(), left != whole);
        // What went is what the device has; a sync that succeeds saves none of the rest, and neither is what came later concerned.
        file.append(&[&[3; 10]]).unwrap();
        file.sync().unwrap();
        let durable = [&whole[..100], &[0; 3 * PAGE], &[3; 10]].concat();
        assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap(), durable);
        assert_eq!(after(&disk, Survivors::Everything, "a").unwrap(), durable);
        // The next process finds no more than that, and the same each time.
        let next = disk.after_process_death().file_bytes(&path("a")).unwrap();
        assert!(next.iter().zip(&[&left[..], &[3; 10]].concat()).all(|(next, &was)| [0, was].contains(next)));
        assert_eq!(next, disk.after_process_death().file_bytes(&path("a")).unwrap());
        seen.insert((gone, next[..whole.len()] == left));
    }
    assert!(seen.len() > 16, "{seen:?}");
}

#[test]
fn what_goes_from_memory_of_a_recycled_file_is_its_earlier_life_again() {
    let mut seen = BTreeSet::new();
    for seed in 0..20 {
        let disk = store();
        disk.evict_after_failed_syncs(Some(seed));
        create_durable(&disk, "a", &[b'o'; 5000]);
        let file = disk.recycle(&path("a"), &path("b")).unwrap();
        file.append(&[b"new"]).unwrap();
        file.sync().unwrap();
        file.append(&[&[b'n'; 1000]]).unwrap();
        disk.fail_at(disk.op_count(), Fault::Eio);
        file.sync().unwrap_err();
        let left = disk.file_bytes(&path("b")).unwrap();
        assert!(left.starts_with(b"new") && left.len() == 5000);
        assert!(left[1100..].iter().all(|&byte| byte == b'o'));
        seen.insert(left[100]);
    }
    assert_eq!(seen, [b'n', b'o'].into());
}

#[test]
fn rewriting_what_a_failed_sync_dropped_saves_it() {
    let disk = store();
    let file = create_durable(&disk, "a", b"old ");
    file.append(&[b"lost"]).unwrap();
    disk.fail_at(disk.op_count(), Fault::NoSpace);
    assert!(file.sync().unwrap_err().is_exhausted());
    file.truncate(4).unwrap();
    file.append(&[b"again"]).unwrap();
    file.sync().unwrap();
    assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap(), b"old again");
}

#[test]
fn a_failed_sync_drops_what_was_appended_behind_a_cut() {
    let disk = store();
    let file = create_durable(&disk, "a", b"abcdef");
    file.truncate(2).unwrap();
    file.append(&[b"XY"]).unwrap();
    disk.fail_at(disk.op_count(), Fault::Eio);
    assert!(file.sync().is_err());
    file.sync().unwrap();
    assert_eq!(after(&disk, Survivors::Everything, "a").unwrap(), b"abcd", "the length is cut, the old bytes stay");
}

#[test]
fn flipped_bits_are_in_both_images() {
    let disk = store();
    let file = create_durable(&disk, "a", &[0; 600]);
    file.truncate(10).unwrap();
    assert!(disk.flip_bit(&path("a"), 9));
    assert!(disk.flip_bit(&path("a"), 8 * 599), "behind the live end, but durable");
    assert!(!disk.flip_bit(&path("a"), 8 * 1024));
    assert!(!disk.flip_bit(&path("none"), 0));
    assert_eq!(disk.file_bytes(&path("a")).unwrap()[..2], [0, 2]);
    let durable = after(&disk, Survivors::Nothing, "a").unwrap();
    assert_eq!((durable[1], durable[599], durable.len()), (2, 1, 600));
}

#[test]
fn overwritten_files_are_durable_with_their_names() {
    let disk = store();
    create(&disk, "a", b"first");
    disk.overwrite(&path("a"), b"second".to_vec());
    disk.overwrite(Path::new("/new/dir/b"), b"third".to_vec());
    disk.overwrite(&path("a/below"), b"in the way".to_vec());
    disk.overwrite(Path::new("/store"), b"in the way".to_vec());
    let ops = disk.op_count();
    let left = disk.after_power_loss(Survivors::Nothing);
    assert_eq!(left.paths(), [Path::new("/new/dir/b"), Path::new("/store/a")]);
    assert_eq!(left.file_bytes(&path("a")).unwrap(), b"second");
    assert_eq!(ops, disk.op_count());
}

/// Fair coins would not leave one of these in the age of the world.
#[test]
fn a_long_row_of_sectors_may_lack_one_or_have_nothing_else_or_end_or_begin_within() {
    let disk = store();
    create_durable(&disk, "a", &[1; 64 << 10]);
    disk.punch_hole(&path("a"), 0..64 << 10).unwrap();
    let rows: Vec<Vec<bool>> = samples(&disk)
        .map(|disk| file_bytes(&disk, "a").chunks(512).map(|sector| sector == [0; 512]).collect())
        .collect();
    let counts: Vec<usize> = rows.iter().map(|row| row.iter().filter(|&&survives| survives).count()).collect();
    assert!(counts.contains(&1) && counts.contains(&127));
    let turns = |row: &Vec<bool>| row.windows(2).filter(|pair| pair[0] != pair[1]).count();
    for begins in [true, false] {
        assert!(rows.iter().zip(&counts).any(|(row, &count)| row[0] == begins && count % 126 > 1 && turns(row) == 1));
    }
    assert!(counts.iter().any(|count| (2..30).contains(count)) && counts.iter().any(|count| (98..127).contains(count)));
}

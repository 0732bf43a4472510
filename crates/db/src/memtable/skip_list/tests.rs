use std::collections::BTreeSet;

use super::*;

fn internal(user_key: &[u8], tag: u64) -> Vec<u8> {
    [user_key, &tag.to_le_bytes()].concat()
}

fn keys(list: &SkipList) -> Vec<Vec<u8>> {
    std::iter::successors(list.first(), |entry| entry.next()).map(|entry| entry.key().to_vec()).collect()
}

#[test]
fn an_empty_list_has_no_entry_and_takes_no_memory() {
    let list = SkipList::default();
    assert!(list.first().is_none() && list.last().is_none());
    assert!(list.first_at_or_after(b"").is_none());
    assert!(list.last_at_or_before(&internal(b"k", 1)).is_none() && list.last_before(b"k").is_none());
    assert_eq!(list.used_bytes(), 0);
}

#[test]
fn the_newest_of_a_key_comes_first() {
    let list = SkipList::default();
    for (user_key, tag) in [(&b"b"[..], 2), (b"a", 1), (b"b", 3), (b"", 9), (b"b\0", 7), (b"b", 1)] {
        list.insert(user_key, tag, b"");
    }
    let expected =
        [(&b""[..], 9), (b"a", 1), (b"b", 3), (b"b", 2), (b"b", 1), (b"b\0", 7)].map(|(key, tag)| internal(key, tag));
    assert_eq!(keys(&list), expected);
    assert_eq!(list.last().unwrap().key(), internal(b"b\0", 7));
}

#[test]
fn a_target_shorter_than_a_tag_is_the_empty_key_at_its_oldest() {
    let list = SkipList::default();
    list.insert(b"", 5, b"");
    list.insert(b"a", 5, b"");
    assert_eq!(list.first_at_or_after(b"zzz").unwrap().key(), internal(b"a", 5));
    assert_eq!(list.last_at_or_before(b"").unwrap().key(), internal(b"", 5));
}

#[test]
fn keys_and_values_of_every_length_are_kept_whole() {
    let list = SkipList::default();
    let lengths = [0, 1, 7, 8, 9, 255, 4096, 100_000];
    for (index, &bytes) in lengths.iter().enumerate() {
        list.insert(
            &vec![index as u8 + 1; bytes],
            index as u64,
            &vec![!(index as u8); lengths[lengths.len() - 1 - index]],
        );
    }
    let mut entry = list.first();
    for (index, &bytes) in lengths.iter().enumerate() {
        let found = entry.unwrap();
        assert_eq!(found.key(), internal(&vec![index as u8 + 1; bytes], index as u64));
        assert_eq!(found.value(), vec![!(index as u8); lengths[lengths.len() - 1 - index]]);
        entry = found.next();
    }
    assert!(entry.is_none());
}

#[test]
fn rising_falling_and_interleaved_keys_come_out_in_order() {
    let count = if cfg!(miri) { 64 } else { 4096u64 };
    let orders: [fn(u64, u64) -> u64; 4] = [
        |index, _| index,
        |index, count| count - 1 - index,
        |index, count| if index % 2 == 0 { index / 2 } else { count - 1 - index / 2 },
        |index, count| (index * 37) % count,
    ];
    for order in orders {
        let list = SkipList::default();
        for index in 0..count {
            list.insert(&order(index, count).to_be_bytes(), 1, b"");
        }
        let expected: Vec<_> = (0..count).map(|number| internal(&number.to_be_bytes(), 1)).collect();
        assert_eq!(keys(&list), expected);
    }
}

#[test]
fn equal_keys_both_stay() {
    let list = SkipList::default();
    for value in [b"1", b"2", b"3"] {
        list.insert(b"key", 7, value);
    }
    let found: BTreeSet<_> =
        std::iter::successors(list.first(), |entry| entry.next()).map(|entry| entry.value().to_vec()).collect();
    assert_eq!(found.len(), 3);
}

#[test]
fn a_quarter_of_nodes_is_higher_by_one() {
    let (nodes, highest) = if cfg!(miri) { (1 << 12, 2) } else { (1 << 16, 4) };
    type Entry = fn(u64) -> ([u8; 12], u64);
    let entries: [Entry; 5] = [
        |number| (*b"the same key", (number << 8) | 1),
        |number| (*b"of a quarter", (number << 10) | 1),
        |number| (padded(number), 1),
        |number| (padded(number), (number << 8) | 1),
        |number| (padded(u64::MAX - number), ((1 << 40) + number) << 8),
    ];
    for (case, entry) in entries.into_iter().enumerate() {
        let mut counts = [0u32; HEIGHT_MAX + 1];
        for (key, tag) in (0..nodes).map(entry) {
            counts[height_of(&key, tag)] += 1;
        }
        assert_eq!(counts[0], 0);
        for height in 1..=highest {
            let expected = nodes as f64 * 0.75 * 0.25f64.powi(height as i32 - 1);
            assert!((f64::from(counts[height]) / expected - 1.0).abs() < 0.25, "{case}: {counts:?}");
        }
    }
}

fn padded(number: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[4..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Goal: threads that add little, as those of a server that has one for each connection, find as fast. Method: each adds one.
#[test]
fn threads_that_add_one_entry_each_make_a_list_as_high() {
    let (list, threads) = (SkipList::default(), if cfg!(miri) { 16 } else { 256 });
    for thread in 0..threads {
        std::thread::scope(|scope| {
            scope.spawn(|| list.insert(&padded(thread * 7919), (thread << 8) | 1, b"")).join().unwrap()
        });
    }
    let tall = list.tall_count.load(Ordering::Relaxed) as u64;
    assert!((threads / 8..threads / 2).contains(&tall), "{tall} of {threads}");
}

#[test]
fn a_late_note_of_the_last_node_is_not_followed_far() {
    let (list, count) = (SkipList::default(), STEPS_MAX as u64 * 4);
    for number in 0..count {
        list.insert(&padded(number), number + 1, b"");
    }
    let is_found = |number| {
        let gap = Gap { before: list.head(), after: ptr::null_mut() };
        list.find_gaps_at_end(Place { user_key: &padded(number), tag: 0 }, 1, &mut [gap; HEIGHT_MAX])
    };
    assert!(is_found(count));
    list.last[0].store(list.first().unwrap().node.as_ptr(), Ordering::Release);
    assert!(is_found(3) && !is_found(count));
    list.insert(&padded(count), count + 1, b"");
    assert_eq!(keys(&list).last(), Some(&internal(&padded(count), count + 1)));
}

/// Goal: S5 under contention. Method: threads add interleaved keys to the same places, some at the end, some in the
/// middle, some everywhere; afterwards every level is checked link by link.
#[test]
fn every_level_is_in_order_after_threads_added_at_once() {
    let per_thread = if cfg!(miri) { 40 } else { 10_000u64 };
    let list = SkipList::default();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let list = &list;
            scope.spawn(move || {
                for index in 0..per_thread {
                    let number = match thread {
                        0 | 1 => index * 4,
                        2 => index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16,
                        _ => per_thread * 4 - index * 4,
                    };
                    list.insert(&number.to_be_bytes(), thread, &number.to_le_bytes());
                }
            });
        }
    });
    assert_eq!(keys(&list).len() as u64, per_thread * 4);
    let mut above: Option<BTreeSet<*mut Node>> = None;
    for level in (0..HEIGHT_MAX).rev() {
        let mut met = BTreeSet::new();
        let mut node = list.head();
        loop {
            // SAFETY: S3: the head, or met at `level`.
            let next = unsafe { link_at(node, level) }.load(Ordering::Acquire);
            let Some(next) = NonNull::new(next) else { break };
            if node != list.head() {
                assert!(
                    Place::of(list.entry(node).key()).compare(Place::of(list.entry(next).key()), list.order).is_lt()
                );
            }
            assert!(met.insert(next.as_ptr()));
            node = next;
        }
        assert!(above.is_none_or(|above| above.is_subset(&met)), "S4 at level {level}");
        above = Some(met);
    }
}

/// Goal: fingers lead to the same answers as a search from the top. Method: keys that begin alike, that do not, that have many
/// versions, and too short ones, some of them added after the fingers were made; each is asked for, and what lies beside it.
#[test]
fn fingers_change_no_answer() {
    let count = if cfg!(miri) { 300 } else { 40_000u64 };
    let kinds: [fn(u64) -> Vec<u8>; 4] = [
        |n| n.to_be_bytes().to_vec(),
        |n| format!("{:016}", n >> 20).into_bytes(),
        // A thousand keys with hundreds of versions.
        |n| format!("the same beginning {:03}", n % 1000).into_bytes(),
        |n| n.to_be_bytes()[..(n % 9) as usize].to_vec(),
    ];
    for kind in kinds {
        let list = SkipList::default();
        let mut expected = BTreeSet::new();
        for index in 0..count {
            let (key, tag) = (kind(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)), index << 8);
            list.insert(&key, tag, b"");
            // Order of internal keys: the newest of a key first.
            expected.insert((key, u64::MAX - tag));
        }
        assert!(list.fingers_count.load(Ordering::Relaxed) > 2 && list.used_bytes() > list.arena.used_bytes());
        assert_eq!(keys(&list), expected.iter().map(|(key, tag)| internal(key, u64::MAX - tag)).collect::<Vec<_>>());
        let asked = expected.iter().step_by(7).flat_map(|(key, tag)| {
            let beside = [key.clone(), [&key[..], b"\0"].concat(), key[..key.len() / 2].to_vec()];
            beside.map(|key| (key, *tag)).into_iter().chain([(key.clone(), tag.saturating_add(1)), (key.clone(), 0)])
        });
        for (key, tag) in asked {
            let found = list.first_at_or_after(&internal(&key, u64::MAX - tag)).map(|entry| entry.key().to_vec());
            let wanted = expected.range((key, tag)..).next().map(|(key, tag)| internal(key, u64::MAX - tag));
            assert_eq!(found, wanted);
        }
    }
}

use super::*;

const FOR_EVER: Duration = Duration::MAX;

/// Whether nothing is left of any lock.
fn is_empty(locks: &Locks) -> bool {
    locks.waits.lock().is_empty() && locks.shards.0.iter().all(|shard| shard.lock().is_empty())
}

/// Waits until so many wait for a key.
fn wait_for_line(locks: &Locks, length: usize) {
    while locks.waits.lock().len() < length {
        std::thread::yield_now();
    }
}

/// Goal: nobody overtakes who waits, but who shares the key that it wants alone; and those who share it get it together.
#[test]
fn those_who_wait_are_served_in_their_order() {
    let locks = Arc::new(Locks::default());
    let served = Mutex::new(Vec::new());
    // Who stood behind those it keeps waiting would wait for itself.
    let (mut first, mut beside) = (locks.holder(Duration::from_secs(5)), locks.holder(FOR_EVER));
    first.lock(0, b"k", Mode::Shared).unwrap();
    beside.lock(0, b"k", Mode::Shared).unwrap();
    std::thread::scope(|scope| {
        for (place, mode) in [Mode::Alone, Mode::Shared, Mode::Shared, Mode::Alone].into_iter().enumerate() {
            let (locks, served) = (&locks, &served);
            scope.spawn(move || {
                let mut holder = locks.holder(FOR_EVER);
                holder.lock(0, b"k", mode).unwrap();
                served.lock().push((place, mode));
            });
            wait_for_line(locks, place + 1);
            // Whoever would share it, as its holder does, waits behind them.
            let mut late = locks.holder(Duration::ZERO);
            assert_eq!(late.lock(0, b"k", Mode::Shared), Err(Refused::TimedOut));
        }
        let first = scope.spawn(|| {
            let locked = first.lock(0, b"k", Mode::Alone);
            let before = served.lock().len();
            drop(first);
            (locked, before)
        });
        while !first.is_finished() && locks.waits.lock().len() < 5 {
            std::thread::yield_now();
        }
        drop(beside);
        // Not before all can go on.
        assert_eq!(first.join().unwrap(), (Ok(()), 0));
    });
    let mut served = served.into_inner();
    // Those who share it may tell of it in either order.
    served[1..3].sort_unstable();
    assert_eq!(served, [(0, Mode::Alone), (1, Mode::Shared), (2, Mode::Shared), (3, Mode::Alone)]);
    assert!(is_empty(&locks));
}

/// Goal: who gives up makes room for those behind it, and nothing is left of it.
#[test]
fn who_gives_up_makes_room() {
    let locks = Arc::new(Locks::default());
    let mut first = locks.holder(FOR_EVER);
    first.lock(0, b"k", Mode::Shared).unwrap();
    std::thread::scope(|scope| {
        let impatient = scope.spawn(|| {
            let mut holder = locks.holder(Duration::from_millis(20));
            assert_eq!(holder.lock(0, b"k", Mode::Alone), Err(Refused::TimedOut));
            assert_eq!(holder.len(), 0);
            // It goes on.
            holder.lock(0, b"other", Mode::Alone).unwrap();
        });
        wait_for_line(&locks, 1);
        // Waits behind it, and gets it while it is still held.
        let mut behind = locks.holder(Duration::from_secs(20));
        behind.lock(0, b"k", Mode::Shared).unwrap();
        assert_eq!(behind.len(), 1);
        impatient.join().unwrap();
    });
    drop(first);
    assert!(is_empty(&locks));
}

/// Goal: the same key of another family, and one whose name begins alike, is another.
#[test]
fn names_are_of_a_family_and_a_whole_key() {
    let locks = Arc::new(Locks::default());
    let mut holder = locks.holder(Duration::ZERO);
    holder.lock(1, b"k", Mode::Alone).unwrap();
    let mut other = locks.holder(Duration::ZERO);
    for (family, key) in [(0, &b"k"[..]), (256, b"k"), (1, b""), (1, b"kk"), (1, b"k\0")] {
        other.lock(family, key, Mode::Alone).unwrap();
    }
    assert_eq!(other.lock(1, b"k", Mode::Shared), Err(Refused::TimedOut));
    // What is had alone is shared as well, and asked for once more.
    holder.lock(1, b"k", Mode::Shared).unwrap();
    holder.lock(1, b"k", Mode::Alone).unwrap();
    assert_eq!((holder.len(), other.len()), (1, 5));
    drop((holder, other));
    assert!(is_empty(&locks));
}

//! What was begun in order and is finished in any is shown in order, on real threads.

use esker_log::ErrorKind;
use esker_log::publish::Published;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn ranges_that_are_finished_in_any_order_are_shown_in_order() {
    let published = Published::new(10);
    let highest = AtomicU64::new(10);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (published, highest) = (&published, &highest);
            scope.spawn(move || {
                for round in 0..2000 {
                    let before = 10 + (round * 4 + thread) * 3;
                    published.publish(before, before + 3).unwrap();
                    let seen = highest.fetch_max(before + 3, Ordering::AcqRel);
                    assert!(published.get() >= seen.max(before + 3), "the number never goes back");
                }
            });
        }
    });
    assert_eq!(published.get(), 10 + 4 * 2000 * 3);
    published.wait_for(5).unwrap();
}

#[test]
fn nobody_waits_for_what_never_comes() {
    let published = Published::new(0);
    std::thread::scope(|scope| {
        let waiting = [1, 7].map(|before| {
            scope.spawn({
                let published = &published;
                move || published.publish(before, before + 1).unwrap_err().kind()
            })
        });
        published.break_off();
        assert!(waiting.into_iter().all(|waiting| waiting.join().unwrap() == ErrorKind::ReadOnly));
    });
    assert_eq!(published.get(), 0);
    published.publish(0, 1).unwrap();
}

use super::*;
use esker_env::sim::SimClock;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[test]
fn an_unlimited_bucket_never_makes_anyone_wait() {
    let mut bucket = Bucket::new(Duration::ZERO, None);
    for _ in 0..100 {
        assert_eq!(bucket.take(Duration::ZERO, u64::MAX), Duration::ZERO);
    }
}

#[test]
fn a_bucket_grants_its_rate_in_the_long_run() {
    let mut bucket = Bucket::new(Duration::ZERO, Some(MIB));
    let (mut now, mut granted) = (Duration::ZERO, 0);
    while now < secs(20.0) {
        let wait = bucket.take(now, 64 * KIB);
        if wait.is_zero() {
            granted += 64 * KIB;
        }
        now += wait;
    }
    let bound = 20 * MIB + MIB / 10 + 64 * KIB;
    assert!((20 * MIB..=bound).contains(&granted), "{granted}");
}

#[test]
fn a_request_larger_than_the_bucket_is_granted_and_those_after_it_wait() {
    let mut bucket = Bucket::new(Duration::ZERO, Some(MIB));
    assert_eq!(bucket.take(Duration::ZERO, 10 * MIB), Duration::ZERO);
    let wait = bucket.take(Duration::ZERO, 1);
    assert!((secs(9.8)..secs(10.0)).contains(&wait), "{wait:?}");
    assert_eq!(bucket.take(wait, 1), Duration::ZERO);
}

#[test]
fn idle_time_is_saved_up_for_a_tenth_of_a_second_only() {
    let mut bucket = Bucket::new(Duration::ZERO, Some(MIB));
    let now = Duration::from_secs(1 << 40);
    let mut granted = 0;
    while bucket.take(now, KIB).is_zero() {
        granted += KIB;
    }
    assert!(granted <= MIB / 10 + 2 * KIB, "{granted}");
}

#[test]
fn a_new_rate_counts_at_once_and_old_debt_shrinks_to_it() {
    let mut bucket = Bucket::new(Duration::ZERO, Some(1000 * MIB));
    bucket.take(Duration::ZERO, 1000 * MIB);
    bucket.set_rate(Duration::ZERO, Some(MIB));
    assert!(bucket.take(Duration::ZERO, 1) <= secs(0.1));
    bucket.set_rate(Duration::ZERO, Some(0));
    assert_eq!(bucket.take(secs(1e6), 1), Duration::MAX);
    bucket.set_rate(Duration::ZERO, None);
    assert_eq!(bucket.take(Duration::ZERO, 1), Duration::ZERO);
}

#[test]
fn time_that_goes_back_changes_nothing() {
    let mut bucket = Bucket::new(secs(5.0), Some(MIB));
    bucket.take(secs(5.0), MIB);
    let wait = bucket.take(secs(5.0), 1);
    assert_eq!(bucket.take(secs(1.0), 1), wait);
}

/// A clock whose hand moves only by sleeping.
#[derive(Debug, Default)]
struct Hand(Mutex<Duration>);

impl Clock for Hand {
    fn unix_seconds(&self) -> u64 {
        self.0.lock().as_secs()
    }

    fn monotonic(&self) -> Duration {
        *self.0.lock()
    }

    fn sleep(&self, duration: Duration) {
        assert!(duration <= STEP, "a step of {duration:?}");
        *self.0.lock() += duration;
    }
}

#[test]
fn a_pacer_spreads_a_large_request_over_the_time_it_deserves() {
    let clock = Arc::new(Hand::default());
    let pacer = Pacer::new(clock.clone());
    pacer.request(Class::Scrub, 1 << 50);
    assert_eq!(clock.monotonic(), Duration::ZERO);
    pacer.set_rate(Class::Scrub, Some(MIB));
    pacer.request(Class::Scrub, 10 * MIB);
    let took = clock.monotonic();
    assert!((secs(9.7)..secs(10.1)).contains(&took), "{took:?}");
    pacer.request(Class::Flush, 1 << 50);
    assert_eq!(clock.monotonic(), took, "the rate of one class is no other's");
}

#[test]
fn the_rate_of_all_together_holds_every_class() {
    let clock = Arc::new(Hand::default());
    let pacer = Pacer::new(clock.clone());
    pacer.set_total_rate(Some(MIB));
    for class in Class::ALL {
        pacer.request(class, 2 * MIB);
    }
    let took = clock.monotonic();
    assert!((secs(9.7)..secs(10.1)).contains(&took), "{took:?}");
}

#[test]
fn the_more_urgent_class_goes_first_where_all_share() {
    let mut queues = Queues::new(Duration::ZERO);
    queues.set_total_rate(Duration::ZERO, Some(MIB));
    let mut now = Duration::ZERO;
    let mut ask_all = |now, class, bytes_done: &mut u64, queued: &mut bool| {
        while *bytes_done < MIB {
            match queues.ask(now, class, MIB - *bytes_done, queued) {
                Grant::Moves(bytes) => *bytes_done += bytes,
                Grant::Waits(_) => break,
            }
        }
    };
    let (mut flushed, mut flush_queued, mut reclaimed, mut reclaim_queued) = (0, false, 0, false);
    let mut reclaimed_before_flush_was_done = 0;
    while reclaimed < MIB {
        ask_all(now, Class::Reclaim, &mut reclaimed, &mut reclaim_queued);
        if flushed < MIB {
            reclaimed_before_flush_was_done = reclaimed;
        }
        ask_all(now, Class::Flush, &mut flushed, &mut flush_queued);
        now += Duration::from_millis(1);
    }
    // Only what had been saved up before the flush came, and one piece of debt.
    assert!(reclaimed_before_flush_was_done <= MIB * 2 / 10 + 2, "{reclaimed_before_flush_was_done}");
    assert!((secs(1.7)..secs(2.1)).contains(&now), "{now:?}");
}

/// Goal: whoever asks no more holds nobody back.
#[test]
fn a_request_that_is_given_up_ends_and_is_not_waited_for() {
    let clock = Arc::new(SimClock::default());
    let pacer = Pacer::new(clock.clone());
    pacer.set_total_rate(Some(KIB));
    let mut asked = 0;
    pacer.request_while(Class::Foreground, MIB, &mut || {
        asked += 1;
        asked < 5
    });
    assert_eq!(asked, 5);
    let before = clock.monotonic();
    clock.advance(secs(10_000.0));
    pacer.request(Class::Scrub, 1);
    assert_eq!(clock.monotonic(), before + secs(10_000.0));
}

//! What the threads of a Cask do by themselves, by a clock that stands still until the test moves it.
//!
//! A thread looks at the clock each time that it looks for work. So a test waits until it has looked often enough, not for time to pass.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use esker::env::sim::{SimClock, SimDisk, Survivors};
use esker::env::{Clock, Env};
use esker::{Cask, CaskOptions, CaskWriteOptions};
use esker_torture::hooked::{Call, Hooked};

/// How long a thread that does nothing at all is waited for: then the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, Default)]
struct Looks {
    monotonic: u64,
    unix: u64,
}

/// Counts who asks what time it is.
#[derive(Debug)]
struct WatchedClock {
    clock: Arc<SimClock>,
    looks: Mutex<Looks>,
    looked: Condvar,
}

impl WatchedClock {
    fn note(&self, look: impl FnOnce(&mut Looks)) {
        look(&mut self.looks.lock().unwrap());
        self.looked.notify_all();
    }

    /// Until there were so many more looks.
    fn wait_for(&self, count: impl Fn(&Looks) -> u64, more: u64) {
        let looks = self.looks.lock().unwrap();
        let wanted = count(&looks) + more;
        let is_early = |looks: &mut Looks| count(looks) < wanted;
        let waited = self.looked.wait_timeout_while(looks, PATIENCE, is_early).unwrap();
        assert!(!waited.1.timed_out(), "nobody looks at the clock");
    }
}

impl Clock for WatchedClock {
    fn unix_seconds(&self) -> u64 {
        self.note(|looks| looks.unix += 1);
        self.clock.unix_seconds()
    }

    fn monotonic(&self) -> Duration {
        self.note(|looks| looks.monotonic += 1);
        self.clock.monotonic()
    }

    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
    }
}

fn watched(disk: &SimDisk) -> (Arc<WatchedClock>, Env) {
    let clock = WatchedClock { clock: disk.clock(), looks: Mutex::default(), looked: Condvar::new() };
    let clock = Arc::new(clock);
    (clock.clone(), Env { clock, ..disk.env() })
}

fn options() -> CaskOptions {
    CaskOptions { create_if_missing: true, stripes: 2, file_bytes: 16 << 10, open_threads: 0, ..CaskOptions::default() }
}

/// Goal (`sync_interval_ms`): what nobody synced survives power loss once the interval has passed, and not before; again and again.
#[test]
fn what_nobody_synced_is_durable_after_the_interval() {
    let disk = SimDisk::new();
    let (clock, env) = watched(&disk);
    let interval = Duration::from_millis(5);
    let options = CaskOptions { sync_interval_ms: 5, background_jobs: 1, ..options() };
    let cask = Cask::open_with_env("/store", options.clone(), env).unwrap();
    let survives = |key: &[u8]| {
        let image = disk.after_power_loss(Survivors::Nothing);
        Cask::open_with_env("/store", options.clone(), image.env()).unwrap().exists(key).unwrap()
    };
    for key in [b"one", b"two"] {
        for stripe in 0..2 {
            let to = CaskWriteOptions { stripe: Some(stripe), ..CaskWriteOptions::default() };
            cask.put_with([&key[..], &[stripe as u8]].concat(), "value", &to).unwrap();
        }
        // One may have begun before the write, and tell of the time before it.
        clock.wait_for(|looks| looks.monotonic, 3);
        assert!(!survives(&[&key[..], &[0]].concat()) && !survives(&[&key[..], &[1]].concat()), "no time has passed");
        disk.clock().advance(interval);
        clock.wait_for(|looks| looks.monotonic, 3);
        assert!(
            survives(&[&key[..], &[0]].concat()) && survives(&[&key[..], &[1]].concat()),
            "the interval has passed"
        );
    }
    cask.close().unwrap();
}

/// Goal (`merge_interval_ms`): values that expire while nobody writes or reads are found, and their space comes back.
#[test]
fn what_expires_in_silence_is_merged_away() {
    let disk = SimDisk::new();
    let (clock, env) = watched(&disk);
    let options = CaskOptions { merge_interval_ms: 10, background_jobs: 2, ..options() };
    let cask = Cask::open_with_env("/store", options, env).unwrap();
    let short = CaskWriteOptions { ttl: Some(Duration::from_secs(60)), ..CaskWriteOptions::default() };
    for n in 0..300u32 {
        cask.put_with(n.to_le_bytes(), [7; 100], &short).unwrap();
    }
    cask.put("lives", "on").unwrap();
    // Ends the files, of which none has anything to give yet.
    cask.compact().unwrap();
    clock.wait_for(|looks| looks.unix, 6);
    let before = cask.stats();
    assert_eq!((before.keys, before.merged_bytes), (301, 0), "nothing has expired: {before:?}");
    disk.clock().advance(Duration::from_secs(61));
    // Two for each merge of a file, and one that finds no more.
    clock.wait_for(|looks| looks.unix, 2 * before.files + 3);
    let after = cask.stats();
    assert_eq!(after.keys, 1, "{after:?}");
    assert!(after.bytes < before.bytes / 2, "{after:?}");
    assert_eq!(cask.get("lives").unwrap().unwrap(), b"on");
    cask.close().unwrap();
}

/// Goal: a close does not wait for the pace of a merge: by a clock that stands still, that would be for ever.
#[test]
fn a_close_does_not_wait_for_the_pace_of_a_merge() {
    for background_jobs in [1, 2] {
        let disk = SimDisk::new();
        let still = Arc::new(StillClock { clock: disk.clock(), sleeps: Mutex::default(), slept: Condvar::new() });
        let env = Env { clock: still.clone(), ..disk.env() };
        let options =
            CaskOptions { background_jobs, merge_bytes_per_second: 1, merge_batch_bytes: 4 << 10, ..options() };
        let cask = Cask::open_with_env("/store", options, env).unwrap();
        for n in 0..60u8 {
            cask.put("often", [n; 900]).unwrap();
        }
        still.wait_for(2);
        let (closed, is_closed) = std::sync::mpsc::channel();
        std::thread::spawn(move || closed.send(cask.close()));
        is_closed.recv_timeout(PATIENCE).expect("the close ends").unwrap();
    }
}

/// Whose sleeps take no time, so that who waits for some to pass waits for ever.
#[derive(Debug)]
struct StillClock {
    clock: Arc<SimClock>,
    sleeps: Mutex<u64>,
    slept: Condvar,
}

impl StillClock {
    /// Until there were so many more sleeps.
    fn wait_for(&self, more: u64) {
        let sleeps = self.sleeps.lock().unwrap();
        let wanted = *sleeps + more;
        let waited = self.slept.wait_timeout_while(sleeps, PATIENCE, |sleeps| *sleeps < wanted).unwrap();
        assert!(!waited.1.timed_out(), "nobody sleeps");
    }
}

impl Clock for StillClock {
    fn unix_seconds(&self) -> u64 {
        self.clock.unix_seconds()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep(&self, _: Duration) {
        *self.sleeps.lock().unwrap() += 1;
        self.slept.notify_all();
        std::thread::yield_now();
    }
}

/// Goal (`sync_interval_ms`): the interval is kept while a merge waits for its pace, which it does on the same thread.
#[test]
fn what_nobody_synced_is_durable_while_a_merge_waits() {
    let disk = SimDisk::new();
    let still = Arc::new(StillClock { clock: disk.clock(), sleeps: Mutex::default(), slept: Condvar::new() });
    let env = Env { clock: still.clone(), ..disk.env() };
    let options = CaskOptions { sync_interval_ms: 5, background_jobs: 1, merge_bytes_per_second: 1, ..options() };
    let options = CaskOptions { merge_batch_bytes: 4 << 10, stripes: 1, ..options };
    let cask = Cask::open_with_env("/store", options.clone(), env).unwrap();
    for n in 0..60u8 {
        cask.put("often", [n; 900]).unwrap();
    }
    still.wait_for(2);
    cask.put("late", "value").unwrap();
    disk.clock().advance(Duration::from_millis(5));
    still.wait_for(3);
    let image = disk.after_power_loss(Survivors::Nothing);
    assert!(Cask::open_with_env("/store", options, image.env()).unwrap().exists("late").unwrap());
    cask.close().unwrap();
}

/// Goal (`sync_interval_ms`): nor does a backup keep the one thread, however long it takes; what it could not merge meanwhile it merges then.
#[test]
fn what_nobody_synced_is_durable_while_a_backup_goes_on() {
    let disk = SimDisk::new();
    let (clock, env) = watched(&disk);
    let options = CaskOptions { sync_interval_ms: 5, background_jobs: 1, stripes: 1, ..options() };
    let cask = Cask::open_with_env("/store", options.clone(), env).unwrap();
    cask.put("first", "value").unwrap();
    let mut is_first = true;
    let mut during = |_| {
        if !std::mem::take(&mut is_first) {
            return;
        }
        // Ends files that are worth merging.
        for n in 0..60u8 {
            cask.put("often", [n; 900]).unwrap();
        }
        cask.put("late", "value").unwrap();
        clock.wait_for(|looks| looks.monotonic, 6);
        disk.clock().advance(Duration::from_millis(5));
        clock.wait_for(|looks| looks.monotonic, 6);
        let image = disk.after_power_loss(Survivors::Nothing);
        assert!(Cask::open_with_env("/store", options.clone(), image.env()).unwrap().exists("late").unwrap());
        assert_eq!(cask.stats().merges, 0, "a backup copies files that stay");
    };
    cask.backup("/copy", &mut during).unwrap();
    for _ in 0..1000 {
        if cask.stats().merges > 0 {
            return cask.close().unwrap();
        }
        clock.wait_for(|looks| looks.monotonic, 1);
    }
    panic!("what was put off is not looked at again");
}

/// Goal: without threads, nobody who writes waits for a backup, be it the one who makes it; what there was to merge is merged afterwards.
#[test]
fn a_backup_keeps_no_writer_waiting() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let options = CaskOptions { background_jobs: 0, stripes: 1, ..options() };
        let cask = Cask::open_with_env("/store", options, SimDisk::new().env()).unwrap();
        cask.put("first", "value").unwrap();
        let mut during = |_| {
            for n in 0..60u8 {
                cask.put("often", [n; 900]).unwrap();
            }
        };
        cask.backup("/copy", &mut during).unwrap();
        let before = cask.stats();
        cask.put("next", "value").unwrap();
        done.send((before, cask.stats())).unwrap();
    });
    let (before, after) = is_done.recv_timeout(PATIENCE).expect("the backup ends");
    assert!(before.merges == 0 && before.dead_records > 0, "{before:?}");
    assert!(after.merges > 0 && after.bytes < before.bytes, "{after:?}");
}

/// Goal (`merge_interval_ms`): one thread for everything looks for merges no more often than that, however often it syncs.
#[test]
fn one_thread_merges_once_in_an_interval() {
    let disk = SimDisk::new();
    let (clock, env) = watched(&disk);
    let merge_interval_ms = 3_600_000;
    let options = CaskOptions { sync_interval_ms: 5, merge_interval_ms, background_jobs: 1, stripes: 1, ..options() };
    let cask = Cask::open_with_env("/store", options, env).unwrap();
    let short = CaskWriteOptions { ttl: Some(Duration::from_secs(60)), ..CaskWriteOptions::default() };
    for n in 0..300u32 {
        cask.put_with(n.to_le_bytes(), [7; 100], &short).unwrap();
    }
    cask.compact().unwrap();
    clock.wait_for(|looks| looks.monotonic, 10);
    disk.clock().advance(Duration::from_secs(61));
    clock.wait_for(|looks| looks.monotonic, 10);
    assert_eq!((cask.len(), cask.stats().merged_bytes), (300, 0), "not yet");
    disk.clock().advance(Duration::from_secs(3600));
    // A merge looks a few times itself, to give way.
    clock.wait_for(|looks| looks.monotonic, 40);
    assert_eq!(cask.len(), 0, "{:?}", cask.stats());
    cask.close().unwrap();
}

/// Goal: a file that could not be made ahead leaves nothing undone, so there is nothing to tell: whoever needs it makes it.
#[test]
fn a_file_that_could_not_be_made_ahead_is_no_error() {
    let disk = SimDisk::new();
    let (clock, env) = watched(&disk);
    let is_armed = Arc::new(AtomicBool::new(false));
    let (came, has_come) = std::sync::mpsc::channel();
    let fails = is_armed.clone();
    let files = Hooked::new(disk.env().files, move |call| match call {
        Call::Create(path)
            if path.extension().is_some_and(|end| end == "data") && fails.swap(false, Ordering::Relaxed) =>
        {
            let _ = came.send(());
            Err(esker::env::Error::new("creating", path, std::io::ErrorKind::Other.into()))
        }
        _ => Ok(()),
    });
    let env = Env { files: Arc::new(files), ..env };
    let options = CaskOptions { sync_interval_ms: 5, background_jobs: 2, stripes: 1, ..options() };
    let cask = Cask::open_with_env("/store", options, env).unwrap();
    cask.put("makes", "a file").unwrap();
    is_armed.store(true, Ordering::Relaxed);
    // More than three quarters, and not all of a file.
    for n in 0..14u8 {
        cask.put([n], [7; 1000]).unwrap();
    }
    has_come.recv_timeout(PATIENCE).expect("the next file is made ahead");
    clock.wait_for(|looks| looks.monotonic, 3);
    assert_eq!(cask.stats().background_error.map(|error| error.to_string()), None);
    for n in 0..14u8 {
        cask.put([n], [7; 1000]).unwrap();
    }
    cask.close().unwrap();
}

/// Goal: a merge that could not open its file for want of descriptors is done once there are some, though nobody writes and there is no more room
/// than there was.
#[test]
fn a_merge_that_lacked_a_descriptor_is_tried_again() {
    let disk = SimDisk::new();
    let (tries, is_armed) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
    let (came, has_come) = std::sync::mpsc::channel();
    let fails = is_armed.clone();
    let files = Hooked::new(disk.env().files, move |call| match call {
        Call::Create(path) if path.extension().is_some_and(|end| end == "data") && fails.load(Ordering::Relaxed) => {
            if tries.fetch_add(1, Ordering::Relaxed) == 0 {
                let too_many = std::io::Error::from_raw_os_error(24);
                return Err(esker::env::Error::new("creating", path, too_many));
            }
            let _ = came.send(());
            Ok(())
        }
        _ => Ok(()),
    });
    let env = Env { files: Arc::new(files), ..disk.env() };
    let options = CaskOptions { merge_interval_ms: 10, background_jobs: 1, ..options() };
    let cask = Cask::open_with_env("/store", options, env).unwrap();
    let short = CaskWriteOptions { ttl: Some(Duration::from_secs(60)), ..CaskWriteOptions::default() };
    for n in 0..50u8 {
        cask.put_with([n], [7; 100], &short).unwrap();
    }
    // Ends the files, of which none has anything to give yet.
    cask.compact().unwrap();
    is_armed.store(true, Ordering::Relaxed);
    disk.clock().advance(Duration::from_secs(61));
    has_come.recv_timeout(PATIENCE).expect("the merge is tried again");
    cask.close().unwrap();
}

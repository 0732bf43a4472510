use std::sync::atomic::{AtomicUsize, Ordering};

use esker_env::sim::SimDisk;

use super::*;

fn open(disk: &SimDisk) -> Result<Db> {
    let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
    Db::open_with_env("/db", options, disk.env())
}

/// Goal: the directory is given up once, by who ended everything; the other finds it done.
#[test]
fn of_two_closes_at_once_one_closes() {
    for round in 0..100 {
        let disk = SimDisk::new();
        let db = open(&disk).unwrap();
        db.put("key", "value").unwrap();
        // Neither is woken by the other, which would take longer than a close.
        let ready = AtomicUsize::new(0);
        let close = |db: Db| {
            ready.fetch_add(1, Ordering::AcqRel);
            while ready.load(Ordering::Acquire) < 2 {
                std::hint::spin_loop();
            }
            let closed = db.close().map_err(|error| error.kind());
            // Whoever is told that it is closed may open it.
            (closed, disk.op_count())
        };
        let (first, second) = std::thread::scope(|scope| {
            let other = scope.spawn(|| close(db.clone()));
            (close(db.clone()), other.join().unwrap())
        });
        let said = [first.0, second.0];
        assert!(said.contains(&Ok(())) && said.contains(&Err(ErrorKind::Closed)), "round {round}: {said:?}");
        assert_eq!((first.1, second.1), (disk.op_count(), disk.op_count()), "round {round}");
    }
}

/// Goal: a child that was forked drops or closes what it got, and the parent's files and its lock stay as they are.
#[test]
fn what_a_forked_child_closes_is_its_parents() {
    let disk = SimDisk::new();
    let mut db = open(&disk).unwrap();
    db.put("key", "value").unwrap();
    let before = disk.op_count();
    Arc::get_mut(&mut db.open).unwrap().process ^= 1;
    assert_eq!(db.clone().close().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(db.get("key").unwrap().unwrap(), b"value");
    drop(db);
    assert_eq!(disk.op_count(), before);
    assert_eq!(open(&disk).unwrap_err().kind(), ErrorKind::Busy);
}

//! A close of a Cask beside what other handles are in the middle of: it waits for them, and nothing touches the directory afterwards, which may
//! be another's by then.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use esker::env::sim::{Fault, SimDisk};
use esker::{Cask, CaskOptions, CaskWriteOptions, ErrorKind};
use esker_torture::hooked::{Call, Meanwhile};

/// How long what never happens is waited for: then the test fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a close that waits is seen to do so.
const A_WHILE: Duration = Duration::from_millis(100);

fn options() -> CaskOptions {
    CaskOptions { create_if_missing: true, stripes: 2, background_jobs: 0, open_threads: 0, ..CaskOptions::default() }
}

fn to(stripe: usize) -> CaskWriteOptions {
    CaskWriteOptions { stripe: Some(stripe), ..CaskWriteOptions::default() }
}

/// A call that is held, once it comes, until somebody lets it go on.
struct Held {
    has_come: Receiver<()>,
    go_on: Sender<()>,
}

impl Held {
    fn new(meanwhile: &Meanwhile, is_it: impl Fn(Call<'_>) -> bool + Send + 'static) -> Self {
        let ((come, has_come), (go_on, may_go_on)) = (channel(), channel());
        meanwhile.before(is_it, move || {
            come.send(()).unwrap();
            let _ = may_go_on.recv_timeout(PATIENCE);
        });
        Self { has_come, go_on }
    }

    fn wait(&self) {
        self.has_come.recv_timeout(PATIENCE).expect("the call comes");
    }
}

/// Another handle is held in its `work`, before it makes a file that ends so.
fn close_waits_for(ending: &'static str, work: fn(&Cask), before_close: fn(&Cask, &SimDisk)) {
    let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
    let cask = Cask::open_with_env("/store", options(), meanwhile.env(&disk)).unwrap();
    cask.put_with("key", "value", &to(0)).unwrap();
    let is_it = move |call: Call<'_>| matches!(call, Call::Create(path) if path.to_string_lossy().ends_with(ending));
    let held = Held::new(&meanwhile, is_it);
    let (closed, is_closed) = channel();
    thread::scope(|scope| {
        let (other, disk) = (cask.clone(), &disk);
        let working = scope.spawn(move || work(&other));
        held.wait();
        before_close(&cask, disk);
        scope.spawn(move || {
            let _ = cask.close();
            closed.send(disk.op_count()).unwrap();
        });
        let early = is_closed.recv_timeout(A_WHILE);
        let next = Cask::open_with_env("/store", options(), disk.env()).map(drop);
        held.go_on.send(()).unwrap();
        assert!(early.is_err(), "the close returned while another handle was at work");
        assert_eq!(next.unwrap_err().kind(), ErrorKind::Busy);
        working.join().unwrap();
        let ops = is_closed.recv_timeout(PATIENCE).unwrap();
        assert_eq!(disk.op_count(), ops, "something was done after the close");
    });
    let cask = Cask::open_with_env("/store", options(), disk.env()).unwrap();
    assert_eq!(cask.get("key").unwrap().unwrap(), b"value");
}

/// Goal: a file that another handle seals is ended before the directory is given up.
#[test]
fn a_close_waits_for_a_seal_of_another_handle() {
    close_waits_for(".hint.new", |cask| drop(cask.compact()), |_, _| {});
}

/// Goal: the same of a writer that begins a file, also where a sync has failed meanwhile, so that nothing is finished.
#[test]
fn a_close_waits_for_a_writer_that_begins_a_file() {
    let write = |cask: &Cask| drop(cask.put_with("other", "value", &to(1)));
    close_waits_for(".data", write, |_, _| {});
    close_waits_for(".data", write, |cask, disk| {
        disk.fail_at(disk.op_count(), Fault::Eio);
        assert_eq!(cask.sync().unwrap_err().kind(), ErrorKind::ReadOnly);
    });
}

/// Goal: a checkpoint that had begun before the close and comes to the store only after it finds it closed.
#[test]
fn a_checkpoint_that_comes_to_a_closed_store_leaves_it_alone() {
    let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
    disk.set_tracing(true);
    let cask = Cask::open_with_env("/store", options(), meanwhile.env(&disk)).unwrap();
    cask.put("key", "value").unwrap();
    let held = Held::new(&meanwhile, |call| call.path().starts_with("/copy"));
    thread::scope(|scope| {
        let other = cask.clone();
        let copying = scope.spawn(move || other.checkpoint("/copy"));
        held.wait();
        cask.close().unwrap();
        let closed = disk.trace().len();
        held.go_on.send(()).unwrap();
        assert_eq!(copying.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        let later = disk.trace().split_off(closed);
        assert!(later.iter().all(|line| !line.contains("/store")), "{later:?}");
    });
}

/// Goal: a close reaches a writer that waits for another's merge, which it would do itself then: it goes on before the merge has ended.
#[test]
fn a_close_reaches_a_writer_that_waits_for_a_merge() {
    let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
    let options = CaskOptions { file_bytes: 4 << 10, ..options() };
    let cask = Cask::open_with_env("/store", options.clone(), meanwhile.env(&disk)).unwrap();
    for key in ["stays", "goes", "goes"] {
        cask.put_with(key, [7; 900], &to(0)).unwrap();
    }
    cask.put_with("key", [7; 900], &to(1)).unwrap();
    let is_data = |call: Call<'_>| matches!(call, Call::Create(path) if path.extension().is_some_and(|e| e == "data"));
    let held = Held::new(&meanwhile, is_data);
    let (written, is_written) = channel();
    thread::scope(|scope| {
        let (merger, writer) = (cask.clone(), cask.clone());
        let merging = scope.spawn(move || merger.compact());
        held.wait();
        scope.spawn(move || {
            // Until a file is full, which it seals; and then there are merges to do.
            let put = |n: u8| writer.put_with([n], [n; 900], &to(1)).map_err(|error| error.kind());
            written.send((0..20).map(put).find_map(Result::err)).unwrap();
        });
        assert!(is_written.recv_timeout(A_WHILE).is_err(), "the writer does not wait for the merge");
        let closing = scope.spawn(|| cask.close());
        assert_eq!(is_written.recv_timeout(PATIENCE).unwrap(), Some(ErrorKind::Closed));
        assert!(!merging.is_finished());
        held.go_on.send(()).unwrap();
        let _ = merging.join().unwrap();
        closing.join().unwrap().unwrap();
    });
    let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
    assert_eq!(cask.get([0]).unwrap().unwrap(), [0; 900]);
}

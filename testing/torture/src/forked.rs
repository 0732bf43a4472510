//! A process that is forked from the test's.
//!
//! The child has the thread that forked and no other, so it does little, says what came of it and ends: by itself, or by the system's hand after
//! `SECONDS`, should it wait for what is not there.

use std::ffi::{c_int, c_uint};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};

/// So long a child may take that waits for nobody, on a machine that has other things to do.
const SECONDS: c_uint = 30;

unsafe extern "C" {
    safe fn fork() -> c_int;
    safe fn alarm(seconds: c_uint) -> c_uint;
    safe fn _exit(code: c_int) -> !;
    unsafe fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
}

/// Where one is after a fork.
#[derive(Debug)]
pub enum Side {
    /// In the new process.
    Child(Child),
    /// In the old one.
    Parent(Parent),
}

/// What a child tells its parent by.
#[derive(Debug)]
pub struct Child(PipeWriter);

/// What a parent knows of its child.
#[derive(Debug)]
pub struct Parent {
    process: c_int,
    told: PipeReader,
}

/// Goes on in two processes.
///
/// # Panics
/// Where the system has no process to give.
pub fn in_two() -> Side {
    let (told, tell) = pipe().unwrap();
    match fork() {
        0 => {
            alarm(SECONDS);
            Side::Child(Child(tell))
        }
        process => {
            assert!(process > 0, "{}", std::io::Error::last_os_error());
            Side::Parent(Parent { process, told })
        }
    }
}

/// Runs `work` in a child; what it returned, or nothing if it did not come to an end.
///
/// # Panics
/// As [`in_two`].
pub fn in_a_child(work: impl FnOnce() -> String) -> String {
    match in_two() {
        Side::Child(child) => child.end(&work()),
        Side::Parent(parent) => parent.said(),
    }
}

impl Child {
    /// Tells the parent, and ends the process with nothing else done: it is not the child's to end what the parent has begun.
    pub fn end(mut self, said: &str) -> ! {
        let is_told = self.0.write_all(said.as_bytes()).is_ok();
        _exit(c_int::from(!is_told))
    }
}

impl Parent {
    /// What the child said when it ended; nothing if it was ended.
    ///
    /// # Panics
    /// Where the child is not there.
    pub fn said(mut self) -> String {
        let mut said = String::new();
        self.told.read_to_string(&mut said).unwrap();
        let mut status = 0;
        // SAFETY: `status` is there to be written to.
        let waited = unsafe { waitpid(self.process, &raw mut status, 0) };
        assert_eq!(waited, self.process, "{}", std::io::Error::last_os_error());
        said
    }
}

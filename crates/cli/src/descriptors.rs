//! How many files the command may have open: a store holds one descriptor for each of its tables and blob files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit, which is often 1,024 for the sake of programs that use `select`, to the hard one, which is there to be used.
/// Where that is refused the old one holds, and a store of more files says so.
pub(crate) fn allow_all() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

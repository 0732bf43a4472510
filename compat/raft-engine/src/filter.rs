//! Mending a log by a script, as the original's `unsafe_repair` does (feature `scripting`). What a script may have, and what differs from the
//! original, is on the page of [`esker_raft_script`].

use std::path::Path;

use esker_env::Env;
use esker_raft_log::{ErrorKind, FilterOptions, Options, Queue};
use esker_raft_script::Script;

use crate::engine::LogQueue;
use crate::{Error, Result};

pub(crate) fn run(path: &Path, queue: Option<LogQueue>, script: String, env: &Env) -> Result<()> {
    let queue = queue.map(|queue| if queue == LogQueue::Append { Queue::Append } else { Queue::Rewrite });
    let how = FilterOptions { queue, ..FilterOptions::default() };
    match Script::new("the script", script)?.filter(path, &Options::default(), env, &how) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::InvalidArgument(error.to_string())),
        done => Ok(done.map(drop)?),
    }
}

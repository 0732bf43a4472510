//! Who decodes a scan's chunks: the caller alone at first; once a scan turns out long, a thread of its own and the caller
//! together, each the files that it takes.
//!
//! - A1: a file is decoded by one of them, from its beginning to its end, so nothing comes twice and nothing is left out. A
//!   thread that did not end well is an error of the scan.
//! - A2: in a process that was forked since, the thread is not there: it is not waited for, nor is a lock that it may have had.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use esker_env::os::Origin;
use esker_env::{Env, Thread};

use super::chunk::{Chunk, Decoder};
use crate::{Error, ErrorKind, Result};

/// A scan that has gone through so many chunks gets a thread: about four megabytes, some hundred times what starting one takes.
const CHUNKS_ALONE: usize = 8;
/// Chunks that wait for the scan, at most: 400 KiB of memory, and what they have read where files lend nothing.
const CHUNKS_AHEAD: usize = 4;

/// Where chunks come from.
pub(super) struct Source {
    env: Env,
    origin: Origin,
    may_start: bool,
    taken: usize,
    decoder: Decoder,
    helper: Option<Helper>,
}

struct Helper {
    chunks: Option<Receiver<Result<Chunk>>>,
    thread: Box<dyn Thread>,
}

impl Source {
    /// `may_start`: whether there may be a thread.
    pub(super) const fn new(env: Env, origin: Origin, decoder: Decoder, may_start: bool) -> Self {
        Self { env, origin, may_start, taken: 0, decoder, helper: None }
    }

    /// Files that nobody has begun to decode.
    pub(super) fn files_left(&self) -> usize {
        self.decoder.files_left()
    }

    /// The next chunk; `None`: there is none, now and for good.
    pub(super) fn next(&mut self) -> Result<Option<Chunk>> {
        if self.taken == CHUNKS_ALONE && self.may_start {
            self.start();
        }
        self.taken += 1;
        let chunks = self.helper.as_ref().and_then(|helper| helper.chunks.as_ref());
        if let Some(chunk) = chunks.and_then(|chunks| chunks.try_recv().ok()) {
            return chunk.map(Some);
        }
        // Rather than wait for the thread.
        if let Some(chunk) = self.decoder.next()? {
            return Ok(Some(chunk));
        }
        match chunks.map(Receiver::recv) {
            Some(Ok(chunk)) => chunk.map(Some),
            Some(Err(_)) => self.end(),
            None => Ok(None),
        }
    }

    fn start(&mut self) {
        let mut decoder = self.decoder.another();
        let (sender, chunks) = sync_channel(CHUNKS_AHEAD);
        let work = Box::new(move || send_all(&mut decoder, &sender));
        // Without, it goes on alone.
        if let Ok(thread) = self.env.threads.spawn("esker-scan", work) {
            self.helper = Some(Helper { chunks: Some(chunks), thread });
        }
    }

    /// The thread has nothing more.
    fn end(&mut self) -> Result<Option<Chunk>> {
        match self.helper.take().map(|mut helper| helper.thread.join()) {
            Some(false) => Err(Error::new(
                ErrorKind::Io,
                "a thread that read files for the scan ended early: not everything was shown",
            )),
            _ => Ok(None),
        }
    }

    /// Nothing comes any more.
    pub(super) fn stop(&mut self) {
        if self.origin.is_here() {
            self.helper = None;
            self.decoder.stop();
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // A2.
            std::mem::forget(self.helper.take());
        }
    }
}

fn send_all(decoder: &mut Decoder, to: &SyncSender<Result<Chunk>>) {
    while let Some(chunk) = decoder.next().transpose() {
        if to.send(chunk).is_err() {
            // The scan was dropped.
            return;
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // First of all, so that it waits for nobody.
        drop(self.chunks.take());
        // What it has failed at nobody wants to know any more.
        let _ = self.thread.join();
    }
}

//! What goes wrong, and when.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use rustix::io::Errno;

/// How an operation fails. On a sync, each of them loses the bytes that were to become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// EIO; nothing happened.
    Eio,
    /// ENOSPC; nothing happened.
    NoSpace,
    /// An append leaves its first `kept_bytes` in the file, then fails with ENOSPC. Any other operation: [`Eio`](Self::Eio).
    ShortWrite {
        /// How many bytes of the append get in; all of them, if it has fewer.
        kept_bytes: usize,
    },
}

impl Fault {
    /// What the system says of it, to anything but an append.
    pub(super) fn errno(self) -> Errno {
        match self {
            Self::Eio | Self::ShortWrite { .. } => Errno::IO,
            Self::NoSpace => Errno::NOSPC,
        }
    }
}

/// How a read fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadFault {
    /// EIO.
    Eio,
}

/// Counts calls, and knows which of them fail.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    ops: u64,
    reads: u64,
    dies_after: Option<u64>,
    /// What of the operation after that gets in, if it is an append.
    kept_in_death: Option<Range<usize>>,
    faults: BTreeMap<u64, Fault>,
    read_faults: BTreeMap<u64, ReadFault>,
    tracing: bool,
    trace: Vec<String>,
}

impl Schedule {
    /// The schedule of a disk that succeeds one with this: nothing but the wish to be traced.
    pub(super) fn successor(&self) -> Self {
        Self { tracing: self.tracing, ..Self::default() }
    }

    pub(super) fn op_count(&self) -> u64 {
        self.ops
    }

    pub(super) fn read_count(&self) -> u64 {
        self.reads
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dies_after.is_some_and(|last| self.ops >= last)
    }

    pub(super) fn die_after(&mut self, n: u64) {
        self.dies_after = Some(n);
        self.kept_in_death = None;
    }

    pub(super) fn die_within(&mut self, n: u64, kept: Range<usize>) {
        self.dies_after = Some(n);
        self.kept_in_death = Some(kept);
    }

    /// What gets in of an append that comes now, if the machine dies within it: told once.
    pub(super) fn take_death_within(&mut self) -> Option<Range<usize>> {
        if self.dies_after == Some(self.ops) { self.kept_in_death.take() } else { None }
    }

    pub(super) fn fail_at(&mut self, n: u64, fault: Fault) {
        self.faults.insert(n, fault);
    }

    pub(super) fn fail_read_at(&mut self, n: u64, fault: ReadFault) {
        self.read_faults.insert(n, fault);
    }

    pub(super) fn set_tracing(&mut self, on: bool) {
        self.tracing = on;
    }

    pub(super) fn trace(&self) -> Vec<String> {
        self.trace.clone()
    }

    /// Counts an operation that can do nothing halfway.
    pub(super) fn begin(&mut self, what: fmt::Arguments<'_>) -> Result<(), Errno> {
        match self.begin_divisible(what)? {
            Some(fault) => Err(fault.errno()),
            None => Ok(()),
        }
    }

    /// Counts an operation; the caller does what its fault leaves to do.
    pub(super) fn begin_divisible(&mut self, what: fmt::Arguments<'_>) -> Result<Option<Fault>, Errno> {
        if self.is_dead() {
            return Err(Errno::IO);
        }
        let fault = self.faults.remove(&self.ops);
        if self.tracing {
            let end = fault.map(|fault| format!(" => {fault:?}")).unwrap_or_default();
            self.trace.push(format!("{} {what}{end}", self.ops));
        }
        self.ops += 1;
        Ok(fault)
    }

    /// Counts a read.
    pub(super) fn begin_read(&mut self) -> Result<(), Errno> {
        if self.is_dead() {
            return Err(Errno::IO);
        }
        let fault = self.read_faults.remove(&self.reads);
        self.reads += 1;
        match fault {
            Some(ReadFault::Eio) => Err(Errno::IO),
            None => Ok(()),
        }
    }
}

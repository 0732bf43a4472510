//! What goes wrong, and when.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::ops::Range;

use rustix::io::Errno;

/// How an operation fails. On a sync, each but [`EioAfter`](Self::EioAfter) loses the bytes that were to become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// EIO; nothing happened.
    Eio,
    /// ENOSPC; nothing happened.
    NoSpace,
    /// EIO, though all of it happened: the answer got lost, not the work. A sync made its bytes durable.
    EioAfter,
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
            Self::Eio | Self::EioAfter | Self::ShortWrite { .. } => Errno::IO,
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
    /// It succeeds, and one bit of what it returns is another: that with this number, modulo what there is. Nothing on the
    /// disk changes. A read that returns no bytes of a file is not touched.
    FlippedBit {
        /// Which.
        bit: u64,
    },
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
    /// How each operation from this one on fails.
    lasting: Option<(u64, Fault)>,
    /// How the first sync of a file fails that comes with this operation or a later one.
    next_sync: Option<(u64, Fault)>,
    /// The operation under way is to fail once it is done.
    fails_when_done: bool,
    /// The bit to flip in what the read under way returns.
    flips: Option<u64>,
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

    pub(super) fn fail_from(&mut self, n: u64, fault: Fault) {
        self.lasting = Some((n, fault));
    }

    pub(super) fn fail_next_sync(&mut self, n: u64, fault: Fault) {
        self.next_sync = Some((n, fault));
    }

    pub(super) fn heal(&mut self) {
        self.lasting = None;
        self.next_sync = None;
        self.faults.clear();
        self.read_faults.clear();
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

    /// Counts an operation that can do nothing halfway. What comes of it goes through [`end`](Self::end).
    pub(super) fn begin(&mut self, what: fmt::Arguments<'_>) -> Result<(), Errno> {
        match self.begin_divisible(what)? {
            Some(Fault::EioAfter) => self.fails_when_done = true,
            Some(fault) => return Err(fault.errno()),
            None => {}
        }
        Ok(())
    }

    /// What is said of an operation that [`begin`](Self::begin) let pass.
    pub(super) fn end<T>(&mut self, answer: Result<T, Errno>) -> Result<T, Errno> {
        if mem::take(&mut self.fails_when_done) { answer.and(Err(Errno::IO)) } else { answer }
    }

    /// Counts an operation; the caller does what its fault leaves to do.
    pub(super) fn begin_divisible(&mut self, what: fmt::Arguments<'_>) -> Result<Option<Fault>, Errno> {
        self.fails_when_done = false;
        if self.is_dead() {
            return Err(Errno::IO);
        }
        let lasting = self.lasting.filter(|(from, _)| self.ops >= *from).map(|(_, fault)| fault);
        let fault = self.faults.remove(&self.ops).or(lasting);
        if self.tracing {
            let end = fault.map(|fault| format!(" => {fault:?}")).unwrap_or_default();
            self.trace.push(format!("{} {what}{end}", self.ops));
        }
        self.ops += 1;
        Ok(fault)
    }

    /// The same for a sync of a file.
    pub(super) fn begin_sync(&mut self, what: fmt::Arguments<'_>) -> Result<Option<Fault>, Errno> {
        if let Some((_, fault)) = self.next_sync.take_if(|(from, _)| self.ops >= *from) {
            self.faults.insert(self.ops, fault);
        }
        self.begin_divisible(what)
    }

    /// Counts a read.
    pub(super) fn begin_read(&mut self) -> Result<(), Errno> {
        if self.is_dead() {
            return Err(Errno::IO);
        }
        let fault = self.read_faults.remove(&self.reads);
        self.reads += 1;
        match fault {
            Some(ReadFault::Eio) => return Err(Errno::IO),
            Some(ReadFault::FlippedBit { bit }) => self.flips = Some(bit),
            None => self.flips = None,
        }
        Ok(())
    }

    /// Flips in `bytes`, which the read under way returns, what it is to flip.
    pub(super) fn rot(&mut self, bytes: &mut [u8]) {
        let Some(bit) = self.flips.take() else { return };
        let place = bit.checked_rem(bytes.len() as u64 * 8).unwrap_or(0);
        if let Some(byte) = usize::try_from(place / 8).ok().and_then(|at| bytes.get_mut(at)) {
            *byte ^= 1 << (place % 8);
        }
    }
}

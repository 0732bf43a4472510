//! What a thread knows of its keys: what each holds now, and what a death may leave of its writes.

use std::collections::BTreeMap;

use esker_torture::noise;
use fastrand::Rng;

/// Threads that write.
pub(super) const WRITERS: u8 = 3;
/// Keys of each of them in each family.
pub(super) const KEYS: u16 = 40;

/// Where a key lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// The default family.
    First,
    Second,
    /// A family of which nothing goes to the log.
    Unlogged,
    /// The family of one thread, which drops it and makes it again.
    Own,
}

pub(super) const PLACES: [Place; 4] = [Place::First, Place::Second, Place::Unlogged, Place::Own];

impl Place {
    pub(super) fn family(self, owner: u8) -> String {
        match self {
            Self::First => "default".to_owned(),
            Self::Second => "second".to_owned(),
            Self::Unlogged => "unlogged".to_owned(),
            Self::Own => format!("own{owner}"),
        }
    }
}

/// Key `n` of a thread: those of all threads lie among each other.
pub(super) fn key(owner: u8, n: u16) -> Vec<u8> {
    format!("{n:03}/{owner}").into_bytes()
}

/// Whose key it is, and which.
pub(super) fn parse(key: &[u8]) -> Option<(u8, u16)> {
    let (n, owner) = std::str::from_utf8(key).ok()?.split_once('/')?;
    Some((owner.parse().ok()?, n.parse().ok()?))
}

/// What write `serial` of a thread puts under a key: its number, then up to `bytes_max` that only it has.
pub(super) fn value(owner: u8, n: u16, serial: u32, bytes_max: usize) -> Vec<u8> {
    let mut random = Rng::with_seed(u64::from(serial) << 24 | u64::from(n) << 8 | u64::from(owner));
    let len = random.usize(..=bytes_max);
    let mut value = serial.to_le_bytes().to_vec();
    value.resize(4 + len, random.u8(..));
    noise::fill(&mut random, &mut value[4 + len / 3..]);
    value
}

/// The number of the write that put it.
pub(super) fn serial_of(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// By which write each key has its value.
pub(super) type State = BTreeMap<(Place, u16), u32>;

/// What of it lies in these places.
pub(super) fn part(state: &State, places: &[Place]) -> State {
    state.iter().filter(|((place, _), _)| places.contains(place)).map(|(at, serial)| (*at, *serial)).collect()
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    Put(Place, u16),
    Delete(Place, u16),
    /// The family of the thread goes, with all that is in it.
    Drop,
}

#[derive(Debug, Clone)]
pub(super) struct Write {
    pub(super) serial: u32,
    pub(super) ops: Vec<Op>,
}

impl Write {
    fn apply(&self, state: &mut State) {
        for op in &self.ops {
            match *op {
                Op::Put(place, n) => drop(state.insert((place, n), self.serial)),
                Op::Delete(place, n) => drop(state.remove(&(place, n))),
                Op::Drop => state.retain(|(place, _), _| *place != Place::Own),
            }
        }
    }
}

/// Writes of one thread of which a death leaves the first so many.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// What the life began with.
    base: State,
    /// Those that were done in this life; the last may be unknown.
    writes: Vec<Write>,
    now: State,
    done: usize,
    durable: usize,
}

impl Stream {
    /// It is about to be done.
    pub(super) fn begin(&mut self, write: Write) {
        self.writes.push(write);
    }

    /// What was begun took effect.
    pub(super) fn finish(&mut self) {
        self.writes[self.done..].iter().for_each(|write| write.apply(&mut self.now));
        self.done = self.writes.len();
    }

    /// What was begun did nothing.
    pub(super) fn take_back(&mut self) {
        self.writes.truncate(self.done);
    }

    /// All that is done survives the loss of power.
    pub(super) fn note_durable(&mut self) {
        self.durable = self.done;
    }

    pub(super) fn now(&self) -> &State {
        &self.now
    }

    pub(super) fn done(&self) -> usize {
        self.done
    }

    pub(super) fn durable(&self) -> usize {
        self.durable
    }

    /// How many writes `found` has, if it has the first so many of at least `least`, and nothing else.
    pub(super) fn prefix(&self, found: &State, least: usize) -> Option<usize> {
        let mut state = self.base.clone();
        self.writes[..least].iter().for_each(|write| write.apply(&mut state));
        for count in least..=self.writes.len() {
            if state == *found {
                return Some(count);
            }
            if let Some(write) = self.writes.get(count) {
                write.apply(&mut state);
            }
        }
        None
    }

    /// Another life begins, with this.
    pub(super) fn begin_life(&mut self, found: State) {
        *self = Self { now: found.clone(), base: found, ..Self::default() };
    }
}

/// What is known of the keys of one thread.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Of the default family and the second.
    pub(super) logged: Stream,
    /// Of the family that is not logged.
    pub(super) unlogged: Stream,
    /// Of the family of its own.
    pub(super) own: Stream,
    /// Writes so far, in all lives.
    pub(super) serial: u32,
}

impl Ledger {
    pub(super) fn of(&self, place: Place) -> &Stream {
        match place {
            Place::First | Place::Second => &self.logged,
            Place::Unlogged => &self.unlogged,
            Place::Own => &self.own,
        }
    }

    pub(super) fn of_mut(&mut self, place: Place) -> &mut Stream {
        match place {
            Place::First | Place::Second => &mut self.logged,
            Place::Unlogged => &mut self.unlogged,
            Place::Own => &mut self.own,
        }
    }

    /// The log is durable, with all that is in it.
    pub(super) fn note_log_durable(&mut self) {
        self.logged.note_durable();
        self.own.note_durable();
    }

    /// All is.
    pub(super) fn note_durable(&mut self) {
        self.note_log_durable();
        self.unlogged.note_durable();
    }

    /// Another life begins, with this.
    pub(super) fn begin_life(&mut self, found: &State) {
        self.logged.begin_life(part(found, &[Place::First, Place::Second]));
        self.unlogged.begin_life(part(found, &[Place::Unlogged]));
        self.own.begin_life(part(found, &[Place::Own]));
    }

    /// What all keys hold.
    pub(super) fn now(&self) -> State {
        [&self.logged, &self.unlogged, &self.own].into_iter().flat_map(|stream| stream.now().clone()).collect()
    }
}

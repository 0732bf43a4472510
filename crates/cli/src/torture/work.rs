//! What a thread does, operation by operation, and what it leaves.

use std::collections::BTreeMap;

use crate::bench::random::Random;
use crate::kind::Kind;

/// Keys of a thread, or of a group.
const KEYS: u64 = 150;
/// Groups of a thread.
const GROUPS: u64 = 3;
/// Most entries of a group before it is compacted.
const ENTRIES_MAX: u64 = 120;
/// In a key of a [`State`], what stands between a group and the index of an entry.
const ENTRY: u8 = b'#';
/// The same before a key of a group.
const KEY: u8 = b'/';

/// What a thread's part of a store holds: keys and values. An entry of a group has its group and index as a key.
pub(crate) type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// One operation: all of it happens, or nothing.
#[derive(Debug)]
pub(crate) struct Operation {
    /// What it does.
    pub(crate) steps: Vec<Step>,
    /// Whether it is synced.
    pub(crate) sync: bool,
}

/// A part of an operation.
#[derive(Debug)]
pub(crate) enum Step {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    /// Entries of a group, from an index on; those that it had from there on go.
    Append(u64, u64, Vec<Vec<u8>>),
    /// Entries of a group before an index go.
    Compact(u64, u64),
    PutInGroup(u64, Vec<u8>, Vec<u8>),
    DeleteInGroup(u64, Vec<u8>),
}

/// Operation `number` of `thread`, which finds `state`.
pub(crate) fn operation(kind: Kind, seed: u64, thread: usize, number: u64, state: &State) -> Operation {
    let mut random = Random::new(seed ^ (thread as u64) << 56, number);
    let more = if random.below(4) == 0 { 6 } else { 1 };
    let count = 1 + random.below(more);
    let mut steps = Vec::new();
    // Of one key or group an operation does one thing, so the order in a batch does not matter.
    let mut touched = Vec::new();
    for _ in 0..count {
        let place = if kind == Kind::Raft { random.below(GROUPS) } else { random.below(KEYS) };
        if touched.contains(&place) {
            continue;
        }
        touched.push(place);
        steps.push(match kind {
            Kind::Raft => in_group(&mut random, thread as u64 * GROUPS + place + 1, state),
            _ => {
                let key = format!("{thread}{}{place:04}", char::from(KEY)).into_bytes();
                if random.below(5) == 0 { Step::Delete(key) } else { Step::Put(key, value(&mut random, 40_000)) }
            }
        });
    }
    Operation { steps, sync: random.below(64) == 0 }
}

fn in_group(random: &mut Random, group: u64, state: &State) -> Step {
    let prefix = format!("{group:08}{}", char::from(ENTRY)).into_bytes();
    let indexes: Vec<u64> = state.keys().filter_map(|key| index_of(key.strip_prefix(&prefix[..])?)).collect();
    let (first, last) = (indexes.first().copied(), indexes.last().copied());
    let key = format!("key{}", random.below(KEYS / 10)).into_bytes();
    match (random.below(10), first.zip(last)) {
        (0, _) => Step::PutInGroup(group, key, value(random, 2_000)),
        (1, _) => Step::DeleteInGroup(group, key),
        (2, Some((first, last))) => Step::Compact(group, first + random.below(last - first + 1)),
        (_, Some((first, last))) if last - first > ENTRIES_MAX => Step::Compact(group, last - random.below(9)),
        // Now and then entries are written again, as a new leader does.
        (3, Some((first, last))) => {
            let from = first + random.below(last - first + 1);
            Step::Append(group, from, entries(random))
        }
        (_, bounds) => Step::Append(group, bounds.map_or(7, |(_, last)| last + 1), entries(random)),
    }
}

fn index_of(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn entries(random: &mut Random) -> Vec<Vec<u8>> {
    (0..=random.below(4)).map(|_| value(random, 9_000)).collect()
}

/// Bytes that tell which write they are of, mostly few.
fn value(random: &mut Random, bytes_max: u64) -> Vec<u8> {
    let bytes = if random.below(20) == 0 { random.below(bytes_max) } else { random.below(600) };
    let mark = random.next().to_le_bytes();
    mark.into_iter().cycle().take(8 + bytes as usize).collect()
}

/// How an entry is called in a [`State`]. In order of their indexes.
pub(crate) fn entry_key(group: u64, index: u64) -> Vec<u8> {
    format!("{group:08}{}{index:020}", char::from(ENTRY)).into_bytes()
}

/// How a key of a group is called in a [`State`].
pub(crate) fn group_key(group: u64, key: &[u8]) -> Vec<u8> {
    [format!("{group:08}{}", char::from(KEY)).as_bytes(), key].concat()
}

/// Which thread a key of a [`State`] belongs to.
pub(crate) fn thread_of(kind: Kind, key: &[u8]) -> Option<usize> {
    let digits = key.split(|&byte| byte == ENTRY || byte == KEY).next()?;
    let number = usize::try_from(index_of(digits)?).ok()?;
    match kind {
        Kind::Raft => Some(number.checked_sub(1)? / GROUPS as usize),
        _ => Some(number),
    }
}

/// Does to `state` what the operation does.
pub(crate) fn apply(state: &mut State, operation: &Operation) {
    for step in &operation.steps {
        match step {
            Step::Put(key, value) => drop(state.insert(key.clone(), value.clone())),
            Step::Delete(key) => drop(state.remove(key)),
            Step::Append(group, first, entries) => {
                let (from, end) = (entry_key(*group, *first), entry_key(*group, u64::MAX));
                state.retain(|key, _| *key < from || *key > end);
                state.extend((*first..).zip(entries).map(|(index, entry)| (entry_key(*group, index), entry.clone())));
            }
            Step::Compact(group, index) => {
                let (start, until) = (entry_key(*group, 0), entry_key(*group, *index));
                state.retain(|key, _| *key < start || *key >= until);
            }
            Step::PutInGroup(group, key, value) => drop(state.insert(group_key(*group, key), value.clone())),
            Step::DeleteInGroup(group, key) => drop(state.remove(&group_key(*group, key))),
        }
    }
}

//! Whether a file of an earlier backup is still good.

use std::path::Path;

use esker_format::zeroes::is_zero;

use super::moment::Member;
use crate::Result;
use crate::store::Store;

/// Read at once of each of the two.
const PIECE_BYTES: u64 = 1 << 20;
/// What holes are made of, and what a device writes whole.
const SECTOR_BYTES: usize = 512;

/// What the file of a backup is to that of its store. Of two parts of it the greater counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Likeness {
    Same,
    /// The same, but for what stands there where the store has holes: nothing points to it any more, and nothing was compared with it.
    Fuller,
    /// It has zeroes in place of some sectors.
    Zeroed,
    Another,
}

/// Whether the file at `path` has the bytes of `member`. Where the store made holes since, the backup may have what was there:
/// nothing points to it any more. `each` is told of bytes that were compared.
pub(super) fn likeness(store: &Store, member: &Member<'_>, path: &Path, each: &mut dyn FnMut(u64)) -> Result<Likeness> {
    let (ours, theirs) = (store.env.files.open(member.path())?, store.env.files.open(path)?);
    let bytes = member.bytes();
    if theirs.len()? != bytes || ours.len()? != bytes {
        return Ok(Likeness::Another);
    }
    let mut found = Likeness::Same;
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < bytes {
        store.check_open()?;
        let count = (bytes - at).min(PIECE_BYTES);
        for piece in [&mut left, &mut right] {
            piece.resize(usize::try_from(count).unwrap_or(0), 0);
        }
        ours.read_exact_at(at, &mut left)?;
        theirs.read_exact_at(at, &mut right)?;
        if left != right {
            found = found.max(compare(&left, &right, member.may_have_holes()));
            if found == Likeness::Another {
                return Ok(found);
            }
        }
        at += count;
        each(count);
    }
    Ok(found)
}

/// By sectors: those of `ours` that are all zeroes may be holes.
fn compare(ours: &[u8], theirs: &[u8], may_have_holes: bool) -> Likeness {
    let sectors = |piece| <[u8]>::chunks(piece, SECTOR_BYTES);
    let mut found = Likeness::Same;
    for (ours, theirs) in sectors(ours).zip(sectors(theirs)) {
        if ours == theirs {
            continue;
        }
        found = found.max(match () {
            () if may_have_holes && is_zero(ours) => Likeness::Fuller,
            () if is_zero(theirs) => Likeness::Zeroed,
            () => return Likeness::Another,
        });
    }
    found
}

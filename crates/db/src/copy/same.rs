//! Whether a file of an earlier backup is still good.

use std::path::Path;

use super::moment::Member;
use crate::Result;
use crate::store::Store;

/// Read at once of each of the two.
const PIECE_BYTES: u64 = 1 << 20;
/// What holes are made of, and what a device writes whole.
const SECTOR_BYTES: usize = 512;

/// Whether the file at `path` has the bytes of `member`. Where the store made holes since, the backup may have what was there:
/// nothing points to it any more. `each` is told of bytes that were compared.
pub(super) fn is_same(store: &Store, member: &Member<'_>, path: &Path, each: &mut dyn FnMut(u64)) -> Result<bool> {
    let (ours, theirs) = (store.env.files.open(member.path())?, store.env.files.open(path)?);
    let bytes = member.bytes();
    if theirs.len()? != bytes || ours.len()? != bytes {
        return Ok(false);
    }
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
        if left != right && !(member.may_have_holes() && differ_by_holes(&left, &right)) {
            return Ok(false);
        }
        at += count;
        each(count);
    }
    Ok(true)
}

/// Whether sectors of `holed` that are not those of `whole` are all zeroes.
fn differ_by_holes(holed: &[u8], whole: &[u8]) -> bool {
    let sectors = |piece| <[u8]>::chunks(piece, SECTOR_BYTES);
    let mut pairs = sectors(holed).zip(sectors(whole));
    pairs.all(|(holed, whole)| holed == whole || holed.iter().all(|&byte| byte == 0))
}

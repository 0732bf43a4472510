//! Blocks whose values lie apart from their keys, as RocksDB 11 writes data with `separate_key_value_in_data_block`. They are made ordinary as they
//! are read, so that nothing else need know of them.
//!
//! | part       | bytes | meaning                                                                                  |
//! |------------|-------|------------------------------------------------------------------------------------------|
//! | keys       |       | entries without their values; at a restart a varint32 more behind the length of the value: where that lies, from `values` on |
//! | values     |       | in the order of their keys                                                               |
//! | restarts, hash index | | as in other blocks                                                                    |
//! | values at  | 4     | u32 LE: where `values` begins                                                            |
//! | footer     | 4     | as in other blocks, with bit 28                                                          |
//!
//! Source: RocksDB 11.8 `table/block_based/{block_builder,data_block_footer}.cc`.

use super::{HASH_INDEX_BIT, RESTART_COUNT_MASK, SEPARATE_VALUES_BIT, UNKNOWN_BIT, WORD_BYTES, without_hash_index};
use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::varint;

/// `block`, a block of data, unless values lie apart in it: then the ordinary one that has the same entries and restarts.
///
/// Cost: nothing for an ordinary block; of another one pass that copies all of it.
///
/// # Errors
/// Corrupt if the parts do not fit, or values are not where the keys before them end.
pub fn put_together(block: Vec<u8>) -> Result<Vec<u8>, DecodeError> {
    let footer = block.last_chunk::<WORD_BYTES>().map_or(0, |footer| u32::from_le_bytes(*footer));
    // What is not known is refused by who reads it.
    if footer & (SEPARATE_VALUES_BIT | UNKNOWN_BIT) != SEPARATE_VALUES_BIT {
        Ok(block)
    } else {
        together(&block, footer)
    }
}

#[cold]
fn together(block: &[u8], footer: u32) -> Result<Vec<u8>, DecodeError> {
    let rest = block.get(..block.len().saturating_sub(WORD_BYTES)).unwrap_or_default();
    let bad = |reason: String| DecodeError::corrupt("footer", rest.len() as u64, reason);
    let Some((rest, values_at)) = rest.split_last_chunk::<WORD_BYTES>() else {
        return Err(bad("it does not say where values begin".to_owned()));
    };
    let rest = if footer & HASH_INDEX_BIT == 0 { rest } else { without_hash_index(rest)? };
    let restart_count = (footer & RESTART_COUNT_MASK) as usize;
    let values_at = u32::from_le_bytes(*values_at) as usize;
    let parts = rest
        .len()
        .checked_sub(restart_count * WORD_BYTES)
        .and_then(|restarts_at| rest.split_at_checked(restarts_at))
        .and_then(|(entries, restarts)| Some((entries.split_at_checked(values_at)?, restarts)));
    let Some(((keys, values), restarts)) = parts else {
        return Err(bad(format!("values at {values_at} and {restart_count} restarts do not fit into the block")));
    };
    let (restarts, _) = restarts.as_chunks::<WORD_BYTES>();
    let mut restarts = restarts.iter().map(|word| u64::from(u32::from_le_bytes(*word))).peekable();
    let mut together = Vec::with_capacity(block.len());
    let mut restarts_together = Vec::with_capacity(restart_count * WORD_BYTES);
    let (mut keys, mut values) = (Cursor::new(keys), Cursor::new(values));
    while !keys.is_empty() {
        let at = keys.offset();
        let lengths = [keys.varint32("shared")?, keys.varint32("unshared")?, keys.varint32("value len")?];
        if restarts.next_if_eq(&at).is_some() {
            let value_at = u64::from(keys.varint32("value offset")?);
            if value_at != values.offset() {
                let reason = format!("{value_at}, values before it end at {}", values.offset());
                return Err(DecodeError::corrupt("value offset", at, reason));
            }
            restarts_together.extend_from_slice(&(together.len() as u32).to_le_bytes());
        }
        let [_, unshared, value_bytes] = lengths;
        lengths.iter().for_each(|&length| varint::put_u64(&mut together, u64::from(length)));
        together.extend_from_slice(keys.bytes("key", unshared as usize)?);
        let value = values.bytes("value", value_bytes as usize);
        together.extend_from_slice(value.map_err(|error| error.at_base(values_at as u64))?);
    }
    // A block without entries has a restart.
    if together.is_empty() {
        restarts.next_if_eq(&0).iter().for_each(|_| restarts_together.extend_from_slice(&[0; WORD_BYTES]));
    }
    if let Some(restart) = restarts.next() {
        return Err(DecodeError::corrupt("restarts", restart, "no entry begins there"));
    }
    together.append(&mut restarts_together);
    together.extend_from_slice(&(restart_count as u32).to_le_bytes());
    Ok(together)
}

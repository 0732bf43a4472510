//! Sorted data as files, which a store takes in as they are.

use std::path::Path;

use esker::{IngestOptions, Result, SstFileWriter};

use crate::db::Db;
use crate::error::{Failure, attempt, give, hand_out};
use crate::family::Family;
use crate::memory::{Many, Out, Slice, Text};
use crate::write::known;

/// Of an ingest: the files are given to the store, and lose the names they had, instead of being copied.
pub const ESKER_MOVE_FILES: u32 = 1;
/// Of an ingest: a file's end is checked, and its first and last block, in place of every byte.
pub const ESKER_VERIFY_ENDS: u32 = 2;

/// A table that is being written outside of a store.
#[derive(Debug)]
pub struct SstWriter(SstFileWriter);

/// Begins the file `path`, as `family` of `db` writes its tables: order of keys, compression, filter, size of blocks. `Conflict` if there is a file already.
#[unsafe(no_mangle)]
pub extern "C" fn esker_sst_writer_create(
    db: &Db,
    family: Option<&Family>,
    path: Text,
    writer: Out<Option<Box<SstWriter>>>,
) -> Failure {
    hand_out(writer, || Ok(SstWriter(SstFileWriter::create(path.path()?, &db.family(family).options())?)))
}

/// Adds `key` with `value`. Keys come in ascending order, each once, whatever is said of it: `InvalidArgument` otherwise, and the file is as before.
#[unsafe(no_mangle)]
pub extern "C" fn esker_sst_writer_put(writer: &mut SstWriter, key: Slice, value: Slice) -> Failure {
    attempt(|| writer.0.put(key.bytes()?, value.bytes()?))
}

/// Has `key` removed where the file comes in.
#[unsafe(no_mangle)]
pub extern "C" fn esker_sst_writer_delete(writer: &mut SstWriter, key: Slice) -> Failure {
    attempt(|| writer.0.delete(key.bytes()?))
}

/// Has all keys from `begin` up to but not including `end` removed where the file comes in, not those of the file itself. In any order.
#[unsafe(no_mangle)]
pub extern "C" fn esker_sst_writer_delete_range(writer: &mut SstWriter, begin: Slice, end: Slice) -> Failure {
    attempt(|| writer.0.delete_range(begin.bytes()?, end.bytes()?))
}

/// Adds `operand` to what `key` has where the file comes in.
#[unsafe(no_mangle)]
pub extern "C" fn esker_sst_writer_merge(writer: &mut SstWriter, key: Slice, operand: Slice) -> Failure {
    attempt(|| writer.0.merge(key.bytes()?, operand.bytes()?))
}

/// Completes the file, syncs it and frees the writer, whatever it returns; after an error there is no file. Writes its length to `file_bytes`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_sst_writer_finish(writer: Box<SstWriter>, file_bytes: Out<u64>) -> Failure {
    give(file_bytes, || Ok(writer.0.finish()?.file_bytes))
}

/// Frees a writer that was not finished, and removes its file; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_sst_writer_free(writer: Option<Box<SstWriter>>) {
    drop(writer);
}

/// Takes `count` files into a family, all at once or none, as if all in them were written now. Durable when it returns. `flags` are 0, or `ESKER_MOVE_FILES` or
/// `ESKER_VERIFY_ENDS` or both.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_ingest(
    db: &Db,
    flags: u32,
    family: Option<&Family>,
    paths: Many<Text>,
    count: usize,
) -> Failure {
    attempt(|| {
        let flags = known(flags, ESKER_MOVE_FILES | ESKER_VERIFY_ENDS)?;
        let options =
            IngestOptions { move_files: flags & ESKER_MOVE_FILES != 0, verify: flags & ESKER_VERIFY_ENDS == 0 };
        let paths = paths.of(count)?.iter().map(Text::path).collect::<Result<Vec<&Path>>>()?;
        db.db.ingest(db.family(family), &paths, &options).map(drop)
    })
}

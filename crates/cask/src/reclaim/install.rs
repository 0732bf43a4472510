//! Makes what a merge has copied part of the store.
//!
//! Order: new file and its hint synced → everything else synced (R4) → directory synced → manifest → slots moved → old files
//! out of the table → removed. Up to the manifest a failure leaves an orphan; after it only removal can fail, and is tried again.

use std::sync::Arc;

use esker_format::cask::FileName;
use esker_format::cask::record::Record;

use super::Plan;
use super::run::{Fate, Move, Output};
use crate::Result;
use crate::file::{DataFile, remove_if_there};
use crate::keydir::Slot;
use crate::store::Store;

/// Slots are asked for so many moves ahead.
const AHEAD: usize = 4;

pub(crate) fn install(store: &Store, plan: &Plan, output: Output) -> Result<()> {
    let gone = plan.victims.get(..output.done).unwrap_or_default();
    let file = output.file.as_ref().map(|file| &file.data);
    if let Err(error) = edit(store, &output, gone) {
        file.iter().for_each(|file| store.forget_hintless(file.number));
        if let Some(file) = file
            && error.kind() != crate::ErrorKind::ReadOnly
        {
            // The manifest does not name it.
            let _ = remove_if_there(&*store.env.files, &file.path);
            let _ = remove_if_there(&*store.env.files, &store.path_of(FileName::Hint(file.number)));
        }
        return Err(error);
    }
    // No scan begins in between: it would see some records twice and others not at all.
    let gate = store.gate.lock();
    let installer = store.installer.lock();
    if let Some(file) = file {
        store.add_file(&installer, file.clone());
    }
    drop(installer);
    for (index, moved) in output.moves.iter().enumerate() {
        // Writers of the key wait as long as the memory behind a slot takes to come, unless it was asked for.
        output.moves.get(index + 2 * AHEAD).iter().for_each(|later| store.keydir.prefetch(later.hash));
        output.moves.get(index + AHEAD).iter().for_each(|soon| store.keydir.prefetch_slots(soon.hash));
        swap(store, moved, file.map(|file| &**file));
    }
    if let Some(partly) = plan.victims.get(output.done) {
        partly.set_merged_to(output.stopped_at.max(partly.merged_to()));
    }
    let installer = store.installer.lock();
    for victim in gone {
        let table = store.files.load().without(victim.number);
        store.files.replace(Arc::new(table));
        // Who holds it keeps its space.
        store.forget_hintless(victim.number);
    }
    drop(installer);
    drop(gate);
    for victim in gone {
        for path in [victim.path.clone(), store.path_of(FileName::Hint(victim.number))] {
            if remove_if_there(&*store.env.files, &path).is_err() {
                store.leftovers.lock().push(path);
            }
        }
    }
    Ok(())
}

fn edit(store: &Store, output: &Output, gone: &[Arc<DataFile>]) -> Result<()> {
    if let Some(file) = &output.file {
        store.note_sync(file.finish())?;
        file.data.map();
        store.write_hint(&file.data)?;
    }
    store.sync_all()?;
    store.env.files.sync_dir(&store.dir)?;
    let come: Vec<_> = output.file.iter().map(|file| file.data.in_manifest_sealed()).collect();
    let go: Vec<_> = gone.iter().map(|victim| victim.number).collect();
    if come.is_empty() && go.is_empty() {
        return Ok(());
    }
    store.reserve.to_reclaim(|| store.install(&mut store.installer.lock(), &come, &go))?;
    if let Some(file) = &output.file {
        file.data.mark_sealed();
    }
    Ok(())
}

/// Points the slot of one record to its copy, if it still points to the original (R1).
fn swap(store: &Store, moved: &Move, file: Option<&DataFile>) {
    let _at_rest = store.key_locks.lock(moved.hash);
    let original = store.keydir.all(moved.hash).iter().find(|slot| slot.place() == moved.from);
    let copy = file.and_then(|file| moved.slot(file));
    match (original, copy) {
        (Some(original), Some(copy)) => {
            store.keydir.replace(moved.hash, moved.from, copy.with_old(original.is_old()));
            store.bury(&original);
        }
        (Some(original), None) if matches!(moved.fate, Fate::Ended) => end_history(store, moved, &original, file),
        (Some(original), None) => store.forget(moved.hash, &original),
        // Superseded meanwhile: the copy was dead before it was ever seen.
        (None, Some(copy)) => store.bury(&copy),
        (None, None) => {}
    }
}

/// The key of a record that has expired is gone up to that version, as the deletion in the new file says. Where nobody can tell which records these
/// are, they stay, and so do the files that may have them: with what counts as damage in it, each keeps the deletion from going (R2), and the next
/// open, which reads them anew, takes them for dead.
fn end_history(store: &Store, moved: &Move, original: &Slot, file: Option<&DataFile>) {
    let older = older_versions(store, moved, original);
    if older.is_none() {
        for slot in store.keydir.all(moved.hash).iter() {
            let _ = store.with_file_of(&slot, |file| file.mark_damaged());
        }
        // What this merge has copied gets there yet.
        file.iter().for_each(|file| file.mark_damaged());
    }
    // The newest last: who reads without the key's lock finds no older version of a key that has ended.
    older.iter().flatten().for_each(|slot| store.forget(moved.hash, slot));
    if !original.is_old() {
        store.key_locks.count_keys(moved.hash, -1);
    }
    store.forget(moved.hash, original);
}

/// The slots of the key's versions up to that of `original`; `None` if something that is needed for that cannot be read.
fn older_versions(store: &Store, moved: &Move, original: &Slot) -> Option<Vec<Slot>> {
    let files = store.files.load();
    let file = files.get(moved.from.file)?;
    let raw = file.record_bytes(original).ok()?;
    file.verify(original.place().offset.into(), &raw).ok()?;
    let record = Record::decode(&raw).ok()?;
    let located = store.locate(moved.hash, record.key).ok()?;
    (!located.is_damaged).then(|| located.up_to(record.version))
}

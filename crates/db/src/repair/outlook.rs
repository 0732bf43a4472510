//! The check of a store of which CURRENT, or the manifest that it names, is damaged or gone: by what a repair would go by, without one.
//!
//! If another manifest is whole, that says which files count. Else each table, blob file and log is read by itself, as a repair reads it.
//!
//! Cost: as a repair's, of which nothing is written.

use std::collections::BTreeMap;
use std::path::Path;

use esker_env::Env;
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::FileNumber;

use super::blobs::Blobs;
use super::rewrite::lost_values;
use super::survey::{Survey, is_damage};
use super::tables::Source;
use super::witness;
use super::workshop::Workshop;
use crate::check::{Check, CheckProgress, WithoutCurrent};
use crate::open::{self, is_of_a_file, mend};
use crate::options::Options;
use crate::version::{Garbage, Recovered};
use crate::{Error, ErrorKind, Result};

/// See the module's head. `refused` is why CURRENT does not lead to a manifest.
///
/// # Errors
/// As a repair's, but for damage and what Esker lacks, which is in the answer.
pub(crate) fn check_without_current(
    dir: &Path,
    options: Options,
    env: Env,
    refused: Error,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<Check> {
    let dir = &*env.files.absolute(dir)?;
    let only = |errors| Ok(Check { errors, ..Check::default() });
    if open::is_half_made(&env, dir)? {
        return only(vec![refused]);
    }
    witness::refuse_strangers(&*env.files, dir)?;
    // As for whoever opens the store for reading: no hole comes into what is read.
    let _share = open::share(&env, dir)?;
    let mut survey = match Survey::of(&*env.files, dir, None) {
        Ok(survey) => survey,
        Err(error) if is_damage(&error) => return only(vec![refused, error]),
        Err(error) => return Err(error),
    };
    if let (Some(number), Some(recovered)) = (survey.manifest_number, survey.manifest.take()) {
        return by_manifest(dir, options, env, refused, (number, recovered), progress);
    }
    let told = refused.to_string();
    let mut errors = vec![refused];
    // That CURRENT is not there was said.
    let is_news = |error: &Error| error.kind() == ErrorKind::Corruption && error.to_string() != told;
    errors.extend(std::mem::take(&mut survey.damage).into_iter().filter(is_news));
    Workshop::to_look(dir, options, env, survey).look(errors, progress)
}

/// By a manifest that is whole, though CURRENT does not say so.
fn by_manifest(
    dir: &Path,
    options: Options,
    env: Env,
    refused: Error,
    (number, recovered): (FileNumber, Recovered),
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<Check> {
    let opened = match open::open_what_is_whole_by(dir, options, env, number, recovered) {
        Ok(opened) => opened,
        Err(error) if is_of_a_file(&error) => return Ok(Check { errors: vec![refused, error], ..Check::default() }),
        Err(error) => return Err(error),
    };
    let mut check = opened.store.check(&opened.left_out, progress)?;
    check.errors.insert(0, refused);
    let manifest = Some(dir.join(FileName::Manifest(number).to_string()));
    check.without_current = Some(WithoutCurrent { manifest, ..WithoutCurrent::default() });
    Ok(check)
}

impl Workshop {
    /// Reads all files as a repair without a manifest would; `errors` is what was found before.
    fn look(mut self, errors: Vec<Error>, progress: &mut dyn FnMut(CheckProgress)) -> Result<Check> {
        let mut check = Check { errors, ..Check::default() };
        let bytes_total = self.bytes()?;
        progress(CheckProgress { bytes_done: 0, bytes_total });
        let files = self.env.files.clone();
        let read = Blobs::read(&*files, &self.dir, &self.survey, &mut self.report.damage);
        let Some(mut blobs) = self.unless_refused(read)? else { return Ok(self.outlook(check)) };
        for (_, blob) in blobs.iter() {
            let Some(sound) = &blob.sound else { continue };
            check.blob_files += 1;
            check.blobs = check.blobs.saturating_add(sound.addition.total_count);
            check.bytes = check.bytes.saturating_add(sound.file.file_bytes());
        }
        progress(CheckProgress { bytes_done: check.bytes, bytes_total });
        let sources = self.tables(&blobs)?;
        let mut refs: BTreeMap<FileNumber, Garbage> = BTreeMap::new();
        let mut without = WithoutCurrent::default();
        for source in sources.values().flatten() {
            count(source, &mut check);
            without.lost_values = without.lost_values.saturating_add(source.lost_values);
            for (file, sum) in &source.refs {
                refs.entry(*file).or_default().add(sum.count, sum.bytes);
            }
        }
        for (file, sum) in refs.iter().filter(|(file, _)| blobs.get(**file).is_none()) {
            let reason = format!(
                "tables point to {} values in this file, but it is not there: restore it from a backup; or they are older tables that nothing needs",
                sum.count
            );
            self.report.damage.push(Error::corruption(&self.dir.join(FileName::Blob(*file).to_string()), 0, reason));
        }
        let recovered = self.recovered(&blobs, &sources)?;
        let store = self.store(&recovered, &blobs);
        if let Some(store) = self.unless_refused(store)? {
            self.forgive_unended(mend::blob_files_in_logs(&store)?.into_iter().filter(|file| !refs.contains_key(file)));
            let read = mend::check_logs(&store, &mut self.report.damage);
            check.recovery = self.unless_refused(read)?.unwrap_or_default();
            let replayed = self.replay(&store, &mut blobs, &sources, &mut |_, family, mut run, blobs, report| {
                report.lost_values =
                    report.lost_values.saturating_add(lost_values(&mut *run.entries, family.id, blobs)?);
                Ok(())
            });
            self.unless_refused(replayed)?;
        }
        drop(sources);
        without.lost_values = without.lost_values.saturating_add(self.report.lost_values);
        without.lost_log_bytes = self.report.lost_log_bytes;
        check.without_current = Some(without);
        progress(CheckProgress { bytes_done: bytes_total, bytes_total });
        Ok(self.outlook(check))
    }

    /// A blob file that only logs point to need not be ended: what they point to is checked with them.
    fn forgive_unended(&mut self, files: impl Iterator<Item = FileNumber>) {
        for path in files.map(|file| self.dir.join(FileName::Blob(file).to_string())) {
            self.report.damage.retain(|error| error.path() != Some(&path));
        }
    }

    /// What tables and blob files take.
    fn bytes(&self) -> Result<u64> {
        let mut bytes = 0u64;
        for name in &self.survey.names {
            if matches!(name, FileName::Table(_) | FileName::LegacyTable(_) | FileName::Blob(_)) {
                bytes = bytes.saturating_add(self.env.files.metadata(&self.dir.join(name.to_string()))?.len);
            }
        }
        Ok(bytes)
    }

    /// `check`, with what was found.
    fn outlook(self, mut check: Check) -> Check {
        check.errors.extend(self.report.damage);
        check.unsupported = self.refusals.unwrap_or_default();
        let mut without = check.without_current.unwrap_or_default();
        (without.lost_tables, without.lost_blocks) = (self.report.lost_tables, self.report.lost_blocks);
        check.without_current = Some(without);
        let is_of_no_use = |name: &&FileName| match **name {
            FileName::Table(number) | FileName::LegacyTable(number) => self.survey.hints.gone.contains(&number),
            FileName::Temporary(_) | FileName::OptionsTemporary(_) => true,
            _ => false,
        };
        let names = self.survey.names.iter().filter(is_of_no_use);
        check.orphans = names.map(|name| self.dir.join(name.to_string())).collect();
        check
    }
}

fn count(source: &Source, check: &mut Check) {
    if source.checked.bytes == 0 {
        return;
    }
    check.tables += 1;
    check.blocks = check.blocks.saturating_add(source.checked.blocks);
    check.entries = check.entries.saturating_add(source.checked.entries);
    check.bytes = check.bytes.saturating_add(source.checked.bytes);
}

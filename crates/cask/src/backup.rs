//! Copies of a store: a checkpoint shares its files by hard links, a backup has its own.
//!
//! All active files end in one moment, which is the copy's, and are sealed. So a copy consists of files that change no more, and a
//! manifest that names them. Merges wait meanwhile; writes go to other files. The copy's manifest comes last: until then it is no store.

use std::path::Path;
use std::sync::atomic::Ordering;

use esker_env::durable;
use esker_format::cask::FileName;
use esker_format::cask::manifest::Manifest;

use crate::store::Store;
use crate::{Error, ErrorKind, Result};

impl Store {
    pub(crate) fn copy_to(&self, target: &Path, by_link: bool) -> Result<()> {
        self.check_writable()?;
        let fs = &*self.env.files;
        if fs.metadata(target).is_ok() && !fs.list(target)?.is_empty() {
            let reason = "the directory for a copy is not empty; choose another";
            return Err(Error::new(ErrorKind::Conflict, reason).with_path(target));
        }
        let _merging = self.merging.lock();
        let sealed = self.seal_everything()?;
        durable::create_dir(fs, target)?;
        for file in &sealed {
            for name in [FileName::Data(file.number), FileName::Hint(file.number)] {
                let from = self.path_of(name);
                // A store without some hint is still one.
                if name == FileName::Hint(file.number) && fs.metadata(&from).is_err() {
                    continue;
                }
                let to = target.join(name.name());
                if !by_link || !durable::link(fs, &from, &to)? {
                    durable::copy(fs, &from, &to, fs.metadata(&from)?.len, |_| Ok::<_, Error>(()))?;
                }
            }
        }
        fs.sync_dir(target)?;
        let files = sealed.iter().map(|file| file.in_manifest_sealed()).collect();
        let next_version = self.next_version.load(Ordering::Acquire);
        let mut store_id = [0; 16];
        self.env.entropy.fill(&mut store_id);
        let own = self.installer.lock().manifest(next_version);
        crate::manifest::write(fs, target, &Manifest { store_id, files, ..own })?;
        Ok(())
    }
}

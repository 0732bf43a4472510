//! Which data files there are, by number. Immutable: a change makes another table, which shares nearly all of this one.

use std::sync::Arc;

use esker_format::cask::FileNumber;

use super::DataFile;

/// Files in a page. A number that is in use costs at most a page, one that was used long ago next to nothing.
const PAGE_LEN: usize = 256;

type Page = Vec<Option<Arc<DataFile>>>;

#[derive(Debug, Clone, Default)]
pub(crate) struct FileTable {
    pages: Vec<Option<Arc<Page>>>,
}

impl FileTable {
    #[inline]
    pub(crate) fn get(&self, number: FileNumber) -> Option<&Arc<DataFile>> {
        let number = number.get() as usize;
        self.pages.get(number / PAGE_LEN)?.as_ref()?.get(number % PAGE_LEN)?.as_ref()
    }

    /// All files, by ascending number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<DataFile>> {
        self.pages.iter().flatten().flat_map(|page| page.iter().flatten())
    }

    /// This table with `file` in it.
    pub(crate) fn with(&self, file: Arc<DataFile>) -> Self {
        let number = file.number.get() as usize;
        let mut changed = self.clone();
        if changed.pages.len() <= number / PAGE_LEN {
            changed.pages.resize(number / PAGE_LEN + 1, None);
        }
        if let Some(page) = changed.pages.get_mut(number / PAGE_LEN) {
            let page = Arc::make_mut(page.get_or_insert_with(|| Arc::new(vec![None; PAGE_LEN])));
            if let Some(place) = page.get_mut(number % PAGE_LEN) {
                *place = Some(file);
            }
        }
        changed
    }

    /// This table without the file of that number.
    pub(crate) fn without(&self, number: FileNumber) -> Self {
        let number = number.get() as usize;
        let mut changed = self.clone();
        if let Some(entry) = changed.pages.get_mut(number / PAGE_LEN) {
            if let Some(page) = entry
                && let Some(place) = Arc::make_mut(page).get_mut(number % PAGE_LEN)
            {
                *place = None;
            }
            if entry.as_ref().is_some_and(|page| page.iter().all(Option::is_none)) {
                *entry = None;
            }
        }
        changed
    }
}

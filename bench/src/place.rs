//! Where a program works: a directory of its own in the one that its user names, so that it has nothing to empty that is not its own.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::Result;

/// An empty directory, which goes with all that is in it when dropped.
#[derive(Debug)]
pub struct Place {
    /// `None` once it is gone.
    own: Option<TempDir>,
    path: PathBuf,
    /// What it is in, where that was made for it.
    made: Option<PathBuf>,
}

impl Place {
    /// In `directory`, which is made if it is not there, and goes again then, unless somebody else has put something into it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn inside(directory: &Path) -> Result<Self> {
        let made = (!directory.exists()).then(|| directory.to_owned());
        fs::create_dir_all(directory)?;
        let own = tempfile::Builder::new().prefix("store-").tempdir_in(directory)?;
        Ok(Self { path: own.path().to_owned(), own: Some(own), made })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed stays behind under a name that says whose it was.
        drop(self.own.take());
        if let Some(made) = &self.made {
            let _ = fs::remove_dir(made);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_and_leaves_what_was_there() {
        let user = tempfile::tempdir().unwrap();
        for (directory, stays) in [(user.path().to_owned(), true), (user.path().join("new"), false)] {
            fs::write(user.path().join("beside"), "mine").unwrap();
            let place = Place::inside(&directory).unwrap();
            fs::create_dir(place.path().join("log")).unwrap();
            drop(place);
            assert_eq!(directory.exists(), stays);
            assert_eq!(fs::read_dir(user.path()).unwrap().count(), 1);
        }
        let directory = user.path().join("new");
        let place = Place::inside(&directory).unwrap();
        fs::write(directory.join("of another"), "").unwrap();
        drop(place);
        assert!(directory.join("of another").exists());
    }
}

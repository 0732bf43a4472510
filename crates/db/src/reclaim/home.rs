//! Values come home: those of a family that falls back return from blob files to its tables, until there is no blob file left.
//!
//! - H1: in *rounds*. A blob file goes when the last table that pointed there is written again, so until then its values are there twice. A round
//!   takes as many files as there is room for: with enough of it all, and every table is written once; with less a part of them, so that
//!   writers get on, and tables are written once in each round.
//! - H2: in *steps*. Each writes a few tables again, and brings home what they point to in the files of the round, about one blob file's worth;
//!   so does a compaction with the tables that it merges. Other families and writers get their turn in between.
//! - H3: what cannot be read stays where it is: blob files and tables that turned out to be damaged keep nothing else from coming home.
//! - H4: of the room that is kept for merges nothing is taken: tables that hold values take more of it than those that point to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_format::rocksdb::internal_key::FileNumber;

use super::Relocation;
use super::pick::{Foreseen, Use, candidates, retain_pointed_to, uses_after, within};
use super::room::{BLOCK_BYTES, Left, rounding_bytes, tables_made};
use crate::Result;
use crate::family::Family;
use crate::options::ReclaimMode;
use crate::store::{State, Store};
use crate::version::{TableFile, Version};

/// Quarters of what is left that a round takes: the last one is for what writers write meanwhile.
const ROUND_QUARTERS: u64 = 3;

/// What there is room for.
#[derive(Debug, Clone, Copy)]
struct Room {
    /// In a round of more than one file.
    round_bytes: u64,
    /// While the copies are beside what they were made of.
    copied_bytes: u64,
    /// Then: by so much more tables may take up, and be merged into, than blob files have given back (H4).
    more_bytes: i64,
    /// How much of that is values: small tables leave much of their last block empty.
    values_part: f64,
}

impl Room {
    fn takes(&self, file: &Use) -> bool {
        let more = file.live_bytes as f64 / self.values_part - file.garbage_bytes() as f64;
        file.live_bytes <= self.copied_bytes && more <= self.more_bytes as f64
    }
}

/// The blob files of the next round, or of the one that was `begun` (H1): one in any case, if there is `room` for it, and with more than one no
/// more than that takes. Files and tables of `damaged` are left alone. The one after those that are `foreseen`.
fn next_round(
    version: &Version,
    begun: &BTreeSet<FileNumber>,
    damaged: &BTreeSet<FileNumber>,
    room: Room,
    foreseen: &Foreseen,
) -> BTreeSet<FileNumber> {
    let uses: Vec<Use> = uses_after(version, foreseen).collect();
    let mut files = candidates(&uses, f64::NEG_INFINITY, damaged);
    // One that was begun gives back what it takes only in the end.
    let is_half_done = |file: &Use| begun.contains(&file.number) && file.live_bytes <= room.copied_bytes;
    files.retain(|file| is_half_done(file) || room.takes(file));
    retain_pointed_to(&mut files, version, damaged);
    let count = files.len();
    let going_on: Vec<Use> = files.iter().filter(|file| begun.contains(&file.number)).copied().collect();
    let chosen = within(room.round_bytes, files);
    // Others would have the tables that are done written again.
    let goes_on = !going_on.is_empty() && going_on.iter().map(|file| file.live_bytes).sum::<u64>() <= room.copied_bytes;
    match chosen.len() < count && goes_on {
        true => going_on.into_iter().map(|file| file.number).collect(),
        false => chosen,
    }
}

/// The next step of a round over the files of `home` (H2): as many tables as are written with `bytes_max`, or the one that takes least. If all that
/// are left are claimed, these. `None` if there are none.
pub(crate) fn pick_step(
    family: &Arc<Family>,
    version: &Arc<Version>,
    home: &BTreeSet<FileNumber>,
    damaged: &BTreeSet<FileNumber>,
    bytes_max: u64,
) -> Option<Relocation> {
    let points_there = |table: &TableFile| table.may_point_into(home) && !damaged.contains(&table.number());
    let tables = version.levels().rev().flat_map(|(level, tables)| tables.iter().map(move |table| (level, table)));
    let (claimed, free): (Vec<_>, Vec<_>) =
        tables.filter(|(_, table)| points_there(table)).partition(|(_, table)| table.is_claimed());
    // As much as each adds to what the step will be reckoned to write.
    let bytes = |table: &Arc<TableFile>| {
        let bytes = table.meta.file_bytes + version.bytes_into(home, [table]);
        bytes + tables_made(family, 1, bytes) * BLOCK_BYTES
    };
    let free: Vec<_> = free.into_iter().map(|(level, table)| (bytes(table), (level, table.clone()))).collect();
    let mut left = bytes_max.saturating_sub(rounding_bytes(family, 0, 0, 0));
    let fit = free.iter().filter(|(bytes, _)| {
        let rest = left.checked_sub(*bytes);
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    let mut tables: Vec<_> = fit.map(|(_, table)| table.clone()).collect();
    if tables.is_empty() {
        tables.extend(free.into_iter().min_by_key(|(bytes, _)| *bytes).map(|(_, table)| table));
    }
    if tables.is_empty() {
        tables.extend(claimed.into_iter().map(|(level, table)| (level, table.clone())));
    }
    let (family, version, victims) = (family.clone(), version.clone(), home.clone());
    (!tables.is_empty()).then_some(Relocation { family, version, victims, tables, is_step_home: true })
}

/// The same over all files, whatever is known of them.
pub(crate) fn pick_any_step(family: &Arc<Family>, version: &Arc<Version>, bytes_max: u64) -> Option<Relocation> {
    pick_step(family, version, &version.blobs().keys().copied().collect(), &BTreeSet::new(), bytes_max)
}

/// What bringing all values home is reckoned to take.
#[derive(Debug, Default)]
pub(super) struct WayHome {
    pub(super) steps: u64,
    /// Bytes of tables that are written again, each once in each round, without what comes to them in it.
    pub(super) table_bytes: u64,
    /// Bytes of values that come to them.
    pub(super) home_bytes: u64,
    /// Blob files that are empty then.
    pub(super) emptied: BTreeSet<FileNumber>,
}

impl Store {
    /// Chooses what comes home next of a family that falls back, before anything of it is picked (H1), by what is `left` once writers have to look
    /// again: nobody may have needed for long what they were let have.
    pub(crate) fn choose_home(&self, state: &State, family: &Family, left: impl FnOnce() -> Left) {
        if !family.comes_home() {
            return family.set_coming_home(BTreeSet::new());
        }
        let (version, damaged) = (family.view.load().version.clone(), state.damaged_files(family.id));
        family.set_coming_home(self.round(family, &version, damaged, &left(), &Foreseen::default()));
    }

    fn round(
        &self,
        family: &Family,
        version: &Version,
        damaged: &BTreeSet<FileNumber>,
        left: &Left,
        foreseen: &Foreseen,
    ) -> BTreeSet<FileNumber> {
        // Only background reclaim keeps to the bound.
        let bound = if self.options().reclaim_mode == ReclaimMode::Auto { left.bound } else { i64::MAX };
        // Once where they are and once where they are merged.
        let table_bytes = family.table_bytes().max(1);
        let values_part = table_bytes as f64 / table_bytes.saturating_add(2 * BLOCK_BYTES) as f64;
        let of_values = (left.disk as f64 * values_part) as i64;
        let [round, copied_bytes] = [of_values.min(bound), left.pass].map(|bytes| u64::try_from(bytes).unwrap_or(0));
        let round_bytes = round / 4 * ROUND_QUARTERS;
        let room = Room { round_bytes, copied_bytes, more_bytes: left.disk, values_part };
        next_round(version, &family.coming_home(), damaged, room, foreseen)
    }

    /// The next step that is asked for by hand. What could not be read, or has no room, is tried once nothing else is left to do, so that whoever asks
    /// is told.
    ///
    /// # Errors
    /// `Exhausted`: there is no room for it (H4).
    pub(super) fn pick_step_by_hand(&self, state: &State, family: &Arc<Family>) -> Result<Option<Relocation>> {
        let left = self.left_afresh();
        self.choose_home(state, family, || left);
        let (version, bytes_max) = (family.view.load().version.clone(), family.blob_file_bytes());
        let chosen = pick_step(family, &version, &family.coming_home(), state.damaged_files(family.id), bytes_max);
        if chosen.is_some() {
            return Ok(chosen);
        }
        let last = pick_any_step(family, &version, bytes_max);
        match last.as_ref().filter(|step| !step.is_claimed()).map(Relocation::moved_bytes) {
            Some(bytes) if i64::try_from(bytes).map_or(true, |bytes| bytes > left.disk.max(0)) => {
                Err(self.no_room(&format!("to bring values of {bytes} bytes home from blob files")))
            }
            _ => Ok(last),
        }
    }

    /// The steps that would be asked for by hand, one after the other, as if there was as much room all the time as is left now.
    pub(super) fn foresee_home(&self, family: &Arc<Family>, version: &Arc<Version>) -> WayHome {
        let damaged = self.state.lock().damaged_files(family.id).clone();
        let (left, bytes_max) = (self.left(), family.blob_file_bytes());
        let (mut way, mut foreseen) = (WayHome::default(), Foreseen::default());
        // What has come to a table in the rounds before.
        let mut grown: BTreeMap<FileNumber, u64> = BTreeMap::new();
        loop {
            let mut home = self.round(family, version, &damaged, &left, &foreseen);
            if home.is_empty() {
                let is_left = |number: &&FileNumber| !foreseen.emptied.contains(number);
                home = version.blobs().keys().filter(is_left).copied().collect();
            }
            let mut done = BTreeSet::new();
            while let Some(step) = pick_step(family, version, &home, &done, bytes_max) {
                way.steps += 1;
                for (_, table) in &step.tables {
                    let (came, comes) = (grown.entry(table.number()).or_default(), version.bytes_into(&home, [table]));
                    way.table_bytes += table.meta.file_bytes + *came;
                    way.home_bytes += comes;
                    *came += comes;
                    done.insert(table.number());
                }
            }
            if done.is_empty() {
                way.emptied = foreseen.emptied;
                return way;
            }
            foreseen.emptied.extend(home);
        }
    }
}

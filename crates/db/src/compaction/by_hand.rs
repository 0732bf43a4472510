//! Compaction when a user asks for it.

use std::sync::Arc;
use std::time::Duration;

use esker_format::rocksdb::internal_key::FileNumber;

use super::{Range, is_left_in_range, pick_range};
use crate::Result;
use crate::family::Family;
use crate::options::Separation;
use crate::reclaim::Goal;
use crate::store::{KeptOut, Store};

impl Store {
    /// See [`Db::compact_range`](crate::Db::compact_range).
    pub(crate) fn compact_range(&self, family: &Arc<Family>, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        self.flush(&[family.id])?;
        let mut state = self.state.lock();
        while state.manual.contains_key(&family.id) {
            self.changed.wait(&mut state);
        }
        // Writers may wait for space meanwhile.
        state.manual.insert(family.id, KeptOut::Compactions);
        // Whoever asks for it by hand is told again what is damaged.
        state.wake_resting(family.id);
        drop(state);
        let result = self.compact_levels(family, begin, end);
        let mut state = self.state.lock();
        state.manual.remove(&family.id);
        state.to_compact.insert(family.id);
        drop(state);
        self.changed.notify_all();
        result?;
        // Space is what manual compactions are for.
        self.trash.purge_again()?;
        if self.background_jobs == 0 { self.run_due_work() } else { Ok(()) }
    }

    /// Level after level down to the deepest, and then, within that one, what was there before and holds deletions or
    /// older versions that some snapshot once asked for.
    fn compact_levels(&self, family: &Arc<Family>, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        let first_new = FileNumber::new(self.next_file_number());
        let deepest = family.view.load().version.deepest_level().max(1);
        for level in 0..deepest {
            self.compact_level(family, Range { level, begin, end, after: None, in_place_before: None })?;
        }
        let deepest = family.view.load().version.deepest_level();
        if deepest == 0 {
            return Ok(());
        }
        self.compact_level(
            family,
            Range { level: deepest, begin, end, after: None, in_place_before: Some(first_new) },
        )?;
        // Whoever asks for both a compaction and values with their keys wants to be rid of blob files.
        let is_whole = begin.is_none() && end.is_none();
        while is_whole
            && family.separation() == Separation::FallBack
            && self.reclaim_once(family, Goal::None)?.is_some()
        {
            let _ = self.trash.purge_again();
        }
        Ok(())
    }

    fn compact_level(&self, family: &Arc<Family>, range: Range<'_>) -> Result<()> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            self.check_writable()?;
            let mut state = self.state.lock();
            self.choose_home(&state, family, || self.left_afresh());
            let range = Range { after: after.as_deref(), ..range };
            let Some(plan) = pick_range(family, &range) else {
                if !is_left_in_range(family, &range) {
                    return Ok(());
                }
                // Others that began before may have some of it, here or in the level below. None begins before it is this one's turn.
                if state.compacting > 0 {
                    state.manual.insert(family.id, KeptOut::All);
                    self.changed.wait_for(&mut state, Duration::from_millis(100));
                    continue;
                }
                let resting = state.resting.iter().find(|resting| resting.plan.family.id == family.id);
                return resting.map_or(Ok(()), |resting| Err(resting.error.clone()));
            };
            state.manual.insert(family.id, KeptOut::Compactions);
            // Where a range ends it, the next one may begin with its last key.
            after = plan.upper.last().map(|table| table.smallest().to_vec());
            let is_level0 = plan.level == 0;
            self.claim_and_compact(state, plan)?;
            // What it replaced may be the room that the next one needs. What cannot be removed is told at the end.
            let _ = self.trash.purge_again();
            if is_level0 {
                return Ok(());
            }
        }
    }
}

//! `esker backups …`: what there is to do with a set of backups.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use esker::{BackupInfo, Backups as Set, CheckProgress, NewBackup, Options};
use serde_json::{Value, json};

use super::check;
use super::checkpoint::Made;
use crate::Answer;
use crate::columns::Columns;
use crate::failure::{Failure, one_line};
use crate::output::Output;
use crate::progress::Progress;
use crate::sizes::{Bytes, Count};
use crate::stores::open;

/// Keep several backups of a Db in one directory, which share what is the same in them
///
/// Each is a generation: a directory NNNNNN in the set, and a whole store that Esker and RocksDB read as it is. To write to one, restore it. For one
/// backup that is brought up to date, see `esker backup`.
#[derive(Debug, Args)]
pub(crate) struct Backups {
    #[command(subcommand)]
    command: BackupsCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum BackupsCommand {
    Create(Create),
    List(List),
    Delete(Delete),
    Keep(Keep),
    #[command(visible_alias = "verify")]
    Check(Check),
    Restore(Restore),
}

impl Backups {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        match self.command {
            BackupsCommand::Create(command) => command.run(out),
            BackupsCommand::List(command) => command.run(out),
            BackupsCommand::Delete(command) => command.run(),
            BackupsCommand::Keep(command) => command.run(out),
            BackupsCommand::Check(command) => command.run(out),
            BackupsCommand::Restore(command) => command.run(out),
        }
    }
}

/// Make a new generation of what a Db holds now
///
/// What earlier generations have, byte for byte, is shared with them by hard links; the rest is copied, read back and checked. Prints damage of earlier
/// generations that was met. Nobody else may have the store open: a program that has makes its generations itself.
#[derive(Debug, Args)]
struct Create {
    /// The store's directory
    store: PathBuf,

    /// The directory of the set: an empty one, none yet, or one with generations of the same store
    set: PathBuf,

    /// Print an object: id, unix_seconds, sequence, files, bytes, bytes_of_its_own, kept, copied_bytes, damaged, not_removed
    #[arg(long)]
    json: bool,
}

impl Create {
    fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let set = Set::open(&self.set)?;
        let db = open(&self.store, false)?;
        let bar = Progress::begin("backing up", 0);
        let made = set.create(&db, &mut |progress| bar.set(progress.bytes_done, progress.bytes_total))?;
        drop(bar);
        db.close()?;
        let NewBackup { info, copied, damaged, .. } = made;
        if self.json {
            let mut object = object(&info);
            object["kept"] = copied.kept.into();
            object["copied_bytes"] = copied.copied_bytes.into();
            object["damaged"] = damaged.iter().map(check::error_object).collect();
            object["not_removed"] = copied.not_removed.iter().map(|(path, _)| path.to_string_lossy()).collect();
            out.json(&object)?;
        } else {
            out.line(format_args!("generation {}", info.id))?;
            Made::from(copied).print(out, false)?;
            for error in damaged {
                out.line(format_args!("damage of an earlier generation: {}", one_line(&error.to_string())))?;
            }
        }
        Ok(Answer::Yes)
    }
}

/// List generations, the oldest first: when each was made, what is in it, and what of that it shares with no other
#[derive(Debug, Args)]
struct List {
    /// The directory of the set
    set: PathBuf,

    /// Print an object a line: id, unix_seconds, sequence, files, bytes, bytes_of_its_own
    #[arg(long)]
    json: bool,
}

impl List {
    fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let mut columns = Columns::with_head(&["generation", "made", "sequence", "files", "bytes", "of its own"]);
        // To the library it is an empty one, which the first backup makes. Who types a name means one that is there.
        std::fs::metadata(&self.set)
            .map_err(|error| Failure::io("there is no set of backups at", &self.set, &error))?;
        for info in Set::open(&self.set)?.list()? {
            if self.json {
                out.json(&object(&info))?;
                continue;
            }
            let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "?".to_owned());
            columns.row(vec![
                info.id.to_string(),
                or_unknown(info.unix_seconds.map(utc)),
                or_unknown(info.sequence.map(|sequence| sequence.to_string())),
                Count(info.files).to_string(),
                Bytes(info.bytes).to_string(),
                Bytes(info.bytes_of_its_own).to_string(),
            ]);
        }
        if !self.json {
            columns.lines("").iter().try_for_each(|line| out.line(line))?;
        }
        Ok(Answer::Yes)
    }
}

/// Delete generations; others keep what they share with them
#[derive(Debug, Args)]
struct Delete {
    /// The directory of the set
    set: PathBuf,

    /// Which
    #[arg(required = true, value_name = "ID")]
    ids: Vec<u64>,
}

impl Delete {
    fn run(self) -> Result<Answer, Failure> {
        let set = Set::open(&self.set)?;
        self.ids.iter().try_for_each(|&id| set.delete(id))?;
        Ok(Answer::Yes)
    }
}

/// Delete all generations but the newest; prints which
#[derive(Debug, Args)]
struct Keep {
    /// The directory of the set
    set: PathBuf,

    /// How many stay
    #[arg(value_name = "N")]
    count: usize,
}

impl Keep {
    fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        for id in Set::open(&self.set)?.keep_newest(self.count)? {
            out.line(id)?;
        }
        Ok(Answer::Yes)
    }
}

/// Read and check every byte of a generation, as `esker check` does of a store
///
/// Exit code 1 if there is any damage. Keeps nobody out and changes nothing.
#[derive(Debug, Args)]
struct Check {
    /// The directory of the set
    set: PathBuf,

    /// Which
    id: u64,

    /// Print an object
    #[arg(long)]
    json: bool,
}

impl Check {
    fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let set = Set::open(&self.set)?;
        let bar = Progress::begin("checking", 0);
        let show = &mut |progress: CheckProgress| bar.set(progress.bytes_done, progress.bytes_total);
        let check = set.check(self.id, Options::default(), show);
        drop(bar);
        check::tell(out, &check?, self.json)
    }
}

/// Make a store of a generation, with files of its own, each read back and checked
#[derive(Debug, Args)]
struct Restore {
    /// The directory of the set
    set: PathBuf,

    /// Which
    id: u64,

    /// Where the store goes: an empty directory, or none yet
    target: PathBuf,

    /// Print an object: files, bytes, linked, kept, copied_bytes, sequence, not_removed
    #[arg(long)]
    json: bool,
}

impl Restore {
    fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let set = Set::open(&self.set)?;
        let bar = Progress::begin("restoring", 0);
        let show = &mut |progress: esker::CopyProgress| bar.set(progress.bytes_done, progress.bytes_total);
        let copied = set.restore(self.id, &self.target, show);
        drop(bar);
        Made::from(copied?).print(out, self.json)?;
        Ok(Answer::Yes)
    }
}

fn object(info: &BackupInfo) -> Value {
    json!({
        "id": info.id,
        "unix_seconds": info.unix_seconds,
        "sequence": info.sequence,
        "files": info.files,
        "bytes": info.bytes,
        "bytes_of_its_own": info.bytes_of_its_own,
    })
}

/// `2025-12-01 00:00:00 UTC`
fn utc(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The Gregorian date so many days after 1970-01-01. Years begin with March here, so that the day that some lack is the last one.
fn date(days: u64) -> (u64, u64, u64) {
    // Days since 0000-03-01; 400 years have 146,097, 100 mostly 36,524, 4 mostly 1,461.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months from March on, and from August on, have 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_printed_as_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_799, "2000-02-29 23:59:59 UTC"),
            (1_764_547_200, "2025-12-01 00:00:00 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn each_day_follows_the_one_before_it() {
        for days in 0..200_000 {
            let ((year, month, day), next) = (date(days), date(days + 1));
            assert!((1..=12).contains(&month) && (1..=31).contains(&day));
            let follows = [(year, month, day + 1), (year, month + 1, 1), (year + 1, 1, 1)];
            assert!(follows.contains(&next) && (next != follows[2] || (month, day) == (12, 31)), "{next:?}");
        }
    }
}

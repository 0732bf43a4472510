//! What a check of a Cask read, and what it found wrong.

use std::path::{Path, PathBuf};

use esker::{Cask, CaskCheck, CaskDamage, CaskOptions, CaskRecovery, CaskRepair, Error, ErrorKind};
use serde_json::{Value, json};

use super::super::repair;
use super::error_object;
use crate::Answer;
use crate::encoding::hex;
use crate::failure::{Failure, one_line, path_text};
use crate::output::Output;
use crate::progress::Progress;
use crate::sizes::{Bytes, plural};

/// Checks the Cask in `path`.
pub(super) fn run(path: &Path, json: bool, out: &mut Output) -> Result<Answer, Failure> {
    let mut outlook = None;
    let (check, recovery) = match check(path) {
        Ok(found) => found,
        // A store too damaged to be opened is damaged all the same.
        Err(error) if error.kind() == ErrorKind::Corruption => {
            let mut found = CaskCheck::default();
            found.errors.push(error);
            outlook = Some(Cask::repair_outlook(path));
            (found, CaskRecovery::default())
        }
        Err(error) => return Err(error.into()),
    };
    if json {
        print_json(out, &check, &recovery, outlook.as_ref())?
    } else {
        print_text(out, &check, &recovery, outlook.as_ref())?
    }
    Ok(if check.errors.is_empty() { Answer::Yes } else { Answer::No })
}

fn check(path: &Path) -> Result<(CaskCheck, CaskRecovery), Error> {
    // All damage is told, and no value shown.
    let cask = Cask::open_read_only(path, CaskOptions { damage: CaskDamage::Serve, ..CaskOptions::default() })?;
    let bar = Progress::begin("checking", 0);
    let check = cask.check(&mut |progress| bar.set(progress.bytes_done, progress.bytes_total))?;
    Ok((check, cask.recovery().clone()))
}

/// What a repair would do with a store that does not open.
type Outlook = Result<CaskRepair, Error>;

fn print_text(
    out: &mut Output,
    check: &CaskCheck,
    recovery: &CaskRecovery,
    outlook: Option<&Outlook>,
) -> Result<(), Failure> {
    out.line(format_args!(
        "read {}: {}, {} of them alive, in {} and {}",
        Bytes(check.bytes),
        plural(check.records, "record", "records"),
        check.live_records,
        plural(check.files, "file", "files"),
        plural(check.hints, "hint", "hints"),
    ))?;
    for path in &recovery.torn_files {
        // Natural after a power loss, so not damage; but whoever looks shall know.
        out.line(format_args!(
            "{} ends torn: what is behind is left out, as what a crash had under way",
            path_text(path)
        ))?;
    }
    for error in &check.errors {
        out.line(one_line(&error.to_string()))?;
    }
    for (path, bytes) in &check.orphans {
        // Work of whoever has the store open, or left by a crash, or put there: the next open for writing removes it.
        out.line(format_args!("nothing names {}, of {}", path_text(path), Bytes(*bytes)))?;
    }
    if !recovery.damaged_keys.is_empty() {
        let keys = plural(recovery.damaged_keys.len() as u64, "key", "keys");
        out.line(format_args!("reads of {keys} fail until they are written anew, as their newest record is damaged"))?;
    }
    match outlook {
        Some(Ok(outlook)) => {
            out.line("the store does not open; `esker repair` would say of it:")?;
            repair::print_cask(out, outlook)?;
        }
        Some(Err(error)) => {
            out.line(format_args!("`esker repair` refuses the store: {}", one_line(&error.to_string())))?;
        }
        None => {}
    }
    match check.errors.len() as u64 {
        0 => out.line("no damage"),
        count => out.line(format_args!("{}; see `esker repair`", plural(count, "damage", "damages"))),
    }
}

fn print_json(
    out: &mut Output,
    check: &CaskCheck,
    recovery: &CaskRecovery,
    outlook: Option<&Outlook>,
) -> Result<(), Failure> {
    let outlook = outlook.map(|outlook| match outlook {
        Ok(outlook) => repair::cask_object(outlook),
        Err(error) => json!({"refused": error.to_string()}),
    });
    out.json(&json!({
        "files": check.files,
        "records": check.records,
        "live_records": check.live_records,
        "tombstones": check.tombstones,
        "hints": check.hints,
        "bytes": check.bytes,
        "torn_files": recovery.torn_files.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        "damaged_keys": recovery.damaged_keys.iter().map(|key| hex(key)).collect::<Vec<_>>(),
        "orphans": check.orphans.iter().map(orphan_object).collect::<Vec<Value>>(),
        "repair": outlook,
        "damaged": !check.errors.is_empty(),
        "errors": check.errors.iter().map(error_object).collect::<Vec<Value>>(),
    }))
}

fn orphan_object((path, bytes): &(PathBuf, u64)) -> Value {
    json!({"path": path.to_string_lossy(), "bytes": bytes})
}

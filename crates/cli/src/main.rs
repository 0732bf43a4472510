//! The `esker` command: `esker <command> STORE …`, one file per command in [`commands`].
//!
//! - C1: the exit code is 0 for yes or done, 1 for no (no such key, damage found), 2 for an error, a wrong use included.
//! - C2: an error is one line on stderr, with the path and the offset where there is one. Nothing else goes there but progress, and a line
//!   for what of a Cask is damaged while the rest is served, or of an import is not in it while the answer is no; and what a user's script prints.
//! - C3: `--json` prints one object, or one per line where there is a stream of them. Sizes in it are bytes, keys and values hexadecimal.
//! - C4: keys and values are bytes. What is no text survives in arguments, files, output and paths.
//! - C5: a reader that closes stdout early, as `head` does, is no error. Whatever else cannot be written there is one, help and version included.
//! - C6: what only reads opens the store for reading only: it keeps no writer out and writes nothing.

#![forbid(unsafe_code)]

mod bench;
mod cask_entries;
mod columns;
mod commands;
mod descriptors;
mod encoding;
mod failure;
mod kind;
mod output;
mod progress;
mod ranges;
mod sizes;
mod stores;
mod torture;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::commands::Command;
use crate::failure::{one_line, warn};
use crate::output::Output;

/// Load, query and check stores: Db, in RocksDB's own files; Cask; Raft logs, in raft-engine's.
#[derive(Debug, Parser)]
#[command(name = "esker", version, max_term_width = 110)]
#[command(after_help = "Exit code: 0 yes or done, 1 no (no such key, damage found), 2 error.")]
struct Arguments {
    /// Directory of a Db's logs, where that is not the store's
    #[arg(long, global = true, value_name = "DIR")]
    wal_dir: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

/// What a command found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Done; or the thing asked for is there.
    Yes,
    /// The thing asked for is not there, or is damaged.
    No,
}

fn main() -> ExitCode {
    let parsed = takes_negative_numbers(Arguments::command()).try_get_matches();
    let arguments = match parsed.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    descriptors::allow_all();
    let mut out = Output::stdout();
    stores::logs_are_in(arguments.wal_dir);
    let answer = arguments.command.run(&mut out).and_then(|answer| out.finish().map(|()| answer));
    stores::warn_of_logs_of_no_use();
    match answer {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Err(failure) => {
            // What was found before the failure is still worth printing; the failure is told below either way.
            let _ = out.finish();
            complain(&failure.to_string())
        }
    }
}

/// No option is called by a digit: what looks like a negative number is a value, which is then a key, or refused as what it was given for.
fn takes_negative_numbers(command: clap::Command) -> clap::Command {
    let takes = |argument: clap::Arg| {
        let takes_values = argument.get_action().takes_values();
        argument.allow_negative_numbers(takes_values)
    };
    command.mut_args(takes).mut_subcommands(takes_negative_numbers)
}

fn complain(message: &str) -> ExitCode {
    warn(message);
    ExitCode::from(2)
}

/// Help and the version go where they were asked for; a wrong use is one line, as every other error.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match Output::stdout().of_parser(error) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => complain(&failure.to_string()),
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            let text = error.render().to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text).replace("\n\n  tip: ", "; ");
            let text = text.split("\n\nUsage:").next().unwrap_or(&text);
            let words: Vec<&str> = text.split_whitespace().collect();
            let text = words.join(" ").replace(" For more information, try '--help'.", "");
            complain(&one_line(&format!("{text}; see --help")))
        }
    }
}

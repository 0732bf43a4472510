//! `esker completions SHELL`

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::Output;
use crate::{Answer, Arguments};

/// Print a script that teaches a shell to complete commands and options
#[derive(Debug, Args)]
pub(crate) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "esker", &mut script);
        out.bytes(&script)?;
        Ok(Answer::Yes)
    }
}

//! Standard output, buffered, that takes a closed pipe for a wish to hear no more.

use std::fmt;
use std::io::{self, BufWriter, ErrorKind, Stdout, Write};

use serde_json::Value;

use crate::failure::Failure;

/// Room for a few thousand lines between system calls.
const BUFFER_BYTES: usize = 64 << 10;

/// Where answers go.
#[derive(Debug)]
pub(crate) struct Output {
    to: BufWriter<Stdout>,
    is_closed: bool,
}

impl Output {
    pub(crate) fn stdout() -> Self {
        Self { to: BufWriter::with_capacity(BUFFER_BYTES, io::stdout()), is_closed: false }
    }

    /// Whether nobody reads any more; a command that streams may stop.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.is_closed {
            return Ok(());
        }
        let result = self.to.write_all(bytes);
        self.note(result)
    }

    /// A line of text.
    pub(crate) fn line(&mut self, line: impl fmt::Display) -> Result<(), Failure> {
        if self.is_closed {
            return Ok(());
        }
        let result = writeln!(self.to, "{line}");
        self.note(result)
    }

    /// One object on one line.
    pub(crate) fn json(&mut self, value: &Value) -> Result<(), Failure> {
        self.line(value)
    }

    /// Help or the version, in colours where a terminal shows them.
    pub(crate) fn of_parser(mut self, text: &clap::Error) -> Result<(), Failure> {
        let result = text.print();
        self.note(result)?;
        self.finish()
    }

    /// Hands everything to the system.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        if self.is_closed {
            return Ok(());
        }
        let result = self.to.flush();
        self.note(result)
    }

    fn note(&mut self, result: io::Result<()>) -> Result<(), Failure> {
        match result {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            Err(error) => Err(Failure::new(format_args!("writing to standard output: {error}"))),
            Ok(()) => Ok(()),
        }
    }
}

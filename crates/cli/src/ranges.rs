//! Which keys: a prefix, and where to begin and end.

use std::ffi::OsString;

use clap::Args;
use esker::ReadOptions;

use crate::encoding::argument;
use crate::failure::Failure;

/// A range of keys. All of its flags hold together.
#[derive(Debug, Args)]
pub(crate) struct RangeArguments {
    /// Keys that begin with this
    #[arg(long, value_name = "KEY")]
    prefix: Option<OsString>,

    /// Keys from this one on
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,

    /// Keys before this one
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
}

impl RangeArguments {
    /// The prefix that keys of a Cask must have; refuses what needs an order.
    pub(crate) fn cask_prefix(self, is_hex: bool) -> Result<Vec<u8>, Failure> {
        if self.from.is_some() || self.to.is_some() {
            return Err(Failure::new("--from and --to need keys in order; a Cask has none: use --prefix, or a Db"));
        }
        Ok(self.prefix.map(|text| argument(text, is_hex)).transpose()?.unwrap_or_default())
    }

    /// The bounds for an iterator that reads each entry once.
    pub(crate) fn read_options(self, is_hex: bool) -> Result<ReadOptions, Failure> {
        let decode = |text: Option<OsString>| text.map(|text| argument(text, is_hex)).transpose();
        let (prefix, from, to) = (decode(self.prefix)?, decode(self.from)?, decode(self.to)?);
        let end = prefix.as_deref().and_then(after_prefix);
        let lower_bound = from.max(prefix);
        let upper_bound = match (end, to) {
            (Some(end), Some(to)) => Some(end.min(to)),
            (end, to) => end.or(to),
        };
        Ok(ReadOptions { fill_cache: false, lower_bound, upper_bound, ..ReadOptions::default() })
    }
}

/// The first key after all that begin with `prefix`; `None` if there is no such key.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix.get(..=last)?.to_vec();
    if let Some(byte) = end.last_mut() {
        *byte += 1;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(prefix: &str, from: &str, to: &str) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let some = |text: &str| (!text.is_empty()).then(|| OsString::from(text));
        let arguments = RangeArguments { prefix: some(prefix), from: some(from), to: some(to) };
        let options = arguments.read_options(true).unwrap();
        (options.lower_bound, options.upper_bound)
    }

    #[test]
    fn all_flags_hold_together() {
        let some = |bytes: &[u8]| Some(bytes.to_vec());
        assert_eq!(bounds("", "", ""), (None, None));
        assert_eq!(bounds("61", "", ""), (some(b"a"), some(b"b")));
        assert_eq!(bounds("61", "6162", "6163"), (some(b"ab"), some(b"ac")));
        assert_eq!(bounds("62", "61", "63ff"), (some(b"b"), some(b"c")));
        assert_eq!(bounds("ffff", "", ""), (some(b"\xff\xff"), None));
        assert_eq!(bounds("61ff", "", ""), (some(b"a\xff"), some(b"b")));
    }
}

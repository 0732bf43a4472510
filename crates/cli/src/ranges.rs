//! Which keys: a prefix, and where to begin and end.

use std::ffi::OsString;

use clap::Args;
use esker::{ColumnFamily, ReadOptions};

use crate::encoding::{argument, escaped};
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

    /// The bounds for an iterator over the family that reads each entry once.
    pub(crate) fn read_options(self, family: &ColumnFamily, is_hex: bool) -> Result<ReadOptions, Failure> {
        let decode = |text: Option<OsString>| text.map(|text| argument(text, is_hex)).transpose();
        let (prefix, from, to) = (decode(self.prefix)?, decode(self.from)?, decode(self.to)?);
        refuse_reversed(family, from.as_deref(), to.as_deref())?;
        Ok(ReadOptions { fill_cache: false, lower_bound: from, upper_bound: to, prefix, ..ReadOptions::default() })
    }
}

/// Bounds that lie the wrong way round are a mistake, and no range without keys.
pub(crate) fn refuse_reversed(family: &ColumnFamily, from: Option<&[u8]>, to: Option<&[u8]>) -> Result<(), Failure> {
    match (from, to) {
        (Some(from), Some(to)) if family.options().comparator.compare(from, to).is_gt() => {
            let (from, to) = (escaped(from), escaped(to));
            Err(Failure::new(format_args!("--from {from} lies behind --to {to}: there is no key between")))
        }
        _ => Ok(()),
    }
}

//! Options of a whole store that may change while it is open.

use super::{Options, ReclaimMode};

macro_rules! mutable {
    ($($name:ident: $type:ty),+ $(,)?) => {
        /// Those of [`Options`] that may change while the store is open, with [`Db::set_db_options`](crate::Db::set_db_options). Each means what it means there,
        /// and has the same range.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub struct MutableOptions {
            $(
                #[doc = concat!("See [`Options::", stringify!($name), "`].")]
                pub $name: $type,
            )+
        }

        impl From<&Options> for MutableOptions {
            fn from(options: &Options) -> Self {
                Self { $($name: options.$name),+ }
            }
        }

        impl Options {
            /// These options, but for those that may change, which are `changed`.
            pub fn with(&self, changed: &MutableOptions) -> Self {
                let mut options = self.clone();
                $(options.$name = changed.$name;)+
                options
            }
        }
    };
}

mutable! {
    cache_bytes: u64,
    memory_limit: u64,
    wal_bytes_max: u64,
    manifest_bytes_max: u64,
    group_bytes_max: u64,
    delayed_write_bytes_per_second_min: u64,
    reclaim_mode: ReclaimMode,
    max_space_amp: f64,
    max_disk_bytes: u64,
    holes_within_values: bool,
    reclaim_bytes_per_second_max: u64,
    background_bytes_per_second_max: u64,
}

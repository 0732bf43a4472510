//! One cache for several ordered stores.

use crate::error::{Failure, attempt, hand_out};
use crate::memory::Out;
use crate::options::DbOptions;

/// Memory that several stores share. It goes with the last of those that have it, whoever frees it first.
#[derive(Debug)]
pub struct Cache(esker::Cache);

/// A cache of blocks and values, so many bytes of them, for all stores that are opened with it.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cache_create(cache_bytes: u64, cache: Out<Option<Box<Cache>>>) -> Failure {
    hand_out(cache, || Ok(Cache(esker::Cache::new(cache_bytes)?)))
}

/// A limit to all that the stores opened with it keep in memory: memtables, indexes, filters, and a cache, which gets what these leave.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cache_create_within_limit(memory_limit: u64, cache: Out<Option<Box<Cache>>>) -> Failure {
    hand_out(cache, || Ok(Cache(esker::Cache::within_limit(memory_limit)?)))
}

/// Has stores that are opened with `options` share `cache`; then "cache_bytes" and "memory_limit" are without effect.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_options_set_cache(options: &mut DbOptions, cache: &Cache) {
    options.0.cache = Some(cache.0.clone());
}

/// Has a cache keep so many bytes from now on, of what it was made to keep.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cache_set_bytes(cache: &Cache, bytes: u64) -> Failure {
    attempt(|| cache.0.set_bytes(bytes))
}

/// Frees a cache; stores that have it keep it. NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cache_free(cache: Option<Box<Cache>>) {
    drop(cache);
}

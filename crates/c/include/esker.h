#ifndef ESKER_H
#define ESKER_H

// Esker: embedded, log-structured storage. Written by crates/c/tests/header.rs; do not edit.
//
// A call that can fail returns an error, or NULL if it did what it should; then nothing but NULL, 0 or false is where its results go. Whatever is
// handed out is yours until it goes back to the function that frees it; objects may be freed in any order. Arguments must not be NULL unless it
// is said that they may. Bytes that are passed are copied, or not needed once the call returns; bytes that are seen live as long as what shows them.
//
// Stores, families, snapshots, sets of backups, options and values may be used by many threads at once; batches, iterators, transactions, writers of tables and
// scans by one at a time, and options while they are changed. A process that was forked while a store is open may close it, which does nothing, or run another program.
//
// What calls cost, what is durable when, and which options there are, is in the documentation of the Rust interface, which has the same names.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Of a value that a compaction meets: it stays.
#define ESKER_KEEP 0

// Its key is deleted.
#define ESKER_REMOVE 1

// What was made takes its place. Longer than the value it must not be: then that stays.
#define ESKER_CHANGE 2

// Of an ingest: the files are given to the store, and lose the names they had, instead of being copied.
#define ESKER_MOVE_FILES 1

// Of an ingest: a file's end is checked, and its first and last block, in place of every byte.
#define ESKER_VERIFY_ENDS 2

// Of a write: it survives power loss once the call returns, not only the death of the process. Costs a sync, shared by all who write at the time.
#define ESKER_SYNC 1

// Of a write to an ordered store: it survives nothing until a flush. Not with `ESKER_SYNC`.
#define ESKER_DISABLE_WAL 2

// What the caller can do about a failure.
typedef enum {
  // One that has no number here yet; the message says which.
  ESKER_KIND_OTHER = 0,
  // The call was wrong and nothing changed. Mend the argument and call again.
  ESKER_KIND_INVALID_ARGUMENT = 1,
  // Something named that must exist does not.
  ESKER_KIND_NOT_FOUND = 2,
  // Somebody else holds it, such as another process. Try again later.
  ESKER_KIND_BUSY = 3,
  // A condition the call was made under no longer holds.
  ESKER_KIND_CONFLICT = 4,
  // Space or descriptors ran out and nothing changed. Free some and call again; reads and deletes go on.
  ESKER_KIND_EXHAUSTED = 5,
  // Stored bytes are not what was written. Run `esker check`.
  ESKER_KIND_CORRUPTION = 6,
  // Written by a newer version, or with a feature this one lacks. Nothing was touched.
  ESKER_KIND_UNSUPPORTED_FORMAT = 7,
  // A sync failed, so what is durable is unknown. Reads work; writes fail until the store is opened again.
  ESKER_KIND_READ_ONLY = 8,
  // The store was closed.
  ESKER_KIND_CLOSED = 9,
  // The system refused; the message has its words.
  ESKER_KIND_IO = 10,
} esker_kind;

// A directory with several backups of one store, each a whole store as it was at its moment: a set of generations, which share what is the same in them.
typedef struct esker_backups esker_backups;

// Puts, deletions and merges of any column families, all of which take effect together or not at all. Later operations on a key win.
typedef struct esker_batch esker_batch;

// Memory that several stores share. It goes with the last of those that have it, whoever frees it first.
typedef struct esker_cache esker_cache;

// A hash store: append-only files, and a directory of their keys in memory.
typedef struct esker_cask esker_cask;

// An ordered store, in RocksDB's files.
typedef struct esker_db esker_db;

// How an ordered store is opened.
typedef struct esker_db_options esker_db_options;

// What was being done, where, why it failed, and what can be done about it.
typedef struct esker_error esker_error;

// A column family of an open store.
typedef struct esker_family esker_family;

// A value that a compaction filter is asked about.
typedef struct esker_filter_candidate esker_filter_candidate;

// Puts and deletes that take effect together or not at all.
typedef struct esker_cask_batch esker_cask_batch;

// How a hash store is opened.
typedef struct esker_cask_options esker_cask_options;

// A walk over the keys of a family in their order, of one moment. It stands on no entry until a seek.
typedef struct esker_iterator esker_iterator;

// How a Raft log is opened.
typedef struct esker_raft_log_options esker_raft_log_options;

// Where a function of the program's puts the value that it makes.
typedef struct esker_merged esker_merged;

// What is appended together, of any groups.
typedef struct esker_raft_batch esker_raft_batch;

// One log for any number of Raft groups: entries in order, and keys with values, for each.
typedef struct esker_raft_log esker_raft_log;

// How something is read. Where a call takes them, NULL are the defaults.
typedef struct esker_read_options esker_read_options;

// A walk over everything that lived when it was made, in no order of keys. It stands before the first entry.
typedef struct esker_scan esker_scan;

// The store as it was at one moment, in all column families.
typedef struct esker_snapshot esker_snapshot;

// A table that is being written outside of a store.
typedef struct esker_sst_writer esker_sst_writer;

// Reads of one moment, and writes that take effect together if no other write came to what was read. One thread at a time.
typedef struct esker_transaction esker_transaction;

// A column family whose values live for a time after they were written.
typedef struct esker_ttl esker_ttl;

// A value, which shares memory with the store where it can. Free it soon: it may keep a block or a whole file.
typedef struct esker_value esker_value;

// A generation of a set of backups.
typedef struct {
  // Its number in the set.
  uint64_t id;
  // When it was made, in seconds since 1970-01-01 UTC by the clock of that machine. 0: the file that says so is damaged.
  uint64_t unix_seconds;
  // The last sequence number in it. 0 as above.
  uint64_t sequence;
  // Tables and blob files in it.
  uint64_t files;
  // Their bytes.
  uint64_t bytes;
  // Bytes of those that no other generation has: about what its deletion frees.
  uint64_t bytes_of_its_own;
} esker_backup_info;

// Bytes: `len` of them at `data`, which may be NULL if there are none. They stay their owner's.
typedef struct {
  // The first of them.
  const uint8_t *data;
  // How many they are.
  size_t len;
} esker_slice;

// What becomes of a value that a compaction meets: `ESKER_KEEP`, `ESKER_REMOVE`, or `ESKER_CHANGE` into what went to `changed`; anything else keeps it.
// Called by several threads at once, at any time while the store is open; it must not call the store.
typedef uint32_t (*esker_filter_function)(void *state, const esker_filter_candidate *candidate, esker_merged *changed);

// Frees the state of a function that nobody calls any more.
typedef void (*esker_free_function)(void *state);

// What a value becomes: `existing` is the value before, NULL if there is none, `operands` are `count` operands, one at least, the oldest first. What
// it becomes goes to `merged`; `false`: it cannot be told. Called by several threads at once, at any time while the store is open; it must not call
// the store.
typedef bool (*esker_merge_function)(void *state, esker_slice key, const esker_slice *existing, const esker_slice *operands, size_t count, esker_merged *merged);

// How `a` lies to `b`: less than 0 before it, 0 if they are the same bytes, else behind it. Total, and the same at all times. Called by several threads
// at once.
typedef int (*esker_compare_function)(void *state, esker_slice a, esker_slice b);

// What is shown an entry or a value: `context` is the caller's, the bytes are seen where they lie, until it returns. `false` ends the walk.
typedef bool (*esker_show_entry)(void *context, uint64_t index, esker_slice entry);

// The same with a key in place of an index.
typedef bool (*esker_show_key)(void *context, esker_slice key, esker_slice value);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The set in the directory `path`, which may be empty or missing. It holds nothing; any number of processes may have it.
esker_error *esker_backups_open(const char *path, esker_backups **backups);

// Makes a new generation of everything that is written now. What earlier ones have is shared with them by hard links; the rest is copied, read back and
// checked. Durable when it returns; `Busy` if somebody else changes the set just now, `Conflict` if it is another store's.
esker_error *esker_backups_create(const esker_backups *backups, const esker_db *db, esker_backup_info *info);

// Writes what is known of the generations, the oldest first, the first `max` of them, to `infos`; `count` says how many there are.
esker_error *esker_backups_list(const esker_backups *backups, esker_backup_info *infos, size_t max, size_t *count);

// Reads and checks every byte of a generation: `Corruption`, with the first damage, if it is not whole. `options` may be NULL.
esker_error *esker_backups_check(const esker_backups *backups, uint64_t id, const esker_db_options *options);

// Makes a store in the directory `target`, empty or missing, that is what a generation is, with files of its own, which are read back and checked.
esker_error *esker_backups_restore(const esker_backups *backups, uint64_t id, const char *target);

// Deletes a generation. Others keep what they share with it.
esker_error *esker_backups_delete(const esker_backups *backups, uint64_t id);

// Deletes all generations but the `count` newest; `deleted` says how many those were.
esker_error *esker_backups_keep_newest(const esker_backups *backups, size_t count, size_t *deleted);

// Frees a set's handle; NULL is none.
void esker_backups_free(esker_backups *backups);

// Reads and checks every byte of an open store: `Corruption`, with the first damage, if it is not whole. Reads and writes go on.
esker_error *esker_db_check(const esker_db *db);

// The same of a store that nobody has open, in the directory `path`, and of what keeps it from being opened. Nothing is written. `options` may be NULL.
esker_error *esker_db_check_store(const char *path, const esker_db_options *options);

// An empty batch.
esker_batch *esker_batch_create(void);

// Sets `key` to `value`.
esker_error *esker_batch_put(esker_batch *batch, const esker_family *family, esker_slice key, esker_slice value);

// Removes `key`.
esker_error *esker_batch_delete(esker_batch *batch, const esker_family *family, esker_slice key);

// Removes `key`, which was put at most once since it was last removed. See `esker_db_single_delete`.
esker_error *esker_batch_single_delete(esker_batch *batch, const esker_family *family, esker_slice key);

// Removes all keys from `begin` on and before `end`: those that are there, and those that earlier operations of the batch put. See
// `esker_db_delete_range`.
esker_error *esker_batch_delete_range(esker_batch *batch, const esker_family *family, esker_slice begin, esker_slice end);

// Merges `operand` into the value of `key`, by the family's merge operator.
esker_error *esker_batch_merge(esker_batch *batch, const esker_family *family, esker_slice key, esker_slice operand);

// How many operations it has.
uint32_t esker_batch_count(const esker_batch *batch);

// Remembers what is in it now, above what it remembers already.
void esker_batch_set_save_point(esker_batch *batch);

// Takes out what came since the last save point, and forgets that. `NotFound`: there is none.
esker_error *esker_batch_rollback_to_save_point(esker_batch *batch);

// Forgets the last save point; the batch stays as it is. `NotFound`: there is none.
esker_error *esker_batch_pop_save_point(esker_batch *batch);

// Takes all of them out.
void esker_batch_clear(esker_batch *batch);

// Frees a batch; NULL is none.
void esker_batch_free(esker_batch *batch);

// A cache of blocks and values, so many bytes of them, for all stores that are opened with it.
esker_error *esker_cache_create(uint64_t cache_bytes, esker_cache **cache);

// A limit to all that the stores opened with it keep in memory: memtables, indexes, filters, and a cache, which gets what these leave.
esker_error *esker_cache_create_within_limit(uint64_t memory_limit, esker_cache **cache);

// Has stores that are opened with `options` share `cache`; then "cache_bytes" and "memory_limit" are without effect.
void esker_db_options_set_cache(esker_db_options *options, const esker_cache *cache);

// Has a cache keep so many bytes from now on, of what it was made to keep.
esker_error *esker_cache_set_bytes(const esker_cache *cache, uint64_t bytes);

// Frees a cache; stores that have it keep it. NULL is none.
void esker_cache_free(esker_cache *cache);

// Opens the store in the directory `path`; `options` may be NULL: the defaults. One process at a time: `Busy`.
esker_error *esker_cask_open(const char *path, const esker_cask_options *options, esker_cask **cask);

// Opens a store for reading, as it is now: nothing is written.
esker_error *esker_cask_open_read_only(const char *path, const esker_cask_options *options, esker_cask **cask);

// Closes a store and frees it, whatever it returns; NULL is none.
esker_error *esker_cask_close(esker_cask *cask);

// Makes a store of what is left of a damaged one in the directory `path`.
esker_error *esker_cask_repair(const char *path);

// The value of `key`: NULL if it has none.
esker_error *esker_cask_get(const esker_cask *cask, esker_slice key, esker_value **value);

// Whether `key` has a value.
esker_error *esker_cask_exists(const esker_cask *cask, esker_slice key, bool *exists);

// The length of the value of `key`; `-1` if it has none.
esker_error *esker_cask_value_len(const esker_cask *cask, esker_slice key, int64_t *len);

// Sets `key` to `value`. `flags` are 0 or `ESKER_SYNC`; `ttl_seconds` is how long it lives, 0 as `default_ttl` says.
esker_error *esker_cask_put(const esker_cask *cask, uint32_t flags, esker_slice key, esker_slice value, uint64_t ttl_seconds);

// Sets `key` to `value` if it has none; `was_absent` says whether it did. No other write comes in between.
esker_error *esker_cask_put_if_absent(const esker_cask *cask, uint32_t flags, esker_slice key, esker_slice value, uint64_t ttl_seconds, bool *was_absent);

// Sets `key` to `value` (NULL removes it) if its value is `expected` (NULL: it has none); `was_set` says whether it was. No other write comes in
// between.
esker_error *esker_cask_compare_and_set(const esker_cask *cask, uint32_t flags, esker_slice key, const esker_slice *expected, const esker_slice *value, bool *was_set);

// Removes `key`; `was_there` says whether it had a value.
esker_error *esker_cask_delete(const esker_cask *cask, uint32_t flags, esker_slice key, bool *was_there);

// Makes everything written so far survive power loss.
esker_error *esker_cask_sync(const esker_cask *cask);

// How many keys have a value.
uint64_t esker_cask_len(const esker_cask *cask);

// Merges all that has anything to give back. Waits for it; merges happen by themselves, too.
esker_error *esker_cask_compact(const esker_cask *cask);

// Makes a store in the directory `target`, empty or missing, with everything that is written now. It shares files by hard links.
esker_error *esker_cask_checkpoint(const esker_cask *cask, const char *target);

// Makes a store in `target` that shares nothing with this one, or brings an earlier backup there up to date. All of it is read back and checked.
esker_error *esker_cask_backup(const esker_cask *cask, const char *target);

// An empty batch.
esker_cask_batch *esker_cask_batch_create(void);

// Sets `key` to `value`, for `ttl_seconds`; 0 as `default_ttl` says.
esker_error *esker_cask_batch_put(esker_cask_batch *batch, esker_slice key, esker_slice value, uint64_t ttl_seconds);

// Removes `key`.
esker_error *esker_cask_batch_delete(esker_cask_batch *batch, esker_slice key);

// Takes all operations out.
void esker_cask_batch_clear(esker_cask_batch *batch);

// Frees a batch; NULL is none.
void esker_cask_batch_free(esker_cask_batch *batch);

// Applies a batch, which stays as it is.
esker_error *esker_cask_write(const esker_cask *cask, uint32_t flags, const esker_cask_batch *batch);

// A walk over a store.
esker_error *esker_cask_scan(const esker_cask *cask, esker_scan **scan);

// Goes to the next entry; `is_there` says whether there is one. After an error, the next call goes on behind what could not be read.
esker_error *esker_scan_advance(esker_scan *scan, bool *is_there);

// The key where it stands, until it moves; empty if it stands on no entry.
esker_slice esker_scan_key(const esker_scan *scan);

// The value where it stands, until it moves.
esker_error *esker_scan_value(esker_scan *scan, esker_slice *value);

// Frees a walk; NULL is none.
void esker_scan_free(esker_scan *scan);

// Opens the store in the directory `path`; `options` may be NULL: the defaults, which make no new store. One process at a time: `Busy`.
esker_error *esker_db_open(const char *path, const esker_db_options *options, esker_db **db);

// Opens a store for reading, as it is now: nothing is written, other processes may go on.
esker_error *esker_db_open_read_only(const char *path, const esker_db_options *options, esker_db **db);

// Another handle of a store that is open for reading only, as it is now; `db` shows what it did. It has families of its own; each of the two is closed by itself.
esker_error *esker_db_catch_up(const esker_db *db, esker_db **now);

// Closes a store and frees it, whatever it returns; NULL is none. What was written without a sync is synced. Calls that are left find it `Closed`.
esker_error *esker_db_close(esker_db *db);

// Makes a store of what is left of a damaged one in the directory `path`: what cannot be used goes to its subdirectory `lost`.
esker_error *esker_db_repair(const char *path, const esker_db_options *options);

// Writes memtables to tables, of one family or, with NULL, of all. Waits for it.
esker_error *esker_db_flush(const esker_db *db, const esker_family *family);

// Makes everything written so far survive power loss.
esker_error *esker_db_sync_wal(const esker_db *db);

// Moves what a family holds between `begin` and `end` (inclusive; NULL is open) to its deepest level, without what is overwritten or
// deleted. Waits for it.
esker_error *esker_db_compact_range(const esker_db *db, const esker_family *family, const esker_slice *begin, const esker_slice *end);

// Waits until no background work is due, and takes part in it.
esker_error *esker_db_wait_for_compact(const esker_db *db);

// Drops the tables below level 0 that lie within a range of keys (inclusive; NULL is open): the cheapest way to be rid of most of what it
// holds. Writes their bytes to `dropped_bytes`.
esker_error *esker_db_delete_files_in_range(const esker_db *db, const esker_family *family, const esker_slice *begin, const esker_slice *end, uint64_t *dropped_bytes);

// Gives back the garbage in blob files of a family of which at least `garbage_part`, from 0 to 1, is garbage. Waits for it. Reclaim does so by
// itself unless `reclaim_mode` says otherwise.
esker_error *esker_db_reclaim(const esker_db *db, const esker_family *family, double garbage_part);

// Makes a store in the directory `target`, empty or missing, with everything that is written now. It shares files by hard links.
esker_error *esker_db_checkpoint(const esker_db *db, const char *target);

// Makes a store in `target` that shares nothing with this one, or brings an earlier backup there up to date. All of it is read back and checked.
esker_error *esker_db_backup(const esker_db *db, const char *target);

// A property by the name that RocksDB gives it, such as `rocksdb.estimate-num-keys`, in decimal digits; NULL for one that Esker does not have.
esker_error *esker_db_property(const esker_db *db, const esker_family *family, const char *name, esker_value **value);

// What can be done about it.
esker_kind esker_error_kind(const esker_error *error);

// All that is known, on one line of UTF-8, such as `not found: /data/store: there is no store; ...`. It lives as long as the error.
const char *esker_error_message(const esker_error *error);

// Frees an error; NULL is none.
void esker_error_free(esker_error *error);

// The column family of that name. `NotFound` if there is none.
esker_error *esker_db_family(const esker_db *db, const char *name, esker_family **family);

// Makes a column family, with what `options` say of one of that name; NULL are the defaults. Durable when it returns. `Conflict` if there is one.
esker_error *esker_db_create_family(const esker_db *db, const char *name, const esker_db_options *options, esker_family **family);

// Drops a column family. Durable when it returns; its files go once nobody reads them any more. The handle is still to be freed.
esker_error *esker_db_drop_family(const esker_db *db, const esker_family *family);

// Hands out handles of the column families, in the order of their creation, the first `max` of them; returns how many there are.
size_t esker_db_families(const esker_db *db, esker_family **families, size_t max);

// Its name, which lives as long as the handle. No zero follows it.
esker_slice esker_family_name(const esker_family *family);

// Where new values of a family live from now on: `"off"`, `"at_flush"`, `"at_write"` or `"fall_back"`. Those that are there stay until they are compacted.
esker_error *esker_db_set_separation(const esker_db *db, const esker_family *family, const char *separation);

// Changes an option of a family from now on, such as `"write_buffer_bytes"` to `"128MiB"`: one of those of `esker_db_options_set_family` but
// `"merge_operator"`, `"comparator"` and `"level_count"`. NULL is the default family. Durable when it returns.
esker_error *esker_db_set_option(const esker_db *db, const esker_family *family, const char *name, const char *value);

// Changes an option of the store from now on, such as `"max_disk_bytes"` to `"100GiB"`; an error says which can be changed. Durable when it returns, as far as the
// store keeps it.
esker_error *esker_db_set_db_option(const esker_db *db, const char *name, const char *value);

// Frees the handle of a family; NULL is none. The family stays.
void esker_family_free(esker_family *family);

// Its key, which is seen until the filter returns.
esker_slice esker_filter_candidate_key(const esker_filter_candidate *candidate);

// The value, which is seen until the filter returns. One that lies in a blob file is read the first time: decide by the key where that will do.
esker_error *esker_filter_candidate_value(const esker_filter_candidate *candidate, esker_slice *value);

// What time it is, in seconds since 1970-01-01 UTC: when the compaction began.
uint64_t esker_filter_candidate_unix_seconds(const esker_filter_candidate *candidate);

// Has compactions of a family ask `decide` about each value that no snapshot sees. `state` is what it is given; `free`, which may be NULL, is called with it
// once options and store are done with the filter, and before this returns an error. Not in the store's files: a program sets it each time.
esker_error *esker_db_options_set_compaction_filter(esker_db_options *options, const char *family, void *state, esker_filter_function decide, esker_free_function free);

// Begins the file `path`, as `family` of `db` writes its tables: order of keys, compression, filter, size of blocks. `Conflict` if there is a file already.
esker_error *esker_sst_writer_create(const esker_db *db, const esker_family *family, const char *path, esker_sst_writer **writer);

// Adds `key` with `value`. Keys come in ascending order, each once, whatever is said of it: `InvalidArgument` otherwise, and the file is as before.
esker_error *esker_sst_writer_put(esker_sst_writer *writer, esker_slice key, esker_slice value);

// Has `key` removed where the file comes in.
esker_error *esker_sst_writer_delete(esker_sst_writer *writer, esker_slice key);

// Has all keys from `begin` up to but not including `end` removed where the file comes in, not those of the file itself. In any order.
esker_error *esker_sst_writer_delete_range(esker_sst_writer *writer, esker_slice begin, esker_slice end);

// Adds `operand` to what `key` has where the file comes in.
esker_error *esker_sst_writer_merge(esker_sst_writer *writer, esker_slice key, esker_slice operand);

// Completes the file, syncs it and frees the writer, whatever it returns; after an error there is no file. Writes its length to `file_bytes`.
esker_error *esker_sst_writer_finish(esker_sst_writer *writer, uint64_t *file_bytes);

// Frees a writer that was not finished, and removes its file; NULL is none.
void esker_sst_writer_free(esker_sst_writer *writer);

// Takes `count` files into a family, all at once or none, as if all in them were written now. Durable when it returns. `flags` are 0, or `ESKER_MOVE_FILES` or
// `ESKER_VERIFY_ENDS` or both.
esker_error *esker_db_ingest(const esker_db *db, uint32_t flags, const esker_family *family, const char *const *paths, size_t count);

// A walk over a family, as it is now or as `options` say.
esker_error *esker_db_iterator(const esker_db *db, const esker_read_options *options, const esker_family *family, esker_iterator **iterator);

// Walks that share out what one would show, in order, all of one moment, for one thread each. `iterators` has room for `parts`; `count` says how many
// there are, which may be fewer.
esker_error *esker_db_split(const esker_db *db, const esker_read_options *options, const esker_family *family, size_t parts, esker_iterator **iterators, size_t *count);

// How many keys a family has within the bounds of `options`, counted one by one.
esker_error *esker_db_count(const esker_db *db, const esker_read_options *options, const esker_family *family, uint64_t *count);

// Goes to the first entry.
esker_error *esker_iterator_seek_to_first(esker_iterator *iterator);

// Goes to the last entry.
esker_error *esker_iterator_seek_to_last(esker_iterator *iterator);

// Goes to the first entry whose key is not less than `key`.
esker_error *esker_iterator_seek(esker_iterator *iterator, esker_slice key);

// Goes to the last entry whose key is not greater than `key`.
esker_error *esker_iterator_seek_for_prev(esker_iterator *iterator, esker_slice key);

// Goes to the next entry.
esker_error *esker_iterator_next(esker_iterator *iterator);

// Goes to the entry before.
esker_error *esker_iterator_prev(esker_iterator *iterator);

// Shows the family as it is now, from the next seek on.
esker_error *esker_iterator_refresh(esker_iterator *iterator);

// Whether it stands on an entry.
bool esker_iterator_valid(const esker_iterator *iterator);

// The key where it stands, until it moves; empty if it stands on no entry.
esker_slice esker_iterator_key(const esker_iterator *iterator);

// The value where it stands, until it moves. Read when it is asked for: who looks at keys only pays for keys only.
esker_error *esker_iterator_value(esker_iterator *iterator, esker_slice *value);

// The length of the value where it stands.
esker_error *esker_iterator_value_len(const esker_iterator *iterator, uint64_t *len);

// Frees a walk; NULL is none.
void esker_iterator_free(esker_iterator *iterator);

// Adds bytes to the end of what was made; it begins with none. `false` if they are no bytes.
bool esker_merged_append(esker_merged *merged, esker_slice bytes);

// Makes a merge operator known by `name`, for families whose OPTIONS say that, and for `esker_db_options_set_family(.., "merge_operator", name)`
// from then on. `partial`, which may be NULL, makes one operand of several, without a value. `state` is what they are given; `free`, which may be NULL, is
// called with it once options and store are done with the operator, and before this returns an error.
esker_error *esker_db_options_add_merge_operator(esker_db_options *options, const char *name, void *state, esker_merge_function full, esker_merge_function partial, esker_free_function free);

// The defaults. A family that is not named keeps what the store's OPTIONS file says of it.
esker_db_options *esker_db_options_create(void);

// How to open the store in the directory `path` for somebody who is not its program: with the limits to its space that the program chose, and without
// changing what is kept of them. Families keep their options in any case. Where there is no store, the defaults.
esker_error *esker_db_options_of_store(const char *path, esker_db_options **options);

// Sets an option of the store, such as `"create_if_missing"` to `"true"` or `"cache_bytes"` to `"64MiB"`. `InvalidArgument` names all there are.
esker_error *esker_db_options_set(esker_db_options *options, const char *name, const char *value);

// Sets an option of the column family `family`, such as `"separation"` of `"default"` to `"at_write"`. A family that was not named
// before begins with the defaults.
esker_error *esker_db_options_set_family(esker_db_options *options, const char *family, const char *name, const char *value);

// Frees options; NULL is none.
void esker_db_options_free(esker_db_options *options);

// The defaults.
esker_cask_options *esker_cask_options_create(void);

// Sets an option, such as `"create_if_missing"` to `"true"` or `"default_ttl"` to `"3600"`, seconds. `InvalidArgument` names all there are.
esker_error *esker_cask_options_set(esker_cask_options *options, const char *name, const char *value);

// Frees options; NULL is none.
void esker_cask_options_free(esker_cask_options *options);

// The defaults.
esker_raft_log_options *esker_raft_log_options_create(void);

// Sets an option, such as `"purge_threshold_bytes"` to `"1GiB"`. `InvalidArgument` names all there are.
esker_error *esker_raft_log_options_set(esker_raft_log_options *options, const char *name, const char *value);

// Frees options; NULL is none.
void esker_raft_log_options_free(esker_raft_log_options *options);

// Makes an order of keys known by `name`, for families whose keys lie in it, and for `esker_db_options_set_family(.., "comparator", name)` from then on.
// `compare` is given `state`. Both are asked for until the process ends: add an order once, and keep its state.
esker_error *esker_db_options_add_comparator(esker_db_options *options, const char *name, void *state, esker_compare_function compare);

// Opens the log in the directory `path`, which is created if it does not exist; `options` may be NULL: the defaults. One process at a time: `Busy`.
esker_error *esker_raft_log_open(const char *path, const esker_raft_log_options *options, esker_raft_log **log);

// Closes a log and frees it, whatever it returns; NULL is none.
esker_error *esker_raft_log_close(esker_raft_log *log);

// An empty batch.
esker_raft_batch *esker_raft_batch_create(void);

// Adds `count` entries with consecutive indexes from `first_index` on. Those of the group from there on that were written before are replaced.
esker_error *esker_raft_batch_add_entries(esker_raft_batch *batch, uint64_t group, uint64_t first_index, const esker_slice *entries, size_t count);

// Gives `key` of `group` a value.
esker_error *esker_raft_batch_put(esker_raft_batch *batch, uint64_t group, esker_slice key, esker_slice value);

// Takes the value of `key` of `group` away.
esker_error *esker_raft_batch_delete(esker_raft_batch *batch, uint64_t group, esker_slice key);

// Removes the entries of `group` before `index`.
void esker_raft_batch_compact(esker_raft_batch *batch, uint64_t group, uint64_t index);

// Removes `group`, its entries and its keys.
void esker_raft_batch_clean(esker_raft_batch *batch, uint64_t group);

// Takes all out.
void esker_raft_batch_clear(esker_raft_batch *batch);

// Frees a batch; NULL is none.
void esker_raft_batch_free(esker_raft_batch *batch);

// Appends a batch, which is empty afterwards, or, after `InvalidArgument`, `Exhausted` or `Closed`, as it was. `flags` are 0 or `ESKER_SYNC`.
esker_error *esker_raft_log_write(const esker_raft_log *log, uint32_t flags, esker_raft_batch *batch);

// Makes everything written so far survive power loss.
esker_error *esker_raft_log_sync(const esker_raft_log *log);

// One entry: NULL if the group has no such.
esker_error *esker_raft_log_entry(const esker_raft_log *log, uint64_t group, uint64_t index, esker_value **entry);

// Shows entries `begin` up to but not including `end`, in order; `count` says how many. `NotFound`, before any, if the group does not have all of them.
esker_error *esker_raft_log_for_each_entry(const esker_raft_log *log, uint64_t group, uint64_t begin, uint64_t end, esker_show_entry show, void *context, uint64_t *count);

// Index of the first entry of a group: `false` if it has none.
bool esker_raft_log_first_index(const esker_raft_log *log, uint64_t group, uint64_t *index);

// Index of the last entry of a group: `false` if it has none.
bool esker_raft_log_last_index(const esker_raft_log *log, uint64_t group, uint64_t *index);

// The value of a key of a group: NULL if it has none.
esker_error *esker_raft_log_get(const esker_raft_log *log, uint64_t group, esker_slice key, esker_value **value);

// Shows the keys of a group from `from` up to but not including `to` (NULL is open), in order, with their values, as they are at one moment.
esker_error *esker_raft_log_for_each_key(const esker_raft_log *log, uint64_t group, const esker_slice *from, const esker_slice *to, esker_show_key show, void *context);

// Writes the numbers of the groups, in order, the first `max` of them, to `groups`; returns how many there are.
size_t esker_raft_log_groups(const esker_raft_log *log, uint64_t *groups, size_t max);

// Removes the entries of `group` before `index`; `count` says how many those were. Their space comes back when it is purged.
esker_error *esker_raft_log_compact_to(const esker_raft_log *log, uint64_t group, uint64_t index, uint64_t *count);

// Gives up files that nobody needs, and moves old entries on if the log is longer than it should be. The groups with many, which should be
// compacted, the first `max` of them, go to `groups`; `count` says how many there are.
esker_error *esker_raft_log_purge(const esker_raft_log *log, uint64_t *groups, size_t max, size_t *count);

// Makes a log in the directory `target`, empty or missing, with all that was written so far. It shares files by hard links.
esker_error *esker_raft_log_fork(const esker_raft_log *log, const char *target);

// Keeps the store as it is now, for reads with `esker_read_options_set_snapshot`. What is overwritten keeps its space until it is freed.
esker_snapshot *esker_db_snapshot(const esker_db *db);

// Frees a snapshot; NULL is none. Options that have it keep it until they are freed.
void esker_snapshot_free(esker_snapshot *snapshot);

// The defaults.
esker_read_options *esker_read_options_create(void);

// Reads what was there at a moment; NULL is now.
void esker_read_options_set_snapshot(esker_read_options *options, const esker_snapshot *snapshot);

// Whether blocks that had to be read stay in the cache. Default `true`.
void esker_read_options_set_fill_cache(esker_read_options *options, bool fill_cache);

// Iterators begin at `lower` and end before `upper`; NULL is open.
esker_error *esker_read_options_set_bounds(esker_read_options *options, const esker_slice *lower, const esker_slice *upper);

// Iterators show only keys that begin with `prefix`, within the bounds. They fail in a family whose keys do not lie by their bytes.
esker_error *esker_read_options_set_prefix(esker_read_options *options, esker_slice prefix);

// How much of separated values an iterator reads before it is asked for them, in bytes. Default 1 MiB; 0 reads nothing ahead.
void esker_read_options_set_look_ahead_bytes(esker_read_options *options, uint64_t look_ahead_bytes);

// Frees options; NULL is none.
void esker_read_options_free(esker_read_options *options);

// The value of `key`: NULL if it has none.
esker_error *esker_db_get(const esker_db *db, const esker_read_options *options, const esker_family *family, esker_slice key, esker_value **value);

// `len` bytes of the value of `key` from `offset` on, as far as there are any: NULL if it has no value.
esker_error *esker_db_get_range(const esker_db *db, const esker_read_options *options, const esker_family *family, esker_slice key, uint64_t offset, uint64_t len, esker_value **value);

// Whether `key` has a value. Never reads a separated one.
esker_error *esker_db_exists(const esker_db *db, const esker_read_options *options, const esker_family *family, esker_slice key, bool *exists);

// The length of the value of `key`; `-1` if it has none. Never reads a separated one that is not packed.
esker_error *esker_db_value_len(const esker_db *db, const esker_read_options *options, const esker_family *family, esker_slice key, int64_t *len);

// The values of `count` keys, all of one moment: `values` has room for as many, and `errors`, too, unless it is NULL. Of each key either the error
// is set, or the value, or, if it has none, neither. If `errors` is NULL, the first error of a key is the call's, and there are no values.
esker_error *esker_db_multi_get(const esker_db *db, const esker_read_options *options, const esker_family *family, const esker_slice *keys, size_t count, esker_value **values, esker_error **errors);

// Begins a transaction, which sees the store as it is now.
esker_transaction *esker_db_transaction(const esker_db *db);

// Begins a transaction that locks what it reads and writes until it ends, so that others of this kind wait for it instead of beginning again. A call that
// has waited `lock_timeout_ms` milliseconds for a key is `Busy`; 0 waits for nobody, 1000 is a common choice. One that would wait for itself, round
// whatever corners, is a `Conflict`: free the transaction, so that the others go on, and begin again.
esker_transaction *esker_db_locking_transaction(const esker_db *db, uint64_t lock_timeout_ms);

// The value of `key`: what the transaction gave it, else what it had when that began; if it locks, what it has now. NULL if it has none.
esker_error *esker_transaction_get(esker_transaction *transaction, const esker_family *family, esker_slice key, esker_value **value);

// As `esker_transaction_get`, of a key that is going to be written: a transaction that locks has it alone from here on.
esker_error *esker_transaction_get_for_update(esker_transaction *transaction, const esker_family *family, esker_slice key, esker_value **value);

// Sets `key` to `value`, if it commits.
esker_error *esker_transaction_put(esker_transaction *transaction, const esker_family *family, esker_slice key, esker_slice value);

// Removes `key`, if it commits.
esker_error *esker_transaction_delete(esker_transaction *transaction, const esker_family *family, esker_slice key);

// Merges `operand` into the value of `key`, if it commits; that reads nothing.
esker_error *esker_transaction_merge(esker_transaction *transaction, const esker_family *family, esker_slice key, esker_slice operand);

// Remembers what was written up to now, above what it remembers already.
void esker_transaction_set_save_point(esker_transaction *transaction);

// Takes back what was written since the last save point, and forgets that. `NotFound`: there is none.
esker_error *esker_transaction_rollback_to_save_point(esker_transaction *transaction);

// Forgets the last save point; all stays as it was written. `NotFound`: there is none.
esker_error *esker_transaction_pop_save_point(esker_transaction *transaction);

// Makes what was written take effect, all at once, and frees the transaction, whatever it returns. `Conflict`: another write came to what was read;
// nothing was written, begin again. `flags` as those of `esker_db_put`.
esker_error *esker_transaction_commit(esker_transaction *transaction, uint32_t flags);

// Frees a transaction that is not committed, which changes nothing; NULL is none.
void esker_transaction_free(esker_transaction *transaction);

// Has compactions of a family let go of values that `ttl_seconds` have passed over, and come by everywhere at least once in that time.
esker_error *esker_db_options_set_family_ttl(esker_db_options *options, const char *family, uint64_t ttl_seconds);

// A family as one whose values live for `ttl_seconds`, up to 2^31 - 1. Nothing in the store says so: a program does, each time. Not with a merge operator.
esker_error *esker_db_with_ttl(const esker_db *db, const esker_family *family, uint64_t ttl_seconds, esker_ttl **ttl);

// Sets `key` to `value` for the family's time. `flags` as for `esker_db_put`. What removes keys from other families removes them from these.
esker_error *esker_ttl_put(const esker_ttl *ttl, uint32_t flags, esker_slice key, esker_slice value);

// The same for `ttl_seconds` in place of the family's time.
esker_error *esker_ttl_put_for(const esker_ttl *ttl, uint32_t flags, esker_slice key, esker_slice value, uint64_t ttl_seconds);

// Adds to a batch that `key` is set to `value`, for the family's time from now on.
esker_error *esker_batch_put_ttl(esker_batch *batch, const esker_ttl *ttl, esker_slice key, esker_slice value);

// The value of `key`: NULL if it has none, or none any more. `Corruption` if it was written past this.
esker_error *esker_ttl_get(const esker_ttl *ttl, const esker_read_options *options, esker_slice key, esker_value **value);

// How many seconds the value of `key` still lives: -1 if it has none, or none any more.
esker_error *esker_ttl_time_to_live(const esker_ttl *ttl, esker_slice key, int64_t *seconds);

// What of `stored`, which an iterator or a transaction shows for `key`, is the value that was written: it lies in there. `lives` says whether its time is not over.
esker_error *esker_ttl_value(const esker_ttl *ttl, esker_slice key, esker_slice stored, esker_slice *value, bool *lives);

// Frees the handle; NULL is none.
void esker_ttl_free(esker_ttl *ttl);

// Its bytes, which live as long as it.
esker_slice esker_value_bytes(const esker_value *value);

// Frees a value; NULL is none.
void esker_value_free(esker_value *value);

// Sets `key` to `value`. `flags` are 0, or `ESKER_SYNC` or `ESKER_DISABLE_WAL`.
esker_error *esker_db_put(const esker_db *db, uint32_t flags, const esker_family *family, esker_slice key, esker_slice value);

// Removes `key`; it need not be there.
esker_error *esker_db_delete(const esker_db *db, uint32_t flags, const esker_family *family, esker_slice key);

// Removes `key`, which was put at most once since it was last removed, and not merged: a deletion that goes with the put that it cancels, as soon as
// they meet (as RocksDB's `SingleDelete`). Any other key may show an older value again.
esker_error *esker_db_single_delete(const esker_db *db, uint32_t flags, const esker_family *family, esker_slice key);

// Removes all keys from `begin` on and before `end` that are there, however many, by one write; nothing if the two are equal. `InvalidArgument`:
// `begin` comes after `end`. Snapshots that were made before keep the keys; their space comes back with compaction.
esker_error *esker_db_delete_range(const esker_db *db, uint32_t flags, const esker_family *family, esker_slice begin, esker_slice end);

// Merges `operand` into the value of `key`, by the family's merge operator, whether it has a value or not: a change by what is there that reads
// nothing.
esker_error *esker_db_merge(const esker_db *db, uint32_t flags, const esker_family *family, esker_slice key, esker_slice operand);

// Applies a batch, which stays as it is. Cost: a copy of it.
esker_error *esker_db_write(const esker_db *db, uint32_t flags, const esker_batch *batch);

// Sets `key` to `value` if it has none; `was_absent` says whether it did. No other write comes in between.
esker_error *esker_db_put_if_absent(const esker_db *db, uint32_t flags, const esker_family *family, esker_slice key, esker_slice value, bool *was_absent);

// Sets `key` to `value` if it has the value `expected`; `was_set` says whether it did. No other write comes in between.
esker_error *esker_db_compare_and_set(const esker_db *db, uint32_t flags, const esker_family *family, esker_slice key, esker_slice expected, esker_slice value, bool *was_set);

// Removes `key` if it has the value `expected`; `was_deleted` says whether it did. No other write comes in between.
esker_error *esker_db_compare_and_delete(const esker_db *db, uint32_t flags, const esker_family *family, esker_slice key, esker_slice expected, bool *was_deleted);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

// The bytes of a text, without the zero behind it.
static inline esker_slice esker_text(const char *text) {
  esker_slice slice = {(const uint8_t *)text, strlen(text)};
  return slice;
}

// `len` bytes at `data`.
static inline esker_slice esker_bytes(const void *data, size_t len) {
  esker_slice slice = {(const uint8_t *)data, len};
  return slice;
}

#endif // ESKER_H

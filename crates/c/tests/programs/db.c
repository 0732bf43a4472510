#include "must.h"

static const char *directory;

static esker_db_options *options(void) {
  esker_db_options *options = esker_db_options_create();
  MUST(esker_db_options_set(options, "create_if_missing", "true"));
  MUST(esker_db_options_set_family(options, "default", "separation", "at_write"));
  MUST(esker_db_options_set_family(options, "default", "min_blob_size", "100"));
  return options;
}

static void opening(void) {
  esker_db *db = (esker_db *)&directory;
  FAILS(esker_db_open(in(directory, "none"), NULL, &db), ESKER_KIND_NOT_FOUND, "none");
  HOLDS(db == NULL);
  FAILS(esker_db_open(NULL, NULL, &db), ESKER_KIND_INVALID_ARGUMENT, "NULL");
  FAILS(esker_db_open_read_only(in(directory, "none"), NULL, &db), ESKER_KIND_NOT_FOUND, "none");
  esker_db_options *bad = options();
  FAILS(esker_db_options_set(bad, "cache", "1"), ESKER_KIND_INVALID_ARGUMENT, "there are create_if_missing");
  FAILS(esker_db_options_set(bad, "cache_bytes", "\xff"), ESKER_KIND_INVALID_ARGUMENT, "UTF-8");
  FAILS(esker_db_options_set_family(bad, "default", "separation", "on"), ESKER_KIND_INVALID_ARGUMENT, "one of off");
  MUST(esker_db_options_set(bad, "max_space_amp", "0.5"));
  FAILS(esker_db_open(in(directory, "none"), bad, &db), ESKER_KIND_INVALID_ARGUMENT, "max_space_amp");
  esker_db_options_free(bad);
  MUST(esker_db_close(NULL));
  esker_db_options_free(NULL);
  esker_error_free(NULL);
  esker_value_free(NULL);
}

static void writing(const esker_db *db) {
  esker_value *value;
  char zeroes[300] = {0};
  MUST(esker_db_put(db, 0, NULL, T("a"), T("1")));
  MUST(esker_db_put(db, ESKER_SYNC, NULL, T("long"), esker_bytes(zeroes, sizeof zeroes)));
  MUST(esker_db_put(db, ESKER_DISABLE_WAL, NULL, T("empty"), esker_bytes(NULL, 0)));
  FAILS(esker_db_put(db, 4, NULL, T("a"), T("2")), ESKER_KIND_INVALID_ARGUMENT, "flags are 0x4");
  FAILS(esker_db_put(db, 3, NULL, T("a"), T("2")), ESKER_KIND_INVALID_ARGUMENT, "");
  FAILS(esker_db_put(db, 0, NULL, esker_bytes(NULL, 1), T("2")), ESKER_KIND_INVALID_ARGUMENT, "slice of 1 bytes");
  MUST(esker_db_get(db, NULL, NULL, T("a"), &value));
  HOLDS(was(value, "1"));
  MUST(esker_db_get(db, NULL, NULL, T("empty"), &value));
  HOLDS(was(value, ""));
  MUST(esker_db_get(db, NULL, NULL, T("none"), &value));
  HOLDS(was(value, NULL));
  MUST(esker_db_get(db, NULL, NULL, T("long"), &value));
  HOLDS(esker_value_bytes(value).len == 300 && memcmp(esker_value_bytes(value).data, zeroes, 300) == 0);
  esker_value_free(value);
  MUST(esker_db_get_range(db, NULL, NULL, T("long"), 290, 100, &value));
  HOLDS(esker_value_bytes(value).len == 10);
  esker_value_free(value);
  int64_t len;
  MUST(esker_db_value_len(db, NULL, NULL, T("long"), &len));
  HOLDS(len == 300);
  MUST(esker_db_value_len(db, NULL, NULL, T("none"), &len));
  HOLDS(len == -1);
  bool yes;
  MUST(esker_db_exists(db, NULL, NULL, T("empty"), &yes));
  HOLDS(yes);
  MUST(esker_db_delete(db, 0, NULL, T("empty")));
  MUST(esker_db_exists(db, NULL, NULL, T("empty"), &yes));
  HOLDS(!yes);

  MUST(esker_db_put_if_absent(db, 0, NULL, T("a"), T("2"), &yes));
  HOLDS(!yes);
  MUST(esker_db_put_if_absent(db, 0, NULL, T("b"), T("2"), &yes));
  HOLDS(yes);
  MUST(esker_db_compare_and_set(db, 0, NULL, T("b"), T("3"), T("4"), &yes));
  HOLDS(!yes);
  MUST(esker_db_compare_and_set(db, ESKER_SYNC, NULL, T("b"), T("2"), T("4"), &yes));
  HOLDS(yes);
  MUST(esker_db_compare_and_delete(db, 0, NULL, T("b"), T("2"), &yes));
  HOLDS(!yes);
  MUST(esker_db_compare_and_delete(db, 0, NULL, T("b"), T("4"), &yes));
  HOLDS(yes);
  MUST(esker_db_sync_wal(db));
}

static void families(const esker_db *db) {
  esker_family *family, *again, *all[3];
  esker_value *value;
  esker_db_options *options = esker_db_options_create();
  MUST(esker_db_options_set_family(options, "users", "compression", "zstd"));
  MUST(esker_db_create_family(db, "users", options, &family));
  esker_db_options_free(options);
  FAILS(esker_db_create_family(db, "users", NULL, &again), ESKER_KIND_CONFLICT, "users");
  HOLDS(again == NULL);
  FAILS(esker_db_family(db, "user", &again), ESKER_KIND_NOT_FOUND, "\"user\"");
  MUST(esker_db_family(db, "users", &again));
  HOLDS(is(esker_family_name(again), "users"));

  esker_batch *batch = esker_batch_create();
  MUST(esker_batch_put(batch, family, T("u"), T("1")));
  MUST(esker_batch_put(batch, NULL, T("u"), T("2")));
  MUST(esker_batch_delete(batch, again, T("v")));
  HOLDS(esker_batch_count(batch) == 3);
  MUST(esker_db_write(db, 0, batch));
  // A batch stays as it is.
  MUST(esker_db_write(db, ESKER_SYNC, batch));
  esker_batch_clear(batch);
  HOLDS(esker_batch_count(batch) == 0);
  MUST(esker_db_write(db, 0, batch));
  esker_batch_free(batch);
  MUST(esker_db_get(db, NULL, again, T("u"), &value));
  HOLDS(was(value, "1"));
  MUST(esker_db_get(db, NULL, NULL, T("u"), &value));
  HOLDS(was(value, "2"));

  HOLDS(esker_db_families(db, all, 0) == 2);
  HOLDS(esker_db_families(db, all, 3) == 2);
  HOLDS(is(esker_family_name(all[0]), "default") && is(esker_family_name(all[1]), "users"));
  FAILS(esker_db_drop_family(db, all[0]), ESKER_KIND_INVALID_ARGUMENT, "default");
  MUST(esker_db_set_separation(db, all[1], "off"));
  FAILS(esker_db_set_separation(db, all[1], "no"), ESKER_KIND_INVALID_ARGUMENT, "separation");
  MUST(esker_db_set_option(db, all[1], "level0_slowdown_trigger", "30"));
  FAILS(esker_db_set_option(db, all[1], "level0_stop_trigger", "30"), ESKER_KIND_INVALID_ARGUMENT, "level0_stop_trigger");
  FAILS(esker_db_set_option(db, NULL, "level_count", "3"), ESKER_KIND_INVALID_ARGUMENT, "level_count");
  FAILS(esker_db_set_option(db, NULL, "levels", "3"), ESKER_KIND_INVALID_ARGUMENT, "levels");
  MUST(esker_db_set_db_option(db, "max_disk_bytes", "1GiB"));
  FAILS(esker_db_set_db_option(db, "max_disk_bytes", "1KiB"), ESKER_KIND_INVALID_ARGUMENT, "max_disk_bytes");
  FAILS(esker_db_set_db_option(db, "wal_dir", "/tmp"), ESKER_KIND_INVALID_ARGUMENT, "wal_bytes_max");
  MUST(esker_db_set_db_option(db, "max_disk_bytes", "0"));
  MUST(esker_db_flush(db, all[1]));
  MUST(esker_db_drop_family(db, family));
  FAILS(esker_db_put(db, 0, all[1], T("u"), T("3")), ESKER_KIND_INVALID_ARGUMENT, "");
  esker_family_free(all[0]);
  esker_family_free(all[1]);
  esker_family_free(family);
  esker_family_free(again);
  esker_family_free(NULL);
}

static void many(const esker_db *db) {
  char key[16], text[200];
  for (int n = 0; n < 1000; n++) {
    snprintf(key, sizeof key, "k%04d", n);
    snprintf(text, sizeof text, "%0*d", n % 2 == 0 ? 5 : 150, n);
    MUST(esker_db_put(db, 0, NULL, T(key), T(text)));
  }
  esker_slice keys[3] = {T("k0002"), T("none"), T("k0005")};
  esker_value *values[3];
  esker_error *errors[3];
  MUST(esker_db_multi_get(db, NULL, NULL, keys, 3, values, errors));
  HOLDS(errors[0] == NULL && errors[1] == NULL && errors[2] == NULL);
  HOLDS(was(values[0], "00002") && was(values[1], NULL) && esker_value_bytes(values[2]).len == 150);
  esker_value_free(values[2]);
  MUST(esker_db_multi_get(db, NULL, NULL, keys, 2, values, NULL));
  HOLDS(was(values[0], "00002") && was(values[1], NULL));
  MUST(esker_db_multi_get(db, NULL, NULL, NULL, 0, NULL, NULL));
  keys[1].data = NULL;
  FAILS(esker_db_multi_get(db, NULL, NULL, keys, 3, values, errors), ESKER_KIND_INVALID_ARGUMENT, "slice of 4 bytes");
  HOLDS(values[0] == NULL && values[2] == NULL && errors[1] == NULL);

  esker_snapshot *snapshot = esker_db_snapshot(db);
  esker_read_options *then = esker_read_options_create();
  esker_read_options_set_snapshot(then, snapshot);
  esker_read_options_set_fill_cache(then, false);
  esker_read_options_set_look_ahead_bytes(then, 1 << 16);
  esker_snapshot_free(snapshot);
  MUST(esker_db_put(db, 0, NULL, T("k0002"), T("new")));
  esker_value *value;
  MUST(esker_db_get(db, then, NULL, T("k0002"), &value));
  HOLDS(was(value, "00002"));
  MUST(esker_db_flush(db, NULL));
  MUST(esker_db_get(db, then, NULL, T("k0002"), &value));
  HOLDS(was(value, "00002"));

  esker_slice lower = T("k0100"), upper = T("k0200");
  MUST(esker_read_options_set_bounds(then, &lower, &upper));
  uint64_t count;
  MUST(esker_db_count(db, then, NULL, &count));
  HOLDS(count == 100);
  MUST(esker_read_options_set_bounds(then, &lower, NULL));
  MUST(esker_db_count(db, then, NULL, &count));
  HOLDS(count == 900 + 2);
  MUST(esker_read_options_set_prefix(then, T("k01")));

  esker_iterator *walk;
  esker_slice seen;
  MUST(esker_db_iterator(db, then, NULL, &walk));
  HOLDS(!esker_iterator_valid(walk) && esker_iterator_key(walk).len == 0);
  FAILS(esker_iterator_value(walk, &seen), ESKER_KIND_INVALID_ARGUMENT, "");
  count = 0;
  for (MUST(esker_iterator_seek_to_first(walk)); esker_iterator_valid(walk); count++) {
    snprintf(key, sizeof key, "k%04d", 100 + (int)count);
    HOLDS(is(esker_iterator_key(walk), key));
    MUST(esker_iterator_value(walk, &seen));
    uint64_t len;
    MUST(esker_iterator_value_len(walk, &len));
    HOLDS(seen.len == (count % 2 == 0 ? 5 : 150) && len == seen.len);
    // Asked for again, it is the same.
    esker_slice again;
    MUST(esker_iterator_value(walk, &again));
    HOLDS(again.len == seen.len && memcmp(again.data, seen.data, seen.len) == 0);
    MUST(esker_iterator_next(walk));
  }
  HOLDS(count == 100);
  MUST(esker_iterator_seek_to_last(walk));
  MUST(esker_iterator_prev(walk));
  HOLDS(is(esker_iterator_key(walk), "k0198"));
  MUST(esker_iterator_seek(walk, T("k0150x")));
  HOLDS(is(esker_iterator_key(walk), "k0151"));
  MUST(esker_iterator_seek_for_prev(walk, T("k0150x")));
  HOLDS(is(esker_iterator_key(walk), "k0150"));
  FAILS(esker_iterator_refresh(walk), ESKER_KIND_INVALID_ARGUMENT, "snapshot");
  esker_iterator_free(walk);
  esker_read_options_free(then);

  MUST(esker_db_iterator(db, NULL, NULL, &walk));
  MUST(esker_db_put(db, 0, NULL, T("k0000x"), T("later")));
  MUST(esker_iterator_seek(walk, T("k0000x")));
  HOLDS(is(esker_iterator_key(walk), "k0001"));
  MUST(esker_iterator_refresh(walk));
  MUST(esker_iterator_seek(walk, T("k0000x")));
  MUST(esker_iterator_value(walk, &seen));
  HOLDS(is(seen, "later"));
  esker_iterator_free(walk);
  esker_iterator_free(NULL);
  esker_read_options_free(NULL);
  esker_snapshot_free(NULL);

  esker_iterator *parts[4];
  size_t parts_count;
  MUST(esker_db_split(db, NULL, NULL, 4, parts, &parts_count));
  HOLDS(parts_count >= 1 && parts_count <= 4);
  count = 0;
  for (size_t part = 0; part < parts_count; part++) {
    for (MUST(esker_iterator_seek_to_first(parts[part])); esker_iterator_valid(parts[part]); count++)
      MUST(esker_iterator_next(parts[part]));
    esker_iterator_free(parts[part]);
  }
  // 1,000, "k0000x", "a", "long" and "u".
  HOLDS(count == 1004);
  FAILS(esker_db_split(db, NULL, NULL, 0, parts, &parts_count), ESKER_KIND_INVALID_ARGUMENT, "parts");
}

static void transactions(const esker_db *db) {
  esker_value *value;
  esker_family *family;
  MUST(esker_db_create_family(db, "moved", NULL, &family));
  MUST(esker_db_put(db, 0, NULL, T("from"), T("coin")));
  for (int attempt = 0; attempt < 2; attempt++) {
    esker_transaction *transaction = esker_db_transaction(db);
    MUST(esker_transaction_get(transaction, NULL, T("from"), &value));
    HOLDS(was(value, "coin"));
    MUST(esker_transaction_put(transaction, family, T("to"), T("coin")));
    MUST(esker_transaction_delete(transaction, NULL, T("from")));
    MUST(esker_transaction_get(transaction, NULL, T("from"), &value));
    HOLDS(was(value, NULL));
    MUST(esker_transaction_get(transaction, family, T("to"), &value));
    HOLDS(was(value, "coin"));
    MUST(esker_transaction_delete(transaction, family, T("none")));
    MUST(esker_transaction_put(transaction, NULL, T("count"), T("1")));
    if (attempt == 0) {
      MUST(esker_db_put(db, 0, NULL, T("from"), T("coin")));
      FAILS(esker_transaction_commit(transaction, 0), ESKER_KIND_CONFLICT, "\"from\"");
    } else {
      MUST(esker_transaction_commit(transaction, ESKER_SYNC));
    }
  }
  MUST(esker_db_get(db, NULL, NULL, T("from"), &value));
  HOLDS(was(value, NULL));
  MUST(esker_db_get(db, NULL, family, T("to"), &value));
  HOLDS(was(value, "coin"));
  MUST(esker_db_delete(db, 0, NULL, T("count")));
  esker_transaction *dropped = esker_db_transaction(db);
  FAILS(esker_transaction_put(dropped, NULL, esker_bytes(NULL, 1), T("")), ESKER_KIND_INVALID_ARGUMENT, "slice");
  MUST(esker_transaction_put(dropped, NULL, T("never"), T("1")));
  esker_transaction_free(dropped);
  esker_transaction_free(NULL);
  FAILS(esker_transaction_commit(esker_db_transaction(db), 8), ESKER_KIND_INVALID_ARGUMENT, "flags");

  esker_transaction *holder = esker_db_locking_transaction(db, 0);
  esker_transaction *other = esker_db_locking_transaction(db, 0);
  MUST(esker_transaction_get_for_update(holder, NULL, T("held"), &value));
  HOLDS(was(value, NULL));
  FAILS(esker_transaction_get(other, NULL, T("held"), &value), ESKER_KIND_BUSY, "\"held\"");
  MUST(esker_transaction_get(other, NULL, T("free"), &value));
  HOLDS(was(value, NULL));
  FAILS(esker_transaction_pop_save_point(holder), ESKER_KIND_NOT_FOUND, "save point");
  MUST(esker_transaction_put(holder, NULL, T("held"), T("1")));
  esker_transaction_set_save_point(holder);
  MUST(esker_transaction_put(holder, NULL, T("held"), T("2")));
  esker_transaction_set_save_point(holder);
  MUST(esker_transaction_pop_save_point(holder));
  MUST(esker_transaction_rollback_to_save_point(holder));
  MUST(esker_transaction_get(holder, NULL, T("held"), &value));
  HOLDS(was(value, "1"));
  MUST(esker_transaction_commit(holder, 0));
  MUST(esker_transaction_get_for_update(other, NULL, T("held"), &value));
  HOLDS(was(value, "1"));
  esker_transaction_free(other);

  esker_batch *batch = esker_batch_create();
  MUST(esker_batch_put(batch, NULL, T("held"), T("3")));
  esker_batch_set_save_point(batch);
  MUST(esker_batch_delete(batch, NULL, T("held")));
  esker_batch_set_save_point(batch);
  MUST(esker_batch_pop_save_point(batch));
  MUST(esker_batch_rollback_to_save_point(batch));
  FAILS(esker_batch_rollback_to_save_point(batch), ESKER_KIND_NOT_FOUND, "save point");
  MUST(esker_db_write(db, 0, batch));
  MUST(esker_db_get(db, NULL, NULL, T("held"), &value));
  HOLDS(was(value, "3"));
  MUST(esker_db_delete(db, 0, NULL, T("held")));
  esker_batch_free(batch);
  MUST(esker_db_get(db, NULL, NULL, T("never"), &value));
  HOLDS(was(value, NULL));
  MUST(esker_db_drop_family(db, family));
  esker_family_free(family);
}

static void all_of_it(const esker_db *db) {
  esker_value *value;
  esker_slice begin = T("k0000"), end = T("k0999");
  MUST(esker_db_compact_range(db, NULL, &begin, &end));
  MUST(esker_db_compact_range(db, NULL, NULL, NULL));
  MUST(esker_db_wait_for_compact(db));
  MUST(esker_db_reclaim(db, NULL, 0.5));
  FAILS(esker_db_reclaim(db, NULL, 2.0), ESKER_KIND_INVALID_ARGUMENT, "");
  MUST(esker_db_property(db, NULL, "rocksdb.estimate-num-keys", &value));
  HOLDS(was(value, "1004"));
  MUST(esker_db_property(db, NULL, "rocksdb.no-such", &value));
  HOLDS(was(value, NULL));
  MUST(esker_db_checkpoint(db, in(directory, "checkpoint")));
  FAILS(esker_db_checkpoint(db, in(directory, "checkpoint")), ESKER_KIND_INVALID_ARGUMENT, "checkpoint");
  MUST(esker_db_backup(db, in(directory, "backup")));
  MUST(esker_db_put(db, 0, NULL, T("a"), T("after")));
  MUST(esker_db_backup(db, in(directory, "backup")));
  uint64_t dropped;
  MUST(esker_db_delete_files_in_range(db, NULL, NULL, NULL, &dropped));
  HOLDS(dropped > 0);

  esker_db *copy, *other;
  MUST(esker_db_open(in(directory, "backup"), NULL, &copy));
  FAILS(esker_db_open(in(directory, "backup"), NULL, &other), ESKER_KIND_BUSY, "backup");
  MUST(esker_db_open_read_only(in(directory, "checkpoint"), NULL, &other));
  MUST(esker_db_get(copy, NULL, NULL, T("a"), &value));
  HOLDS(was(value, "after"));
  MUST(esker_db_get(other, NULL, NULL, T("a"), &value));
  HOLDS(was(value, "1"));
  FAILS(esker_db_put(other, 0, NULL, T("a"), T("2")), ESKER_KIND_READ_ONLY, "");
  esker_db *writer, *now;
  MUST(esker_db_open(in(directory, "checkpoint"), NULL, &writer));
  MUST(esker_db_put(writer, 0, NULL, T("a"), T("2")));
  FAILS(esker_db_catch_up(writer, &now), ESKER_KIND_INVALID_ARGUMENT, "writing");
  MUST(esker_db_catch_up(other, &now));
  MUST(esker_db_get(now, NULL, NULL, T("a"), &value));
  HOLDS(was(value, "2"));
  MUST(esker_db_get(other, NULL, NULL, T("a"), &value));
  HOLDS(was(value, "1"));
  MUST(esker_db_close(writer));
  MUST(esker_db_close(now));
  // What is left of a store that was closed is told so, and may be freed later.
  esker_iterator *walk;
  MUST(esker_db_iterator(copy, NULL, NULL, &walk));
  MUST(esker_db_get(copy, NULL, NULL, T("k0001"), &value));
  MUST(esker_db_close(copy));
  FAILS(esker_iterator_refresh(walk), ESKER_KIND_CLOSED, "closed");
  HOLDS(esker_value_bytes(value).len == 150);
  esker_value_free(value);
  esker_iterator_free(walk);
  MUST(esker_db_close(other));
  MUST(esker_db_repair(in(directory, "backup"), NULL));
  FAILS(esker_db_repair(in(directory, "none"), NULL), ESKER_KIND_NOT_FOUND, "none");
}

// Keeps the longest, and counts how often it was asked and freed.
struct longest {
  int asked;
  int freed;
};

static bool keep_longest(void *state, esker_slice key, const esker_slice *existing, const esker_slice *operands, size_t count,
                         esker_merged *merged) {
  esker_slice longest = existing == NULL ? operands[0] : *existing;
  ((struct longest *)state)->asked++;
  for (size_t n = 0; n < count; n++) {
    if (operands[n].len > longest.len) longest = operands[n];
  }
  return !is(key, "refused") && esker_merged_append(merged, longest);
}

static void count_freed(void *state) {
  ((struct longest *)state)->freed++;
}

static void merges(void) {
  esker_value *value;
  esker_family *lists;
  esker_db *db;
  struct longest state = {0, 0}, none = {0, 0};
  esker_db_options *created = options();
  MUST(esker_db_options_add_merge_operator(created, "longest", &state, keep_longest, keep_longest, count_freed));
  FAILS(esker_db_options_add_merge_operator(created, "none", &none, NULL, NULL, count_freed), ESKER_KIND_INVALID_ARGUMENT, "function");
  FAILS(esker_db_options_add_merge_operator(created, NULL, &none, keep_longest, NULL, count_freed), ESKER_KIND_INVALID_ARGUMENT, "NULL");
  HOLDS(none.freed == 2);
  FAILS(esker_db_options_set_family(created, "default", "merge_operator", "longer"), ESKER_KIND_INVALID_ARGUMENT, "uint64add");
  MUST(esker_db_options_set_family(created, "default", "merge_operator", "longest"));
  MUST(esker_db_options_set_family(created, "lists", "merge_operator", "{id=StringAppendOperator;delimiter=/;}"));
  MUST(esker_db_options_set(created, "create_missing_column_families", "true"));
  MUST(esker_db_open(in(directory, "merges"), created, &db));
  MUST(esker_db_family(db, "lists", &lists));
  MUST(esker_db_merge(db, 0, lists, T("list"), T("a")));
  MUST(esker_db_merge(db, ESKER_SYNC, lists, T("list"), T("b")));
  MUST(esker_db_get(db, NULL, lists, T("list"), &value));
  HOLDS(was(value, "a/b"));

  esker_batch *batch = esker_batch_create();
  MUST(esker_batch_merge(batch, NULL, T("word"), T("esker")));
  MUST(esker_batch_merge(batch, lists, T("list"), T("c")));
  MUST(esker_db_write(db, 0, batch));
  esker_batch_free(batch);
  MUST(esker_db_merge(db, 0, NULL, T("word"), T("os")));
  MUST(esker_db_merge(db, 0, NULL, T("refused"), T("os")));
  MUST(esker_db_get(db, NULL, NULL, T("word"), &value));
  HOLDS(was(value, "esker"));
  HOLDS(state.asked > 0);
  FAILS(esker_db_get(db, NULL, NULL, T("refused"), &value), ESKER_KIND_CORRUPTION, "longest");

  esker_transaction *transaction = esker_db_transaction(db);
  MUST(esker_transaction_merge(transaction, NULL, T("word"), T("eskers")));
  MUST(esker_transaction_merge(transaction, lists, T("list"), T("d")));
  MUST(esker_transaction_get(transaction, lists, T("list"), &value));
  HOLDS(was(value, "a/b/c/d"));
  MUST(esker_transaction_commit(transaction, 0));
  MUST(esker_db_compact_range(db, NULL, NULL, NULL));
  MUST(esker_db_get(db, NULL, NULL, T("word"), &value));
  HOLDS(was(value, "eskers"));
  esker_family_free(lists);
  MUST(esker_db_close(db));
  HOLDS(state.freed == 0);
  esker_db_options_free(created);
  HOLDS(state.freed == 1);
}

// Short keys before long ones, or the other way round.
static int by_length(void *sign, esker_slice a, esker_slice b) {
  int order = a.len != b.len ? (a.len < b.len ? -1 : 1) : memcmp(a.data, b.data, a.len);
  return *(const int *)sign * order;
}

static void orders(void) {
  // For as long as the process runs.
  static int sign = 1;
  esker_db *db;
  esker_value *value;
  esker_family *family;
  esker_iterator *walk;
  esker_db_options *created = options();
  FAILS(esker_db_options_add_comparator(created, "none", NULL, NULL), ESKER_KIND_INVALID_ARGUMENT, "function");
  FAILS(esker_db_options_set_family(created, "default", "comparator", "by_length"), ESKER_KIND_INVALID_ARGUMENT, "ReverseBytewise");
  MUST(esker_db_options_add_comparator(created, "by_length", &sign, by_length));
  MUST(esker_db_options_set_family(created, "default", "comparator", "by_length"));
  MUST(esker_db_open(in(directory, "orders"), created, &db));
  const char *all[] = {"ccc", "a", "bb", "zz", "d"}, *sorted[] = {"a", "d", "bb", "zz", "ccc"};
  for (size_t n = 0; n < 5; n++) MUST(esker_db_put(db, 0, NULL, T(all[n]), T("v")));
  MUST(esker_db_flush(db, NULL));
  MUST(esker_db_iterator(db, NULL, NULL, &walk));
  size_t count = 0;
  for (MUST(esker_iterator_seek_to_first(walk)); esker_iterator_valid(walk); count++) {
    HOLDS(is(esker_iterator_key(walk), sorted[count]));
    MUST(esker_iterator_next(walk));
  }
  HOLDS(count == 5);
  esker_iterator_free(walk);
  MUST(esker_db_delete_range(db, 0, NULL, T("b"), T("aa")));
  FAILS(esker_db_delete_range(db, 0, NULL, T("aa"), T("z")), ESKER_KIND_INVALID_ARGUMENT, "by_length");
  esker_read_options *prefixed = esker_read_options_create();
  MUST(esker_read_options_set_prefix(prefixed, T("z")));
  FAILS(esker_db_iterator(db, prefixed, NULL, &walk), ESKER_KIND_INVALID_ARGUMENT, "by_length");
  esker_read_options_free(prefixed);
  MUST(esker_db_close(db));
  FAILS(esker_db_open(in(directory, "orders"), NULL, &db), ESKER_KIND_UNSUPPORTED_FORMAT, "by_length");

  // Those that know it need not say again whose it is.
  esker_db_options *known = esker_db_options_create();
  MUST(esker_db_options_add_comparator(known, "by_length", &sign, by_length));
  MUST(esker_db_open(in(directory, "orders"), known, &db));
  MUST(esker_db_get(db, NULL, NULL, T("zz"), &value));
  HOLDS(was(value, "v"));
  esker_db_options *reversed = esker_db_options_create();
  MUST(esker_db_options_set_family(reversed, "backward", "comparator", "rocksdb.ReverseBytewiseComparator"));
  MUST(esker_db_create_family(db, "backward", reversed, &family));
  MUST(esker_db_put(db, 0, family, T("a"), T("1")));
  MUST(esker_db_put(db, 0, family, T("b"), T("2")));
  MUST(esker_db_iterator(db, NULL, family, &walk));
  MUST(esker_iterator_seek_to_first(walk));
  HOLDS(is(esker_iterator_key(walk), "b"));
  esker_iterator_free(walk);
  esker_family_free(family);
  MUST(esker_db_close(db));
  esker_db_options_free(reversed);
  esker_db_options_free(known);
  esker_db_options_free(created);
}

// How many keys a family, or all of the default one, has.
static uint64_t keys(const esker_db *db, const esker_family *family) {
  uint64_t count;
  MUST(esker_db_count(db, NULL, family, &count));
  return count;
}

static void deletions(void) {
  esker_value *value;
  esker_family *family;
  esker_db *db;
  esker_db_options *created = options();
  MUST(esker_db_open(in(directory, "deletions"), created, &db));
  esker_db_options_free(created);
  MUST(esker_db_create_family(db, "others", NULL, &family));
  const char *all[] = {"a", "b", "c", "d", "e"};
  for (size_t n = 0; n < 5; n++) {
    MUST(esker_db_put(db, 0, NULL, T(all[n]), T("1")));
    MUST(esker_db_put(db, 0, family, T(all[n]), T("1")));
  }
  esker_snapshot *before = esker_db_snapshot(db);

  MUST(esker_db_delete_range(db, 0, NULL, T("b"), T("d")));
  HOLDS(keys(db, NULL) == 3);
  HOLDS(keys(db, family) == 5);
  MUST(esker_db_get(db, NULL, NULL, T("c"), &value));
  HOLDS(was(value, NULL));
  // The end stays.
  MUST(esker_db_get(db, NULL, NULL, T("d"), &value));
  HOLDS(was(value, "1"));
  MUST(esker_db_put(db, 0, NULL, T("c"), T("2")));
  MUST(esker_db_get(db, NULL, NULL, T("c"), &value));
  HOLDS(was(value, "2"));
  MUST(esker_db_delete_range(db, ESKER_SYNC, family, T("d"), T("z")));
  HOLDS(keys(db, family) == 3);
  // A range of nothing is none; one that ends before it begins is an error.
  MUST(esker_db_delete_range(db, 0, NULL, T("a"), T("a")));
  HOLDS(keys(db, NULL) == 4);
  FAILS(esker_db_delete_range(db, 0, NULL, T("b"), T("a")), ESKER_KIND_INVALID_ARGUMENT, "range");
  FAILS(esker_db_delete_range(db, 64, NULL, T("a"), T("b")), ESKER_KIND_INVALID_ARGUMENT, "flags");

  MUST(esker_db_single_delete(db, ESKER_SYNC, NULL, T("a")));
  HOLDS(keys(db, NULL) == 3);
  MUST(esker_db_single_delete(db, 0, family, T("none")));
  FAILS(esker_db_single_delete(db, 64, NULL, T("d")), ESKER_KIND_INVALID_ARGUMENT, "flags");

  esker_batch *batch = esker_batch_create();
  MUST(esker_batch_put(batch, NULL, T("cc"), T("3")));
  MUST(esker_batch_delete_range(batch, NULL, T("c"), T("d")));
  MUST(esker_batch_put(batch, NULL, T("cd"), T("3")));
  MUST(esker_batch_delete_range(batch, family, T("a"), T("b")));
  MUST(esker_batch_single_delete(batch, NULL, T("e")));
  MUST(esker_batch_single_delete(batch, family, T("b")));
  FAILS(esker_batch_delete_range(batch, NULL, T("b"), T("a")), ESKER_KIND_INVALID_ARGUMENT, "range");
  HOLDS(esker_batch_count(batch) == 6);
  MUST(esker_db_write(db, 0, batch));
  esker_batch_free(batch);
  // cd and d; c.
  HOLDS(keys(db, NULL) == 2);
  HOLDS(keys(db, family) == 1);

  MUST(esker_db_flush(db, NULL));
  MUST(esker_db_compact_range(db, NULL, NULL, NULL));
  HOLDS(keys(db, NULL) == 2);
  esker_read_options *reading = esker_read_options_create();
  esker_read_options_set_snapshot(reading, before);
  MUST(esker_db_get(db, reading, NULL, T("b"), &value));
  HOLDS(was(value, "1"));
  esker_read_options_free(reading);
  esker_snapshot_free(before);
  esker_family_free(family);
  MUST(esker_db_close(db));
}

static void sharing(void) {
  esker_cache *cache;
  esker_value *value;
  FAILS(esker_cache_create(UINT64_MAX, &cache), ESKER_KIND_INVALID_ARGUMENT, "cache_bytes");
  FAILS(esker_cache_create_within_limit(1, &cache), ESKER_KIND_INVALID_ARGUMENT, "memory_limit");
  MUST(esker_cache_create(8 << 20, &cache));
  esker_cache_free(cache);
  MUST(esker_cache_create_within_limit(64 << 20, &cache));
  esker_db_options *created = options();
  FAILS(esker_cache_set_bytes(cache, 1), ESKER_KIND_INVALID_ARGUMENT, "memory_limit");
  MUST(esker_cache_set_bytes(cache, 32 << 20));
  esker_db_options_set_cache(created, cache);
  esker_db *stores[2];
  const char *names[] = {"first of two", "second of two"};
  for (int n = 0; n < 2; n++) {
    MUST(esker_db_open(in(directory, names[n]), created, &stores[n]));
    MUST(esker_db_put(stores[n], 0, NULL, T("name"), T(names[n])));
    MUST(esker_db_flush(stores[n], NULL));
  }
  esker_db_options_free(created);
  esker_cache_free(cache);
  esker_cache_free(NULL);
  for (int n = 0; n < 2; n++) {
    MUST(esker_db_get(stores[n], NULL, NULL, T("name"), &value));
    HOLDS(was(value, names[n]));
  }
  MUST(esker_db_close(stores[0]));
  MUST(esker_db_close(stores[1]));
}

static unsigned freed_filters;

static void count_filter(void *state) {
  HOLDS(state == &freed_filters);
  freed_filters++;
}

// By the key: keeps, removes, changes, changes into what is too long, or answers what means nothing.
static uint32_t decide(void *state, const esker_filter_candidate *candidate, esker_merged *changed) {
  HOLDS(state == &freed_filters);
  esker_slice value;
  switch (esker_filter_candidate_key(candidate).data[0]) {
    case 'r':
      return ESKER_REMOVE;
    case 'c':
      MUST(esker_filter_candidate_value(candidate, &value));
      HOLDS(is(value, "value") && esker_filter_candidate_unix_seconds(candidate) > 1600000000);
      return esker_merged_append(changed, T("new")) ? ESKER_CHANGE : ESKER_KEEP;
    case 'l':
      return esker_merged_append(changed, T("too long")) ? ESKER_CHANGE : ESKER_KEEP;
    case 'u':
      return 9;
    default:
      return ESKER_KEEP;
  }
}

static void filters(void) {
  esker_db *db;
  esker_db_options *filtered = options();
  FAILS(esker_db_options_set_compaction_filter(filtered, "default", &freed_filters, NULL, count_filter), ESKER_KIND_INVALID_ARGUMENT, "function");
  FAILS(esker_db_options_set_compaction_filter(filtered, NULL, &freed_filters, decide, count_filter), ESKER_KIND_INVALID_ARGUMENT, "NULL");
  HOLDS(freed_filters == 2);
  MUST(esker_db_options_set_compaction_filter(filtered, "default", &freed_filters, decide, count_filter));
  MUST(esker_db_open(in(directory, "filters"), filtered, &db));
  const char *keys[] = {"changed", "kept", "long", "removed", "unknown"};
  const char *left[] = {"new", "value", "value", NULL, "value"};
  for (size_t at = 0; at < 5; at++) {
    MUST(esker_db_put(db, 0, NULL, T(keys[at]), T("value")));
  }
  MUST(esker_db_compact_range(db, NULL, NULL, NULL));
  for (size_t at = 0; at < 5; at++) {
    esker_value *value;
    MUST(esker_db_get(db, NULL, NULL, T(keys[at]), &value));
    HOLDS(was(value, left[at]));
  }
  MUST(esker_db_close(db));
  HOLDS(freed_filters == 2);
  esker_db_options_free(filtered);
  HOLDS(freed_filters == 3);
}

int main(int argc, char **argv) {
  HOLDS(argc == 2);
  directory = argv[1];
  opening();
  esker_db_options *created = options();
  esker_db *db;
  MUST(esker_db_open(in(directory, "db"), created, &db));
  writing(db);
  families(db);
  many(db);
  transactions(db);
  all_of_it(db);
  MUST(esker_db_close(db));
  merges();
  filters();
  orders();
  deletions();
  sharing();

  // What the store's own file says of its options.
  esker_db_options *kept;
  MUST(esker_db_options_of_store(in(directory, "none"), &kept));
  esker_db_options_free(kept);
  FAILS(esker_db_options_of_store(NULL, &kept), ESKER_KIND_INVALID_ARGUMENT, "NULL");
  HOLDS(kept == NULL);
  MUST(esker_db_options_of_store(in(directory, "db"), &kept));
  MUST(esker_db_options_set(kept, "error_if_exists", "true"));
  FAILS(esker_db_open(in(directory, "db"), kept, &db), ESKER_KIND_CONFLICT, "db");
  MUST(esker_db_options_set(kept, "error_if_exists", "false"));
  MUST(esker_db_open(in(directory, "db"), kept, &db));
  MUST(esker_db_close(db));
  esker_db_options_free(kept);
  esker_db_options_free(created);
  puts("done");
  return 0;
}

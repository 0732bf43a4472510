// A tour of the three engines:
//
//   cargo build --release -p esker-c
//   cc crates/c/examples/tour.c -Icrates/c/include -Ltarget/release -lesker_c -Wl,-rpath,"$PWD/target/release" -o tour
//   ./tour DIRECTORY

#include <esker.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// Ends the program if a call failed.
static void must(esker_error *error) {
  if (error != NULL) {
    fprintf(stderr, "%s\n", esker_error_message(error));
    esker_error_free(error);
    exit(1);
  }
}

static void print(const char *what, esker_slice bytes) {
  printf("%s%.*s\n", what, (int)bytes.len, (const char *)bytes.data);
}

// An ordered store, which RocksDB opens as well.
static void ordered(const char *path) {
  esker_db_options *options = esker_db_options_create();
  must(esker_db_options_set(options, "create_if_missing", "true"));
  must(esker_db_options_set(options, "cache_bytes", "64MiB"));
  must(esker_db_options_set_family(options, "default", "min_blob_size", "1KiB"));
  esker_db *db;
  must(esker_db_open(path, options, &db));
  esker_db_options_free(options);

  must(esker_db_put(db, ESKER_SYNC, NULL, esker_text("berlin"), esker_text("3.7 million")));

  esker_batch *batch = esker_batch_create();
  must(esker_batch_put(batch, NULL, esker_text("bern"), esker_text("0.1 million")));
  must(esker_batch_put(batch, NULL, esker_text("bonn"), esker_text("0.3 million")));
  must(esker_batch_delete(batch, NULL, esker_text("basel")));
  must(esker_db_write(db, 0, batch));
  esker_batch_free(batch);

  esker_value *value;
  must(esker_db_get(db, NULL, NULL, esker_text("bern"), &value));
  if (value != NULL) {
    print("bern: ", esker_value_bytes(value));
    esker_value_free(value);
  }

  esker_read_options *reading = esker_read_options_create();
  must(esker_read_options_set_prefix(reading, esker_text("be")));
  esker_iterator *iterator;
  must(esker_db_iterator(db, reading, NULL, &iterator));
  must(esker_iterator_seek_to_first(iterator));
  while (esker_iterator_valid(iterator)) {
    print("be...: ", esker_iterator_key(iterator));
    must(esker_iterator_next(iterator));
  }
  esker_iterator_free(iterator);
  esker_read_options_free(reading);

  must(esker_db_close(db));
}

// A hash store, whose values may expire.
static void hashed(const char *path) {
  esker_cask *cask;
  esker_cask_options *options = esker_cask_options_create();
  must(esker_cask_options_set(options, "create_if_missing", "true"));
  must(esker_cask_open(path, options, &cask));
  esker_cask_options_free(options);

  must(esker_cask_put(cask, 0, esker_text("session"), esker_text("42"), 3600));
  bool was_absent;
  must(esker_cask_put_if_absent(cask, 0, esker_text("session"), esker_text("43"), 0, &was_absent));
  printf("session was %s\n", was_absent ? "absent" : "there");

  must(esker_cask_close(cask));
}

static bool show(void *context, uint64_t index, esker_slice entry) {
  (void)context;
  printf("entry %" PRIu64 ": ", index);
  print("", entry);
  return true;
}

// One log for any number of Raft groups.
static void logged(const char *path) {
  esker_raft_log *log;
  must(esker_raft_log_open(path, NULL, &log));

  esker_raft_batch *batch = esker_raft_batch_create();
  esker_slice entries[] = {esker_text("put a"), esker_text("put b")};
  must(esker_raft_batch_add_entries(batch, 7, 1, entries, 2));
  must(esker_raft_batch_put(batch, 7, esker_text("vote"), esker_text("3")));
  must(esker_raft_log_write(log, ESKER_SYNC, batch));
  esker_raft_batch_free(batch);

  uint64_t count;
  must(esker_raft_log_for_each_entry(log, 7, 1, 3, show, NULL, &count));

  must(esker_raft_log_close(log));
}

static void path_of(char *path, size_t room, const char *directory, const char *name) {
  if (snprintf(path, room, "%s/%s", directory, name) >= (int)room) {
    fprintf(stderr, "%s is too long a path\n", directory);
    exit(1);
  }
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  char path[4096];
  path_of(path, sizeof path, argv[1], "db");
  ordered(path);
  path_of(path, sizeof path, argv[1], "cask");
  hashed(path);
  path_of(path, sizeof path, argv[1], "log");
  logged(path);
  return 0;
}

#include "must.h"

// How many entries it is still to see, and what it has seen.
struct seen {
  int left;
  uint64_t sum;
};

static bool entry(void *context, uint64_t index, esker_slice entry) {
  struct seen *seen = context;
  HOLDS(entry.len == 1 && (uint64_t)(entry.data[0] - '0') == index);
  seen->sum += index;
  return --seen->left > 0;
}

static bool key(void *context, esker_slice key, esker_slice value) {
  struct seen *seen = context;
  HOLDS(key.len == 1 && value.len == 1 && key.data[0] == value.data[0]);
  seen->sum++;
  return --seen->left > 0;
}

int main(int argc, char **argv) {
  HOLDS(argc == 2);
  esker_raft_log *log, *other;
  esker_raft_log_options *options = esker_raft_log_options_create();
  MUST(esker_raft_log_options_set(options, "create_if_missing", "false"));
  FAILS(esker_raft_log_open(in(argv[1], "log"), options, &log), ESKER_KIND_NOT_FOUND, "log");
  HOLDS(log == NULL);
  FAILS(esker_raft_log_options_set(options, "format_version", "3"), ESKER_KIND_INVALID_ARGUMENT, "one of 1 2");
  MUST(esker_raft_log_options_set(options, "create_if_missing", "true"));
  MUST(esker_raft_log_options_set(options, "file_bytes", "64KiB"));
  MUST(esker_raft_log_open(in(argv[1], "log"), options, &log));
  FAILS(esker_raft_log_open(in(argv[1], "log"), options, &other), ESKER_KIND_BUSY, "log");
  esker_raft_log_options_free(options);
  esker_raft_log_options_free(NULL);

  esker_raft_batch *batch = esker_raft_batch_create();
  esker_slice entries[] = {T("1"), T("2"), T("3"), T("4")};
  MUST(esker_raft_batch_add_entries(batch, 7, 1, entries, 4));
  MUST(esker_raft_batch_put(batch, 7, T("v"), T("v")));
  MUST(esker_raft_batch_put(batch, 7, T("w"), T("w")));
  MUST(esker_raft_batch_put(batch, 7, T("x"), T("y")));
  MUST(esker_raft_batch_delete(batch, 7, T("x")));
  MUST(esker_raft_batch_put(batch, 9, T("x"), T("x")));
  FAILS(esker_raft_log_write(log, ESKER_DISABLE_WAL, batch), ESKER_KIND_INVALID_ARGUMENT, "flags");
  MUST(esker_raft_log_write(log, ESKER_SYNC, batch));
  // A gap is refused, and leaves the batch as it was.
  MUST(esker_raft_batch_add_entries(batch, 7, 9, entries, 1));
  FAILS(esker_raft_log_write(log, 0, batch), ESKER_KIND_INVALID_ARGUMENT, "7");
  FAILS(esker_raft_log_write(log, 0, batch), ESKER_KIND_INVALID_ARGUMENT, "7");
  esker_raft_batch_clear(batch);
  FAILS(esker_raft_batch_add_entries(batch, 7, 5, NULL, 2), ESKER_KIND_INVALID_ARGUMENT, "2 items");
  MUST(esker_raft_log_write(log, 0, batch));
  MUST(esker_raft_log_sync(log));

  esker_value *value;
  MUST(esker_raft_log_entry(log, 7, 3, &value));
  HOLDS(was(value, "3"));
  MUST(esker_raft_log_entry(log, 7, 5, &value));
  HOLDS(was(value, NULL));
  MUST(esker_raft_log_get(log, 7, T("v"), &value));
  HOLDS(was(value, "v"));
  MUST(esker_raft_log_get(log, 7, T("x"), &value));
  HOLDS(was(value, NULL));

  uint64_t count, index;
  struct seen seen = {10, 0};
  MUST(esker_raft_log_for_each_entry(log, 7, 1, 5, entry, &seen, &count));
  HOLDS(count == 4 && seen.sum == 10);
  seen = (struct seen){2, 0};
  MUST(esker_raft_log_for_each_entry(log, 7, 1, 5, entry, &seen, &count));
  HOLDS(count == 2 && seen.sum == 3);
  FAILS(esker_raft_log_for_each_entry(log, 7, 1, 6, entry, &seen, &count), ESKER_KIND_NOT_FOUND, "7");
  HOLDS(count == 0);
  seen = (struct seen){10, 0};
  MUST(esker_raft_log_for_each_key(log, 7, NULL, NULL, key, &seen));
  HOLDS(seen.sum == 2);
  esker_slice from = T("w");
  seen = (struct seen){10, 0};
  MUST(esker_raft_log_for_each_key(log, 7, &from, NULL, key, &seen));
  HOLDS(seen.sum == 1);
  seen = (struct seen){1, 0};
  MUST(esker_raft_log_for_each_key(log, 7, NULL, NULL, key, &seen));
  HOLDS(seen.sum == 1);

  uint64_t groups[4];
  HOLDS(esker_raft_log_groups(log, groups, 1) == 2 && groups[0] == 7);
  HOLDS(esker_raft_log_groups(log, groups, 4) == 2 && groups[1] == 9);
  HOLDS(esker_raft_log_first_index(log, 7, &index) && index == 1);
  HOLDS(esker_raft_log_last_index(log, 7, &index) && index == 4);
  HOLDS(!esker_raft_log_first_index(log, 9, &index) && index == 0);
  HOLDS(!esker_raft_log_last_index(log, 8, &index));
  MUST(esker_raft_log_compact_to(log, 7, 3, &count));
  HOLDS(count == 2);
  esker_raft_batch_compact(batch, 7, 4);
  esker_raft_batch_clean(batch, 9);
  MUST(esker_raft_log_write(log, 0, batch));
  esker_raft_batch_free(batch);
  esker_raft_batch_free(NULL);
  HOLDS(esker_raft_log_first_index(log, 7, &index) && index == 4);
  size_t to_compact;
  MUST(esker_raft_log_purge(log, groups, 4, &to_compact));
  HOLDS(to_compact == 0);
  MUST(esker_raft_log_fork(log, in(argv[1], "fork")));
  FAILS(esker_raft_log_fork(log, in(argv[1], "fork")), ESKER_KIND_INVALID_ARGUMENT, "fork");
  MUST(esker_raft_log_close(log));
  MUST(esker_raft_log_close(NULL));

  MUST(esker_raft_log_open(in(argv[1], "fork"), NULL, &log));
  HOLDS(esker_raft_log_groups(log, groups, 4) == 1);
  MUST(esker_raft_log_entry(log, 7, 4, &value));
  HOLDS(was(value, "4"));
  MUST(esker_raft_log_close(log));
  puts("done");
  return 0;
}

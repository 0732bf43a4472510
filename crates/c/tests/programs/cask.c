#include "must.h"

int main(int argc, char **argv) {
  HOLDS(argc == 2);
  esker_cask *cask, *other;
  FAILS(esker_cask_open(in(argv[1], "cask"), NULL, &cask), ESKER_KIND_NOT_FOUND, "cask");
  HOLDS(cask == NULL);
  esker_cask_options *options = esker_cask_options_create();
  MUST(esker_cask_options_set(options, "create_if_missing", "true"));
  FAILS(esker_cask_options_set(options, "stripe", "1"), ESKER_KIND_INVALID_ARGUMENT, "there are create_if_missing");
  MUST(esker_cask_options_set(options, "default_ttl", "86400"));
  MUST(esker_cask_open(in(argv[1], "cask"), options, &cask));
  FAILS(esker_cask_open(in(argv[1], "cask"), options, &other), ESKER_KIND_BUSY, "cask");
  esker_cask_options_free(options);
  esker_cask_options_free(NULL);

  esker_value *value;
  MUST(esker_cask_put(cask, 0, T("a"), T("1"), 0));
  MUST(esker_cask_put(cask, ESKER_SYNC, T("b"), T("2"), 100));
  FAILS(esker_cask_put(cask, ESKER_DISABLE_WAL, T("b"), T("3"), 0), ESKER_KIND_INVALID_ARGUMENT, "flags are 0x2");
  FAILS(esker_cask_put(cask, 0, T("b"), T("3"), UINT64_MAX), ESKER_KIND_INVALID_ARGUMENT, "100 years");
  FAILS(esker_cask_put(cask, 0, esker_bytes(NULL, 7), T("3"), 0), ESKER_KIND_INVALID_ARGUMENT, "slice of 7 bytes");
  MUST(esker_cask_get(cask, T("a"), &value));
  HOLDS(was(value, "1"));
  MUST(esker_cask_get(cask, T("none"), &value));
  HOLDS(was(value, NULL));
  bool yes;
  MUST(esker_cask_exists(cask, T("b"), &yes));
  HOLDS(yes);
  int64_t len;
  MUST(esker_cask_value_len(cask, T("b"), &len));
  HOLDS(len == 1);
  MUST(esker_cask_value_len(cask, T("none"), &len));
  HOLDS(len == -1);
  MUST(esker_cask_put_if_absent(cask, 0, T("a"), T("9"), 0, &yes));
  HOLDS(!yes);
  MUST(esker_cask_put_if_absent(cask, 0, T("c"), T("3"), 5, &yes));
  HOLDS(yes);

  esker_slice three = T("3"), four = T("4");
  MUST(esker_cask_compare_and_set(cask, 0, T("c"), &four, &three, &yes));
  HOLDS(!yes);
  MUST(esker_cask_compare_and_set(cask, 0, T("c"), &three, &four, &yes));
  HOLDS(yes);
  MUST(esker_cask_compare_and_set(cask, 0, T("c"), &four, NULL, &yes));
  HOLDS(yes);
  MUST(esker_cask_compare_and_set(cask, 0, T("c"), NULL, &three, &yes));
  HOLDS(yes);
  MUST(esker_cask_delete(cask, 0, T("c"), &yes));
  HOLDS(yes);
  MUST(esker_cask_delete(cask, 0, T("c"), &yes));
  HOLDS(!yes);

  esker_cask_batch *batch = esker_cask_batch_create();
  MUST(esker_cask_batch_put(batch, T("d"), T("4"), 0));
  MUST(esker_cask_batch_put(batch, T("e"), T("5"), 60));
  MUST(esker_cask_batch_delete(batch, T("b")));
  MUST(esker_cask_write(cask, 0, batch));
  MUST(esker_cask_write(cask, ESKER_SYNC, batch));
  esker_cask_batch_clear(batch);
  MUST(esker_cask_write(cask, 0, batch));
  esker_cask_batch_free(batch);
  esker_cask_batch_free(NULL);
  MUST(esker_cask_sync(cask));
  HOLDS(esker_cask_len(cask) == 3);

  esker_scan *scan;
  esker_slice seen;
  int sum = 0;
  MUST(esker_cask_scan(cask, &scan));
  HOLDS(esker_scan_key(scan).len == 0);
  for (MUST(esker_scan_advance(scan, &yes)); yes; MUST(esker_scan_advance(scan, &yes))) {
    MUST(esker_scan_value(scan, &seen));
    HOLDS(esker_scan_key(scan).len == 1 && seen.len == 1);
    // "a" is 1, "d" 4, "e" 5.
    HOLDS(esker_scan_key(scan).data[0] - 'a' == seen.data[0] - '1');
    sum += seen.data[0] - '0';
  }
  HOLDS(sum == 10);
  esker_scan_free(scan);
  esker_scan_free(NULL);

  MUST(esker_cask_compact(cask));
  MUST(esker_cask_checkpoint(cask, in(argv[1], "checkpoint")));
  MUST(esker_cask_backup(cask, in(argv[1], "backup")));
  FAILS(esker_cask_checkpoint(cask, in(argv[1], "backup")), ESKER_KIND_INVALID_ARGUMENT, "backup");
  MUST(esker_cask_get(cask, T("d"), &value));
  MUST(esker_cask_close(cask));
  HOLDS(was(value, "4"));
  MUST(esker_cask_close(NULL));

  MUST(esker_cask_open_read_only(in(argv[1], "checkpoint"), NULL, &cask));
  MUST(esker_cask_get(cask, T("e"), &value));
  HOLDS(was(value, "5"));
  FAILS(esker_cask_put(cask, 0, T("e"), T("6"), 0), ESKER_KIND_READ_ONLY, "");
  MUST(esker_cask_close(cask));
  MUST(esker_cask_repair(in(argv[1], "backup")));
  FAILS(esker_cask_repair(in(argv[1], "none")), ESKER_KIND_NOT_FOUND, "none");
  puts("done");
  return 0;
}

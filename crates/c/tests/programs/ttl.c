#include "must.h"

static bool has(const esker_ttl *ttl, const char *key, const char *value) {
  esker_value *found;
  MUST(esker_ttl_get(ttl, NULL, T(key), &found));
  return was(found, value);
}

int main(int argc, char **argv) {
  HOLDS(argc == 2);
  esker_db_options *options = esker_db_options_create();
  MUST(esker_db_options_set(options, "create_if_missing", "true"));
  MUST(esker_db_options_set_family_ttl(options, "default", 100));
  FAILS(esker_db_options_set_family_ttl(options, NULL, 100), ESKER_KIND_INVALID_ARGUMENT, "NULL");
  esker_db *db;
  esker_ttl *ttl, *none;
  MUST(esker_db_open(in(argv[1], "db"), options, &db));
  FAILS(esker_db_with_ttl(db, NULL, 0, &none), ESKER_KIND_INVALID_ARGUMENT, "");
  HOLDS(none == NULL);
  esker_ttl_free(NULL);
  MUST(esker_db_with_ttl(db, NULL, 100, &ttl));

  MUST(esker_ttl_put(ttl, 0, T("a"), T("1")));
  FAILS(esker_ttl_put(ttl, 4, T("a"), T("2")), ESKER_KIND_INVALID_ARGUMENT, "flags are 0x4");
  MUST(esker_ttl_put_for(ttl, ESKER_SYNC, T("b"), T("long"), 500));
  esker_batch *batch = esker_batch_create();
  MUST(esker_batch_put_ttl(batch, ttl, T("c"), T("")));
  MUST(esker_db_write(db, 0, batch));
  esker_batch_free(batch);
  HOLDS(has(ttl, "a", "1") && has(ttl, "c", "") && has(ttl, "none", NULL));
  int64_t seconds;
  MUST(esker_ttl_time_to_live(ttl, T("a"), &seconds));
  HOLDS(seconds > 90 && seconds <= 101);
  MUST(esker_ttl_time_to_live(ttl, T("b"), &seconds));
  HOLDS(seconds > 490 && seconds <= 501);
  MUST(esker_ttl_time_to_live(ttl, T("none"), &seconds));
  HOLDS(seconds == -1);

  // As it was stored in May of 2014.
  MUST(esker_db_put(db, 0, NULL, T("b"), esker_bytes("short\0\0\x80\x53", 9)));
  HOLDS(has(ttl, "b", NULL));
  MUST(esker_ttl_time_to_live(ttl, T("b"), &seconds));
  HOLDS(seconds == -1);
  // An iterator shows what is stored.
  esker_iterator *walk;
  MUST(esker_db_iterator(db, NULL, NULL, &walk));
  const char *living[] = {"1", NULL, ""};
  size_t count = 0;
  for (MUST(esker_iterator_seek_to_first(walk)); esker_iterator_valid(walk); MUST(esker_iterator_next(walk))) {
    esker_slice stored, value;
    bool lives;
    MUST(esker_iterator_value(walk, &stored));
    MUST(esker_ttl_value(ttl, esker_iterator_key(walk), stored, &value, &lives));
    HOLDS(count < 3 && lives == (living[count] != NULL) && (!lives || is(value, living[count])));
    count++;
  }
  HOLDS(count == 3);
  esker_iterator_free(walk);

  MUST(esker_db_put(db, 0, NULL, T("past"), T("it")));
  esker_value *value = (esker_value *)&seconds;
  FAILS(esker_ttl_get(ttl, NULL, T("past"), &value), ESKER_KIND_CORRUPTION, "past");
  HOLDS(value == NULL);
  esker_slice bytes;
  bool lives = true;
  FAILS(esker_ttl_value(ttl, T("past"), T("it"), &bytes, &lives), ESKER_KIND_CORRUPTION, "past");
  HOLDS(!lives && bytes.len == 0);
  MUST(esker_db_delete(db, 0, NULL, T("a")));
  HOLDS(has(ttl, "a", NULL));
  // A compaction lets go of what has expired.
  bool yes;
  MUST(esker_db_exists(db, NULL, NULL, T("b"), &yes));
  HOLDS(yes);
  MUST(esker_db_compact_range(db, NULL, NULL, NULL));
  MUST(esker_db_exists(db, NULL, NULL, T("b"), &yes));
  HOLDS(!yes);
  esker_ttl_free(ttl);
  MUST(esker_db_close(db));
  esker_db_options_free(options);
  puts("done");
  return 0;
}

#include "must.h"

static const char *directory;

static bool has(const esker_db *db, const char *key, const char *value) {
  esker_value *found;
  MUST(esker_db_get(db, NULL, NULL, T(key), &found));
  return was(found, value);
}

static void backups(const esker_db *db) {
  esker_backups *set;
  FAILS(esker_backups_open(in(directory, "db"), &set), ESKER_KIND_INVALID_ARGUMENT, "db");
  HOLDS(set == NULL);
  esker_backups_free(NULL);
  MUST(esker_backups_open(in(directory, "backups"), &set));
  size_t count = 9;
  esker_backup_info infos[2], info;
  MUST(esker_backups_list(set, infos, 2, &count));
  HOLDS(count == 0);
  for (uint64_t id = 1; id <= 3; id++) {
    char value[2] = {(char)('0' + id), 0};
    MUST(esker_db_put(db, 0, NULL, T("generation"), T(value)));
    MUST(esker_backups_create(set, db, &info));
    HOLDS(info.id == id && info.files > 0 && info.bytes >= info.bytes_of_its_own && info.bytes_of_its_own > 0);
    HOLDS(info.sequence > 0 && info.unix_seconds > 1600000000);
  }
  infos[1].id = 0;
  MUST(esker_backups_list(set, infos, 1, &count));
  HOLDS(count == 3 && infos[0].id == 1 && infos[1].id == 0);
  MUST(esker_backups_list(set, infos, 2, &count));
  HOLDS(count == 3 && infos[1].id == 2 && infos[1].files > 0 && infos[1].unix_seconds > 1600000000);

  MUST(esker_backups_check(set, 2, NULL));
  FAILS(esker_backups_check(set, 7, NULL), ESKER_KIND_NOT_FOUND, "backups");
  MUST(esker_backups_restore(set, 2, in(directory, "then")));
  FAILS(esker_backups_restore(set, 2, in(directory, "then")), ESKER_KIND_INVALID_ARGUMENT, "then");
  FAILS(esker_backups_restore(set, 7, in(directory, "other")), ESKER_KIND_NOT_FOUND, "backups");
  esker_db *then;
  MUST(esker_db_open(in(directory, "then"), NULL, &then));
  HOLDS(has(then, "generation", "2"));
  MUST(esker_db_close(then));

  MUST(esker_backups_delete(set, 2));
  FAILS(esker_backups_delete(set, 2), ESKER_KIND_NOT_FOUND, "backups");
  MUST(esker_backups_keep_newest(set, 1, &count));
  HOLDS(count == 1);
  MUST(esker_backups_list(set, infos, 2, &count));
  HOLDS(count == 1 && infos[0].id == 3);
  esker_backups_free(set);
}

// The file of this ending in the store `name`, of which there is one.
static const char *only_file(const char *name, const char *ending) {
  static char path[4096];
  for (int number = 0; number < 1000; number++) {
    HOLDS(snprintf(path, sizeof path, "%s/%s/%06d.%s", directory, name, number, ending) < (int)sizeof path);
    FILE *file = fopen(path, "rb");
    if (file != NULL) {
      fclose(file);
      return path;
    }
  }
  HOLDS(!"there is one");
  return NULL;
}

static void checks(const esker_db *db) {
  MUST(esker_db_check(db));
  MUST(esker_db_check_store(in(directory, "then"), NULL));
  FAILS(esker_db_check_store(in(directory, "none"), NULL), ESKER_KIND_NOT_FOUND, "none");
  FILE *table = fopen(only_file("then", "sst"), "r+b");
  HOLDS(table != NULL && fputs("damage", table) >= 0 && fclose(table) == 0);
  FAILS(esker_db_check_store(in(directory, "then"), NULL), ESKER_KIND_CORRUPTION, ".sst");
}

static void files(const esker_db *db) {
  esker_sst_writer *writer;
  uint64_t file_bytes;
  const char *paths[2] = {in(directory, "first.sst"), in(directory, "second.sst")};
  MUST(esker_db_put(db, 0, NULL, T("c"), T("old")));
  MUST(esker_db_put(db, 0, NULL, T("m"), T("old")));
  MUST(esker_db_put(db, 0, NULL, T("p"), T("old")));
  MUST(esker_sst_writer_create(db, NULL, paths[0], &writer));
  MUST(esker_sst_writer_put(writer, T("b"), T("2")));
  FAILS(esker_sst_writer_put(writer, T("a"), T("1")), ESKER_KIND_INVALID_ARGUMENT, "");
  MUST(esker_sst_writer_delete(writer, T("c")));
  MUST(esker_sst_writer_finish(writer, &file_bytes));
  HOLDS(file_bytes > 0);
  FAILS(esker_sst_writer_create(db, NULL, paths[0], &writer), ESKER_KIND_CONFLICT, "first.sst");
  HOLDS(writer == NULL);
  MUST(esker_sst_writer_create(db, NULL, paths[1], &writer));
  MUST(esker_sst_writer_merge(writer, T("m"), T("operand")));
  MUST(esker_sst_writer_delete_range(writer, T("n"), T("z")));
  MUST(esker_sst_writer_put(writer, T("o"), T("3")));
  MUST(esker_sst_writer_finish(writer, &file_bytes));
  // One that is given up leaves nothing.
  MUST(esker_sst_writer_create(db, NULL, in(directory, "given up.sst"), &writer));
  esker_sst_writer_free(writer);
  MUST(esker_sst_writer_create(db, NULL, in(directory, "given up.sst"), &writer));
  FAILS(esker_sst_writer_finish(writer, &file_bytes), ESKER_KIND_INVALID_ARGUMENT, "without entries");
  HOLDS(file_bytes == 0);
  esker_sst_writer_free(NULL);

  FAILS(esker_db_ingest(db, 4, NULL, paths, 2), ESKER_KIND_INVALID_ARGUMENT, "flags are 0x4");
  FAILS(esker_db_ingest(db, 0, NULL, NULL, 1), ESKER_KIND_INVALID_ARGUMENT, "1 items");
  HOLDS(has(db, "c", "old"));
  MUST(esker_db_ingest(db, ESKER_VERIFY_ENDS, NULL, paths, 2));
  HOLDS(has(db, "b", "2") && has(db, "c", NULL) && has(db, "o", "3") && has(db, "p", NULL));
  HOLDS(has(db, "m", "old/operand"));
  MUST(esker_db_put(db, 0, NULL, T("b"), T("later")));
  MUST(esker_db_ingest(db, ESKER_MOVE_FILES, NULL, paths, 1));
  HOLDS(has(db, "b", "2"));
  FAILS(esker_db_ingest(db, 0, NULL, paths, 1), ESKER_KIND_NOT_FOUND, "first.sst");
}

int main(int argc, char **argv) {
  HOLDS(argc == 2);
  directory = argv[1];
  esker_db_options *options = esker_db_options_create();
  MUST(esker_db_options_set(options, "create_if_missing", "true"));
  MUST(esker_db_options_set_family(options, "default", "merge_operator", "{id=StringAppendOperator;delimiter=/;}"));
  esker_db *db;
  MUST(esker_db_open(in(directory, "db"), options, &db));
  backups(db);
  checks(db);
  files(db);
  MUST(esker_db_close(db));
  esker_db_options_free(options);
  puts("done");
  return 0;
}

// What the test programs have in common.

// Twice, as by two headers of a program.
#include <esker.h>
#include <esker.h>
#include <stdio.h>
#include <stdlib.h>

// Ends the program unless what is said holds.
#define HOLDS(what) holds_((what), #what, __FILE__, __LINE__)

static inline void holds_(bool holds, const char *what, const char *file, int line) {
  if (!holds) {
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    exit(1);
  }
}

// Ends the program if a call failed.
#define MUST(call) must_((call), __FILE__, __LINE__)

static inline void must_(esker_error *error, const char *file, int line) {
  if (error != NULL) {
    fprintf(stderr, "%s:%d: %s\n", file, line, esker_error_message(error));
    exit(1);
  }
}

// Ends the program unless a call failed like this, and said so.
#define FAILS(call, kind, words) fails_((call), (kind), (words), __FILE__, __LINE__)

static inline void fails_(esker_error *error, esker_kind kind, const char *words, const char *file, int line) {
  const char *message = error == NULL ? "no error" : esker_error_message(error);
  if (error == NULL || esker_error_kind(error) != kind || strstr(message, words) == NULL) {
    fprintf(stderr, "%s:%d: %s\n", file, line, message);
    exit(1);
  }
  esker_error_free(error);
}

static inline esker_slice T(const char *text) {
  return esker_text(text);
}

static inline bool is(esker_slice bytes, const char *text) {
  return bytes.len == strlen(text) && memcmp(bytes.data, text, bytes.len) == 0;
}

// Whether a value is this text; it is freed. NULL is none.
static inline bool was(esker_value *value, const char *text) {
  bool right = text == NULL ? value == NULL : value != NULL && is(esker_value_bytes(value), text);
  esker_value_free(value);
  return right;
}

// The path of `name` in the directory that the program was given, until four more were asked for.
static inline const char *in(const char *directory, const char *name) {
  static char paths[4][4096];
  static unsigned next;
  char *path = paths[next++ % 4];
  HOLDS(snprintf(path, sizeof paths[0], "%s/%s", directory, name) < (int)sizeof paths[0]);
  return path;
}

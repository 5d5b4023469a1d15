/* A database over RocksDB's C interface: c_test URI
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <persimmon_rocksdb.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int holds, const char* what, const char* why) {
  if (holds) return;
  fprintf(stderr, "failed: %s: %s\n", what, why != NULL ? why : "");
  exit(1);
}

/* The C interface took the Env itself for the structure that it keeps one in, and called into its virtual table. */
static void once(const char* uri, int first) {
  rocksdb_env_t* env = persimmon_rocksdb_env(uri);
  check(env != NULL, uri, "no environment");
  rocksdb_options_t* options = rocksdb_options_create();
  rocksdb_options_set_env(options, env);
  rocksdb_options_set_create_if_missing(options, first);
  char* error = NULL;
  rocksdb_t* db = rocksdb_open(options, "/c", &error);
  check(error == NULL, "opening", error);
  if (first) {
    rocksdb_writeoptions_t* write = rocksdb_writeoptions_create();
    rocksdb_put(db, write, "key", 3, "value", 5, &error);
    check(error == NULL, "put", error);
    rocksdb_writeoptions_destroy(write);
    rocksdb_flushoptions_t* flush = rocksdb_flushoptions_create();
    rocksdb_flush(db, flush, &error);
    check(error == NULL, "flush", error);
    rocksdb_flushoptions_destroy(flush);
  }
  rocksdb_readoptions_t* read = rocksdb_readoptions_create();
  size_t len = 0;
  char* value = rocksdb_get(db, read, "key", 3, &len, &error);
  check(error == NULL, "get", error);
  check(value != NULL && len == 5 && memcmp(value, "value", 5) == 0, "get", "another value");
  rocksdb_free(value);
  rocksdb_readoptions_destroy(read);
  rocksdb_close(db);
  rocksdb_options_destroy(options);
  /* What belongs to the process stays: the second time has it again. */
  rocksdb_env_destroy(env);
}

int main(int argc, char** argv) {
  check(argc == 2, "usage", "c_test URI");
  once(argv[1], 1);
  once(argv[1], 0);
  check(persimmon_rocksdb_env(NULL) == NULL, "NULL", "an environment of no URI");
  check(persimmon_rocksdb_env("persimmon:///nonexistent") == NULL, "a missing volume", "an environment");
  FILE* there = fopen("/c/CURRENT", "r");
  check(there == NULL, "/c", "the database is on the host");
  puts("all hold");
  return 0;
}

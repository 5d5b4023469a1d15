// What the test programs share. SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

// A test ends with the first thing that does not hold.
[[noreturn]] inline void Fail(const std::string& what) {
  std::fprintf(stderr, "failed: %s\n", what.c_str());
  std::_Exit(1);
}

inline void Check(bool holds, const std::string& what) {
  if (!holds) Fail(what);
}

template <class AnyStatus>
void CheckOk(const AnyStatus& status, const std::string& what) {
  if (!status.ok()) Fail(what + ": " + status.ToString());
}

inline std::shared_ptr<rocksdb::FileSystem> OpenFileSystem(const std::string& uri) {
  std::shared_ptr<rocksdb::FileSystem> filesystem;
  CheckOk(rocksdb::FileSystem::CreateFromString(rocksdb::ConfigOptions(), uri, &filesystem), uri);
  Check(std::string(filesystem->Name()) == "PersimmonFileSystem", uri + " is served by " + filesystem->Name());
  return filesystem;
}

// A small database that flushes and compacts all the time.
inline rocksdb::Options SmallDatabase(rocksdb::Env* env) {
  rocksdb::Options options;
  options.env = env;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  options.write_buffer_size = 512 << 10;
  options.target_file_size_base = 256 << 10;
  options.max_bytes_for_level_base = 1 << 20;
  options.level0_file_num_compaction_trigger = 2;
  options.max_background_jobs = 2;
  options.compression = rocksdb::kNoCompression;
  return options;
}

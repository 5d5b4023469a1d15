// What a URI asks for: persimmon://DEVICE-OR-IMAGE[?option=value[&option=value...]].
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <persimmon.h>
#include <rocksdb/status.h>

#include <string>

namespace persimmon {

struct Uri {
  // As it is written in the URI.
  std::string device;
  // What is behind the question mark.
  std::string query;
  persimmon_options options;
  // RocksDB's Flush has what was written outlive this process.
  bool writes_through = true;
  // Where the counters of the volume are written when it closes; empty: nowhere.
  std::string statistics;

  static rocksdb::Status Parse(const std::string& uri, Uri* parsed);
};

}  // namespace persimmon

// What a URI asks for: persimmon://DEVICE-OR-IMAGE[?option=value[&option=value...]]. In the device and in values %XX is the byte with
// that hexadecimal number: a path with ? is written with %3F, one with % with %25.
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <persimmon.h>
#include <rocksdb/status.h>

#include <string>

namespace persimmon {

// What RocksDB's Flush does with what was written.
enum class FlushTo {
  // The kernel keeps it: it outlives this process.
  kKernel,
  // The device has it, with every change of names before: they outlive this process.
  kDevice,
  // Nothing.
  kMemory,
};

struct Uri {
  // Its path, without escapes.
  std::string device;
  // What is behind the question mark.
  std::string query;
  persimmon_options options;
  // How files are compressed. RocksDB compresses its tables itself.
  std::string compression = "none";
  FlushTo flush = FlushTo::kKernel;
  // Where the counters of the volume are written when it closes; empty: nowhere.
  std::string statistics;

  static rocksdb::Status Parse(const std::string& uri, Uri* parsed);
};

}  // namespace persimmon

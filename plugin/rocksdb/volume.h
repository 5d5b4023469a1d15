// Volumes that databases of this process share. SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <persimmon.h>
#include <rocksdb/status.h>

#include <memory>
#include <set>
#include <string>
#include <mutex>

namespace persimmon {

// What a URI asks for: persimmon://DEVICE-OR-IMAGE[?option=value[&option=value...]].
struct Uri {
  std::string device;
  persimmon_options options;

  // Options: `cache`, `staging` (bytes, with the suffixes K, M, G), `commit` (seconds, fractions allowed), `read_only`
  // (0 or 1).
  static rocksdb::Status Parse(const std::string& uri, Uri* parsed);
};

// An open volume. It closes when the last database lets go of it.
class Volume {
 public:
  // The volume that a URI names. One that this process has open already is shared, whatever its options were.
  static rocksdb::Status Open(const std::string& uri, std::shared_ptr<Volume>* volume);

  ~Volume();

  persimmon_fs* fs() const { return fs_; }
  const std::string& device() const { return device_; }

  // Locks by name that this process holds: RocksDB asks that one database is not opened twice by one process.
  bool TakeName(const std::string& name);
  void LetGoOfName(const std::string& name);

 private:
  Volume(persimmon_fs* fs, std::string device) : fs_(fs), device_(std::move(device)) {}

  persimmon_fs* const fs_;
  const std::string device_;
  std::mutex mutex_;
  std::set<std::string> names_;
};

}  // namespace persimmon

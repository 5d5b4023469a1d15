// RocksDB's file system on a volume. SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <rocksdb/file_system.h>

#include <memory>
#include <string>

namespace persimmon {

// The file system of a URI: persimmon://DEVICE-OR-IMAGE[?options]. Databases of one process that name the same device share it.
rocksdb::Status NewPersimmonFileSystem(const std::string& uri, std::unique_ptr<rocksdb::FileSystem>* result);

}  // namespace persimmon

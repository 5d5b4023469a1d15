// RocksDB's messages (LOG) as a file of the volume. SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <rocksdb/file_system.h>

#include <memory>
#include <string>

#include "volume.h"

namespace persimmon {

// RocksDB's own logger over a file system goes on with a file that could not be written, which Debian's build answers by ending
// the process. This one leaves out what cannot be written: messages must not end what they are about.
rocksdb::IOStatus NewLogger(std::shared_ptr<Volume> volume, const std::string& path,
                            std::shared_ptr<rocksdb::Logger>* result);

}  // namespace persimmon

// What the name of a file of RocksDB says about it. SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace persimmon {

// How long a file without a hint will live, one of PERSIMMON_LIFETIME_*; 0 where the name says nothing.
uint32_t LifetimeByName(const std::string& path);

// A write-ahead log.
bool IsWriteAheadLog(const std::string& path);

// Anything but logs, manifests and the small files around them: tables, blob files and copies of them, which RocksDB syncs before
// anything refers to them. Only the former may use the space that is kept for logs.
bool IsSyncedBeforeUse(const std::string& path);

}  // namespace persimmon

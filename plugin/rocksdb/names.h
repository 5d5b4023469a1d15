// What the name of a file of RocksDB says about it. SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace persimmon {

// How long a file without a hint will live, one of PERSIMMON_LIFETIME_*; 0 where the name says nothing.
uint32_t LifetimeByName(const std::string& path);

// A table or blob file, which RocksDB syncs before anything refers to it.
bool IsSyncedBeforeUse(const std::string& path);

}  // namespace persimmon

// SPDX-License-Identifier: MIT OR Apache-2.0
#include "names.h"

#include <persimmon.h>

namespace persimmon {

namespace {

bool StartsWith(const std::string& name, const std::string& start) { return name.compare(0, start.size(), start) == 0; }

bool EndsWith(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

// Logs go with the next flush of a memtable. A manifest grows for as long as its database is open, and the small files around it are
// written when that is opened. Of messages (LOG) some old files stay. For tables RocksDB gives a hint itself.
uint32_t LifetimeByName(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  if (EndsWith(name, ".log") || EndsWith(name, ".dbtmp") || name == "LOCK") return PERSIMMON_LIFETIME_SHORT;
  if (StartsWith(name, "MANIFEST") || StartsWith(name, "LOG") || StartsWith(name, "OPTIONS") || name == "CURRENT" ||
      name == "IDENTITY") {
    return PERSIMMON_LIFETIME_LONG;
  }
  return 0;
}

bool IsWriteAheadLog(const std::string& path) { return EndsWith(path, ".log"); }

// By what may use the reserve: a copy of a table under a name of its own (BackupEngine's `.sst.tmp`) must not fill it.
bool IsSyncedBeforeUse(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const bool is_log = EndsWith(name, ".log") || StartsWith(name, "LOG");
  const bool is_small = EndsWith(name, ".dbtmp") || StartsWith(name, "MANIFEST") || StartsWith(name, "OPTIONS") ||
                        name == "CURRENT" || name == "IDENTITY" || name == "LOCK";
  return !is_log && !is_small;
}

}  // namespace persimmon

// SPDX-License-Identifier: MIT OR Apache-2.0
#include "volume.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <climits>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "process.h"
#include "status.h"

namespace persimmon {

using rocksdb::Status;

namespace {

// Space for logs alone: as much as a memtable of RocksDB's default size, but of a small volume or project a sixteenth.
constexpr uint64_t kLogReserveMax = 64 << 20;
constexpr uint64_t kLogReserveShare = 16;

// What tables may fill of some space.
uint64_t BesidesLogs(const persimmon_space& space) {
  const uint64_t reserve = std::min(kLogReserveMax, space.total_bytes / kLogReserveShare);
  return space.available_bytes > reserve ? space.available_bytes - reserve : 0;
}

// One name for a device or image, however it was spelled; what does not exist keeps its spelling.
std::string Canonical(const std::string& device) {
  char* resolved = ::realpath(device.c_str(), nullptr);
  if (resolved == nullptr) return device;
  std::string name = resolved;
  std::free(resolved);
  return name;
}

// The volumes that are open in this process, by the canonical name of their device. Databases may close after it would be destroyed.
struct Registry {
  struct Entry {
    std::weak_ptr<Volume> volume;
    // This process has it open, also while the first database is opening it and the last one closing it.
    bool is_open = false;
  };
  std::mutex mutex;
  // Some volume has been opened or closed.
  std::condition_variable changed;
  std::map<std::string, Entry> volumes;
};

}  // namespace

Status Volume::Open(const std::string& uri, std::shared_ptr<Volume>* volume) {
  Uri parsed;
  Status status = Uri::Parse(uri, &parsed);
  if (!status.ok()) return status;
  const std::string device = Canonical(parsed.device);
  Registry& registry = OfThisProcess<Registry>();
  // Not held while a volume opens, which may take as long as a recovery: a second database waits for the volume of the first, and those of
  // other volumes do not wait.
  std::unique_lock<std::mutex> guard(registry.mutex);
  Registry::Entry& known = registry.volumes[device];
  for (*volume = known.volume.lock(); !*volume && known.is_open; *volume = known.volume.lock()) {
    registry.changed.wait(guard);
  }
  if (*volume) {
    // A copy, and the registry is let go of first: the last database may have released the volume meanwhile, and this
    // reference then closes it, which takes the registry.
    const std::string query = (*volume)->uri_.query;
    if (query == parsed.query) return Status::OK();
    guard.unlock();
    volume->reset();
    return Status::InvalidArgument("persimmon: " + device + " is open in this process with the options '" + query +
                                   "', which '" + parsed.query + "' cannot change");
  }
  known.is_open = true;
  guard.unlock();
  persimmon_fs* fs = nullptr;
  parsed.options.compression = parsed.compression.c_str();
  int error = persimmon_open(parsed.device.c_str(), &parsed.options, &fs);
  const std::string reason = persimmon_error_message();
  if (error == 0) volume->reset(new Volume(fs, device, std::move(parsed)));
  guard.lock();
  known.volume = *volume;
  known.is_open = error == 0;
  guard.unlock();
  registry.changed.notify_all();
  if (error != 0) {
    return error == EBUSY ? Status::Busy("persimmon", reason) : Status::IOError("persimmon", reason);
  }
  return Status::OK();
}

Volume::~Volume() {
  // Its parent's: a child of fork has neither its threads nor what became of it since. The library leaves it alone as well.
  if (::getpid() != process_) return;
  if (!uri_.statistics.empty()) WriteStatistics();
  if (persimmon_close(fs_) != 0) {
    std::fprintf(stderr, "persimmon: closing %s: %s\n", device_.c_str(), persimmon_error_message());
  }
  Registry& registry = OfThisProcess<Registry>();
  std::lock_guard<std::mutex> guard(registry.mutex);
  registry.volumes[device_].is_open = false;
  registry.changed.notify_all();
}

void Volume::Leave() const {
  if (persimmon_sync(fs_) != 0) {
    std::fprintf(stderr, "persimmon: leaving %s: %s\n", device_.c_str(), persimmon_error_message());
  }
  if (!uri_.statistics.empty()) WriteStatistics();
}

rocksdb::IOStatus Volume::RoomForTables(const std::string& path, uint64_t* bytes) const {
  *bytes = 0;
  persimmon_space part{};
  const int error = persimmon_statfs_path(fs_, path.c_str(), &part);
  return error != 0 ? Failed(error) : RoomForTables(part, bytes);
}

rocksdb::IOStatus Volume::RoomForTables(const persimmon_space& part, uint64_t* bytes) const {
  persimmon_space whole{};
  const int error = persimmon_statfs(fs_, &whole);
  if (error != 0) return Failed(error);
  *bytes = std::min(BesidesLogs(whole), BesidesLogs(part));
  return rocksdb::IOStatus::OK();
}

rocksdb::IOStatus Volume::TableRoom::Take(const persimmon_file* table, uint64_t bytes) {
  bytes_ += bytes;
  // With those of all others, of other projects, too, which is more than need be: of two that come at the same time at least one
  // sees the other.
  const uint64_t under_way = volume_.table_bytes_.fetch_add(bytes) + bytes;
  persimmon_space part{};
  const int error = persimmon_fstatfs(table, &part);
  if (error != 0) return Failed(error);
  uint64_t room = 0;
  rocksdb::IOStatus status = volume_.RoomForTables(part, &room);
  if (status.ok() && under_way > room) status = NoSpace("the volume, or the project of the file, has room for logs only");
  return status;
}

std::shared_ptr<Volume::Log> Volume::NextLog(const std::shared_ptr<Log>& log) {
  std::lock_guard<std::mutex> guard(mutex_);
  return std::exchange(logs_[log->path.substr(0, log->path.rfind('/') + 1)], log);
}

bool Volume::AcquireName(const std::string& name) {
  std::lock_guard<std::mutex> guard(mutex_);
  return names_.insert(name).second;
}

void Volume::ReleaseName(const std::string& name) {
  std::lock_guard<std::mutex> guard(mutex_);
  names_.erase(name);
}

// One counter a line. It is a measurement: where it cannot be written, that is reported, and nothing else depends on it.
void Volume::WriteStatistics() const {
  persimmon_stats stats{};
  // What waits in memory belongs to what was written.
  if (persimmon_sync(fs_) != 0 || persimmon_statistics(fs_, &stats) != 0) {
    std::fprintf(stderr, "persimmon: statistics of %s: %s\n", device_.c_str(), persimmon_error_message());
    return;
  }
  persimmon_cleaning_stats cleaning{};
  (void)persimmon_cleaning_statistics(fs_, &cleaning);
  const std::pair<const char*, uint64_t> counters[] = {
      {"user_bytes", stats.user_bytes},     {"device_bytes", stats.device_bytes}, {"read_bytes", stats.read_bytes},
      {"blocks_moved", stats.blocks_moved}, {"checkpoints", stats.checkpoints},   {"flushes", stats.flushes},
      {"resets", stats.resets},             {"stalls", stats.stalls},
      {"cleaning_foreground", cleaning.zones_waited_for},
      {"cleaning_background", cleaning.zones_ahead},
  };
  std::FILE* file = std::fopen(uri_.statistics.c_str(), "w");
  bool written = file != nullptr;
  for (const auto& [name, value] : counters) {
    written = written && std::fprintf(file, "%s %" PRIu64 "\n", name, value) > 0;
  }
  if (file != nullptr) written = std::fclose(file) == 0 && written;
  if (!written) std::perror(("persimmon: " + uri_.statistics).c_str());
}

}  // namespace persimmon

// Volumes that databases of this process share. SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <persimmon.h>
#include <rocksdb/io_status.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "uri.h"

namespace persimmon {

// An open volume. It closes when the last database releases it.
class Volume {
 public:
  // The volume that a URI names. One that this process has open already is shared; the options must then be the same, since
  // they cannot change while it is open.
  static rocksdb::Status Open(const std::string& uri, std::shared_ptr<Volume>* volume);

  ~Volume();

  persimmon_fs* fs() const { return fs_; }
  const std::string& device() const { return device_; }
  // What RocksDB has flushed or closed outlives this process.
  bool flushes() const { return uri_.flush != FlushTo::kMemory; }
  // The kernel keeps what it has flushed.
  bool keeps_flushed() const { return uri_.flush == FlushTo::kKernel; }

  // Makes everything durable, for a process that ends and never closes it.
  void Leave() const;

  // Bytes that tables may still fill in a directory: of the volume, and of the project of the directory where that is limited. Some of the last
  // ones of each are for logs alone: RocksDB resumes by itself after a table found no room, and ends the process (Debian's
  // build, on every filesystem) once it goes on with a log that found none.
  rocksdb::IOStatus RoomForTables(const std::string& path, uint64_t* bytes) const;

  // Sets room aside for a write to a table, until it is destroyed: by then the volume counts what was written. Several threads once found
  // the same room, and filled what is for logs.
  class TableRoom {
   public:
    explicit TableRoom(const Volume& volume) : volume_(volume) {}
    TableRoom(const TableRoom&) = delete;
    TableRoom& operator=(const TableRoom&) = delete;
    ~TableRoom() {
      if (bytes_ != 0) volume_.table_bytes_.fetch_sub(bytes_);
    }

    rocksdb::IOStatus Take(const persimmon_file* table, uint64_t bytes);

   private:
    const Volume& volume_;
    uint64_t bytes_ = 0;
  };

  // A write-ahead log. Content of several files enters the history in no order that anybody has asked for.
  struct Log {
    explicit Log(std::string name) : path(std::move(name)) {}

    const std::string path;
    // Something was written that nobody has asked to be in the history.
    std::atomic<bool> waits{false};
  };

  // Tells of a log that is made: the one of the same directory before it, if there was any.
  std::shared_ptr<Log> NextLog(const std::shared_ptr<Log>& log);

  // Locks by name that this process holds: RocksDB asks that no database is opened twice by one process.
  bool AcquireName(const std::string& name);
  void ReleaseName(const std::string& name);

 private:
  Volume(persimmon_fs* fs, std::string device, Uri uri)
      : fs_(fs), device_(std::move(device)), uri_(std::move(uri)) {}

  void WriteStatistics() const;
  // Of the whole volume, and of a part of it.
  rocksdb::IOStatus RoomForTables(const persimmon_space& part, uint64_t* bytes) const;

  persimmon_fs* const fs_;
  // That opened it.
  const pid_t process_ = ::getpid();
  // Canonical, however the URI spells it.
  const std::string device_;
  const Uri uri_;
  // Of writes to tables under way.
  mutable std::atomic<uint64_t> table_bytes_{0};
  std::mutex mutex_;
  std::set<std::string> names_;
  // The youngest log of each directory, for as long as the volume is open: what it holds may wait longer than it is open itself.
  std::map<std::string, std::shared_ptr<Log>> logs_;
};

}  // namespace persimmon

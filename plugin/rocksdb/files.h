// Open files as RocksDB has them. SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <persimmon.h>
#include <rocksdb/file_system.h>

#include <memory>
#include <string>
#include <vector>

#include "volume.h"

namespace persimmon {

// An open file and the volume that it keeps open.
class OpenFile {
 public:
  OpenFile() = default;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { Close(); }

  rocksdb::IOStatus Open(std::shared_ptr<Volume> volume, const std::string& path, uint32_t flags);
  void Close();

  persimmon_file* get() const { return file_; }

  rocksdb::IOStatus Read(uint64_t offset, size_t n, rocksdb::Slice* result, char* scratch) const;
  rocksdb::IOStatus Write(uint64_t offset, const rocksdb::Slice& data);
  rocksdb::IOStatus Sync();
  size_t UniqueId(char* id, size_t max_size) const;

 private:
  std::shared_ptr<Volume> volume_;
  persimmon_file* file_ = nullptr;
};

rocksdb::IOStatus NewSequentialFile(std::shared_ptr<Volume> volume, const std::string& path,
                                    const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSSequentialFile>* result);
rocksdb::IOStatus NewRandomAccessFile(std::shared_ptr<Volume> volume, const std::string& path,
                                      const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSRandomAccessFile>* result);
// `fresh`: emptied; else written on at its end.
rocksdb::IOStatus NewWritableFile(std::shared_ptr<Volume> volume, const std::string& path, bool fresh,
                                  const rocksdb::FileOptions& options,
                                  std::unique_ptr<rocksdb::FSWritableFile>* result);
rocksdb::IOStatus NewRandomRWFile(std::shared_ptr<Volume> volume, const std::string& path,
                                  const rocksdb::FileOptions& options,
                                  std::unique_ptr<rocksdb::FSRandomRWFile>* result);

// Reads under way of ReadAsync.
rocksdb::IOStatus Poll(std::vector<void*>& handles, size_t min_completions);
rocksdb::IOStatus AbortIO(std::vector<void*>& handles);

}  // namespace persimmon

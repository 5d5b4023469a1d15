// Open files as RocksDB has them. SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <persimmon.h>
#include <rocksdb/file_system.h>

#include <memory>
#include <string>
#include <vector>

#include "volume.h"

namespace persimmon {

// An open file, and the volume that it keeps open.
class OpenFile {
 public:
  static rocksdb::IOStatus Open(std::shared_ptr<Volume> volume, const std::string& path, uint32_t flags,
                                OpenFile* opened);

  persimmon_file* get() const { return file_.get(); }
  const Volume& volume() const { return *volume_; }
  const std::shared_ptr<Volume>& shared_volume() const { return volume_; }
  void Close();

  rocksdb::IOStatus Read(uint64_t offset, size_t n, rocksdb::Slice* result, char* scratch) const;
  rocksdb::IOStatus Write(uint64_t offset, const rocksdb::Slice& data);
  // Durable.
  rocksdb::IOStatus Sync();
  // What was written outlives the death of this process; the power may still take it.
  rocksdb::IOStatus Flush();
  size_t UniqueId(char* id, size_t max_size) const;

 private:
  struct Closer {
    void operator()(persimmon_file* file) const { persimmon_file_close(file); }
  };

  std::shared_ptr<Volume> volume_;
  std::unique_ptr<persimmon_file, Closer> file_;
};

rocksdb::IOStatus NewSequentialFile(std::shared_ptr<Volume> volume, const std::string& path,
                                    const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSSequentialFile>* result);
rocksdb::IOStatus NewRandomAccessFile(std::shared_ptr<Volume> volume, const std::string& path,
                                      const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSRandomAccessFile>* result);
// With `fresh` the file is emptied; otherwise writing continues at its end.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
#include "files.h"

#include <algorithm>
#include <functional>

#include "status.h"

namespace persimmon {

using namespace rocksdb;

namespace {

// What a buffer of direct I/O is aligned to. There is no page cache above a volume: all reads go to the device, and
// the flag changes only what RocksDB asks for.
constexpr size_t kAlignment = 4096;
// Bytes read ahead by a sequential file: RocksDB reads logs and manifests in blocks of 32 KiB.
constexpr size_t kReadAhead = 256 << 10;

const uint8_t* Bytes(const char* data) { return reinterpret_cast<const uint8_t*>(data); }
uint8_t* Bytes(char* data) { return reinterpret_cast<uint8_t*>(data); }

bool EndsWith(const std::string& name, const char* end) {
  size_t length = std::char_traits<char>::length(end);
  return name.size() >= length && name.compare(name.size() - length, length, end) == 0;
}

uint32_t LifetimeOf(Env::WriteLifeTimeHint hint) {
  switch (hint) {
    case Env::WLTH_NONE: return PERSIMMON_LIFETIME_NONE;
    case Env::WLTH_SHORT: return PERSIMMON_LIFETIME_SHORT;
    case Env::WLTH_MEDIUM: return PERSIMMON_LIFETIME_MEDIUM;
    case Env::WLTH_LONG: return PERSIMMON_LIFETIME_LONG;
    case Env::WLTH_EXTREME: return PERSIMMON_LIFETIME_EXTREME;
    default: return 0;
  }
}

// How long a file that RocksDB says nothing of will live, by its name: logs go with the next flush of a memtable,
// manifests and the small files around them are replaced now and then. Of table files it gives a hint itself.
uint32_t LifetimeByName(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  if (EndsWith(name, ".log")) return PERSIMMON_LIFETIME_SHORT;
  if (EndsWith(name, ".dbtmp") || name == "LOCK") return PERSIMMON_LIFETIME_SHORT;
  if (name.compare(0, 8, "MANIFEST") == 0 || name.compare(0, 3, "LOG") == 0) return PERSIMMON_LIFETIME_MEDIUM;
  if (name == "CURRENT" || name == "IDENTITY" || name.compare(0, 7, "OPTIONS") == 0) return PERSIMMON_LIFETIME_LONG;
  return 0;
}

class SequentialFile : public FSSequentialFile {
 public:
  explicit SequentialFile(bool direct) : direct_(direct) {}

  OpenFile file;

  IOStatus Read(size_t n, const IOOptions&, Slice* result, char* scratch, IODebugContext*) override {
    if (n >= kReadAhead || direct_) {
      IOStatus status = file.Read(at_, n, result, scratch);
      at_ += result->size();
      return status;
    }
    size_t done = 0;
    while (done < n) {
      uint64_t begin = at_ - ahead_from_;
      if (at_ < ahead_from_ || begin >= ahead_.size()) {
        ahead_.resize(kReadAhead);
        Slice read;
        IOStatus status = file.Read(at_, kReadAhead, &read, &ahead_[0]);
        ahead_from_ = at_;
        ahead_.resize(status.ok() ? read.size() : 0);
        if (!status.ok()) return status;
        if (ahead_.empty()) break;
        begin = 0;
      }
      size_t some = std::min<size_t>(n - done, ahead_.size() - begin);
      std::copy_n(&ahead_[begin], some, scratch + done);
      done += some;
      at_ += some;
    }
    *result = Slice(scratch, done);
    return IOStatus::OK();
  }

  IOStatus Skip(uint64_t n) override {
    at_ += n;
    return IOStatus::OK();
  }

  IOStatus PositionedRead(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                          IODebugContext*) override {
    return file.Read(offset, n, result, scratch);
  }

  IOStatus InvalidateCache(size_t, size_t) override {
    ahead_.clear();
    return IOStatus::OK();
  }

  bool use_direct_io() const override { return direct_; }
  size_t GetRequiredBufferAlignment() const override { return kAlignment; }

 private:
  const bool direct_;
  uint64_t at_ = 0;
  std::string ahead_;
  uint64_t ahead_from_ = 0;
};

// A read of ReadAsync under way.
struct AsyncRead {
  FSReadRequest request;
  std::function<void(const FSReadRequest&, void*)> callback;
  void* argument;
  persimmon_read* read;

  ~AsyncRead() { persimmon_read_abort(read); }

  void Finish() {
    size_t done = 0;
    int error = persimmon_read_finish(read, Bytes(request.scratch), request.len, &done);
    read = nullptr;
    request.status = ToStatus(error);
    request.result = Slice(request.scratch, error == 0 ? done : 0);
    callback(request, argument);
  }
};

class RandomAccessFile : public FSRandomAccessFile {
 public:
  explicit RandomAccessFile(bool direct) : direct_(direct) {}

  OpenFile file;

  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return file.Read(offset, n, result, scratch);
  }

  IOStatus MultiRead(FSReadRequest* requests, size_t count, const IOOptions&, IODebugContext*) override {
    std::vector<persimmon_read_request> batch(count);
    for (size_t i = 0; i < count; i++) {
      batch[i] = {requests[i].offset, Bytes(requests[i].scratch), requests[i].len, 0, 0};
    }
    // Each request is told its own result; the answer repeats the first failure.
    (void)persimmon_read_batch(file.get(), batch.data(), count);
    for (size_t i = 0; i < count; i++) {
      requests[i].status = ToStatus(batch[i].error);
      requests[i].result = Slice(requests[i].scratch, batch[i].done);
    }
    return IOStatus::OK();
  }

  IOStatus Prefetch(uint64_t, size_t, const IOOptions&, IODebugContext*) override {
    // Nothing is cached below that could be filled: RocksDB then reads ahead into buffers of its own.
    return IOStatus::NotSupported("Prefetch");
  }

  IOStatus ReadAsync(FSReadRequest& request, const IOOptions&,
                     std::function<void(const FSReadRequest&, void*)> callback, void* argument, void** handle,
                     IOHandleDeleter* deleter, IODebugContext*) override {
    persimmon_read* read = nullptr;
    int error = persimmon_read_submit(file.get(), request.len, request.offset, &read);
    if (error != 0) return Failed(error);
    auto* pending = new AsyncRead{{}, std::move(callback), argument, read};
    pending->request.offset = request.offset;
    pending->request.len = request.len;
    pending->request.scratch = request.scratch;
    *handle = pending;
    *deleter = [](void* pending) { delete static_cast<AsyncRead*>(pending); };
    return IOStatus::OK();
  }

  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }
  size_t GetUniqueId(char* id, size_t max_size) const override { return file.UniqueId(id, max_size); }
  bool use_direct_io() const override { return direct_; }
  size_t GetRequiredBufferAlignment() const override { return kAlignment; }

 private:
  const bool direct_;
};

class WritableFile : public FSWritableFile {
 public:
  WritableFile(const FileOptions& options, uint64_t size)
      : FSWritableFile(options), direct_(options.use_direct_writes), size_(size) {}

  OpenFile file;

  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override {
    IOStatus status = file.Write(size_, data);
    if (status.ok()) size_ += data.size();
    return status;
  }

  IOStatus Append(const Slice& data, const IOOptions& options, const DataVerificationInfo&,
                  IODebugContext* dbg) override {
    return Append(data, options, dbg);
  }

  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions&, IODebugContext*) override {
    IOStatus status = file.Write(offset, data);
    if (status.ok()) size_ = std::max<uint64_t>(size_, offset + data.size());
    return status;
  }

  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const DataVerificationInfo&, IODebugContext* dbg) override {
    return PositionedAppend(data, offset, options, dbg);
  }

  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext*) override {
    int error = persimmon_ftruncate(file.get(), size);
    if (error != 0) return Failed(error);
    size_ = size;
    return IOStatus::OK();
  }

  IOStatus Close(const IOOptions&, IODebugContext*) override {
    file.Close();
    return IOStatus::OK();
  }

  // What Append has taken is with the filesystem already.
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return file.Sync(); }
  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return file.Sync(); }
  bool IsSyncThreadSafe() const override { return true; }

  // A hint that the device should begin to write: it does that by itself, by lifetime and in large commands. Where RocksDB
  // asks for strict bounds, what was written is to be durable.
  IOStatus RangeSync(uint64_t offset, uint64_t bytes, const IOOptions& options, IODebugContext* dbg) override {
    return FSWritableFile::RangeSync(offset, bytes, options, dbg);
  }

  // Space is reserved when data is written, and nothing lies closer together for having been allocated before.
  void PrepareWrite(size_t, size_t, const IOOptions&, IODebugContext*) override {}
  IOStatus Allocate(uint64_t, uint64_t, const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

  void SetWriteLifeTimeHint(Env::WriteLifeTimeHint hint) override {
    write_hint_ = hint;
    // A hint changes where data goes and nothing else.
    if (uint32_t lifetime = LifetimeOf(hint)) (void)persimmon_set_lifetime(file.get(), lifetime);
  }

  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return size_; }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }
  size_t GetUniqueId(char* id, size_t max_size) const override { return file.UniqueId(id, max_size); }
  bool use_direct_io() const override { return direct_; }
  size_t GetRequiredBufferAlignment() const override { return kAlignment; }

 private:
  const bool direct_;
  uint64_t size_;
};

class RandomRWFile : public FSRandomRWFile {
 public:
  explicit RandomRWFile(bool direct) : direct_(direct) {}

  OpenFile file;

  IOStatus Write(uint64_t offset, const Slice& data, const IOOptions&, IODebugContext*) override {
    return file.Write(offset, data);
  }
  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return file.Read(offset, n, result, scratch);
  }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return file.Sync(); }
  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return file.Sync(); }
  IOStatus Close(const IOOptions&, IODebugContext*) override {
    file.Close();
    return IOStatus::OK();
  }
  bool use_direct_io() const override { return direct_; }
  size_t GetRequiredBufferAlignment() const override { return kAlignment; }

 private:
  const bool direct_;
};

}  // namespace

IOStatus OpenFile::Open(std::shared_ptr<Volume> volume, const std::string& path, uint32_t flags) {
  int error = persimmon_open_file(volume->fs(), path.c_str(), flags, 0644, &file_);
  if (error != 0) {
    file_ = nullptr;
    return Failed(error);
  }
  volume_ = std::move(volume);
  return IOStatus::OK();
}

void OpenFile::Close() {
  persimmon_file_close(file_);
  file_ = nullptr;
  volume_.reset();
}

IOStatus OpenFile::Read(uint64_t offset, size_t n, Slice* result, char* scratch) const {
  size_t done = 0;
  int error = persimmon_pread(file_, Bytes(scratch), n, offset, &done);
  *result = Slice(scratch, error == 0 ? done : 0);
  return ToStatus(error);
}

IOStatus OpenFile::Write(uint64_t offset, const Slice& data) {
  return ToStatus(persimmon_pwrite(file_, Bytes(data.data()), data.size(), offset));
}

IOStatus OpenFile::Sync() { return ToStatus(persimmon_fsync(file_)); }

size_t OpenFile::UniqueId(char* id, size_t max_size) const {
  persimmon_stat stat;
  // An inode number is given to one file in the life of a volume; caches are of one process, and so are its volumes.
  if (max_size < 2 * sizeof(uint64_t) || persimmon_fstat(file_, &stat) != 0) return 0;
  uint64_t parts[2] = {stat.ino, std::hash<std::string>()(volume_->device())};
  std::copy_n(reinterpret_cast<const char*>(parts), sizeof parts, id);
  return sizeof parts;
}

IOStatus NewSequentialFile(std::shared_ptr<Volume> volume, const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSSequentialFile>* result) {
  auto made = std::make_unique<SequentialFile>(options.use_direct_reads);
  IOStatus status = made->file.Open(std::move(volume), path, PERSIMMON_OPEN_READ);
  if (status.ok()) *result = std::move(made);
  return status;
}

IOStatus NewRandomAccessFile(std::shared_ptr<Volume> volume, const std::string& path, const FileOptions& options,
                             std::unique_ptr<FSRandomAccessFile>* result) {
  auto made = std::make_unique<RandomAccessFile>(options.use_direct_reads);
  IOStatus status = made->file.Open(std::move(volume), path, PERSIMMON_OPEN_READ);
  if (status.ok()) *result = std::move(made);
  return status;
}

IOStatus NewWritableFile(std::shared_ptr<Volume> volume, const std::string& path, bool fresh,
                         const FileOptions& options, std::unique_ptr<FSWritableFile>* result) {
  uint32_t flags = PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE | (fresh ? PERSIMMON_OPEN_TRUNCATE : 0);
  OpenFile file;
  IOStatus status = file.Open(volume, path, flags);
  if (!status.ok()) return status;
  persimmon_stat stat{};
  if (!fresh) {
    int error = persimmon_fstat(file.get(), &stat);
    if (error != 0) return Failed(error);
  }
  file.Close();
  auto made = std::make_unique<WritableFile>(options, stat.size);
  status = made->file.Open(std::move(volume), path, PERSIMMON_OPEN_WRITE);
  if (!status.ok()) return status;
  if (uint32_t lifetime = LifetimeByName(path)) (void)persimmon_set_lifetime(made->file.get(), lifetime);
  *result = std::move(made);
  return status;
}

IOStatus NewRandomRWFile(std::shared_ptr<Volume> volume, const std::string& path, const FileOptions& options,
                         std::unique_ptr<FSRandomRWFile>* result) {
  auto made = std::make_unique<RandomRWFile>(options.use_direct_reads && options.use_direct_writes);
  IOStatus status = made->file.Open(std::move(volume), path, PERSIMMON_OPEN_READ | PERSIMMON_OPEN_WRITE);
  if (status.ok()) *result = std::move(made);
  return status;
}

IOStatus Poll(std::vector<void*>& handles, size_t) {
  for (void* handle : handles) {
    auto* pending = static_cast<AsyncRead*>(handle);
    if (pending != nullptr && pending->read != nullptr) pending->Finish();
  }
  return IOStatus::OK();
}

IOStatus AbortIO(std::vector<void*>& handles) {
  for (void* handle : handles) {
    auto* pending = static_cast<AsyncRead*>(handle);
    if (pending == nullptr || pending->read == nullptr) continue;
    persimmon_read_abort(pending->read);
    pending->read = nullptr;
  }
  return IOStatus::OK();
}

}  // namespace persimmon

// SPDX-License-Identifier: MIT OR Apache-2.0
#include "files.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "names.h"
#include "status.h"

namespace persimmon {

using namespace rocksdb;

namespace {

// A block of the volume, to which RocksDB aligns direct I/O.
constexpr size_t kAlignment = 4096;
// Bytes of a table after which the volume is asked to write them: its sync, which is certain to come, has less left to do, and the memory
// serves again.
constexpr size_t kWriteBehind = 8 << 20;
// Bytes a sequential file reads ahead: RocksDB reads logs and manifests in blocks of 32 KiB.
constexpr size_t kReadAhead = 256 << 10;

const uint8_t* Bytes(const char* data) { return reinterpret_cast<const uint8_t*>(data); }
uint8_t* Bytes(char* data) { return reinterpret_cast<uint8_t*>(data); }

uint32_t ToRead(bool direct) { return PERSIMMON_OPEN_READ | (direct ? PERSIMMON_OPEN_DIRECT : 0); }

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

// What all kinds of open files share.
template <class Interface>
class FileOf : public Interface {
 public:
  bool use_direct_io() const override { return direct_; }
  size_t GetRequiredBufferAlignment() const override { return kAlignment; }

 protected:
  template <class... Options>
  FileOf(OpenFile file, bool direct, const Options&... options)
      : Interface(options...), file_(std::move(file)), direct_(direct) {}

  OpenFile file_;
  const bool direct_;
};

class SequentialFile : public FileOf<FSSequentialFile> {
 public:
  SequentialFile(OpenFile file, bool direct) : FileOf(std::move(file), direct) {}

  IOStatus Read(size_t n, const IOOptions&, Slice* result, char* scratch, IODebugContext*) override {
    if (n >= kReadAhead || direct_) {
      IOStatus status = file_.Read(at_, n, result, scratch);
      at_ += result->size();
      return status;
    }
    size_t done = 0;
    while (done < n) {
      if (at_ < ahead_from_ || at_ - ahead_from_ >= ahead_.size()) {
        IOStatus status = ReadAhead();
        if (!status.ok()) {
          // Nothing is told of what was read, so a second try begins with it.
          at_ -= done;
          *result = Slice(scratch, 0);
          return status;
        }
        if (ahead_.empty()) break;
      }
      uint64_t begin = at_ - ahead_from_;
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
    return file_.Read(offset, n, result, scratch);
  }

  IOStatus InvalidateCache(size_t, size_t) override {
    ahead_.clear();
    return IOStatus::OK();
  }

 private:
  IOStatus ReadAhead() {
    ahead_.resize(kReadAhead);
    ahead_from_ = at_;
    Slice read;
    IOStatus status = file_.Read(at_, kReadAhead, &read, &ahead_[0]);
    ahead_.resize(read.size());
    return status;
  }

  uint64_t at_ = 0;
  std::string ahead_;
  uint64_t ahead_from_ = 0;
};

// The callback of ReadAsync, whose type differs between versions of RocksDB.
template <class Method>
struct CallbackOf;
template <class Callback>
struct CallbackOf<IOStatus (FSRandomAccessFile::*)(FSReadRequest&, const IOOptions&, Callback, void*, void**,
                                                   IOHandleDeleter*, IODebugContext*)> {
  using type = Callback;
};
using ReadCallback = CallbackOf<decltype(&FSRandomAccessFile::ReadAsync)>::type;

// A read of ReadAsync under way.
class AsyncRead {
 public:
  AsyncRead(const FSReadRequest& asked, ReadCallback callback, void* argument, persimmon_read* read)
      : callback_(std::move(callback)), argument_(argument), read_(read) {
    request_.offset = asked.offset;
    request_.len = asked.len;
    request_.scratch = asked.scratch;
  }
  AsyncRead(const AsyncRead&) = delete;
  AsyncRead& operator=(const AsyncRead&) = delete;
  ~AsyncRead() { persimmon_read_abort(read_); }

  // Waits for it and hands the result to RocksDB, unless that was done.
  void Finish() {
    if (read_ == nullptr) return;
    size_t done = 0;
    int error = persimmon_read_finish(std::exchange(read_, nullptr), Bytes(request_.scratch), request_.len, &done);
    Answer(ToStatus(error), error == 0 ? done : 0);
  }

  void Abort() {
    if (read_ == nullptr) return;
    persimmon_read_abort(std::exchange(read_, nullptr));
    Answer(IOStatus::Aborted(), 0);
  }

 private:
  void Answer(const IOStatus& status, size_t bytes) {
    request_.status = status;
    request_.result = Slice(request_.scratch, bytes);
    callback_(request_, argument_);
  }

  FSReadRequest request_;
  const ReadCallback callback_;
  void* const argument_;
  persimmon_read* read_;
};

class RandomAccessFile : public FileOf<FSRandomAccessFile> {
 public:
  RandomAccessFile(OpenFile file, bool direct) : FileOf(std::move(file), direct) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return file_.Read(offset, n, result, scratch);
  }

  IOStatus MultiRead(FSReadRequest* requests, size_t count, const IOOptions&, IODebugContext*) override {
    std::vector<persimmon_read_request> batch(count);
    for (size_t i = 0; i < count; i++) {
      batch[i] = {requests[i].offset, Bytes(requests[i].scratch), requests[i].len, 0, 0};
    }
    // Each request has its own result, also where the batch is refused as a whole; the answer repeats the first failure.
    (void)persimmon_read_batch(file_.get(), batch.data(), count);
    for (size_t i = 0; i < count; i++) {
      requests[i].status = ToStatus(batch[i].error);
      requests[i].result = Slice(requests[i].scratch, requests[i].status.ok() ? batch[i].done : 0);
    }
    return IOStatus::OK();
  }

  // RocksDB then reads ahead into buffers of its own: what is kept below is what was read in small pieces.
  IOStatus Prefetch(uint64_t, size_t, const IOOptions&, IODebugContext*) override {
    return IOStatus::NotSupported("Prefetch");
  }

  IOStatus ReadAsync(FSReadRequest& request, const IOOptions&, ReadCallback callback, void* argument, void** handle,
                     IOHandleDeleter* deleter, IODebugContext*) override {
    persimmon_read* read = nullptr;
    int error = persimmon_read_submit(file_.get(), request.len, request.offset, &read);
    if (error != 0) return Failed(error);
    *handle = new AsyncRead(request, std::move(callback), argument, read);
    *deleter = [](void* pending) { delete static_cast<AsyncRead*>(pending); };
    return IOStatus::OK();
  }

  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }
  size_t GetUniqueId(char* id, size_t max_size) const override { return file_.UniqueId(id, max_size); }
};

// It begins with a cache line, so that its few fields are in two.
class alignas(64) WritableFile : public FileOf<FSWritableFile> {
 public:
  // A log that is not flushed knows itself and the one before it.
  WritableFile(OpenFile file, const FileOptions& options, uint64_t size, bool is_table, std::shared_ptr<Volume::Log> log,
               std::shared_ptr<Volume::Log> older)
      : FileOf(std::move(file), options.use_direct_writes, options),
        size_(size),
        is_table_(is_table),
        flushes_(file_.volume().flushes() && !is_table),
        flushes_writes_(file_.volume().keeps_flushed() && !is_table),
        log_(std::move(log)),
        older_(std::move(older)) {}

  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override { return WriteAt(size_, data); }
  IOStatus Append(const Slice& data, const IOOptions&, const DataVerificationInfo&, IODebugContext*) override {
    return WriteAt(size_, data);
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions&, IODebugContext*) override {
    return WriteAt(offset, data);
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions&, const DataVerificationInfo&,
                            IODebugContext*) override {
    return WriteAt(offset, data);
  }

  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext*) override {
    int error = persimmon_ftruncate(file_.get(), size);
    if (error != 0) return Failed(error);
    size_ = size;
    written_.fetch_add(1, std::memory_order_acq_rel);
    return IOStatus::OK();
  }

  // What a file holds when it is closed outlives the process, whether or not RocksDB flushed it.
  IOStatus Close(const IOOptions&, IODebugContext*) override {
    if (file_.get() == nullptr) return IOStatus::OK();
    IOStatus status = file_.volume().flushes() ? WriteThrough() : IOStatus::OK();
    file_.Close();
    return status;
  }

  IOStatus Flush(const IOOptions&, IODebugContext*) override { return flushes_ ? WriteThrough() : IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return Clean(&OpenFile::Sync); }
  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return Clean(&OpenFile::Sync); }
  bool IsSyncThreadSafe() const override { return true; }
  // RocksDB's own waits where strict_bytes_per_sync is set.
  IOStatus RangeSync(uint64_t offset, uint64_t n, const IOOptions& options, IODebugContext* context) override {
    StartWriteBack();
    return FSWritableFile::RangeSync(offset, n, options, context);
  }

  // Space is set aside when data is written; allocating it earlier would bring nothing closer together.
  void PrepareWrite(size_t, size_t, const IOOptions&, IODebugContext*) override {}
  IOStatus Allocate(uint64_t, uint64_t, const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

  void SetWriteLifeTimeHint(Env::WriteLifeTimeHint hint) override {
    write_hint_ = hint;
    // A hint changes where data goes and nothing else.
    if (uint32_t lifetime = LifetimeOf(hint)) (void)persimmon_set_lifetime(file_.get(), lifetime);
  }

  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return size_; }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }
  size_t GetUniqueId(char* id, size_t max_size) const override { return file_.UniqueId(id, max_size); }

 private:
  IOStatus WriteAt(uint64_t offset, const Slice& data) {
    if (flushes_writes_ && file_.get() != nullptr) return WriteFlushedAt(offset, data);
    return WriteUnflushedAt(offset, data);
  }

  // Each record of a log comes here: a write and a flush in one call. What RocksDB does in between drives much of this out of the caches,
  // so it touches little.
  IOStatus WriteFlushedAt(uint64_t offset, const Slice& data) {
    const uint64_t written = written_.load(std::memory_order_acquire);
    int error = persimmon_pwrite_flush(file_.get(), Bytes(data.data()), data.size(), offset);
    if (error != 0) {
      // It may have been written all the same.
      written_.fetch_add(1, std::memory_order_acq_rel);
      return Failed(error);
    }
    size_ = std::max<uint64_t>(size_, offset + data.size());
    CountCovered(written);
    return IOStatus::OK();
  }

  IOStatus WriteUnflushedAt(uint64_t offset, const Slice& data) {
    if (file_.get() == nullptr) return IOStatus::IOError("the file is closed");
    Volume::TableRoom room(file_.volume());
    IOStatus status = is_table_ ? room.Take(file_.get(), data.size()) : OlderInHistory();
    if (status.ok()) status = file_.Write(offset, data);
    if (log_ != nullptr) log_->waits.store(true);
    if (status.ok()) size_ = std::max<uint64_t>(size_, offset + data.size());
    if (is_table_ && size_ >= write_behind_at_) StartWriteBack();
    // After the write: a sync in another thread that has counted it began behind it, and covers it.
    written_.fetch_add(1, std::memory_order_acq_rel);
    return status;
  }

  // Nothing of a log is in the history before the end of the log before it: a recovery would go on with the younger one behind the hole, and
  // call that consistent. RocksDB may still write to the older one when it has made this one.
  IOStatus OlderInHistory() {
    if (older_ == nullptr || !older_->waits.exchange(false)) return IOStatus::OK();
    OpenFile older;
    IOStatus status = OpenFile::Open(file_.shared_volume(), older_->path, PERSIMMON_OPEN_WRITE, &older);
    // Removed or archived: then no recovery needs it.
    if (status.IsPathNotFound()) return IOStatus::OK();
    if (status.ok()) status = older.Flush();
    if (!status.ok()) older_->waits.store(true);
    return status;
  }

  // A hint: whoever needs the data on the device syncs, and is told of errors then.
  void StartWriteBack() {
    write_behind_at_ = size_ + kWriteBehind;
    (void)persimmon_start_write_back(file_.get());
  }

  IOStatus WriteThrough() {
    const bool is_covered = covered_.load(std::memory_order_acquire) >= written_.load(std::memory_order_acquire);
    return is_covered ? IOStatus::OK() : Clean(&OpenFile::Flush);
  }

  // Calls one of the two that bring out what memory holds. Until it has returned nothing counts as covered: RocksDB syncs
  // a log in one thread while it appends and flushes in another.
  IOStatus Clean(IOStatus (OpenFile::*call)()) {
    const uint64_t written = written_.load(std::memory_order_acquire);
    IOStatus status = (file_.*call)();
    if (status.ok()) CountCovered(written);
    return status;
  }

  void CountCovered(uint64_t written) {
    uint64_t covered = covered_.load(std::memory_order_acquire);
    while (covered < written && !covered_.compare_exchange_weak(covered, written)) {
    }
  }

  uint64_t size_;
  // RocksDB syncs it before anything refers to it.
  const bool is_table_;
  // Whether RocksDB's Flush does anything.
  const bool flushes_;
  // Whether each write is flushed in the same call: RocksDB flushes a log after each record, and keeping a flushed record costs little
  // more than the record.
  const bool flushes_writes_;
  // Changes that have been made, its creation the first, and how many of them a sync or flush has covered.
  std::atomic<uint64_t> written_{1};
  std::atomic<uint64_t> covered_{0};
  // The size at which the volume is asked to write what a table has so far.
  uint64_t write_behind_at_ = kWriteBehind;
  const std::shared_ptr<Volume::Log> log_;
  const std::shared_ptr<Volume::Log> older_;
};

class RandomRWFile : public FileOf<FSRandomRWFile> {
 public:
  RandomRWFile(OpenFile file, bool direct) : FileOf(std::move(file), direct) {}

  IOStatus Write(uint64_t offset, const Slice& data, const IOOptions&, IODebugContext*) override {
    return file_.Write(offset, data);
  }
  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return file_.Read(offset, n, result, scratch);
  }
  IOStatus Flush(const IOOptions&, IODebugContext*) override {
    return file_.get() != nullptr && file_.volume().flushes() ? file_.Flush() : IOStatus::OK();
  }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return file_.Sync(); }
  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return file_.Sync(); }
  IOStatus Close(const IOOptions& options, IODebugContext* dbg) override {
    if (file_.get() == nullptr) return IOStatus::OK();
    IOStatus status = Flush(options, dbg);
    file_.Close();
    return status;
  }
};

}  // namespace

IOStatus OpenFile::Open(std::shared_ptr<Volume> volume, const std::string& path, uint32_t flags, OpenFile* opened) {
  persimmon_file* file = nullptr;
  int error = persimmon_open_file(volume->fs(), path.c_str(), flags, 0644, &file);
  if (error != 0) return Failed(error);
  opened->volume_ = std::move(volume);
  opened->file_.reset(file);
  return IOStatus::OK();
}

void OpenFile::Close() {
  file_.reset();
  volume_.reset();
}

IOStatus OpenFile::Read(uint64_t offset, size_t n, Slice* result, char* scratch) const {
  size_t done = 0;
  int error = persimmon_pread(file_.get(), Bytes(scratch), n, offset, &done);
  *result = Slice(scratch, error == 0 ? done : 0);
  return ToStatus(error);
}

IOStatus OpenFile::Write(uint64_t offset, const Slice& data) {
  return ToStatus(persimmon_pwrite(file_.get(), Bytes(data.data()), data.size(), offset));
}

IOStatus OpenFile::Sync() { return ToStatus(persimmon_fsync(file_.get())); }

IOStatus OpenFile::Flush() { return ToStatus(persimmon_flush(file_.get())); }

size_t OpenFile::UniqueId(char* id, size_t max_size) const {
  persimmon_stat stat;
  // An inode number is given to one file in the life of a volume; caches belong to one process, and so do its volumes.
  if (max_size < 2 * sizeof(uint64_t) || persimmon_fstat(file_.get(), &stat) != 0) return 0;
  uint64_t parts[2] = {stat.ino, std::hash<std::string>()(volume_->device())};
  std::copy_n(reinterpret_cast<const char*>(parts), sizeof parts, id);
  return sizeof parts;
}

IOStatus NewSequentialFile(std::shared_ptr<Volume> volume, const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSSequentialFile>* result) {
  OpenFile file;
  IOStatus status = OpenFile::Open(std::move(volume), path, ToRead(options.use_direct_reads), &file);
  if (status.ok()) *result = std::make_unique<SequentialFile>(std::move(file), options.use_direct_reads);
  return status;
}

IOStatus NewRandomAccessFile(std::shared_ptr<Volume> volume, const std::string& path, const FileOptions& options,
                             std::unique_ptr<FSRandomAccessFile>* result) {
  OpenFile file;
  IOStatus status = OpenFile::Open(std::move(volume), path, ToRead(options.use_direct_reads), &file);
  if (status.ok()) *result = std::make_unique<RandomAccessFile>(std::move(file), options.use_direct_reads);
  return status;
}

IOStatus NewWritableFile(std::shared_ptr<Volume> volume, const std::string& path, bool fresh,
                         const FileOptions& options, std::unique_ptr<FSWritableFile>* result) {
  const bool is_table = IsSyncedBeforeUse(path);
  const bool keeps = volume->keeps_flushed() && !is_table;
  const uint32_t flags = PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE | (fresh ? PERSIMMON_OPEN_TRUNCATE : 0) |
                         (keeps ? PERSIMMON_OPEN_KEEP_FLUSHED : 0);
  std::shared_ptr<Volume::Log> log, older;
  OpenFile file;
  IOStatus status = OpenFile::Open(volume, path, flags, &file);
  if (!status.ok()) return status;
  if (!volume->flushes() && IsWriteAheadLog(path)) {
    log = std::make_shared<Volume::Log>(path);
    older = volume->NextLog(log);
  }
  persimmon_stat stat{};
  if (!fresh) {
    int error = persimmon_fstat(file.get(), &stat);
    if (error != 0) return Failed(error);
  }
  if (uint32_t lifetime = LifetimeByName(path)) (void)persimmon_set_lifetime(file.get(), lifetime);
  *result = std::make_unique<WritableFile>(std::move(file), options, stat.size, is_table, std::move(log), std::move(older));
  return status;
}

IOStatus NewRandomRWFile(std::shared_ptr<Volume> volume, const std::string& path, const FileOptions& options,
                         std::unique_ptr<FSRandomRWFile>* result) {
  OpenFile file;
  IOStatus status =
      OpenFile::Open(std::move(volume), path, ToRead(options.use_direct_reads) | PERSIMMON_OPEN_WRITE, &file);
  const bool direct = options.use_direct_reads && options.use_direct_writes;
  if (status.ok()) *result = std::make_unique<RandomRWFile>(std::move(file), direct);
  return status;
}

IOStatus Poll(std::vector<void*>& handles, size_t) {
  for (void* handle : handles) {
    if (handle != nullptr) static_cast<AsyncRead*>(handle)->Finish();
  }
  return IOStatus::OK();
}

IOStatus AbortIO(std::vector<void*>& handles) {
  for (void* handle : handles) {
    if (handle != nullptr) static_cast<AsyncRead*>(handle)->Abort();
  }
  return IOStatus::OK();
}

}  // namespace persimmon

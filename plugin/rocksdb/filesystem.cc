// SPDX-License-Identifier: MIT OR Apache-2.0
#include "filesystem.h"

#include <cerrno>
#include <cstdlib>

#include "files.h"
#include "logger.h"
#include "status.h"
#include "volume.h"

namespace persimmon {

using namespace rocksdb;

namespace {

constexpr char kTestDirectory[] = "/rocksdbtest";

class Lock : public FileLock {
 public:
  explicit Lock(std::string locked) : path(std::move(locked)) {}

  const std::string path;
  OpenFile file;
};

// Names of all directories are one history: what is before a sync in any of them becomes durable with it. So it does not matter
// what a directory is called by then.
class Directory : public FSDirectory {
 public:
  Directory(std::shared_ptr<Volume> volume, uint64_t ino) : volume_(std::move(volume)), ino_(ino) {}

  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return ToStatus(persimmon_sync_dir(volume_->fs(), "/"));
  }

  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

  size_t GetUniqueId(char* id, size_t max_size) const override {
    if (max_size < sizeof ino_) return 0;
    std::char_traits<char>::copy(id, reinterpret_cast<const char*>(&ino_), sizeof ino_);
    return sizeof ino_;
  }

 private:
  const std::shared_ptr<Volume> volume_;
  const uint64_t ino_;
};

// As RocksDB takes by itself for direct reads, and newer ones always.
constexpr size_t kCompactionReadahead = 2 << 20;

class PersimmonFileSystem : public FileSystem {
 public:
  PersimmonFileSystem(std::shared_ptr<Volume> volume, std::string uri)
      : volume_(std::move(volume)), uri_(std::move(uri)) {}

  static const char* kClassName() { return "PersimmonFileSystem"; }
  const char* Name() const override { return kClassName(); }
  std::string GetId() const override { return uri_; }

  IOStatus NewSequentialFile(const std::string& path, const FileOptions& options,
                             std::unique_ptr<FSSequentialFile>* result, IODebugContext*) override {
    return persimmon::NewSequentialFile(volume_, path, options, result);
  }

  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* result, IODebugContext*) override {
    return persimmon::NewRandomAccessFile(volume_, path, options, result);
  }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* result, IODebugContext*) override {
    return persimmon::NewWritableFile(volume_, path, true, options, result);
  }

  // Nothing below reads ahead or caches, and RocksDB leaves reading ahead in compactions to what is below up to 8.7 unless it is told otherwise:
  // it would read each block of 4 KiB from the device alone, and, as few of them begin where a block of the device does, most bytes twice.
  FileOptions OptimizeForCompactionTableRead(const FileOptions& options, const ImmutableDBOptions& db_options) const override {
    FileOptions optimized = FileSystem::OptimizeForCompactionTableRead(options, db_options);
    // Of one that reads ahead by itself, 0 is what the user wants.
    static const bool reads_ahead = DBOptions().compaction_readahead_size != 0;
    if (!reads_ahead && optimized.compaction_readahead_size == 0) optimized.compaction_readahead_size = kCompactionReadahead;
    return optimized;
  }

  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* result, IODebugContext*) override {
    return persimmon::NewWritableFile(volume_, path, false, options, result);
  }

  // A zone is only appended to: to write over a file from its beginning, as RocksDB would do with an old log, costs more than to empty it.
  // Names change first: a file that could not be renamed keeps what it has.
  IOStatus ReuseWritableFile(const std::string& path, const std::string& old_path, const FileOptions& options,
                             std::unique_ptr<FSWritableFile>* result, IODebugContext*) override {
    const int error = persimmon_rename(volume_->fs(), old_path.c_str(), path.c_str(), PERSIMMON_RENAME_REPLACE);
    return error != 0 ? Failed(error) : persimmon::NewWritableFile(volume_, path, true, options, result);
  }

  IOStatus NewRandomRWFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSRandomRWFile>* result, IODebugContext*) override {
    return persimmon::NewRandomRWFile(volume_, path, options, result);
  }

  IOStatus NewDirectory(const std::string& path, const IOOptions&, std::unique_ptr<FSDirectory>* result,
                        IODebugContext*) override {
    persimmon_stat stat;
    IOStatus status = Stat(path, &stat);
    if (!status.ok()) return status;
    if (!IsDirectory(stat)) return IOStatus::IOError(path, "is not a directory");
    result->reset(new Directory(volume_, stat.ino));
    return status;
  }

  IOStatus FileExists(const std::string& path, const IOOptions&, IODebugContext*) override {
    persimmon_stat stat;
    const int error = persimmon_stat_path(volume_->fs(), path.c_str(), &stat);
    return NamesNothing(error) ? IOStatus::NotFound() : ToStatus(error);
  }

  IOStatus GetChildren(const std::string& path, const IOOptions&, std::vector<std::string>* result,
                       IODebugContext*) override {
    result->clear();
    return List(path, [&](const persimmon_dirent& entry) {
      result->emplace_back(entry.name);
      return IOStatus::OK();
    });
  }

  IOStatus GetChildrenFileAttributes(const std::string& path, const IOOptions&,
                                     std::vector<Env::FileAttributes>* result, IODebugContext*) override {
    result->clear();
    return List(path, [&](const persimmon_dirent& entry) {
      persimmon_stat stat;
      const int error = persimmon_stat_path(volume_->fs(), (path + "/" + entry.name).c_str(), &stat);
      // Removed meanwhile. One that cannot be looked at is there: a backup without it would not be whole.
      if (NamesNothing(error)) return IOStatus::OK();
      if (error == 0) result->push_back({entry.name, stat.size});
      return ToStatus(error);
    });
  }

  IOStatus DeleteFile(const std::string& path, const IOOptions&, IODebugContext*) override {
    return Of(persimmon_unlink, path);
  }

  IOStatus Truncate(const std::string& path, size_t size, const IOOptions&, IODebugContext*) override {
    return ToStatus(persimmon_truncate(volume_->fs(), path.c_str(), size));
  }

  IOStatus CreateDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    return Of(persimmon_mkdir, path);
  }

  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions&, IODebugContext*) override {
    const IOStatus made = Of(persimmon_mkdir, path);
    if (made.ok()) return made;
    // A full volume and one that is only read refuse it before they look whether it is there.
    persimmon_stat stat;
    if (persimmon_stat_path(volume_->fs(), path.c_str(), &stat) != 0) return made;
    return IsDirectory(stat) ? IOStatus::OK() : IOStatus::IOError(path, "exists and is not a directory");
  }

  IOStatus DeleteDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    return Of(persimmon_rmdir, path);
  }

  IOStatus GetFileSize(const std::string& path, const IOOptions&, uint64_t* size, IODebugContext*) override {
    persimmon_stat stat{};
    IOStatus status = Stat(path, &stat);
    *size = stat.size;
    return status;
  }

  IOStatus GetFileModificationTime(const std::string& path, const IOOptions&, uint64_t* time,
                                   IODebugContext*) override {
    persimmon_stat stat{};
    IOStatus status = Stat(path, &stat);
    *time = static_cast<uint64_t>(stat.mtime.seconds);
    return status;
  }

  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&, IODebugContext*) override {
    return ToStatus(persimmon_rename(volume_->fs(), from.c_str(), to.c_str(), PERSIMMON_RENAME_REPLACE));
  }

  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions&, IODebugContext*) override {
    const int error = persimmon_link(volume_->fs(), from.c_str(), to.c_str());
    // Between projects, and out of a snapshot. Told so, as RocksDB's own file system tells it of two devices, checkpoints and ingestion copy.
    if (error == EXDEV) return IOStatus::NotSupported(persimmon_error_message());
    return ToStatus(error);
  }

  IOStatus NumFileLinks(const std::string& path, const IOOptions&, uint64_t* count, IODebugContext*) override {
    persimmon_stat stat{};
    IOStatus status = Stat(path, &stat);
    *count = stat.nlink;
    return status;
  }

  IOStatus AreFilesSame(const std::string& one, const std::string& other, const IOOptions&, bool* same,
                        IODebugContext*) override {
    persimmon_stat first{}, second{};
    IOStatus status = Stat(one, &first);
    if (status.ok()) status = Stat(other, &second);
    *same = status.ok() && first.ino == second.ino;
    return status;
  }

  IOStatus NewLogger(const std::string& path, const IOOptions&, std::shared_ptr<Logger>* result,
                     IODebugContext*) override {
    return persimmon::NewLogger(volume_, path, result);
  }

  // The volume belongs to this process: a lock keeps apart its own databases only.
  IOStatus LockFile(const std::string& path, const IOOptions&, FileLock** result, IODebugContext*) override {
    *result = nullptr;
    const auto held = [&] { return IOStatus::IOError("lock " + path, "is held by a database of this process already"); };
    if (!volume_->AcquireName(path)) return held();
    auto lock = std::make_unique<Lock>(path);
    const uint32_t flags = PERSIMMON_OPEN_READ | PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE;
    IOStatus status = OpenFile::Open(volume_, path, flags, &lock->file);
    // The name alone is not enough: the same file has others (/db/LOCK, /db//LOCK). This lock ends with the open file.
    if (status.ok()) {
      const int error = persimmon_lock(lock->file.get(), 1);
      status = error == EAGAIN ? held() : ToStatus(error);
    }
    if (!status.ok()) {
      volume_->ReleaseName(path);
      return status;
    }
    *result = lock.release();
    return status;
  }

  IOStatus UnlockFile(FileLock* held, const IOOptions&, IODebugContext*) override {
    std::unique_ptr<Lock> lock(static_cast<Lock*>(held));
    lock->file.Close();
    volume_->ReleaseName(lock->path);
    return IOStatus::OK();
  }

  // As RocksDB's own file systems, by the environment.
  IOStatus GetTestDirectory(const IOOptions&, std::string* path, IODebugContext*) override {
    const char* told = std::getenv("TEST_TMPDIR");
    *path = told != nullptr && *told != '\0' ? told : kTestDirectory;
    return Of(persimmon_mkdir_all, *path);
  }

  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* absolute,
                           IODebugContext*) override {
    *absolute = !path.empty() && path[0] == '/' ? path : "/" + path;
    return IOStatus::OK();
  }

  IOStatus GetFreeSpace(const std::string& path, const IOOptions&, uint64_t* bytes, IODebugContext*) override {
    return volume_->RoomForTables(path, bytes);
  }

  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* is_directory, IODebugContext*) override {
    persimmon_stat stat{};
    IOStatus status = Stat(path, &stat);
    *is_directory = status.ok() && IsDirectory(stat);
    return status;
  }

  IOStatus Poll(std::vector<void*>& handles, size_t min_completions) override {
    return persimmon::Poll(handles, min_completions);
  }

  IOStatus AbortIO(std::vector<void*>& handles) override { return persimmon::AbortIO(handles); }

 private:
  static bool IsDirectory(const persimmon_stat& stat) { return (stat.mode & 0170000) == 0040000; }

  IOStatus Stat(const std::string& path, persimmon_stat* stat) {
    return ToStatus(persimmon_stat_path(volume_->fs(), path.c_str(), stat));
  }

  IOStatus Of(int (*call)(const persimmon_fs*, const char*), const std::string& path) {
    return ToStatus(call(volume_->fs(), path.c_str()));
  }

  template <typename Each>
  IOStatus List(const std::string& path, Each each) {
    persimmon_dir* dir = nullptr;
    int error = persimmon_opendir(volume_->fs(), path.c_str(), &dir);
    if (NamesNothing(error)) return IOStatus::NotFound(path, persimmon_error_message());
    if (error != 0) return Failed(error);
    std::unique_ptr<persimmon_dir, void (*)(persimmon_dir*)> closes(dir, persimmon_closedir);
    for (;;) {
      persimmon_dirent entry{};
      error = persimmon_readdir(dir, &entry);
      if (error != 0) return Failed(error);
      if (entry.name == nullptr) return IOStatus::OK();
      IOStatus status = each(entry);
      if (!status.ok()) return status;
    }
  }

  const std::shared_ptr<Volume> volume_;
  const std::string uri_;
};

}  // namespace

Status NewPersimmonFileSystem(const std::string& uri, std::unique_ptr<FileSystem>* result) {
  std::shared_ptr<Volume> volume;
  Status status = Volume::Open(uri, &volume);
  if (status.ok()) result->reset(new PersimmonFileSystem(std::move(volume), uri));
  return status;
}

}  // namespace persimmon

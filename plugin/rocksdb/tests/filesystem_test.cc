// The methods of the file system, one by one, on a volume that is empty.
//
//   filesystem_test URI             everything but what follows
//   filesystem_test URI read_only   what everything but what follows has left, of a URI with read_only=1
//   filesystem_test URI lifetimes   writes files of each lifetime, by hints and by names; their zones tell whether they got there
//   filesystem_test URI projects    in two folders, /one and /two, that are of different projects
//   filesystem_test URI die         writes files and is killed by itself
//   filesystem_test URI died MODE   what that left, by the mode of flush: kernel, through or memory
//   filesystem_test URI logs        writes two logs, of a URI with flush=memory, and is killed by itself
//   filesystem_test URI logged      what that left
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <rocksdb/utilities/checkpoint.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <thread>
#include <vector>

#include "check.h"

using namespace rocksdb;

namespace {

const IOOptions kIO;
const FileOptions kFile;

class Tests {
 public:
  explicit Tests(std::string uri) : uri_(std::move(uri)), fs_(OpenFileSystem(uri_)) {}

  void Write(const std::string& path, const std::string& content) {
    std::unique_ptr<FSWritableFile> file;
    CheckOk(fs_->NewWritableFile(path, kFile, &file, nullptr), path);
    CheckOk(file->Append(content, kIO, nullptr), path);
    CheckOk(file->Close(kIO, nullptr), path);
  }

  std::string Content(const std::string& path) {
    std::string content;
    CheckOk(ReadFileToString(fs_.get(), path, &content), path);
    return content;
  }

  std::unique_ptr<FSRandomAccessFile> Open(const std::string& path) {
    std::unique_ptr<FSRandomAccessFile> file;
    CheckOk(fs_->NewRandomAccessFile(path, kFile, &file, nullptr), path);
    return file;
  }

  // A file of so many blocks, that do not compress.
  void WriteBlocks(const std::string& path, size_t blocks, Env::WriteLifeTimeHint hint) {
    std::unique_ptr<FSWritableFile> file;
    CheckOk(fs_->NewWritableFile(path, kFile, &file, nullptr), path);
    if (hint != Env::WLTH_NOT_SET) file->SetWriteLifeTimeHint(hint);
    std::string content(blocks * 4096, '\0');
    for (char& byte : content) byte = static_cast<char>(noise_());
    CheckOk(file->Append(content, kIO, nullptr), path);
    CheckOk(file->Fsync(kIO, nullptr), path);
    CheckOk(file->Close(kIO, nullptr), path);
  }

  // A database's files with hints and without, each of another power of two: sums by lifetime tell which went where.
  void Lifetimes() {
    WriteBlocks("/000001.sst", 16, Env::WLTH_SHORT);
    WriteBlocks("/000002.sst", 32, Env::WLTH_MEDIUM);
    WriteBlocks("/000003.sst", 64, Env::WLTH_LONG);
    WriteBlocks("/000004.sst", 128, Env::WLTH_EXTREME);
    WriteBlocks("/000005.log", 256, Env::WLTH_NOT_SET);
    WriteBlocks("/CURRENT.dbtmp", 512, Env::WLTH_NOT_SET);
    WriteBlocks("/MANIFEST-000006", 1024, Env::WLTH_NOT_SET);
    WriteBlocks("/OPTIONS-000007", 2048, Env::WLTH_NOT_SET);
    WriteBlocks("/IDENTITY", 8, Env::WLTH_NOT_SET);
    WriteBlocks("/CURRENT", 4, Env::WLTH_NOT_SET);
    // What RocksDB says of a file goes before its name.
    WriteBlocks("/000008.log", 4096, Env::WLTH_MEDIUM);
  }

  void WritableFiles() {
    std::unique_ptr<FSWritableFile> file;
    CheckOk(fs_->NewWritableFile("/log", kFile, &file, nullptr), "making it");
    CheckOk(file->Append("one", kIO, nullptr), "append");
    CheckOk(file->PositionedAppend("two", 3, kIO, nullptr), "append at an offset");
    CheckOk(file->RangeSync(0, 1, kIO, nullptr), "begin to write a range");
    Check(file->GetFileSize(kIO, nullptr) == 6, "size");
    CheckOk(file->Truncate(4, kIO, nullptr), "truncate");
    CheckOk(file->Append("hree", kIO, nullptr), "append after truncate");
    CheckOk(file->RangeSync(0, 4, kIO, nullptr), "range sync");
    CheckOk(file->Fsync(kIO, nullptr), "fsync");
    CheckOk(file->Close(kIO, nullptr), "close");
    CheckOk(file->Close(kIO, nullptr), "close again");
    Check(Content("/log") == "onethree", "content");
    CheckOk(fs_->ReopenWritableFile("/log", kFile, &file, nullptr), "reopen");
    Check(file->GetFileSize(kIO, nullptr) == 8, "size when it is reopened");
    CheckOk(file->Append("four", kIO, nullptr), "append when it is reopened");
    CheckOk(file->Close(kIO, nullptr), "close");
    Check(Content("/log") == "onethreefour", "content after it was reopened");
    CheckOk(fs_->NewWritableFile("/log", kFile, &file, nullptr), "making it anew");
    Check(file->GetFileSize(kIO, nullptr) == 0 && Content("/log").empty(), "a new file is empty");
    CheckOk(fs_->ReuseWritableFile("/reused", "/log", kFile, &file, nullptr), "reuse");
    CheckOk(file->Append("again", kIO, nullptr), "append to the reused file");
    CheckOk(file->Close(kIO, nullptr), "close");
    Check(Content("/reused") == "again" && fs_->FileExists("/log", kIO, nullptr).IsNotFound(), "reused");
    Write("/old", "what the old log held");
    CheckOk(fs_->ReuseWritableFile("/reused", "/old", kFile, &file, nullptr), "reuse over a file that exists");
    Check(file->GetFileSize(kIO, nullptr) == 0, "a reused file is empty");
    CheckOk(file->Close(kIO, nullptr), "close");
    Check(Content("/reused").empty() && fs_->FileExists("/old", kIO, nullptr).IsNotFound(), "reused again");
    Check(fs_->ReuseWritableFile("/new", "/missing", kFile, &file, nullptr).IsPathNotFound(), "reuse of what is missing");
    Check(fs_->FileExists("/new", kIO, nullptr).IsNotFound(), "a file is made of one that is missing");
  }

  void RandomFiles() {
    std::unique_ptr<FSRandomRWFile> file;
    Check(fs_->NewRandomRWFile("/random", kFile, &file, nullptr).IsPathNotFound(), "it makes no file");
    Write("/random", "0123456789");
    CheckOk(fs_->NewRandomRWFile("/random", kFile, &file, nullptr), "open for reads and writes");
    Check(file->GetRequiredBufferAlignment() == 4096, "alignment");
    CheckOk(file->Write(3, "abc", kIO, nullptr), "write in the middle");
    CheckOk(file->Write(12, "z", kIO, nullptr), "write behind the end");
    char scratch[16];
    Slice read;
    CheckOk(file->Read(2, sizeof scratch, kIO, &read, scratch, nullptr), "read");
    Check(read == Slice("2abc6789\0\0z", 11), "content: " + read.ToString(true));
    CheckOk(file->Flush(kIO, nullptr), "flush");
    CheckOk(file->Sync(kIO, nullptr), "sync");
    CheckOk(file->Fsync(kIO, nullptr), "fsync");
    CheckOk(file->Close(kIO, nullptr), "close");
    CheckOk(file->Close(kIO, nullptr), "close again");
    CheckOk(fs_->Truncate("/random", 5, kIO, nullptr), "truncate");
    Check(Content("/random") == "012ab", "content after it was truncated");
    CheckOk(fs_->Truncate("/random", 7, kIO, nullptr), "extend");
    Check(Content("/random") == std::string("012ab\0\0", 7), "content after it was extended");
    Check(fs_->Truncate("/missing", 1, kIO, nullptr).IsPathNotFound(), "truncate of what is missing");
    uint64_t size = 0, time = 0;
    CheckOk(fs_->GetFileSize("/random", kIO, &size, nullptr), "size");
    Check(size == 7, "size");
    CheckOk(fs_->GetFileModificationTime("/random", kIO, &time, nullptr), "time");
    const time_t now = std::time(nullptr);
    Check(time > 0 && static_cast<time_t>(time) <= now && now - static_cast<time_t>(time) < 3600, "time of a change");
    Check(fs_->GetFileModificationTime("/missing", kIO, &time, nullptr).IsPathNotFound(), "time of what is missing");
    CheckOk(fs_->CreateDir("/folder", kIO, nullptr), "directory");
    bool is_directory = true;
    CheckOk(fs_->IsDirectory("/random", kIO, &is_directory, nullptr), "what a file is");
    Check(!is_directory, "a file is no directory");
    CheckOk(fs_->IsDirectory("/folder", kIO, &is_directory, nullptr), "what a directory is");
    Check(is_directory, "a directory is one");
    Check(fs_->IsDirectory("/missing", kIO, &is_directory, nullptr).IsPathNotFound() && !is_directory, "what is missing");
  }

  void Messages() {
    std::shared_ptr<Logger> log;
    CheckOk(fs_->NewLogger("/LOG", kIO, &log, nullptr), "log of messages");
    log->SetInfoLogLevel(InfoLogLevel::INFO_LEVEL);
    Info(log, "message %d", 1);
    Debug(log, "message %d", 2);
    const std::string longer(3000, 'x');
    Info(log, "%s", longer.c_str());
    log->Flush();
    const std::string content = Content("/LOG");
    Check(content.size() == log->GetLogFileSize(), "size of a log of messages");
    Check(content.find(" message 1\n") != std::string::npos && content.find("message 2") == std::string::npos &&
              content.find(longer + "\n") != std::string::npos,
          "content of a log of messages");
    Check(std::count(content.begin(), content.end(), '\n') == 2, "lines of a log of messages");
    CheckOk(log->Close(), "close of a log of messages");
    Info(log, "after it was closed");
    Check(Content("/LOG") == content, "a log of messages that is closed");
  }

  // A batch whose requests are refused as a whole once looked like an empty success.
  void Batches() {
    Write("/table", "0123456789");
    auto file = Open("/table");
    char buffer[3][4];
    std::vector<FSReadRequest> requests(3);
    const uint64_t offsets[] = {0, 8, 20};
    for (size_t i = 0; i < requests.size(); i++) {
      requests[i].offset = offsets[i];
      requests[i].len = sizeof buffer[i];
      requests[i].scratch = buffer[i];
    }
    CheckOk(file->MultiRead(requests.data(), requests.size(), kIO, nullptr), "batch");
    const char* expected[] = {"0123", "89", ""};
    for (size_t i = 0; i < requests.size(); i++) {
      CheckOk(requests[i].status, "request of a batch");
      Check(requests[i].result == expected[i], "content of a request: " + requests[i].result.ToString());
    }
    requests[1].scratch = nullptr;
    IOStatus whole = file->MultiRead(requests.data(), requests.size(), kIO, nullptr);
    for (size_t i = 0; i < requests.size(); i++) {
      Check(!whole.ok() || !requests[i].status.ok(), "a batch that is refused tells no request of it");
      Check(requests[i].result.empty(), "a batch that is refused has read something");
    }
  }

  void AsyncReads() {
    auto file = Open("/table");
    struct Answer {
      int calls = 0;
      IOStatus status;
      std::string content;
    };
    auto submit = [&](uint64_t offset, char* scratch, Answer* answer, void** handle, IOHandleDeleter* deleter) {
      FSReadRequest request;
      request.offset = offset;
      request.len = 4;
      request.scratch = scratch;
      auto callback = [](const FSReadRequest& read, void* argument) {
        auto* told = static_cast<Answer*>(argument);
        told->calls++;
        told->status = read.status;
        told->content = read.result.ToString();
      };
      CheckOk(file->ReadAsync(request, kIO, callback, answer, handle, deleter, nullptr), "submitting");
    };
    char scratch[2][4];
    Answer answers[2];
    std::vector<void*> handles(2);
    IOHandleDeleter deleters[2];
    for (size_t i = 0; i < 2; i++) submit(4 * i, scratch[i], &answers[i], &handles[i], &deleters[i]);
    CheckOk(fs_->Poll(handles, handles.size()), "poll");
    CheckOk(fs_->Poll(handles, handles.size()), "poll again");
    Check(answers[0].calls == 1 && answers[1].calls == 1, "each read is answered once");
    CheckOk(answers[0].status, "read");
    Check(answers[0].content == "0123" && answers[1].content == "4567", "content");
    for (size_t i = 0; i < 2; i++) deleters[i](handles[i]);
    answers[0] = {};
    submit(0, scratch[0], &answers[0], &handles[0], &deleters[0]);
    handles.resize(1);
    CheckOk(fs_->AbortIO(handles), "abort");
    Check(answers[0].calls == 1 && answers[0].status.IsAborted(), "an aborted read is answered so");
    deleters[0](handles[0]);
    submit(0, scratch[0], &answers[0], &handles[0], &deleters[0]);
    deleters[0](handles[0]);  // Given up without a word.
    Check(file->Prefetch(0, 4, kIO, nullptr).IsNotSupported(), "nothing caches what could be read ahead");
    CheckOk(file->InvalidateCache(0, 0), "invalidate");
  }

  void Names() {
    CheckOk(fs_->CreateDir("/dir", kIO, nullptr), "mkdir");
    Check(!fs_->CreateDir("/dir", kIO, nullptr).ok(), "mkdir of what exists");
    CheckOk(fs_->CreateDirIfMissing("/dir", kIO, nullptr), "mkdir if missing");
    // A database or a backup in the root could not be opened.
    CheckOk(fs_->CreateDirIfMissing("/", kIO, nullptr), "mkdir of the root if it is missing");
    Check(!fs_->CreateDir("/", kIO, nullptr).ok(), "mkdir of the root");
    Write("/dir/a", "aa");
    CheckOk(fs_->LinkFile("/dir/a", "/dir/b", kIO, nullptr), "link");
    uint64_t links = 0;
    CheckOk(fs_->NumFileLinks("/dir/a", kIO, &links, nullptr), "links");
    bool same = false;
    CheckOk(fs_->AreFilesSame("/dir/a", "/dir/b", kIO, &same, nullptr), "same");
    Check(links == 2 && same, "a hard link is the same file");
    CheckOk(fs_->RenameFile("/dir", "/renamed", kIO, nullptr), "rename of a directory");
    Write("/new", "new");
    CheckOk(fs_->RenameFile("/new", "/renamed/a", kIO, nullptr), "rename over a file");
    Check(Content("/renamed/a") == "new" && Content("/renamed/b") == "aa", "content after renames");
    std::vector<std::string> names;
    CheckOk(fs_->GetChildren("/renamed", kIO, &names, nullptr), "children");
    std::sort(names.begin(), names.end());
    Check(names == std::vector<std::string>{"a", "b"}, "names");
    std::vector<Env::FileAttributes> attributes;
    CheckOk(fs_->GetChildrenFileAttributes("/renamed", kIO, &attributes, nullptr), "attributes");
    Check(attributes.size() == 2 && attributes[0].size_bytes + attributes[1].size_bytes == 5, "sizes");
    std::unique_ptr<FSDirectory> directory;
    CheckOk(fs_->NewDirectory("/renamed", kIO, &directory, nullptr), "directory");
    CheckOk(directory->Fsync(kIO, nullptr), "fsync of a directory");
    CheckOk(directory->Close(kIO, nullptr), "close of a directory");
    // An open directory went by its name, and could not be synced once that had changed.
    CheckOk(fs_->CreateDir("/before", kIO, nullptr), "directory");
    CheckOk(fs_->NewDirectory("/before", kIO, &directory, nullptr), "directory");
    char id[2][16];
    const size_t id_bytes = directory->GetUniqueId(id[0], sizeof id[0]);
    CheckOk(fs_->RenameFile("/before", "/after", kIO, nullptr), "rename of an open directory");
    CheckOk(directory->Fsync(kIO, nullptr), "fsync of a renamed directory");
    Check(id_bytes > 0 && directory->GetUniqueId(id[1], sizeof id[1]) == id_bytes &&
              std::equal(id[0], id[0] + id_bytes, id[1]),
          "the identity of a renamed directory");
    CheckOk(fs_->DeleteDir("/after", kIO, nullptr), "removal of an open directory");
    CheckOk(directory->Fsync(kIO, nullptr), "fsync of a removed directory");
    Check(fs_->NewDirectory("/after", kIO, &directory, nullptr).IsPathNotFound(), "a directory that is missing");
    Check(fs_->NewDirectory("/renamed/a", kIO, &directory, nullptr).IsIOError(), "a file is no directory");
    Check(!fs_->DeleteDir("/renamed", kIO, nullptr).ok(), "rmdir of what is not empty");
    Check(fs_->DeleteFile("/missing", kIO, nullptr).IsPathNotFound(), "unlink of what is missing");
    Check(fs_->GetChildren("/missing", kIO, &names, nullptr).IsNotFound(), "children of what is missing");
    // As RocksDB's own file system tells it: an error of another kind ends what only asked whether something is there.
    Check(fs_->FileExists("/renamed/a/below", kIO, nullptr).IsNotFound(), "what is below a file");
    Check(fs_->GetChildren("/renamed/a", kIO, &names, nullptr).IsNotFound(), "children of a file");
    Check(fs_->GetChildren("/renamed/a/below", kIO, &names, nullptr).IsNotFound(), "children below a file");
    std::unique_ptr<FSSequentialFile> missing;
    Check(fs_->NewSequentialFile("/missing", kFile, &missing, nullptr).IsPathNotFound(), "open of what is missing");
    Check(fs_->NewSequentialFile("/renamed/a/below", kFile, &missing, nullptr).IsIOError(), "open of what is below a file");
    Check(fs_->DeleteFile("/renamed/a/below", kIO, nullptr).IsIOError(), "unlink of what is below a file");
    Check(fs_->CreateDir("/renamed/a", kIO, nullptr).IsIOError(), "a directory in the place of a file");
    Check(fs_->CreateDirIfMissing("/renamed/a", kIO, nullptr).IsIOError(), "a file in the place of a directory");
    Check(fs_->CreateDirIfMissing("/missing/a", kIO, nullptr).IsPathNotFound(), "a directory in what is missing");
    const std::string longest = "/" + std::string(300, 'x');
    std::unique_ptr<FSWritableFile> unmade;
    Check(fs_->NewWritableFile(longest, kFile, &unmade, nullptr).IsInvalidArgument(), "a name that is too long");
    Check(!fs_->NewWritableFile("/unmade/", kFile, &unmade, nullptr).ok(), "a file of a path that ends in a slash");
    Check(fs_->FileExists("/unmade", kIO, nullptr).IsNotFound(), "it is made without the slash");
    Check(fs_->FileExists(longest, kIO, nullptr).IsNotFound(), "a name that is too long");
    uint64_t bytes = 0;
    CheckOk(fs_->GetFreeSpace("/", kIO, &bytes, nullptr), "free space");
    Check(bytes > 0, "free space");
  }

  void Locks() {
    FileLock *lock = nullptr, *second = nullptr;
    CheckOk(fs_->LockFile("/LOCK", kIO, &lock, nullptr), "lock");
    IOStatus status = fs_->LockFile("/LOCK", kIO, &second, nullptr);
    Check(!status.ok() && status.ToString().find("/LOCK") != std::string::npos, "a second lock is refused");
    // Other names of the same file: two databases once had it, each by its spelling of the folder.
    CheckOk(fs_->LinkFile("/LOCK", "/renamed/LOCK", kIO, nullptr), "link of the lock");
    for (const char* other : {"//LOCK", "/./LOCK", "/renamed/../LOCK", "/renamed/LOCK"}) {
      status = fs_->LockFile(other, kIO, &second, nullptr);
      Check(!status.ok() && status.ToString().find("is held by a database") != std::string::npos, other);
    }
    CheckOk(fs_->UnlockFile(lock, kIO, nullptr), "unlock");
    CheckOk(fs_->LockFile("//LOCK", kIO, &lock, nullptr), "lock by another spelling");
    CheckOk(fs_->UnlockFile(lock, kIO, nullptr), "unlock");
    CheckOk(fs_->LockFile("/LOCK", kIO, &lock, nullptr), "lock again");
    CheckOk(fs_->UnlockFile(lock, kIO, nullptr), "unlock");
  }

  // Options of an open volume cannot change: a second database that asks for others would silently not get them.
  void Sharing() {
    std::shared_ptr<FileSystem> other;
    CheckOk(FileSystem::CreateFromString(ConfigOptions(), uri_, &other), "sharing the volume");
    CheckOk(other->FileExists("/table", kIO, nullptr), "what the other sees");
    const std::string changed = uri_ + (uri_.find('?') == std::string::npos ? "?" : "&") + "commit=7";
    // A new pointer: RocksDB takes the URI for options of the object that one holds already.
    std::shared_ptr<FileSystem> refused;
    Status status = FileSystem::CreateFromString(ConfigOptions(), changed, &refused);
    Check(status.IsInvalidArgument() && status.ToString().find("commit=7") != std::string::npos, status.ToString());
  }

  // What strtoull skips and takes beside digits was a number: `cache=%20-5` was all the memory there is.
  void BadOptions() {
    for (const char* option : {"cache=%20-5", "cache=-5", "cache=+5M", "cache=0x10", "cache=", "cache=5T", "cache=5MB", "read_cache=%095",
                               "staging=0", "commit=0x1", "commit=+5", "commit=1e2", "commit=.5", "commit=5.", "commit=0", "commit=0.0001",
                               "commit=3601", "commit=nan", "compression=", "unknown=1"}) {
      std::shared_ptr<FileSystem> refused;
      const std::string uri = uri_ + (uri_.find('?') == std::string::npos ? "?" : "&") + option;
      const Status status = FileSystem::CreateFromString(ConfigOptions(), uri, &refused);
      Check(status.IsInvalidArgument() && status.ToString().find("compression=none|lz4") != std::string::npos,
            std::string(option) + ": " + status.ToString());
    }
  }

  // A thread that opens the volume while another closes it waits, where it once was told that the volume is in use.
  void Reopening() {
    fs_.reset();
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; thread++) {
      threads.emplace_back([this] {
        for (int round = 0; round < 20; round++) OpenFileSystem(uri_).reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
    fs_ = OpenFileSystem(uri_);
    Check(Content("/table") == "0123456789", "content after all that");
  }

  // Who was refused for its options could be the last that had the volume, and closed it with the registry locked: it waited
  // for itself for ever. The message was made of what the volume had held.
  void ReopeningWithOthers() {
    fs_.reset();
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; thread++) {
      const std::string uri = uri_ + (uri_.find('?') == std::string::npos ? "?" : "&") + "commit=" + std::to_string(thread + 6);
      threads.emplace_back([uri] {
        for (int round = 0; round < 50; round++) {
          std::shared_ptr<FileSystem> mine;
          Status status = FileSystem::CreateFromString(ConfigOptions(), uri, &mine);
          const bool is_refused =
              status.IsInvalidArgument() && status.ToString().find("is open in this process with the options") != std::string::npos;
          Check(status.ok() || is_refused, status.ToString());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    fs_ = OpenFileSystem(uri_);
  }

  // Of a volume that is opened to read: everything can be read, and every change is refused for that reason.
  void ReadOnly() {
    auto refused = [](const IOStatus& status, const char* what) {
      Check(status.IsIOError() && status.ToString().find("ead-only") != std::string::npos,
            std::string(what) + " is not refused for it: " + status.ToString());
    };
    const std::string content = Content("/table");
    Check(content == "0123456789", "content");
    std::vector<std::string> names;
    CheckOk(fs_->GetChildren("/", kIO, &names, nullptr), "children");
    Check(std::find(names.begin(), names.end(), "table") != names.end(), "children");
    char scratch[4];
    Slice read;
    CheckOk(Open("/table")->Read(4, sizeof scratch, kIO, &read, scratch, nullptr), "read");
    Check(read == "4567", "content at an offset");
    std::unique_ptr<FSWritableFile> file;
    refused(fs_->NewWritableFile("/new", kFile, &file, nullptr), "making a file");
    refused(fs_->NewWritableFile("/table", kFile, &file, nullptr), "emptying a file");
    refused(fs_->ReopenWritableFile("/table", kFile, &file, nullptr), "appending to a file");
    refused(fs_->CreateDir("/new", kIO, nullptr), "making a directory");
    refused(fs_->CreateDirIfMissing("/new", kIO, nullptr), "making a directory if it is missing");
    CheckOk(fs_->CreateDirIfMissing("/renamed", kIO, nullptr), "making a directory that is there");
    refused(fs_->DeleteFile("/table", kIO, nullptr), "removing a file");
    refused(fs_->RenameFile("/table", "/new", kIO, nullptr), "renaming a file");
    refused(fs_->LinkFile("/table", "/new", kIO, nullptr), "linking a file");
    refused(fs_->Truncate("/table", 1, kIO, nullptr), "truncating a file");
    Check(Content("/table") == content && fs_->FileExists("/new", kIO, nullptr).IsNotFound(), "something has changed");
  }

  // What cannot be linked is copied where RocksDB is told so by NotSupported: checkpoints failed, and so did files that were brought in.
  void Projects() {
    Write("/one/file", "content");
    const IOStatus status = fs_->LinkFile("/one/file", "/two/file", kIO, nullptr);
    Check(status.IsNotSupported(), "a link between projects: " + status.ToString());
    const std::unique_ptr<Env> env = NewCompositeEnv(fs_);
    Options options = SmallDatabase(env.get());
    DB* db = nullptr;
    CheckOk(DB::Open(options, "/one/db", &db), "open");
    CheckOk(db->Put(WriteOptions(), "key", "value"), "put");
    CheckOk(db->Flush(FlushOptions()), "flush");
    Checkpoint* checkpoint = nullptr;
    CheckOk(Checkpoint::Create(db, &checkpoint), "checkpoint");
    CheckOk(checkpoint->CreateCheckpoint("/two/db"), "checkpoint into another project");
    delete checkpoint;
    delete db;
    CheckOk(DB::OpenForReadOnly(options, "/two/db", &db), "open of the checkpoint");
    std::string value;
    CheckOk(db->Get(ReadOptions(), "key", &value), "get");
    Check(value == "value", "what the checkpoint has");
    delete db;
  }

  // A log that is flushed, one that is not, a table that is closed: what outlives a kill.
  [[noreturn]] void Die() {
    std::shared_ptr<Logger> messages;
    CheckOk(fs_->NewLogger("/messages", kIO, &messages, nullptr), "log of messages");
    Header(messages, "a message");
    messages->Flush();
    std::unique_ptr<FSWritableFile> log, table;
    CheckOk(fs_->NewWritableFile("/000007.log", kFile, &log, nullptr), "log");
    for (int record = 0; record < 1000; record++) {
      CheckOk(log->Append("record " + std::to_string(record) + "\n", kIO, nullptr), "append");
      CheckOk(log->Flush(kIO, nullptr), "flush");
    }
    const std::string megabyte(1 << 20, 't');
    CheckOk(fs_->NewWritableFile("/000008.sst", kFile, &table, nullptr), "table");
    CheckOk(table->Append(megabyte, kIO, nullptr), "append");
    CheckOk(table->Close(kIO, nullptr), "close");
    kill(getpid(), SIGKILL);
    _exit(1);
  }

  static std::string OlderLog() { return std::string(300 << 10, 'o'); }

  // A younger log came into the history while the one before it waited: what was written later was there, and what was before it was not.
  [[noreturn]] void Logs() {
    std::unique_ptr<FSWritableFile> older, younger;
    CheckOk(fs_->NewWritableFile("/000007.log", kFile, &older, nullptr), "log");
    CheckOk(older->Append(OlderLog(), kIO, nullptr), "append");
    CheckOk(fs_->NewWritableFile("/000009.log", kFile, &younger, nullptr), "log");
    CheckOk(older->Append("its end", kIO, nullptr), "append to the log that is not the last any more");
    CheckOk(older->Close(kIO, nullptr), "close");
    CheckOk(younger->Append("younger", kIO, nullptr), "append");
    kill(getpid(), SIGKILL);
    _exit(1);
  }

  void Logged() {
    Check(Content("/000007.log") == OlderLog() + "its end", "a log lacks what was written before the one after it");
  }

  void Died(const std::string& mode) {
    std::string log;
    for (int record = 0; record < 1000; record++) log += "record " + std::to_string(record) + "\n";
    // It was flushed to the device in every mode: each time with all names and all that waited in the journal.
    const IOStatus messages = fs_->FileExists("/messages", kIO, nullptr);
    Check(mode == "memory" ? messages.IsNotFound() : messages.ok(), "the log of messages");
    if (mode != "memory") {
      Check(Content("/messages").find("a message\n") != std::string::npos, "the log of messages was flushed");
      Check(Content("/000007.log") == log, "the log was flushed");
      Check(Content("/000008.sst").size() == 1 << 20, "the table was closed");
      return;
    }
    // The prefix of one history: whatever is there of the log is its beginning.
    if (fs_->FileExists("/000007.log", kIO, nullptr).ok()) {
      const std::string found = Content("/000007.log");
      Check(log.compare(0, found.size(), found) == 0, "the log is no prefix of what was written");
      Check(found.empty() || found.back() == '\n', "the log ends within a record");
    }
  }

  void All() {
    WritableFiles();
    RandomFiles();
    Messages();
    Batches();
    AsyncReads();
    Names();
    Locks();
    Sharing();
    BadOptions();
    Reopening();
    ReopeningWithOthers();
  }

 private:
  const std::string uri_;
  std::shared_ptr<FileSystem> fs_;
  std::mt19937 noise_{1};
};

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[2] : "";
  Check(argc == 2 || (argc == 3 && (what == "die" || what == "logs" || what == "logged" || what == "read_only" || what == "lifetimes" || what == "projects")) ||
            (argc == 4 && what == "died"),
        "usage: filesystem_test URI [read_only | lifetimes | projects | logs | logged | die | died kernel|through|memory]");
  Tests tests(argv[1]);
  if (what == "die") tests.Die();
  if (what == "logs") tests.Logs();
  if (what == "logged") {
    tests.Logged();
  } else if (what == "died") {
    tests.Died(argv[3]);
  } else if (what == "read_only") {
    tests.ReadOnly();
  } else if (what == "lifetimes") {
    tests.Lifetimes();
  } else if (what == "projects") {
    tests.Projects();
  } else {
    tests.All();
  }
  std::printf("all hold\n");
}

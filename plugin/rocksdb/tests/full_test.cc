// A volume becomes full below a database: it stops writing with ENOSPC, loses nothing, and resumes by itself once there is
// room.
//
//   full_test URI [reopen]     (a volume of about 256 MiB, empty; `reopen` in a process after that)
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <chrono>
#include <thread>
#include <vector>

#include "check.h"

using namespace rocksdb;

namespace {

constexpr char kBallast[] = "/ballast";
constexpr uint64_t kBallastBytes = 96 << 20;
constexpr uint64_t kRoomWithinCompaction = 16 << 20;
constexpr int kPatienceSeconds = 60;

std::string Key(uint64_t number) { return std::to_string(number * 7919 % 100003) + "-" + std::to_string(number); }
std::string Value(uint64_t number) { return std::string(900, static_cast<char>('a' + number % 26)) + Key(number); }

void FillBallast(FileSystem* filesystem) {
  std::unique_ptr<FSWritableFile> file;
  CheckOk(filesystem->NewWritableFile(kBallast, FileOptions(), &file, nullptr), "ballast");
  const std::string piece(1 << 20, 'x');
  for (uint64_t done = 0; done < kBallastBytes; done += piece.size()) {
    CheckOk(file->Append(piece, IOOptions(), nullptr), "ballast");
  }
  CheckOk(file->Close(IOOptions(), nullptr), "ballast");
}

// A backup in the same volume copies tables under names of its own, and filled what is kept for logs. So did several threads that wrote
// tables at the same time, each of which found the same room.
void FillWithCopies(FileSystem* filesystem) {
  const std::string piece(4 << 20, 'x');
  const auto name = [](int thread) { return "/" + std::to_string(thread) + ".sst.tmp"; };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; thread++) {
    threads.emplace_back([&, thread] {
      std::unique_ptr<FSWritableFile> copy;
      CheckOk(filesystem->NewWritableFile(name(thread), FileOptions(), &copy, nullptr), "copy");
      IOStatus status;
      for (int done = 0; status.ok(); done++) {
        Check(done < 1000, "the volume does not become full");
        status = copy->Append(piece, IOOptions(), nullptr);
      }
      Check(status.IsNoSpace() && status.ToString().find("logs only") != std::string::npos, "full, but: " + status.ToString());
      CheckOk(copy->Close(IOOptions(), nullptr), "copy");
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::unique_ptr<FSWritableFile> log;
  CheckOk(filesystem->NewWritableFile("/000007.log", FileOptions(), &log, nullptr), "log");
  const std::string record(1 << 20, 'x');
  for (int done = 0; done < 12; done++) CheckOk(log->Append(record, IOOptions(), nullptr), "log");
  CheckOk(log->Fsync(IOOptions(), nullptr), "log");
  CheckOk(log->Close(IOOptions(), nullptr), "log");
  for (int thread = 0; thread < 8; thread++) CheckOk(filesystem->DeleteFile(name(thread), IOOptions(), nullptr), "copy");
  CheckOk(filesystem->DeleteFile("/000007.log", IOOptions(), nullptr), "log");
}

void CheckAll(DB* db, uint64_t count) {
  std::string value;
  for (uint64_t number = 0; number < count; number++) {
    CheckOk(db->Get(ReadOptions(), Key(number), &value), "key " + std::to_string(number));
    Check(value == Value(number), "value of key " + std::to_string(number));
  }
}

// No room is left for what a compaction writes: it ends with that, nothing is lost, and with room again it goes through.
void FillWithinCompaction(DB* db, FileSystem* filesystem, uint64_t count) {
  CompactRangeOptions all;
  all.bottommost_level_compaction = BottommostLevelCompaction::kForce;
  CheckOk(db->CompactRange(all, nullptr, nullptr), "compacting with room");
  std::unique_ptr<FSWritableFile> ballast;
  CheckOk(filesystem->NewWritableFile(kBallast, FileOptions(), &ballast, nullptr), "ballast");
  const std::string piece(1 << 20, 'x');
  uint64_t room = 0;
  for (;;) {
    CheckOk(filesystem->GetFreeSpace("/", IOOptions(), &room, nullptr), "free space");
    // A few tables of the compaction, of which there are many more.
    if (room < kRoomWithinCompaction) break;
    CheckOk(ballast->Append(piece, IOOptions(), nullptr), "ballast");
    CheckOk(ballast->Fsync(IOOptions(), nullptr), "ballast");
  }
  CheckOk(ballast->Close(IOOptions(), nullptr), "ballast");
  Status status = db->CompactRange(all, nullptr, nullptr);
  Check(status.IsNoSpace(), "a compaction without room: " + status.ToString());
  std::printf("full within a compaction: %s\n", status.ToString().c_str());
  CheckAll(db, count);
  CheckOk(filesystem->DeleteFile(kBallast, IOOptions(), nullptr), "making room");
  for (int waited = 0; !(status = db->CompactRange(all, nullptr, nullptr)).ok(); waited++) {
    Check(waited < kPatienceSeconds * 10, "does not compact again: " + status.ToString());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  CheckOk(db->VerifyChecksum(), "checksums of all tables");
  CheckAll(db, count);
}

}  // namespace

int main(int argc, char** argv) {
  Check(argc == 2 || argc == 3, "usage: full_test URI [reopen]");
  std::shared_ptr<FileSystem> filesystem = OpenFileSystem(argv[1]);
  std::unique_ptr<Env> env = NewCompositeEnv(filesystem);
  Options options = SmallDatabase(env.get());
  options.write_buffer_size = 4 << 20;
  options.target_file_size_base = 4 << 20;
  options.max_bytes_for_level_base = 16 << 20;
  DB* opened = nullptr;
  if (argc == 3) {
    CheckOk(DB::Open(options, "/full", &opened), "reopening");
    std::unique_ptr<DB> db(opened);
    std::string count;
    CheckOk(db->Get(ReadOptions(), "count", &count), "count");
    CheckAll(db.get(), std::stoull(count));
    CheckOk(db->VerifyChecksum(), "checksums of all tables");
    std::printf("%s keys\n", count.c_str());
    return 0;
  }
  FillWithCopies(filesystem.get());
  FillBallast(filesystem.get());
  CheckOk(DB::Open(options, "/full", &opened), "opening");
  std::unique_ptr<DB> db(opened);
  uint64_t count = 0;
  Status status;
  while ((status = db->Put(WriteOptions(), Key(count), Value(count))).ok()) {
    count++;
    Check(count < 1000000, "the volume does not become full");
  }
  Check(status.IsNoSpace(), "full, but: " + status.ToString());
  std::printf("full after %llu keys: %s\n", static_cast<unsigned long long>(count), status.ToString().c_str());
  CheckAll(db.get(), count);
  CheckOk(filesystem->DeleteFile(kBallast, IOOptions(), nullptr), "making room");
  for (int waited = 0;; waited++) {
    status = db->Put(WriteOptions(), Key(count), Value(count));
    if (status.ok()) break;
    Check(waited < kPatienceSeconds * 10, "does not resume: " + status.ToString());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  count++;
  for (int more = 0; more < 10000; more++, count++) {
    CheckOk(db->Put(WriteOptions(), Key(count), Value(count)), "after it has resumed");
  }
  CheckOk(db->Flush(FlushOptions()), "flush after it has resumed");
  CheckAll(db.get(), count);
  FillWithinCompaction(db.get(), filesystem.get(), count);
  CheckOk(db->Put(WriteOptions(), "count", std::to_string(count)), "count");
  CheckOk(db->Close(), "closing");
  std::printf("resumed, %llu keys\n", static_cast<unsigned long long>(count));
}

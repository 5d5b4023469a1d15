// Writes to a database until it is killed, as RocksDB's crash test does; begins with a check of what the last kill left.
//
//   crash_test URI DATABASE[,DATABASE...] STATE MODE [check | close]
//
// Each thread makes operations on keys of its own, which follow from its number and theirs alone; threads take the databases in
// turns. STATE is a file that counts in shared memory, which outlives a kill, how many of them each thread has begun and how many
// were acknowledged. MODE says by what:
//   sync: every write is synced.
//   sync-wal: nothing is synced but by SyncWAL, now and then.
//   flush: nothing is synced; RocksDB's Flush follows each write, and no power is cut.
//   flush-wal: the same, by FlushWAL now and then; between them RocksDB keeps its log in memory.
//   memory: by nothing. The keys must be as they were after some number of operations.
// With `check` nothing is written. With `close` the databases and the volume are closed after a while, which standard output
// says before and after that.
// In all of them there is nothing but one history, so that the log has no torn tail: it is opened in the mode of absolute
// consistency. SPDX-License-Identifier: MIT OR Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include "check.h"

using namespace rocksdb;

namespace {

constexpr int kThreads = 4;
constexpr uint64_t kKeys = 2000;

struct Progress {
  std::atomic<uint64_t> begun;
  std::atomic<uint64_t> acknowledged;
  // Operations up to the last check, with which the present run has begun.
  uint64_t base;
};

Progress* MapState(const char* path) {
  int fd = open(path, O_RDWR | O_CREAT, 0600);
  Check(fd >= 0 && ftruncate(fd, kThreads * sizeof(Progress)) == 0, path);
  void* mapped = mmap(nullptr, kThreads * sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  Check(mapped != MAP_FAILED, path);
  close(fd);
  return static_cast<Progress*>(mapped);
}

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// One operation of a thread: a key is given a value, or removed (an empty one).
struct Operation {
  std::string key;
  std::string value;

  Operation(int thread, uint64_t number) {
    uint64_t random = Mix(number * kThreads + thread + 1);
    char text[32];
    std::snprintf(text, sizeof text, "%d-%06llu", thread, static_cast<unsigned long long>(random % kKeys));
    key = text;
    random = Mix(random);
    if (random % 8 == 0) return;
    value = std::to_string(number) + ":";
    // Now and then more than a block of the log.
    size_t size = random % 64 == 1 ? 40000 : 50 + random % 500;
    while (value.size() < size) {
      random = Mix(random + 1);
      value.append(reinterpret_cast<const char*>(&random), sizeof random);
    }
  }
};

using Content = std::map<std::string, std::string>;

Content ReadAll(DB* db, int thread) {
  Content content;
  ReadOptions options;
  options.verify_checksums = true;
  std::unique_ptr<Iterator> each(db->NewIterator(options));
  const std::string prefix = std::to_string(thread) + "-";
  for (each->Seek(prefix); each->Valid() && each->key().starts_with(prefix); each->Next()) {
    content[each->key().ToString()] = each->value().ToString();
  }
  CheckOk(each->status(), "reading all");
  return content;
}

// Number of operations, from `least` to `most`, after which a thread's keys are as the database has them.
uint64_t Matches(DB* db, int thread, uint64_t least, uint64_t most) {
  const Content found = ReadAll(db, thread);
  Content expected;
  // Keys in which the two differ.
  size_t different = found.size();
  auto is_same = [&](const std::string& key) {
    auto one = found.find(key);
    auto other = expected.find(key);
    if (one == found.end() || other == expected.end()) return (one == found.end()) == (other == expected.end());
    return one->second == other->second;
  };
  for (uint64_t done = 0;; done++) {
    if (different == 0 && done >= least) return done;
    if (done == most) break;
    Operation next(thread, done);
    different -= !is_same(next.key);
    if (next.value.empty()) {
      expected.erase(next.key);
    } else {
      expected[next.key] = next.value;
    }
    different += !is_same(next.key);
  }
  Fail("thread " + std::to_string(thread) + ": the keys are as after no number of operations from " +
       std::to_string(least) + " to " + std::to_string(most));
}

// How the writes of a run are acknowledged.
struct Mode {
  bool sync = false;
  bool keeps_log = false;
  // After so many operations all before them are acknowledged.
  uint64_t together = 1;
  bool acknowledges = true;

  explicit Mode(const std::string& name) {
    sync = name == "sync" || name == "sync-wal";
    keeps_log = name == "flush-wal";
    if (name == "sync-wal" || name == "flush-wal") together = 7;
    acknowledges = name != "memory";
    Check(sync || keeps_log || name == "flush" || name == "memory", "mode " + name);
  }
};

std::atomic<bool> closing{false};

void Write(DB* db, int thread, Progress* progress, const Mode& mode) {
  WriteOptions options;
  options.sync = mode.sync && mode.together == 1;
  for (uint64_t number = progress->base; !closing; number++) {
    Operation operation(thread, number);
    progress->begun = number + 1;
    Status status = operation.value.empty() ? db->Delete(options, operation.key)
                                            : db->Put(options, operation.key, operation.value);
    CheckOk(status, "writing");
    if ((number + 1) % mode.together != 0) continue;
    if (mode.together > 1) CheckOk(mode.sync ? db->SyncWAL() : db->FlushWAL(false), "the log");
    progress->acknowledged = number + 1;
  }
}

std::vector<std::unique_ptr<DB>> OpenAll(const Options& options, const std::string& paths) {
  std::vector<std::unique_ptr<DB>> all;
  std::istringstream names(paths);
  for (std::string path; std::getline(names, path, ',');) {
    DB* opened = nullptr;
    CheckOk(DB::Open(options, path, &opened), "opening the database");
    all.emplace_back(opened);
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 6 ? argv[5] : "";
  Check(argc == 5 || what == "check" || what == "close", "usage: crash_test URI DATABASES STATE MODE [check | close]");
  const Mode mode(argv[4]);
  Progress* progress = MapState(argv[3]);
  std::unique_ptr<Env> env = NewCompositeEnv(OpenFileSystem(argv[1]));
  Options options = SmallDatabase(env.get());
  options.wal_recovery_mode = WALRecoveryMode::kAbsoluteConsistency;
  options.manual_wal_flush = mode.keeps_log;
  std::vector<std::unique_ptr<DB>> databases = OpenAll(options, argv[2]);
  const auto of = [&](int thread) { return databases[thread % databases.size()].get(); };
  uint64_t operations = 0, lost = 0;
  for (int thread = 0; thread < kThreads; thread++) {
    Progress& one = progress[thread];
    const uint64_t least = mode.acknowledges ? one.acknowledged.load() : one.base;
    const uint64_t found = Matches(of(thread), thread, least, one.begun);
    if (found < one.acknowledged) lost += one.acknowledged - found;
    one.base = found;
    one.begun = found;
    one.acknowledged = found;
    operations += found;
  }
  if (what == "check") {
    for (const auto& db : databases) CheckOk(db->VerifyChecksum(), "checksums of all tables");
  }
  std::printf("%llu operations hold, %llu acknowledged ones were lost\n", static_cast<unsigned long long>(operations),
              static_cast<unsigned long long>(lost));
  std::fflush(stdout);
  if (what == "check") return 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; thread++) {
    threads.emplace_back(Write, of(thread), thread, &progress[thread], mode);
  }
  if (what == "close") {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    closing = true;
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("closing\n");
  std::fflush(stdout);
  databases.clear();
  env.reset();
  std::printf("closed\n");
}

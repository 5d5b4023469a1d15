// Writes to a database until it is killed, as RocksDB's crash test does; begins with a check of what the last kill left.
//
//   crash_test URI DATABASE STATE sync|flush|memory [check]
//
// Each thread makes operations on keys of its own, which follow from its number and theirs alone. STATE is a file that counts
// in shared memory, which outlives a kill, how many of them each thread has begun and how many were acknowledged.
//   sync: every write is synced. What is acknowledged must be there.
//   flush: nothing is synced; RocksDB's Flush follows each write. What is acknowledged must be there, for no power is cut.
//   memory: the same with flush=memory in the URI. The keys must be as they were after some number of operations.
// In all of them there is nothing but one history, so that the log has no torn tail: it is opened in the mode of absolute
// consistency. SPDX-License-Identifier: MIT OR Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
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

void Write(DB* db, int thread, Progress* progress, bool sync) {
  WriteOptions options;
  options.sync = sync;
  for (uint64_t number = progress->base;; number++) {
    Operation operation(thread, number);
    progress->begun = number + 1;
    Status status = operation.value.empty() ? db->Delete(options, operation.key)
                                            : db->Put(options, operation.key, operation.value);
    CheckOk(status, "writing");
    progress->acknowledged = number + 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  Check(argc == 5 || argc == 6, "usage: crash_test URI DATABASE STATE sync|flush|memory [check]");
  const std::string mode = argv[4];
  Check(mode == "sync" || mode == "flush" || mode == "memory", "mode " + mode);
  Progress* progress = MapState(argv[3]);
  std::unique_ptr<Env> env = NewCompositeEnv(OpenFileSystem(argv[1]));
  Options options = SmallDatabase(env.get());
  options.wal_recovery_mode = WALRecoveryMode::kAbsoluteConsistency;
  DB* opened = nullptr;
  CheckOk(DB::Open(options, argv[2], &opened), "opening the database");
  std::unique_ptr<DB> db(opened);
  uint64_t operations = 0, lost = 0;
  for (int thread = 0; thread < kThreads; thread++) {
    Progress& one = progress[thread];
    const uint64_t least = mode == "memory" ? one.base : one.acknowledged.load();
    const uint64_t found = Matches(db.get(), thread, least, one.begun);
    if (found < one.acknowledged) lost += one.acknowledged - found;
    one.base = found;
    one.begun = found;
    one.acknowledged = found;
    operations += found;
  }
  if (argc == 6) CheckOk(db->VerifyChecksum(), "checksums of all tables");
  std::printf("%llu operations hold, %llu acknowledged ones were lost\n", static_cast<unsigned long long>(operations),
              static_cast<unsigned long long>(lost));
  std::fflush(stdout);
  if (argc == 6) return 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; thread++) {
    threads.emplace_back(Write, db.get(), thread, &progress[thread], mode == "sync");
  }
  for (std::thread& thread : threads) thread.join();
}

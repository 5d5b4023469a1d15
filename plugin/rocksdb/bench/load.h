// What the programs that measure share: arguments, latencies, keys, the database. SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <rocksdb/cache.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/statistics.h>
#include <rocksdb/table.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "../tests/check.h"

// Words such as `records=1000`; one that nobody asks for is refused.
class Arguments {
 public:
  Arguments(int argc, char** argv) {
    for (int each = 1; each < argc; each++) {
      const std::string word = argv[each];
      const size_t equals = word.find('=');
      Check(equals != std::string::npos, "an argument is NAME=VALUE, not " + word);
      values_[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }

  std::string Text(const std::string& name, const std::string& otherwise) {
    auto found = values_.find(name);
    if (found == values_.end()) return otherwise;
    std::string value = found->second;
    values_.erase(found);
    return value;
  }

  uint64_t Number(const std::string& name, uint64_t otherwise) {
    const std::string text = Text(name, std::to_string(otherwise));
    char* end = nullptr;
    const uint64_t number = std::strtoull(text.c_str(), &end, 10);
    Check(!text.empty() && *end == '\0', name + "=" + text + " is no number");
    return number;
  }

  void End() const {
    for (const auto& [name, value] : values_) Fail("unknown argument " + name + "=" + value);
  }

 private:
  std::map<std::string, std::string> values_;
};

// How often what took how long: 64 buckets for each power of two, so that a time is told to 1.6 %, as an HDR histogram does.
class Latencies {
 public:
  void Add(uint64_t nanoseconds) {
    counts_[Bucket(nanoseconds)]++;
    count_++;
    longest_ = std::max(longest_, nanoseconds);
  }

  void Merge(const Latencies& other) {
    for (size_t bucket = 0; bucket < counts_.size(); bucket++) counts_[bucket] += other.counts_[bucket];
    count_ += other.count_;
    longest_ = std::max(longest_, other.longest_);
  }

  uint64_t count() const { return count_; }
  double longest_us() const { return longest_ / 1e3; }

  // Microseconds that this share of all took at most.
  double Percentile(double share) const {
    const uint64_t wanted = std::max<uint64_t>(1, static_cast<uint64_t>(share * count_ + 0.5));
    uint64_t seen = 0;
    for (size_t bucket = 0; bucket < counts_.size(); bucket++) {
      seen += counts_[bucket];
      if (seen >= wanted) return std::min(End(bucket), longest_) / 1e3;
    }
    return 0;
  }

 private:
  static constexpr unsigned kBits = 6;
  static constexpr uint64_t kInEach = uint64_t{1} << kBits;

  static size_t Bucket(uint64_t value) {
    const unsigned shift = value < 2 * kInEach ? 0 : 63 - __builtin_clzll(value) - kBits;
    return shift * kInEach + (value >> shift);
  }

  // The longest time of a bucket.
  static uint64_t End(size_t bucket) {
    const uint64_t shift = bucket < 2 * kInEach ? 0 : bucket / kInEach - 1;
    return ((bucket - shift * kInEach + 1) << shift) - 1;
  }

  std::array<uint64_t, (64 - kBits + 1) * kInEach> counts_{};
  uint64_t count_ = 0;
  uint64_t longest_ = 0;
};

// Numbers that look random and are the same in every run (splitmix64).
class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15;
    uint64_t mixed = (state_ ^ (state_ >> 30)) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
    return mixed ^ (mixed >> 31);
  }
  uint64_t Below(uint64_t end) { return Next() % end; }
  // From 0 to below 1.
  double Share() { return (Next() >> 11) * 0x1p-53; }

  void Fill(char* bytes, size_t size) {
    for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
      const uint64_t next = Next();
      std::memcpy(bytes + at, &next, std::min(sizeof next, size - at));
    }
  }

 private:
  uint64_t state_;
};

using Now = std::chrono::steady_clock;

inline uint64_t NanosecondsSince(Now::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Now::now() - start).count();
}

// A database in a volume (fs_uri=) or in a directory, and what RocksDB counts of it.
class Database {
 public:
  // Takes db=, fs_uri=, cache=BYTES (of blocks of tables), direct=0|1 (reads). Files are small, since databases are: as many of them as a
  // large database has of large ones.
  explicit Database(Arguments& arguments) {
    using namespace rocksdb;
    const std::string path = arguments.Text("db", "");
    const std::string uri = arguments.Text("fs_uri", "");
    const uint64_t cache = arguments.Number("cache", 32 << 20);
    const bool direct = arguments.Number("direct", 1) != 0;
    arguments.End();
    Check(!path.empty(), "db=DIRECTORY is missing");
    Options options;
    if (!uri.empty()) {
      env_ = NewCompositeEnv(OpenFileSystem(uri));
      options.env = env_.get();
    }
    options.create_if_missing = true;
    options.compression = kNoCompression;
    options.use_direct_reads = direct;
    options.write_buffer_size = 4 << 20;
    options.target_file_size_base = 4 << 20;
    options.max_bytes_for_level_base = 16 << 20;
    options.level_compaction_dynamic_level_bytes = true;
    options.max_compaction_bytes = 16 << 20;
    options.level0_slowdown_writes_trigger = 5;
    options.level0_stop_writes_trigger = 8;
    options.soft_pending_compaction_bytes_limit = 16 << 20;
    options.hard_pending_compaction_bytes_limit = 32 << 20;
    options.max_background_jobs = 2;
    options.statistics = CreateDBStatistics();
    statistics_ = options.statistics;
    BlockBasedTableOptions table;
    table.block_cache = NewLRUCache(cache);
    table.filter_policy.reset(NewBloomFilterPolicy(10));
    options.table_factory.reset(NewBlockBasedTableFactory(table));
    DB* opened = nullptr;
    CheckOk(DB::Open(options, path, &opened), "opening " + path);
    db_.reset(opened);
  }

  rocksdb::DB* operator->() { return db_.get(); }

  // Writes what is in memory, and closes: what was written is then all that this process wrote.
  void Close() {
    CheckOk(db_->Flush(rocksdb::FlushOptions()), "flushing");
    CheckOk(db_->Close(), "closing");
  }

  // Bytes written: logs, flushes and compactions.
  uint64_t WrittenBytes() const {
    return statistics_->getTickerCount(rocksdb::WAL_FILE_BYTES) +
           statistics_->getTickerCount(rocksdb::FLUSH_WRITE_BYTES) +
           statistics_->getTickerCount(rocksdb::COMPACT_WRITE_BYTES);
  }

  uint64_t StallMicroseconds() const { return statistics_->getTickerCount(rocksdb::STALL_MICROS); }

 private:
  std::unique_ptr<rocksdb::Env> env_;
  std::shared_ptr<rocksdb::Statistics> statistics_;
  std::unique_ptr<rocksdb::DB> db_;
};

// One line for a kind of operations.
inline void PrintLatencies(const char* kind, const Latencies& latencies, double seconds) {
  std::printf("kind=%s operations=%" PRIu64 " ops_per_second=%.1f p50_us=%.1f p99_us=%.1f p999_us=%.1f longest_us=%.1f\n", kind,
              latencies.count(), latencies.count() / seconds, latencies.Percentile(0.5), latencies.Percentile(0.99),
              latencies.Percentile(0.999), latencies.longest_us());
}

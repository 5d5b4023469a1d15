// Which record an operation is about, as the core of YCSB chooses it. SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <atomic>
#include <cmath>
#include <mutex>
#include <set>

#include "load.h"

// FNV-1a of the eight bytes of a number, without its sign, as YCSB's Utils.fnvhash64.
inline uint64_t FnvHash(uint64_t value) {
  uint64_t hash = 0xCBF29CE484222325;
  for (int byte = 0; byte < 8; byte++, value >>= 8) hash = (hash ^ (value & 0xff)) * 1099511628211;
  return static_cast<uint64_t>(std::llabs(static_cast<int64_t>(hash)));
}

// Numbers below a count, the smallest most often (Gray et al., "Quickly generating billion-record synthetic databases").
class Zipfian {
 public:
  static constexpr double kTheta = 0.99;

  explicit Zipfian(uint64_t items) { Grow(items); }
  // With the sum of 1 / n^theta known.
  Zipfian(uint64_t items, double zeta) : items_(items), zeta_(zeta) { SetEta(); }

  // The count only grows: the sum goes on where it was.
  void Grow(uint64_t items) {
    if (items <= items_) return;
    for (uint64_t item = items_ + 1; item <= items; item++) zeta_ += 1 / std::pow(item, kTheta);
    items_ = items;
    SetEta();
  }

  uint64_t Next(Noise& noise) const {
    const double u = noise.Share();
    const double uz = u * zeta_;
    if (uz < 1) return 0;
    if (uz < 1 + std::pow(0.5, kTheta)) return 1;
    return std::min(items_ - 1, static_cast<uint64_t>(items_ * std::pow(eta_ * u - eta_ + 1, 1 / (1 - kTheta))));
  }

 private:
  void SetEta() {
    const double zeta_of_2 = 1 + std::pow(0.5, kTheta);
    eta_ = (1 - std::pow(2.0 / items_, 1 - kTheta)) / (1 - zeta_of_2 / zeta_);
  }

  uint64_t items_ = 0;
  double zeta_ = 0;
  double eta_ = 0;
};

// Numbers of records: given out for inserts, and read only once all before them are there.
class Records {
 public:
  explicit Records(uint64_t count) : next_(count), there_(count) {}

  uint64_t Begin() {
    std::lock_guard<std::mutex> guard(mutex_);
    return next_++;
  }

  void Inserted(uint64_t record) {
    std::lock_guard<std::mutex> guard(mutex_);
    ahead_.insert(record);
    while (ahead_.erase(there_) != 0) there_++;
  }

  // Those below are there.
  uint64_t there() const { return there_; }

 private:
  std::mutex mutex_;
  std::set<uint64_t> ahead_;
  uint64_t next_;
  std::atomic<uint64_t> there_;
};

enum class Distribution { kZipfian, kLatest, kUniform };

// Chooses for one thread.
class Chooser {
 public:
  // `inserts` is how many records this run may add: YCSB scrambles over twice as many.
  Chooser(Distribution distribution, const Records& records, uint64_t inserts)
      : distribution_(distribution),
        records_(records),
        scrambled_over_(records.there() + 2 * inserts),
        zipfian_(distribution == Distribution::kLatest ? Zipfian(records.there()) : Zipfian(kScrambledItems, kScrambledZeta)) {}

  uint64_t Next(Noise& noise) {
    const uint64_t count = records_.there();
    switch (distribution_) {
      case Distribution::kUniform: return noise.Below(count);
      case Distribution::kLatest: zipfian_.Grow(count); return count - 1 - zipfian_.Next(noise);
      case Distribution::kZipfian: break;
    }
    for (;;) {
      const uint64_t record = FnvHash(zipfian_.Next(noise)) % scrambled_over_;
      if (record < count) return record;
    }
  }

 private:
  // YCSB's ScrambledZipfianGenerator: so many items that the sum need not be computed again when records are added.
  static constexpr uint64_t kScrambledItems = 10000000000;
  static constexpr double kScrambledZeta = 26.46902820178302;

  const Distribution distribution_;
  const Records& records_;
  const uint64_t scrambled_over_;
  Zipfian zipfian_;
};

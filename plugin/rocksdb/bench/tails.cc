// How long reads take while a writer goes on at a set rate, as db_bench's readwhilewriting with --benchmark_write_rate_limit.
//
//   tails entries=N db=DIRECTORY [fs_uri=URI] [overwrites=N]                               fills, and overwrites at random so many entries
//   tails entries=N db=DIRECTORY [fs_uri=URI] seconds=N [readers=N] [rate=BYTES A SECOND]  measures
//
// All reads and writes are of entries at random, each as likely as any other. Whatever is measured, the writer has written as much.
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <atomic>
#include <thread>

#include "load.h"

using namespace rocksdb;

namespace {

constexpr size_t kValueBytes = 4000;
constexpr size_t kKeyBytes = 16;

std::string Key(uint64_t entry) {
  const std::string digits = std::to_string(entry);
  return std::string(kKeyBytes - std::min(kKeyBytes, digits.size()), '0') + digits;
}

void Put(Database& db, Noise& noise, uint64_t entry) {
  std::string value(kValueBytes, '\0');
  noise.Fill(value.data(), value.size());
  CheckOk(db->Put(WriteOptions(), Key(entry), value), "writing");
}

void Fill(Database& db, uint64_t entries, uint64_t overwrites) {
  Noise noise(1);
  for (uint64_t entry = 0; entry < entries; entry++) Put(db, noise, entry);
  for (uint64_t done = 0; done < overwrites; done++) Put(db, noise, noise.Below(entries));
}

// The writer keeps to its rate from the beginning on: what it could not do in time it does as soon as it can.
Latencies Write(Database& db, uint64_t entries, uint64_t operations, uint64_t rate) {
  Latencies latencies;
  Noise noise(2);
  const Now::time_point start = Now::now();
  for (uint64_t done = 0; done < operations; done++) {
    std::this_thread::sleep_until(start + std::chrono::nanoseconds(done * (kKeyBytes + kValueBytes) * 1000000000 / rate));
    const Now::time_point begun = Now::now();
    Put(db, noise, noise.Below(entries));
    latencies.Add(NanosecondsSince(begun));
  }
  return latencies;
}

Latencies Read(Database& db, uint64_t entries, uint64_t seed, const std::atomic<bool>& over) {
  Latencies latencies;
  Noise noise(seed);
  std::string value;
  while (!over) {
    const std::string key = Key(noise.Below(entries));
    const Now::time_point begun = Now::now();
    CheckOk(db->Get(ReadOptions(), key, &value), "reading " + key);
    latencies.Add(NanosecondsSince(begun));
    Check(value.size() == kValueBytes, "the entry " + key + " is cut");
  }
  return latencies;
}

void Measure(Database& db, uint64_t entries, uint64_t seconds, uint64_t readers, uint64_t rate) {
  std::atomic<bool> over{false};
  std::vector<Latencies> reads(readers);
  std::vector<std::thread> reading;
  const Now::time_point start = Now::now();
  for (uint64_t reader = 0; reader < readers; reader++) {
    reading.emplace_back([&, reader] { reads[reader] = Read(db, entries, 3 + reader, over); });
  }
  const uint64_t operations = seconds * rate / (kKeyBytes + kValueBytes);
  const Latencies writes = Write(db, entries, operations, rate);
  over = true;
  for (std::thread& reader : reading) reader.join();
  const double took = NanosecondsSince(start) / 1e9;
  Latencies all;
  for (const Latencies& of_reader : reads) all.Merge(of_reader);
  PrintLatencies("read", all, took);
  PrintLatencies("write", writes, took);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  const uint64_t entries = arguments.Number("entries", 100000);
  const uint64_t overwrites = arguments.Number("overwrites", 0);
  const uint64_t seconds = arguments.Number("seconds", 0);
  const uint64_t readers = arguments.Number("readers", 1);
  const uint64_t rate = arguments.Number("rate", 8 << 20);
  Check(entries > 0 && readers > 0 && rate > 0, "there has to be at least one of each");
  Database db(arguments);
  if (seconds == 0) {
    Fill(db, entries, overwrites);
  } else {
    Measure(db, entries, seconds, readers, rate);
  }
  db.Close();
  std::printf("written_bytes=%" PRIu64 " stall_us=%" PRIu64 "\n", db.WrittenBytes(), db.StallMicroseconds());
}

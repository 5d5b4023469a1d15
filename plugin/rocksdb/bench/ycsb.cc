// The core workloads of YCSB on a RocksDB database, one a run.
//
//   ycsb workload=load|overwrite|A|B|C|D|E|F db=DIRECTORY [fs_uri=URI] [records=N] [operations=N] [threads=N] [seed=N]
//        [distribution=zipfian|latest|uniform] [cache=BYTES] [direct=0|1]
//
// A record is 10 fields of 100 bytes, one value of 1,000 bytes. `load` inserts all records; `overwrite` updates as many as `operations`, each
// record as likely as any other. An update writes the whole record (YCSB's writeallfields=true), as a store whose records are flat has to; F
// reads it first and changes one field. `records` are those that are there: the last line of a run says how many there are afterwards.
// Prints a line for each kind of operation, and one for all. SPDX-License-Identifier: MIT OR Apache-2.0
#include <thread>

#include "choosers.h"

using namespace rocksdb;

namespace {

constexpr size_t kFieldBytes = 100;
constexpr size_t kFields = 10;
constexpr uint64_t kScanMax = 100;

enum Kind { kRead, kUpdate, kInsert, kScan, kReadModifyWrite, kKinds };
constexpr const char* kKindNames[kKinds] = {"read", "update", "insert", "scan", "read-modify-write"};

struct Workload {
  const char* name;
  // Of operations, percent.
  std::array<unsigned, kKinds> shares;
  Distribution distribution;
};

constexpr Workload kWorkloads[] = {
    {"load", {0, 0, 100, 0, 0}, Distribution::kUniform},       {"overwrite", {0, 100, 0, 0, 0}, Distribution::kUniform},
    {"A", {50, 50, 0, 0, 0}, Distribution::kZipfian},          {"B", {95, 5, 0, 0, 0}, Distribution::kZipfian},
    {"C", {100, 0, 0, 0, 0}, Distribution::kZipfian},          {"D", {95, 0, 5, 0, 0}, Distribution::kLatest},
    {"E", {0, 0, 5, 95, 0}, Distribution::kZipfian},           {"F", {50, 0, 0, 0, 50}, Distribution::kZipfian},
};

std::string Key(uint64_t record) { return "user" + std::to_string(FnvHash(record)); }

std::string Value(Noise& noise) {
  std::string value(kFields * kFieldBytes, '\0');
  noise.Fill(value.data(), value.size());
  return value;
}

class Client {
 public:
  Client(Database& db, const Workload& workload, Records& records, Distribution distribution, uint64_t operations,
         uint64_t inserts, uint64_t seed)
      : db_(db),
        workload_(workload),
        records_(records),
        operations_(operations),
        noise_(seed),
        chooser_(distribution, records, inserts) {}

  void Run() {
    for (uint64_t done = 0; done < operations_; done++) {
      const Kind kind = NextKind();
      const Now::time_point start = Now::now();
      switch (kind) {
        case kRead: Read(Key(chooser_.Next(noise_))); break;
        case kUpdate: Write(Key(chooser_.Next(noise_)), Value(noise_)); break;
        case kInsert: Insert(); break;
        case kScan: Scan(Key(chooser_.Next(noise_)), 1 + noise_.Below(kScanMax)); break;
        case kReadModifyWrite: ReadModifyWrite(Key(chooser_.Next(noise_))); break;
        case kKinds: break;
      }
      latencies_[kind].Add(NanosecondsSince(start));
    }
  }

  const Latencies& latencies(int kind) const { return latencies_[kind]; }

 private:
  Kind NextKind() {
    uint64_t number = noise_.Below(100);
    int kind = 0;
    while (number >= workload_.shares[kind]) number -= workload_.shares[kind++];
    return static_cast<Kind>(kind);
  }

  void Read(const std::string& key) {
    CheckOk(db_->Get(ReadOptions(), key, &value_), "reading " + key);
    Check(value_.size() == kFields * kFieldBytes, "the record " + key + " is cut");
  }

  void Write(const std::string& key, const std::string& value) {
    CheckOk(db_->Put(WriteOptions(), key, value), "writing " + key);
  }

  void Insert() {
    const uint64_t record = records_.Begin();
    Write(Key(record), Value(noise_));
    records_.Inserted(record);
  }

  void Scan(const std::string& key, uint64_t length) {
    std::unique_ptr<Iterator> each(db_->NewIterator(ReadOptions()));
    each->Seek(key);
    for (uint64_t seen = 0; each->Valid() && seen < length; seen++, each->Next()) value_.assign(each->value().data(), each->value().size());
    CheckOk(each->status(), "scanning from " + key);
  }

  void ReadModifyWrite(const std::string& key) {
    Read(key);
    noise_.Fill(value_.data() + noise_.Below(kFields) * kFieldBytes, kFieldBytes);
    Write(key, value_);
  }

  Database& db_;
  const Workload& workload_;
  Records& records_;
  const uint64_t operations_;
  Noise noise_;
  Chooser chooser_;
  std::string value_;
  std::array<Latencies, kKinds> latencies_;
};

const Workload& Find(const std::string& name) {
  for (const Workload& workload : kWorkloads) {
    if (name == workload.name) return workload;
  }
  Fail("no workload " + name);
}

Distribution ParseDistribution(const std::string& name, Distribution otherwise) {
  if (name.empty()) return otherwise;
  if (name == "zipfian") return Distribution::kZipfian;
  if (name == "latest") return Distribution::kLatest;
  if (name == "uniform") return Distribution::kUniform;
  Fail("no distribution " + name);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  const Workload& workload = Find(arguments.Text("workload", ""));
  const bool loads = std::string(workload.name) == "load";
  const uint64_t count = arguments.Number("records", 100000);
  const uint64_t operations = arguments.Number("operations", loads ? count : 100000);
  const uint64_t threads = arguments.Number("threads", 2);
  const uint64_t seed = arguments.Number("seed", 1);
  const Distribution distribution = ParseDistribution(arguments.Text("distribution", ""), workload.distribution);
  Check(count > 0 && threads > 0 && operations > 0, "there has to be at least one of each");
  Database db(arguments);
  Records records(loads ? 0 : count);
  std::vector<std::unique_ptr<Client>> clients;
  for (uint64_t thread = 0; thread < threads; thread++) {
    const uint64_t share = operations / threads + (thread < operations % threads);
    const uint64_t inserts = operations * workload.shares[kInsert] / 100;
    clients.push_back(std::make_unique<Client>(db, workload, records, distribution, share, inserts, seed * 1000003 + thread));
  }
  const Now::time_point start = Now::now();
  std::vector<std::thread> running;
  for (auto& client : clients) running.emplace_back(&Client::Run, client.get());
  for (std::thread& thread : running) thread.join();
  const double seconds = NanosecondsSince(start) / 1e9;
  Latencies all;
  for (int kind = 0; kind < kKinds; kind++) {
    Latencies of_kind;
    for (auto& client : clients) of_kind.Merge(client->latencies(kind));
    if (of_kind.count() > 0) PrintLatencies(kKindNames[kind], of_kind, seconds);
    all.Merge(of_kind);
  }
  PrintLatencies("all", all, seconds);
  db.Close();
  std::printf("records=%" PRIu64 " written_bytes=%" PRIu64 " stall_us=%" PRIu64 "\n", records.there(), db.WrittenBytes(),
              db.StallMicroseconds());
}

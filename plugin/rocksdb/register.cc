// Makes persimmon:// known to RocksDB. SPDX-License-Identifier: MIT OR Apache-2.0
#include <rocksdb/c.h>
#include <rocksdb/env.h>
#include <rocksdb/utilities/object_registry.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "filesystem.h"
#include "persimmon_rocksdb.h"
#include "process.h"
#include "volume.h"

// RocksDB's C interface keeps an Env in this, and shows it to nobody: db/c.cc has had it so since its first version. What is
// called the default there is what rocksdb_env_destroy does not delete.
struct rocksdb_env_t {
  rocksdb::Env* rep;
  bool is_default;
};

namespace persimmon {

using namespace rocksdb;

namespace {

// Envs by their URI that are never destroyed: what RocksDB calls static, for callers that own none.
struct StaticEnvs {
  struct Entry {
    Env* env = nullptr;
    std::shared_ptr<Volume> volume;
  };
  std::mutex mutex;
  std::map<std::string, Entry> envs;
};

// Databases may close later in the exit of the process, so that the volumes stay open: what those still write is in their
// logs, as after a kill. A child of fork runs this as well, and leaves those of its parent alone.
void LeaveStaticEnvs() {
  StaticEnvs& all = OfThisProcess<StaticEnvs>();
  std::lock_guard<std::mutex> guard(all.mutex);
  for (const auto& [uri, entry] : all.envs) {
    if (entry.volume) entry.volume->Leave();
  }
}

Env* StaticEnv(const std::string& uri, std::string* error) {
  StaticEnvs& all = OfThisProcess<StaticEnvs>();
  {
    std::lock_guard<std::mutex> guard(all.mutex);
    const auto known = all.envs.find(uri);
    if (known != all.envs.end()) return known->second.env;
  }
  // The lock is not held meanwhile: opening one volume does not hold up opening another. Of two threads that open the same one, both share
  // the volume, and the first of them has made the Env.
  std::shared_ptr<Volume> volume;
  std::unique_ptr<FileSystem> filesystem;
  Status status = Volume::Open(uri, &volume);
  if (status.ok()) status = NewPersimmonFileSystem(uri, &filesystem);
  if (!status.ok()) {
    *error = status.ToString();
    return nullptr;
  }
  std::lock_guard<std::mutex> guard(all.mutex);
  static const int registered = std::atexit(LeaveStaticEnvs);
  (void)registered;
  StaticEnvs::Entry& entry = all.envs[uri];
  if (entry.env == nullptr) entry = {NewCompositeEnv(std::move(filesystem)).release(), std::move(volume)};
  return entry.env;
}

int RegisterFactories(ObjectLibrary& library, const std::string&) {
  ObjectLibrary::PatternEntry pattern("persimmon", false);
  pattern.AddSeparator("://", false);
  library.AddFactory<FileSystem>(
      pattern, [](const std::string& uri, std::unique_ptr<FileSystem>* guard, std::string* error) -> FileSystem* {
        Status status = NewPersimmonFileSystem(uri, guard);
        if (!status.ok()) *error = status.ToString();
        return guard->get();
      });
  library.AddFactory<Env>(pattern, [](const std::string& uri, std::unique_ptr<Env>*, std::string* error) {
    return StaticEnv(uri, error);
  });
  return 2;
}

// Runs when the library is loaded: linked into a program, or preloaded.
__attribute__((constructor)) void Register() {
  RegisterFactories(*ObjectLibrary::Default(), "");
}

}  // namespace

extern "C" {
// What a program that links the plugin statically names, so that the linker takes this file along.
__attribute__((visibility("default"))) int persimmon_rocksdb_plugin = 1;

__attribute__((visibility("default"))) rocksdb_env_t* persimmon_rocksdb_env(const char* uri) {
  std::string error = "the URI is NULL";
  Env* env = uri != nullptr ? StaticEnv(uri, &error) : nullptr;
  if (env == nullptr) {
    std::fprintf(stderr, "persimmon: %s\n", error.c_str());
    return nullptr;
  }
  return new rocksdb_env_t{env, true};
}
}

}  // namespace persimmon

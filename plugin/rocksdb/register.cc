// Makes persimmon:// known to RocksDB. SPDX-License-Identifier: MIT OR Apache-2.0
#include <rocksdb/env.h>
#include <rocksdb/utilities/object_registry.h>
#include <rocksdb/version.h>

#include <cstdio>
#include <map>
#include <mutex>

#include "filesystem.h"

namespace persimmon {

using namespace rocksdb;

namespace {

// An Env of a URI that is never destroyed: what RocksDB calls static, for callers that own none.
Env* StaticEnv(const std::string& uri, std::string* error) {
  static std::mutex* mutex = new std::mutex;
  static auto* envs = new std::map<std::string, Env*>;
  std::lock_guard<std::mutex> guard(*mutex);
  Env*& env = (*envs)[uri];
  if (env != nullptr) return env;
  std::unique_ptr<FileSystem> filesystem;
  Status status = NewPersimmonFileSystem(uri, &filesystem);
  if (!status.ok()) {
    *error = status.ToString();
    return nullptr;
  }
  env = NewCompositeEnv(std::move(filesystem)).release();
  return env;
}

int RegisterFactories(ObjectLibrary& library, const std::string&) {
  ObjectLibrary::PatternEntry uri("persimmon", false);
  uri.AddSeparator("://", false);
  library.AddFactory<FileSystem>(
      uri, [](const std::string& uri, std::unique_ptr<FileSystem>* guard, std::string* error) -> FileSystem* {
        Status status = NewPersimmonFileSystem(uri, guard);
        if (!status.ok()) *error = status.ToString();
        return guard->get();
      });
  library.AddFactory<Env>(uri, [](const std::string& uri, std::unique_ptr<Env>*, std::string* error) {
    return StaticEnv(uri, error);
  });
  return 2;
}

// Runs when the library is loaded: linked into a program, or preloaded.
__attribute__((constructor)) void Register() {
  std::string built = std::to_string(ROCKSDB_MAJOR) + "." + std::to_string(ROCKSDB_MINOR);
  std::string found = GetRocksVersionAsString(false);
  if (found != built) {
    std::fprintf(stderr, "persimmon: this plugin is for RocksDB %s, the program has %s; persimmon:// is not available\n",
                 built.c_str(), found.c_str());
    return;
  }
  RegisterFactories(*ObjectLibrary::Default(), "");
}

}  // namespace

// What a program that links the plugin statically names, so that the linker takes this file along; for C users an Env
// of a URI, NULL where it cannot be opened. It is never destroyed.
extern "C" {
__attribute__((visibility("default"))) int persimmon_rocksdb_plugin = 1;

__attribute__((visibility("default"))) Env* persimmon_rocksdb_env(const char* uri) {
  std::string error;
  Env* env = StaticEnv(uri, &error);
  if (env == nullptr) std::fprintf(stderr, "persimmon: %s\n", error.c_str());
  return env;
}
}

}  // namespace persimmon

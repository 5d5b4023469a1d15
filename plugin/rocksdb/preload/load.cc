// What programs load: brings the plugin itself into a process whose RocksDB it was built for. SPDX-License-Identifier: MIT OR Apache-2.0
//
// The plugin links RocksDB. Loaded into a program that has another version, it would bring its own along, and each would call functions of
// the other before anybody could say a word. This library links none: it looks at what there is, and says so in time.
#include <dlfcn.h>
#include <rocksdb/version.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "persimmon_rocksdb.h"

namespace rocksdb {
// Of the program's RocksDB; null where it has none.
__attribute__((weak)) std::string GetRocksVersionAsString(bool with_patch);
}  // namespace rocksdb

namespace {

const char* const kPlugin = "libpersimmon_rocksdb_fs.so";

using MakeEnv = rocksdb_env_t* (*)(const char*);
MakeEnv make_env = nullptr;

// Before main nothing is under way. To go on would be worse: RocksDB takes persimmon:// for another filesystem, or crashes.
[[noreturn]] void Refuse(const std::string& why) {
  std::fprintf(stderr, "persimmon: %s\n", why.c_str());
  std::_Exit(1);
}

__attribute__((constructor)) void Load() {
  const std::string built = std::to_string(ROCKSDB_MAJOR) + "." + std::to_string(ROCKSDB_MINOR);
  if (rocksdb::GetRocksVersionAsString != nullptr) {
    const std::string found = rocksdb::GetRocksVersionAsString(false);
    if (found != built) {
      Refuse("this plugin is for RocksDB " + built + ", the program has " + found + ": build the plugin for that");
    }
  } else if (dlsym(RTLD_DEFAULT, "rocksdb_open") != nullptr) {
    // Older than that function, or built in a namespace of its own.
    Refuse("this plugin is for RocksDB " + built + ", the program has another: build the plugin for that");
  }
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&Load), &self) == 0) Refuse("the plugin does not find itself");
  // It may have been found by a link that leads elsewhere.
  char* real = realpath(self.dli_fname, nullptr);
  std::string path(real != nullptr ? real : self.dli_fname);
  std::free(real);
  path.replace(path.rfind('/') + 1, std::string::npos, kPlugin);
  // Never closed: RocksDB keeps what it registers.
  void* plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (plugin == nullptr) Refuse(dlerror());
  make_env = reinterpret_cast<MakeEnv>(dlsym(plugin, "persimmon_rocksdb_env"));
  if (make_env == nullptr) Refuse(path + " is another plugin");
}

}  // namespace

extern "C" __attribute__((visibility("default"))) rocksdb_env_t* persimmon_rocksdb_env(const char* uri) {
  return make_env(uri);
}

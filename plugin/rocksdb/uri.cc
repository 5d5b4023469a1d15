// SPDX-License-Identifier: MIT OR Apache-2.0
#include "uri.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>

namespace persimmon {

using rocksdb::Status;

namespace {

constexpr char kScheme[] = "persimmon://";
// Bounds of the read cache where the URI names no size.
constexpr uint64_t kReadCacheBytesMin = 64 << 20;
constexpr uint64_t kReadCacheBytesMax = 1 << 30;

// Memory that the process may use: the machine's, or what its control group has.
uint64_t MemoryBytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  uint64_t bytes = pages > 0 && page_bytes > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes) : 0;
  // The line of the unified hierarchy: "0::/system.slice/rocksdb.service". Each group up to the root may have a limit.
  std::ifstream groups("/proc/self/cgroup");
  std::string group;
  while (std::getline(groups, group) && group.compare(0, 3, "0::") != 0) {
  }
  group.erase(0, std::min<size_t>(3, group.size()));
  while (true) {
    // Without a limit the file says "max".
    std::ifstream limit("/sys/fs/cgroup" + group + "/memory.max");
    uint64_t limited = 0;
    if (limit >> limited) bytes = std::min(bytes, limited);
    const size_t parent = group.rfind('/');
    if (parent == std::string::npos) return bytes;
    group.resize(parent);
  }
}

// The read cache stands where other filesystems have the kernel's page cache: without it each block that RocksDB's block cache has let
// go of is read from the device again. An eighth of the memory leaves the rest to RocksDB. The cache takes it only as it fills.
uint64_t DefaultReadCacheBytes() { return std::clamp(MemoryBytes() / 8, kReadCacheBytesMin, kReadCacheBytesMax); }

Status BadOption(const std::string& option, const std::string& why) {
  return Status::InvalidArgument("persimmon: option '" + option + "': " + why +
                                 "; there are cache=BYTES, read_cache=BYTES, staging=BYTES, commit=SECONDS, compression=none|lz4|zstd|zstd:1 to "
                                 "zstd:15, flush=kernel|through|memory, read_only=0|1, statistics=FILE");
}

bool IsDigit(char byte) { return byte >= '0' && byte <= '9'; }

// What strto* skip and take beside digits is no part of a number here.
bool ParseBytes(const std::string& text, uint64_t* bytes) {
  if (text.empty() || !IsDigit(text[0])) return false;
  char* end = nullptr;
  errno = 0;
  unsigned long long number = std::strtoull(text.c_str(), &end, 10);
  if (errno != 0) return false;
  unsigned shift = 0;
  switch (*end) {
    case 'K': shift = 10; break;
    case 'M': shift = 20; break;
    case 'G': shift = 30; break;
    case '\0': break;
    default: return false;
  }
  if (shift != 0 && end[1] != '\0') return false;
  if (number > (UINT64_MAX >> shift)) return false;
  *bytes = static_cast<uint64_t>(number) << shift;
  return true;
}

// Of seconds: digits, and perhaps a point with digits behind it. Whatever the locale, the point is one.
bool ParseMilliseconds(const std::string& text, uint64_t* milliseconds) {
  constexpr uint64_t kEnough = 1000000;
  size_t at = 0;
  uint64_t number = 0;
  for (; at < text.size() && IsDigit(text[at]); at++) number = std::min(kEnough, number * 10 + (text[at] - '0'));
  if (at == 0) return false;
  number *= 1000;
  if (at < text.size() && text[at] == '.') {
    const size_t point = at++;
    uint64_t unit = 100;
    for (; at < text.size() && IsDigit(text[at]); at++, unit /= 10) number += (text[at] - '0') * unit;
    if (at == point + 1) return false;
  }
  *milliseconds = number;
  return at == text.size();
}

int HexDigit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

// Replaces escapes; false where a percent sign begins none, or one of a zero byte, which no path has.
bool Unescape(std::string* text) {
  size_t end = 0;
  for (size_t at = 0; at < text->size(); at++, end++) {
    char byte = (*text)[at];
    if (byte == '%') {
      if (text->size() - at < 3) return false;
      const int high = HexDigit((*text)[at + 1]), low = HexDigit((*text)[at + 2]);
      if (high < 0 || low < 0 || high + low == 0) return false;
      byte = static_cast<char>(high * 16 + low);
      at += 2;
    }
    (*text)[end] = byte;
  }
  text->resize(end);
  return true;
}

Status ParseOption(const std::string& option, Uri* parsed) {
  size_t equals = option.find('=');
  std::string key = option.substr(0, equals);
  std::string value = equals == std::string::npos ? "" : option.substr(equals + 1);
  if (!Unescape(&value)) return BadOption(option, "% is written as %25, and begins two hexadecimal digits elsewhere");
  persimmon_options* options = &parsed->options;
  if (key == "read_cache") {
    if (!ParseBytes(value, &options->read_cache_bytes)) return BadOption(option, "not a number of bytes");
  } else if (key == "cache" || key == "staging") {
    uint64_t bytes = 0;
    if (!ParseBytes(value, &bytes) || bytes == 0) return BadOption(option, "not a number of bytes");
    (key == "cache" ? options->cache_bytes : options->staging_bytes) = bytes;
  } else if (key == "compression") {
    if (value.empty()) return BadOption(option, "none of none, lz4, zstd, and zstd:1 to zstd:15");
    parsed->compression = value;
  } else if (key == "commit") {
    uint64_t milliseconds = 0;
    if (!ParseMilliseconds(value, &milliseconds) || milliseconds < 1 || milliseconds > 3600 * 1000) {
      return BadOption(option, "not a number of seconds from 0.001 to 3600");
    }
    options->commit_milliseconds = milliseconds;
  } else if (key == "flush") {
    if (value == "kernel") {
      parsed->flush = FlushTo::kKernel;
    } else if (value == "through") {
      parsed->flush = FlushTo::kDevice;
    } else if (value == "memory") {
      parsed->flush = FlushTo::kMemory;
    } else {
      return BadOption(option, "neither kernel, through nor memory");
    }
  } else if (key == "read_only") {
    if (value != "0" && value != "1") return BadOption(option, "neither 0 nor 1");
    options->read_only = value == "1";
  } else if (key == "statistics") {
    if (value.empty()) return BadOption(option, "no file");
    parsed->statistics = value;
  } else {
    return BadOption(option, "not known");
  }
  return Status::OK();
}

}  // namespace

Status Uri::Parse(const std::string& uri, Uri* parsed) {
  if (uri.compare(0, sizeof kScheme - 1, kScheme) != 0) {
    return Status::InvalidArgument("persimmon: a URI begins with persimmon://, as in persimmon:///dev/nvme0n1", uri);
  }
  *parsed = Uri{};
  parsed->options.struct_size = sizeof(persimmon_options);
  parsed->options.read_cache_bytes = DefaultReadCacheBytes();
  const std::string rest = uri.substr(sizeof kScheme - 1);
  size_t question = rest.find('?');
  parsed->device = rest.substr(0, question);
  if (parsed->device.empty()) {
    return Status::InvalidArgument("persimmon: the URI names no device or image", uri);
  }
  if (!Unescape(&parsed->device)) {
    return Status::InvalidArgument("persimmon: in the URI % is written as %25, and begins two hexadecimal digits elsewhere", uri);
  }
  if (question != std::string::npos) parsed->query = rest.substr(question + 1);
  while (question != std::string::npos) {
    size_t next = rest.find('&', question + 1);
    const std::string option =
        rest.substr(question + 1, next == std::string::npos ? next : next - question - 1);
    Status status = ParseOption(option, parsed);
    if (!status.ok()) return status;
    question = next;
  }
  return Status::OK();
}

}  // namespace persimmon

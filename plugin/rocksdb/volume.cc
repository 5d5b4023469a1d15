// SPDX-License-Identifier: MIT OR Apache-2.0
#include "volume.h"

#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

namespace persimmon {

using rocksdb::Status;

namespace {

constexpr char kScheme[] = "persimmon://";

Status BadOption(const std::string& option, const std::string& why) {
  return Status::InvalidArgument("persimmon: option '" + option + "': " + why +
                                 "; there are cache=BYTES, staging=BYTES, commit=SECONDS, read_only=0|1");
}

bool ParseBytes(const std::string& text, uint64_t* bytes) {
  char* end = nullptr;
  errno = 0;
  unsigned long long number = std::strtoull(text.c_str(), &end, 10);
  if (errno != 0 || end == text.c_str() || text[0] == '-') return false;
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

Status ParseOption(const std::string& option, Uri* parsed) {
  size_t equals = option.find('=');
  std::string key = option.substr(0, equals);
  std::string value = equals == std::string::npos ? "" : option.substr(equals + 1);
  persimmon_options* options = &parsed->options;
  if (key == "cache" || key == "staging") {
    uint64_t bytes = 0;
    if (!ParseBytes(value, &bytes) || bytes == 0) return BadOption(option, "not a number of bytes");
    (key == "cache" ? options->cache_bytes : options->staging_bytes) = bytes;
  } else if (key == "commit") {
    char* end = nullptr;
    double seconds = std::strtod(value.c_str(), &end);
    if (value.empty() || *end != '\0' || !(seconds >= 0.001 && seconds <= 3600)) {
      return BadOption(option, "not a number of seconds from 0.001 to 3600");
    }
    options->commit_milliseconds = static_cast<uint64_t>(std::lround(seconds * 1000));
  } else if (key == "read_only") {
    if (value != "0" && value != "1") return BadOption(option, "neither 0 nor 1");
    options->read_only = value == "1";
  } else {
    return BadOption(option, "not known");
  }
  return Status::OK();
}

// One name for a device or image, however it was spelled; what does not exist keeps its spelling.
std::string Canonical(const std::string& device) {
  char* resolved = ::realpath(device.c_str(), nullptr);
  if (resolved == nullptr) return device;
  std::string name = resolved;
  std::free(resolved);
  return name;
}

// The volumes that are open, by the canonical name of their device. Never destroyed: databases may close after it would be.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Volume>> open;
};

Registry& TheRegistry() {
  static Registry* registry = new Registry;
  return *registry;
}

}  // namespace

Status Uri::Parse(const std::string& uri, Uri* parsed) {
  if (uri.compare(0, sizeof kScheme - 1, kScheme) != 0) {
    return Status::InvalidArgument("persimmon: a URI begins with persimmon://, as in persimmon:///dev/nvme0n1", uri);
  }
  parsed->options = persimmon_options{};
  parsed->options.struct_size = sizeof(persimmon_options);
  std::string rest = uri.substr(sizeof kScheme - 1);
  size_t question = rest.find('?');
  parsed->device = rest.substr(0, question);
  if (parsed->device.empty()) {
    return Status::InvalidArgument("persimmon: the URI names no device or image", uri);
  }
  while (question != std::string::npos) {
    size_t next = rest.find('&', question + 1);
    std::string option =
        rest.substr(question + 1, next == std::string::npos ? next : next - question - 1);
    Status status = ParseOption(option, parsed);
    if (!status.ok()) return status;
    question = next;
  }
  return Status::OK();
}

Status Volume::Open(const std::string& uri, std::shared_ptr<Volume>* volume) {
  Uri parsed;
  Status status = Uri::Parse(uri, &parsed);
  if (!status.ok()) return status;
  std::string device = Canonical(parsed.device);
  Registry& registry = TheRegistry();
  // Held while it opens: a second database waits for the volume of the first.
  std::lock_guard<std::mutex> guard(registry.mutex);
  std::weak_ptr<Volume>& known = registry.open[device];
  *volume = known.lock();
  if (*volume) return Status::OK();
  persimmon_fs* fs = nullptr;
  int error = persimmon_open(parsed.device.c_str(), &parsed.options, &fs);
  if (error != 0) {
    std::string reason = persimmon_error_message();
    return error == EBUSY ? Status::Busy("persimmon", reason) : Status::IOError("persimmon", reason);
  }
  volume->reset(new Volume(fs, device));
  known = *volume;
  return Status::OK();
}

Volume::~Volume() {
  if (persimmon_close(fs_) != 0) {
    std::fprintf(stderr, "persimmon: closing %s: %s\n", device_.c_str(), persimmon_error_message());
  }
}

bool Volume::TakeName(const std::string& name) {
  std::lock_guard<std::mutex> guard(mutex_);
  return names_.insert(name).second;
}

void Volume::LetGoOfName(const std::string& name) {
  std::lock_guard<std::mutex> guard(mutex_);
  names_.erase(name);
}

}  // namespace persimmon

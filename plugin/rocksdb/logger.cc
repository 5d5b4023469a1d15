// SPDX-License-Identifier: MIT OR Apache-2.0
#include "logger.h"

#include <sys/time.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "files.h"
#include "names.h"

namespace persimmon {

using namespace rocksdb;

namespace {

// Longest time that messages are in the memory of the process alone, as of RocksDB's own loggers.
constexpr std::chrono::seconds kFlushEvery{5};

class MessageLog : public Logger {
 public:
  explicit MessageLog(OpenFile file) : file_(std::move(file)) {}
  ~MessageLog() override { (void)Close(); }

  using Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    std::string line = Prefix();
    va_list again;
    va_copy(again, arguments);
    const int length = std::vsnprintf(nullptr, 0, format, again);
    va_end(again);
    if (length < 0) return;
    const size_t begin = line.size();
    line.resize(begin + static_cast<size_t>(length) + 1);
    std::vsnprintf(&line[begin], static_cast<size_t>(length) + 1, format, arguments);
    line.pop_back();
    if (line.back() != '\n') line += '\n';
    std::lock_guard<std::mutex> guard(mutex_);
    if (file_.get() == nullptr || !file_.Write(size_, line).ok()) return;
    size_ += line.size();
    waits_ = true;
    if (std::chrono::steady_clock::now() - flushed_ >= kFlushEvery) FlushLocked();
  }

  void Flush() override {
    std::lock_guard<std::mutex> guard(mutex_);
    FlushLocked();
  }

  size_t GetLogFileSize() const override { return size_; }

 protected:
  Status CloseImpl() override {
    std::lock_guard<std::mutex> guard(mutex_);
    FlushLocked();
    file_.Close();
    return Status::OK();
  }

 private:
  static std::string Prefix() {
    timeval now{};
    gettimeofday(&now, nullptr);
    tm parts{};
    localtime_r(&now.tv_sec, &parts);
    char text[96];
    std::snprintf(text, sizeof text, "%04d/%02d/%02d-%02d:%02d:%02d.%06d %zx ", parts.tm_year + 1900, parts.tm_mon + 1,
                  parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, static_cast<int>(now.tv_usec),
                  std::hash<std::thread::id>()(std::this_thread::get_id()));
    return text;
  }

  void FlushLocked() {
    if (file_.get() == nullptr || !std::exchange(waits_, false) || !file_.volume().flushes()) return;
    flushed_ = std::chrono::steady_clock::now();
    (void)file_.Flush();
  }

  std::mutex mutex_;
  OpenFile file_;
  std::atomic<uint64_t> size_{0};
  // Messages that no flush has covered.
  bool waits_ = false;
  std::chrono::steady_clock::time_point flushed_ = std::chrono::steady_clock::now();
};

}  // namespace

IOStatus NewLogger(std::shared_ptr<Volume> volume, const std::string& path, std::shared_ptr<Logger>* result) {
  const uint32_t flags = PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE | PERSIMMON_OPEN_TRUNCATE;
  OpenFile file;
  IOStatus status = OpenFile::Open(std::move(volume), path, flags, &file);
  if (!status.ok()) return status;
  if (uint32_t lifetime = LifetimeByName(path)) (void)persimmon_set_lifetime(file.get(), lifetime);
  *result = std::make_shared<MessageLog>(std::move(file));
  return status;
}

}  // namespace persimmon

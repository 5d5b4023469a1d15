// Error numbers of libpersimmon as statuses of RocksDB. SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <persimmon.h>
#include <rocksdb/io_status.h>

#include <cerrno>
#include <string>

namespace persimmon {

// RocksDB stops writing, asks for the free space from time to time, and resumes once there is some. Retryable, as RocksDB's own
// file system says of it.
inline rocksdb::IOStatus NoSpace(const std::string& reason) {
  rocksdb::IOStatus status = rocksdb::IOStatus::NoSpace(reason);
  status.SetRetryable(true);
  return status;
}

// The status of the call that has just failed in this thread, with its reason in words.
inline rocksdb::IOStatus Failed(int error) {
  using rocksdb::IOStatus;
  const std::string reason = persimmon_error_message();
  switch (error) {
    case ENOENT:
      return IOStatus::PathNotFound(reason);
    case ENOSPC:
      return NoSpace(reason);
    case EAGAIN:
    case EBUSY:
      return IOStatus::Busy(reason);
    case EINVAL:
      return IOStatus::InvalidArgument(reason);
    default:
      return IOStatus::IOError(reason);
  }
}

// Whether a path that failed so names nothing: RocksDB's own file system tells that as NotFound where it is asked what is there.
inline bool NamesNothing(int error) {
  return error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG;
}

inline rocksdb::IOStatus ToStatus(int error) {
  return error == 0 ? rocksdb::IOStatus::OK() : Failed(error);
}

}  // namespace persimmon

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
    case EDQUOT:
      return NoSpace(reason);
    case EAGAIN:
    case EBUSY:
      return IOStatus::Busy(reason);
    case EINVAL:
    case ENAMETOOLONG:
      return IOStatus::InvalidArgument(reason);
    case EOPNOTSUPP:
      return IOStatus::NotSupported(reason);
    // EROFS goes with the rest: RocksDB takes NotSupported for a question whether a call is there, and goes on in another way. What is on
    // the way of a path and is no directory (ENOTDIR, ELOOP) is no missing file, which it would make.
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

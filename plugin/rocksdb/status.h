// Error numbers of libpersimmon as statuses of RocksDB. SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <persimmon.h>
#include <rocksdb/io_status.h>

#include <cerrno>
#include <string>

namespace persimmon {

// The status of the call that has just failed in this thread, with its reason in words.
inline rocksdb::IOStatus Failed(int error) {
  using rocksdb::IOStatus;
  const std::string reason = persimmon_error_message();
  switch (error) {
    case ENOENT:
      return IOStatus::PathNotFound(reason);
    // RocksDB stops writing, asks for the free space from time to time, and resumes once there is some.
    case ENOSPC:
      return IOStatus::NoSpace(reason);
    case EAGAIN:
    case EBUSY:
      return IOStatus::Busy(reason);
    case EINVAL:
      return IOStatus::InvalidArgument(reason);
    default:
      return IOStatus::IOError(reason);
  }
}

inline rocksdb::IOStatus ToStatus(int error) {
  return error == 0 ? rocksdb::IOStatus::OK() : Failed(error);
}

}  // namespace persimmon

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
  std::string reason = persimmon_error_message();
  switch (error) {
    case ENOENT:
      return IOStatus::PathNotFound(reason);
    case ENOSPC: {
      IOStatus status = IOStatus::NoSpace(reason);
      // What was refused for want of room can be done once there is some: RocksDB resumes by itself.
      status.SetRetryable(true);
      return status;
    }
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

/* The plugin for programs that use RocksDB by its C interface. SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef PERSIMMON_ROCKSDB_H
#define PERSIMMON_ROCKSDB_H

#include <rocksdb/c.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An environment whose files are in the volume that a URI names (persimmon://DEVICE-OR-IMAGE), for rocksdb_options_set_env.
 * NULL where it cannot be opened; standard error says why. Give it back by rocksdb_env_destroy; the volume stays open until the
 * process ends, and a second environment of the same URI shares it. */
rocksdb_env_t* persimmon_rocksdb_env(const char* uri);

#ifdef __cplusplus
}
#endif

#endif

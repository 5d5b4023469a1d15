/*
 * libpersimmon: Persimmon, a filesystem for zoned storage, as a library.
 *
 * A function that can fail returns 0, or an error number of <errno.h>; persimmon_error_message() then tells the
 * reason in words. Paths are bytes that end with a zero byte, from the root of the volume. All functions may be called by
 * any number of threads at once, but for those that give an object back, which must be the last to use it; a directory that
 * is listed, and a read under way, belong to one thread at a time. A child of fork cannot use what its parent opened (EBADF), and may end
 * by exit. What "Safety" says is what the caller has to see to.
 *
 * Made from the crate by cbindgen; a test fails where the two differ. SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PERSIMMON_H
#define PERSIMMON_H

#include <stddef.h>
#include <stdint.h>
/* What the library needs of a caller is checked where that can be: NULL is told as EINVAL. */

// Set space aside for a range; the size grows with it.
#define PERSIMMON_ALLOCATE_RESERVE 0

// The same; the size stays.
#define PERSIMMON_ALLOCATE_RESERVE_KEEP_SIZE 1

// Make it a hole.
#define PERSIMMON_ALLOCATE_PUNCH 2

// Have it read as zeros, with space set aside; the size grows with it.
#define PERSIMMON_ALLOCATE_ZERO 3

// Take it out: what is behind follows what is before. Whole blocks of 4096 bytes, which end before the file does.
#define PERSIMMON_ALLOCATE_COLLAPSE 4

// Put it in, as a hole: what is there moves behind it. Whole blocks of 4096 bytes, which begin before the file ends.
#define PERSIMMON_ALLOCATE_INSERT 5

// Something failed that no call will tell, such as a write of the background.
#define PERSIMMON_LOG_ERROR 1

// Something that a user should know, and nothing failed.
#define PERSIMMON_LOG_WARNING 2

// A zone in use by nobody.
#define PERSIMMON_ZONE_FREE 0

// One of the log.
#define PERSIMMON_ZONE_LOG 1

// One of metadata.
#define PERSIMMON_ZONE_METADATA 2

// One of file data.
#define PERSIMMON_ZONE_DATA 3

// One taken out of use.
#define PERSIMMON_ZONE_RETIRED 4

// A zone that serves.
#define PERSIMMON_ZONE_HEALTHY 0

// One that failed: it can be read alone.
#define PERSIMMON_ZONE_READ_ONLY 1

// One that failed: what was in it is lost.
#define PERSIMMON_ZONE_OFFLINE 2

// Replace what has the new name.
#define PERSIMMON_RENAME_REPLACE 0

// Answer `EEXIST` where something has the new name.
#define PERSIMMON_RENAME_NO_REPLACE 1

// Swap the two.
#define PERSIMMON_RENAME_EXCHANGE 2

// Kind of an owner: a user.
#define PERSIMMON_QUOTA_USER 1

// A group.
#define PERSIMMON_QUOTA_GROUP 2

// A project: of a directory tree.
#define PERSIMMON_QUOTA_PROJECT 3

// Major version of the interface that this header is of: a program works with every library of the same one, from its own minor version on.
// It is in the name of the shared library.
#define PERSIMMON_VERSION_MAJOR 0

// Minor version: functions, flags and fields were added since the one before.
#define PERSIMMON_VERSION_MINOR 1

// Open for reading.
#define PERSIMMON_OPEN_READ 1

// Open for writing.
#define PERSIMMON_OPEN_WRITE 2

// Writes go to the end.
#define PERSIMMON_OPEN_APPEND 4

// Make it if it is missing.
#define PERSIMMON_OPEN_CREATE 8

// Make it; it must be missing.
#define PERSIMMON_OPEN_CREATE_NEW 16

// Empty it.
#define PERSIMMON_OPEN_TRUNCATE 32

// Every write is durable before it returns.
#define PERSIMMON_OPEN_SYNC 64

// Every write outlives the death of the process once it has returned, with every change of names and attributes before:
// the device, or the kernel where the volume is an image, has it. The power may still take it. A small write costs a block of the
// journal, and no flush of the device.
#define PERSIMMON_OPEN_WRITE_THROUGH 128

// What was appended before `persimmon_flush` outlives the death of the process for the cost of copying it: the kernel keeps it in a
// file in `/dev/shm`, up to 1 MiB for each open file, and the next opening of the volume that writes brings it in. Changes of names do not
// go with it, except before the first flush. Where the kernel cannot keep it, a flush goes to the device.
#define PERSIMMON_OPEN_KEEP_FLUSHED 256

// Reads go to the device, past `read_cache_bytes` of `persimmon_options`.
#define PERSIMMON_OPEN_DIRECT 512

// How long data will live is not known.
#define PERSIMMON_LIFETIME_NONE 1

// It is soon overwritten or removed.
#define PERSIMMON_LIFETIME_SHORT 2

// In between.
#define PERSIMMON_LIFETIME_MEDIUM 3

// It stays.
#define PERSIMMON_LIFETIME_LONG 4

// As good as for ever.
#define PERSIMMON_LIFETIME_EXTREME 5

// A regular file.
#define PERSIMMON_KIND_FILE 1

// A directory.
#define PERSIMMON_KIND_DIRECTORY 2

// A symbolic link.
#define PERSIMMON_KIND_SYMLINK 3

// A pipe, socket or device node.
#define PERSIMMON_KIND_OTHER 4

// A directory that is listed.
typedef struct persimmon_dir persimmon_dir;

// An open file. It keeps the volume open.
typedef struct persimmon_file persimmon_file;

// A filesystem in use.
typedef struct persimmon_fs persimmon_fs;

// A read under way. It keeps its file open.
typedef struct persimmon_read persimmon_read;

// A point in time, from 1970 on.
typedef struct persimmon_time {
  // Seconds.
  int64_t seconds;
  // Nanoseconds behind them.
  uint32_t nanoseconds;
} persimmon_time;

// Attributes, as of stat(2).
typedef struct persimmon_stat {
  // Inode number, never used for another file in the life of the volume.
  uint64_t ino;
  // Type and permissions, as `st_mode`.
  uint32_t mode;
  // Names.
  uint32_t nlink;
  // Owner.
  uint32_t uid;
  // Group.
  uint32_t gid;
  // Bytes.
  uint64_t size;
  // Space taken, units of 512 bytes.
  uint64_t blocks;
  // Last access.
  struct persimmon_time atime;
  // Last change of content.
  struct persimmon_time mtime;
  // Last change of anything.
  struct persimmon_time ctime;
  // Creation.
  struct persimmon_time btime;
} persimmon_stat;

// An entry of a directory.
typedef struct persimmon_dirent {
  // The inode it names.
  uint64_t ino;
  // One of `PERSIMMON_KIND_*`.
  uint32_t kind;
  // Its name, valid until the next entry is asked for or the directory is given back; NULL behind the last entry.
  const char *name;
} persimmon_dirent;

// A read of a batch.
typedef struct persimmon_read_request {
  // Where in the file.
  uint64_t offset;
  // Where to.
  uint8_t *buffer;
  // Bytes asked for.
  size_t len;
  // Told: bytes read.
  size_t done;
  // Told: 0, or an error number.
  int error;
} persimmon_read_request;

// Space and inodes.
typedef struct persimmon_space {
  // Bytes that users may fill, all together.
  uint64_t total_bytes;
  // Bytes of them that are left.
  uint64_t available_bytes;
  // Inodes in use, and an estimate of how many more there may be.
  uint64_t inodes;
  // That estimate.
  uint64_t inodes_available;
} persimmon_space;

// How to make a volume. Set `struct_size` to `sizeof` and everything else to 0 for the defaults.
typedef struct persimmon_create_options {
  // `sizeof(persimmon_create_options)`.
  size_t struct_size;
  // Bytes of an image; 0: all of the block device or image that is there. Ignored on zoned drives, which have a size.
  uint64_t size_bytes;
  // Bytes of a zone of an image: whole blocks of 4096 bytes, 1 MiB to 4 GiB; 0: by its size.
  uint64_t zone_bytes;
  // UTF-8, at most 64 bytes; NULL: none.
  const char *label;
  // Share held back for metadata and cleaning, 1/100 percent, plus 1; 0: the default.
  uint32_t reserve_basis_points_plus_one;
  // Copies of metadata, 1 or 2; 0: 1.
  uint32_t copies;
  // Not 0: overwrite what is there.
  int force;
  // How files are compressed, where the attribute `user.persimmon.compression` does not say it: `none`, `lz4`, `zstd`,
  // `zstd:1` to `zstd:15`; NULL: as whoever opens the volume says.
  const char *compression;
  // 2: each block of the device, of files and metadata, is in two zones, and any one can be lost. 0 or 1: it is not.
  uint32_t data_copies;
  // Zones of file data that share a zone of parity, 2 to 15: any one of them can be lost. 0: no parity.
  uint32_t data_parity;
} persimmon_create_options;

// How to open a volume. Set `struct_size` to `sizeof` and everything else to 0 for the defaults.
typedef struct persimmon_options {
  // `sizeof(persimmon_options)`.
  size_t struct_size;
  // Not 0: write nothing.
  int read_only;
  // Bytes of metadata kept in memory; 0: 64 MiB.
  uint64_t cache_bytes;
  // Bytes of file data that wait in memory; 0: 32 MiB.
  uint64_t staging_bytes;
  // Milliseconds until what was written is durable without being asked; 0: 5000.
  uint64_t commit_milliseconds;
  // Bytes of blocks of files kept in memory that were read in pieces of up to 64 KiB; 0: none.
  uint64_t read_cache_bytes;
  // How files are compressed, where neither the attribute `user.persimmon.compression` nor the volume says it: `none`, `lz4`,
  // `zstd`, `zstd:1` to `zstd:15`; NULL: `lz4`.
  const char *compression;
  // Which synced blocks are written as differences to what is stored, where little changed: `none`; `memory`, those whose stored content
  // is in memory; `always`, for which it is read; NULL: `memory`.
  const char *deltas;
  // Whether blocks that some file has already become shared with it while they are written: `none`, `write`; NULL: `none`.
  const char *dedup;
  // Bytes of hashes of blocks kept in memory for that, and never more than 1/1000 of the data; 0: 64 MiB.
  uint64_t dedup_bytes;
} persimmon_options;

// Takes a message: what was given with it, a level (`PERSIMMON_LOG_*`), a line of text without its end.
typedef void (*persimmon_log)(void *argument, uint32_t level, const char *message);

// Counters since the volume was opened.
typedef struct persimmon_stats {
  // File data flushed, in whole blocks.
  uint64_t user_bytes;
  // Everything sent to the device.
  uint64_t device_bytes;
  // Everything read from it.
  uint64_t read_bytes;
  // Blocks of 4096 bytes that cleaning moved.
  uint64_t blocks_moved;
  // Checkpoints.
  uint64_t checkpoints;
  // Flushes of the device's cache.
  uint64_t flushes;
  // Zones reset.
  uint64_t resets;
  // Operations that waited for a checkpoint or for cleaning.
  uint64_t stalls;
} persimmon_stats;

// Counters of cleaning since the volume was opened.
typedef struct persimmon_cleaning_stats {
  // Zones cleaned while an operation waited for room.
  uint64_t zones_waited_for;
  // Zones cleaned ahead of need.
  uint64_t zones_ahead;
  // Blocks of 4096 bytes moved out of both.
  uint64_t blocks_moved;
  // Bytes of file data sent to the device to move them.
  uint64_t data_bytes;
  // The same of metadata.
  uint64_t metadata_bytes;
  // Operations that waited for a checkpoint or for cleaning.
  uint64_t stalls;
} persimmon_cleaning_stats;

// What cleaning did.
typedef struct persimmon_cleaned {
  // 1: so many zones are free as were asked for; 0: nothing more is to be won.
  int reached;
  // Zones that are free now.
  uint32_t free_zones;
  // Blocks of 4096 bytes moved meanwhile.
  uint64_t blocks_moved;
} persimmon_cleaned;

// What a scrub found.
typedef struct persimmon_scrubbed {
  // Bytes read and verified, or found damaged.
  uint64_t bytes;
  // Places that are damaged; `persimmon scrub` tells which.
  uint64_t damaged;
} persimmon_scrubbed;

// A zone.
typedef struct persimmon_zone {
  // One of `PERSIMMON_ZONE_FREE` to `PERSIMMON_ZONE_RETIRED`.
  uint32_t role;
  // `PERSIMMON_ZONE_HEALTHY` or how it failed.
  uint32_t health;
  // Blocks of 4096 bytes that can be written.
  uint32_t capacity_blocks;
  // Blocks written.
  uint32_t write_pointer;
  // Blocks of them that are live.
  uint32_t valid_blocks;
  // Times that it was reset.
  uint32_t resets;
} persimmon_zone;

// What somebody takes, and may take.
typedef struct persimmon_quota {
  // Bytes taken; not read where limits are set.
  uint64_t bytes;
  // Bytes that may be taken for the grace time at most; 0 is no limit.
  uint64_t bytes_soft;
  // Bytes that may be taken at all; 0 is no limit.
  uint64_t bytes_hard;
  // When the soft limit becomes a hard one, seconds since 1970; 0 where it is not exceeded. Not read where limits are set.
  int64_t bytes_grace_end;
  // Inodes taken; not read where limits are set.
  uint64_t inodes;
  // Inodes that may be taken for the grace time at most; 0 is no limit.
  uint64_t inodes_soft;
  // Inodes that may be taken at all; 0 is no limit.
  uint64_t inodes_hard;
  // As of bytes.
  int64_t inodes_grace_end;
} persimmon_quota;

// Told what each owner takes: `kind`, `id`, and `data` as it was given.
typedef void (*persimmon_quota_visit)(void *data,
                                      uint32_t kind,
                                      uint32_t id,
                                      const struct persimmon_quota *quota);

// Told of something that the volume cannot have of what is received: where, what, and `data` as it was given.
typedef void (*persimmon_warning_visit)(void *data, const char *path, const char *what);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Attributes of what a path means, links followed.
//
// # Safety
// `fs` is a handle; `path` a string; `stat` a place for the answer.
int persimmon_stat_path(const struct persimmon_fs *fs,
                        const char *path,
                        struct persimmon_stat *stat);

// Attributes of what a path names, a link at its end not followed.
//
// # Safety
// As of [`persimmon_stat_path`].
int persimmon_lstat_path(const struct persimmon_fs *fs,
                         const char *path,
                         struct persimmon_stat *stat);

// Changes permissions: the lowest twelve bits of `mode`.
//
// # Safety
// `fs` is a handle; `path` a string.
int persimmon_chmod(const struct persimmon_fs *fs, const char *path, uint32_t mode);

// Changes owner and group; `UINT32_MAX` leaves one as it is.
//
// # Safety
// `fs` is a handle; `path` a string.
int persimmon_chown(const struct persimmon_fs *fs, const char *path, uint32_t uid, uint32_t gid);

// Changes the size of a file.
//
// # Safety
// `fs` is a handle; `path` a string.
int persimmon_truncate(const struct persimmon_fs *fs, const char *path, uint64_t size);

// Changes times of access and of change of content; NULL leaves one as it is. `EINVAL`: a time of 10^9 nanoseconds or more.
//
// # Safety
// `fs` is a handle; `path` a string; each time is NULL or a structure.
int persimmon_set_times(const struct persimmon_fs *fs,
                        const char *path,
                        const struct persimmon_time *atime,
                        const struct persimmon_time *mtime);

// Value of an extended attribute. `ERANGE`: the buffer is shorter than `length`, which is told. `ENODATA`: there is none.
//
// # Safety
// `fs` is a handle; `path` and `name` are strings; `buffer` has `buffer_bytes`; `length` is a place for the answer.
int persimmon_getxattr(const struct persimmon_fs *fs,
                       const char *path,
                       const char *name,
                       uint8_t *buffer,
                       size_t buffer_bytes,
                       size_t *length);

// Sets an extended attribute.
//
// # Safety
// `fs` is a handle; `path` and `name` are strings; `value` has `value_bytes`.
int persimmon_setxattr(const struct persimmon_fs *fs,
                       const char *path,
                       const char *name,
                       const uint8_t *value,
                       size_t value_bytes);

// Names of the extended attributes, each with a zero byte behind it. `ERANGE`: the buffer is shorter than `length`.
//
// # Safety
// `fs` is a handle; `path` a string; `buffer` has `buffer_bytes`; `length` is a place for the answer.
int persimmon_listxattr(const struct persimmon_fs *fs,
                        const char *path,
                        uint8_t *buffer,
                        size_t buffer_bytes,
                        size_t *length);

// Removes an extended attribute.
//
// # Safety
// `fs` is a handle; `path` and `name` are strings.
int persimmon_removexattr(const struct persimmon_fs *fs, const char *path, const char *name);

// Why the last failing call of this thread failed, in words: valid until the thread's next call. Empty before any failed.
const char *persimmon_error_message(void);

// Begins to list a directory. Give it back by [`persimmon_closedir`].
//
// # Safety
// `fs` is a handle; `path` a string; `dir` a place for the answer.
int persimmon_opendir(const struct persimmon_fs *fs, const char *path, struct persimmon_dir **dir);

// The next entry, in the directory's own order and without the dots; behind the last one its name is NULL.
//
// # Safety
// `dir` came from [`persimmon_opendir`] and is used by no other thread now; `entry` is a place for the answer.
int persimmon_readdir(struct persimmon_dir *dir,
                      struct persimmon_dirent *entry);

// Gives a directory back.
//
// # Safety
// `dir` is NULL, or came from [`persimmon_opendir`] and is not used any more.
void persimmon_closedir(struct persimmon_dir *dir);

// Makes all changes of names so far durable, in every directory. `path` has to be a directory.
//
// # Safety
// `fs` is a handle; `path` a string.
int persimmon_sync_dir(const struct persimmon_fs *fs, const char *path);

// Opens a file: `flags` are of `PERSIMMON_OPEN_*`, `mode` the permissions of one that is made, before the mask 022. Give it
// back by [`persimmon_file_close`].
//
// # Safety
// `fs` is a handle; `path` a string; `file` a place for the answer.
int persimmon_open_file(const struct persimmon_fs *fs,
                        const char *path,
                        uint32_t flags,
                        uint32_t mode,
                        struct persimmon_file **file);

// Gives a file back. What was written and not synced may be lost in a crash of the machine, and what was neither synced, nor flushed, nor
// written through, with the process.
//
// # Safety
// `file` is NULL, or an open file that is not used any more.
void persimmon_file_close(struct persimmon_file *file);

// Reads at `offset` and tells how many bytes: fewer than asked for only at the end of the file.
//
// # Safety
// `file` is open; `buffer` has `len` bytes; `done` is a place for the answer.
int persimmon_pread(const struct persimmon_file *file,
                    uint8_t *buffer,
                    size_t len,
                    uint64_t offset,
                    size_t *done);

// Writes all of the data at `offset`; through a file opened to append, at its end.
//
// # Safety
// `file` is open; `data` has `len` bytes.
int persimmon_pwrite(const struct persimmon_file *file,
                     const uint8_t *data,
                     size_t len,
                     uint64_t offset);

// `persimmon_pwrite` and `persimmon_flush` in one: for logs, which flush what they append record by record. After an error the data may
// be in the file all the same.
//
// # Safety
// `file` is open; `data` has `len` bytes.
int persimmon_pwrite_flush(const struct persimmon_file *file,
                           const uint8_t *data,
                           size_t len,
                           uint64_t offset);

// Writes all of the data at the end of a file opened to append; `end`, which may be NULL, is told the offset behind it.
//
// # Safety
// `file` is open; `data` has `len` bytes; `end` is NULL or a place for the answer.
int persimmon_append(const struct persimmon_file *file,
                     const uint8_t *data,
                     size_t len,
                     uint64_t *end);

// Reads several ranges as one batch: what lies on the device is asked for together. Each request is told its own result, also where
// nothing could be read at all; the answer is 0 only where none failed, and else that of the first one that did.
//
// # Safety
// `file` is open; `requests` has `count` elements whose buffers have the bytes they say and do not overlap.
int persimmon_read_batch(const struct persimmon_file *file,
                         struct persimmon_read_request *requests,
                         size_t count);

// What was written to a file so far outlives the death of the process once this has returned, as with `PERSIMMON_OPEN_WRITE_THROUGH`, or
// with `PERSIMMON_OPEN_KEEP_FLUSHED` if it was opened so;
// the power may still take it: that is what `persimmon_fsync` is for.
//
// # Safety
// `file` is open.
int persimmon_flush(const struct persimmon_file *file);

// Has what was written so far, to this file and others, written to the device soon, and waits for nothing. Nothing is promised of it.
//
// # Safety
// `file` is open.
int persimmon_start_write_back(const struct persimmon_file *file);

// Makes a file durable with its name.
//
// # Safety
// `file` is open.
int persimmon_fsync(const struct persimmon_file *file);

// Changes the size.
//
// # Safety
// `file` is open.
int persimmon_ftruncate(const struct persimmon_file *file, uint64_t size);

// Attributes.
//
// # Safety
// `file` is open; `stat` a place for the answer.
int persimmon_fstat(const struct persimmon_file *file, struct persimmon_stat *stat);

// Space and inodes, as of `persimmon_statfs_path`.
//
// # Safety
// `file` is open; `space` a place for the answer.
int persimmon_fstatfs(const struct persimmon_file *file, struct persimmon_space *space);

// Changes how a range is backed: `how` is one of `PERSIMMON_ALLOCATE_*`.
//
// # Safety
// `file` is open.
int persimmon_allocate(const struct persimmon_file *file,
                       uint64_t offset,
                       uint64_t len,
                       uint32_t how);

// Finds the next data, or with `hole` the next hole, at or after `offset`: `ENXIO` past the end.
//
// # Safety
// `file` is open; `found` a place for the answer.
int persimmon_seek(const struct persimmon_file *file, uint64_t offset, int hole, uint64_t *found);

// Tells how long what is written through this file from now on will live: one of `PERSIMMON_LIFETIME_*`, or 0 to take that
// back.
//
// # Safety
// `file` is open.
int persimmon_set_lifetime(const struct persimmon_file *file,
                           uint32_t told);

// Takes the lock on the whole file, exclusively or shared, without waiting: `EAGAIN` where another open file has it. It ends with the
// file.
//
// # Safety
// `file` is open.
int persimmon_lock(const struct persimmon_file *file,
                   int exclusive);

// Lets go of that lock.
//
// # Safety
// `file` is open.
int persimmon_unlock(const struct persimmon_file *file);

// Makes a volume: in an image file, on a zoned drive, another block device, or two of them (`pair:META+DATA`).
// `options` may be NULL where the device has a size: a zoned drive, a block device, an image that is there.
//
// # Safety
// `device` is a string; `options` is NULL or a structure that begins with its size.
int persimmon_create(const char *device,
                     const struct persimmon_create_options *options);

// Opens a volume. Background work begins. Give it back by [`persimmon_close`] or [`persimmon_abandon`].
// `EBUSY`: another process has it open, or it is mounted.
//
// # Safety
// `device` is a string; `options` is NULL or a structure that begins with its size; `fs` is a place for the answer.
int persimmon_open(const char *device,
                   const struct persimmon_options *options,
                   struct persimmon_fs **fs);

// Makes a volume of so many bytes in memory and opens it. It is gone with its last handle.
//
// # Safety
// `fs` is a place for the answer.
int persimmon_open_in_memory(uint64_t bytes, struct persimmon_fs **fs);

// One more handle to the same filesystem, to be given back like the first: by [`persimmon_release`], or by closing.
//
// # Safety
// `fs` is a handle; `clone` a place for the answer.
int persimmon_clone(const struct persimmon_fs *fs,
                    struct persimmon_fs **clone);

// Gives a handle back. The last one, open files included, closes the volume; an error then goes to the log alone.
//
// # Safety
// `fs` is NULL, or a handle that is not used any more.
void persimmon_release(struct persimmon_fs *fs);

// Makes everything durable and closes the volume, and gives the handle back, also where that fails. Other handles and open
// files answer `EROFS` to changes from then on; the device is let go of with the last of them.
//
// # Safety
// As of [`persimmon_release`].
int persimmon_close(struct persimmon_fs *fs);

// Leaves the volume as a crash of the process would, and gives the handle back. For tests.
//
// # Safety
// As of [`persimmon_release`].
void persimmon_abandon(struct persimmon_fs *fs);

// Space and inodes.
//
// # Safety
// `fs` is a handle; `space` a place for the answer.
int persimmon_statfs(const struct persimmon_fs *fs, struct persimmon_space *space);

// Space and inodes of what a path means: where its project is limited, the limit (the soft one if there is one) and what is left of it, and
// never more than the volume has.
//
// # Safety
// `fs` is a handle; `path` a string; `space` a place for the answer.
int persimmon_statfs_path(const struct persimmon_fs *fs,
                          const char *path,
                          struct persimmon_space *space);

// Has messages of this library go to a callback, for all volumes of the process; NULL: to standard error, where they go by
// themselves. Once this has returned, what was set before is not called any more. `EDEADLK`: a callback called this.
//
// # Safety
// `callback` is NULL, or may be called with `argument` by any thread, by several at once, until another is set. It calls no function of this
// library, and copies the message where that has to live longer.
int persimmon_set_log(persimmon_log callback,
                      void *argument);

// Makes everything done so far durable.
//
// # Safety
// `fs` is a handle.
int persimmon_sync(const struct persimmon_fs *fs);

// Writes a checkpoint: the next opening replays no journal.
//
// # Safety
// `fs` is a handle.
int persimmon_checkpoint(const struct persimmon_fs *fs);

// Frees the zones in which nothing is live and has the device reset them: an image gives their space back to its host.
// `bytes` tells how many bytes of zones became free.
//
// # Safety
// `fs` is a handle; `bytes` a place for the answer.
int persimmon_trim(const struct persimmon_fs *fs,
                   uint64_t *bytes);

// Counters since the volume was opened.
//
// # Safety
// `fs` is a handle; `stats` a place for the answer.
int persimmon_statistics(const struct persimmon_fs *fs, struct persimmon_stats *stats);

// Counters of cleaning since the volume was opened.
//
// # Safety
// `fs` is a handle; `stats` a place for the answer.
int persimmon_cleaning_statistics(const struct persimmon_fs *fs,
                                  struct persimmon_cleaning_stats *stats);

// Cleans now, until `free_zones` are free, or with `UINT32_MAX` until nothing more is to be won. Nothing needs this call. `cleaned` may be
// NULL.
//
// # Safety
// `fs` is a handle; `cleaned` is NULL or a place for the answer.
int persimmon_clean(const struct persimmon_fs *fs,
                    uint32_t free_zones,
                    struct persimmon_cleaned *cleaned);

// Reads and verifies everything live. Damage that is found is no error of this call: look at `scrubbed`.
//
// # Safety
// `fs` is a handle; `scrubbed` a place for the answer.
int persimmon_scrub(const struct persimmon_fs *fs,
                    struct persimmon_scrubbed *scrubbed);

// Tells of all zones, in order: of as many as `capacity` has room for; how many there are goes to `count`. `ERANGE`: there are more.
//
// # Safety
// `fs` is a handle; `zones` has room for `capacity` of them, which may be 0; `count` is a place for the answer.
int persimmon_zones(const struct persimmon_fs *fs,
                    struct persimmon_zone *zones,
                    size_t capacity,
                    size_t *count);

// Makes a directory, with permissions 0755.
//
// # Safety
// `fs` is a handle; `path` a string.
int persimmon_mkdir(const struct persimmon_fs *fs, const char *path);

// Makes a directory and those above it that are missing.
//
// # Safety
// `fs` is a handle; `path` a string.
int persimmon_mkdir_all(const struct persimmon_fs *fs, const char *path);

// Removes a name of anything but a directory.
//
// # Safety
// `fs` is a handle; `path` a string.
int persimmon_unlink(const struct persimmon_fs *fs, const char *path);

// Removes an empty directory.
//
// # Safety
// `fs` is a handle; `path` a string.
int persimmon_rmdir(const struct persimmon_fs *fs, const char *path);

// Removes a file, a link, or a directory with everything in it.
//
// # Safety
// `fs` is a handle; `path` a string.
int persimmon_remove_all(const struct persimmon_fs *fs, const char *path);

// Renames a file or directory: atomic, also against crashes; `how` is one of `PERSIMMON_RENAME_*`.
//
// # Safety
// `fs` is a handle; the paths are strings.
int persimmon_rename(const struct persimmon_fs *fs, const char *from, const char *to, uint32_t how);

// Gives a file one more name.
//
// # Safety
// `fs` is a handle; the paths are strings.
int persimmon_link(const struct persimmon_fs *fs, const char *original, const char *link);

// Takes a snapshot of all files: all that was written before is in it, below `/.snapshots/` and the name. With `writable` other than 0 it
// can be changed, without a change of anything else; otherwise never. The directory `/.snapshots` lists all. Durable with the next sync.
//
// # Safety
// `fs` is a handle; `name` a string.
int persimmon_take_snapshot(const struct persimmon_fs *fs,
                            const char *name,
                            int writable);

// Takes a snapshot of the snapshot `of`, as `persimmon_take_snapshot` does of all files. `ENOENT`: there is no snapshot `of`.
//
// # Safety
// `fs` is a handle; the names are strings.
int persimmon_take_snapshot_of(const struct persimmon_fs *fs,
                               const char *of,
                               const char *name,
                               int writable);

// Deletes a snapshot with all that is in it. `EBUSY`: a file in it is open for writing. Snapshots that were taken of it stay.
//
// # Safety
// `fs` is a handle; `name` a string.
int persimmon_delete_snapshot(const struct persimmon_fs *fs,
                              const char *name);

// Gives a snapshot another name. `EEXIST`: another one has it.
//
// # Safety
// `fs` is a handle; the names are strings.
int persimmon_rename_snapshot(const struct persimmon_fs *fs,
                              const char *name,
                              const char *new_name);

// Makes a symbolic link to `target`.
//
// # Safety
// `fs` is a handle; the others are strings.
int persimmon_symlink(const struct persimmon_fs *fs, const char *target, const char *link);

// Copies a file's content and permissions to another, which is made, or emptied first. Holes stay holes.
//
// # Safety
// `fs` is a handle; the paths are strings.
int persimmon_copy(const struct persimmon_fs *fs,
                   const char *from,
                   const char *to);

// Target of a symbolic link, without a zero byte at its end. `ERANGE`: the buffer is shorter than `length`, which is told.
//
// # Safety
// `fs` is a handle; `path` a string; `buffer` has `buffer_bytes`; `length` is a place for the answer.
int persimmon_readlink(const struct persimmon_fs *fs,
                       const char *path,
                       uint8_t *buffer,
                       size_t buffer_bytes,
                       size_t *length);

// Turns quota on, or off where `is_on` is 0. What is there is counted before this returns. Limits stay while it is off.
//
// # Safety
// `fs` is a handle.
int persimmon_turn_quota(const struct persimmon_fs *fs,
                         int is_on);

// What somebody takes, and may take.
//
// # Safety
// `fs` is a handle; `quota` a place for the answer.
int persimmon_get_quota(const struct persimmon_fs *fs,
                        uint32_t kind,
                        uint32_t id,
                        struct persimmon_quota *quota);

// Limits somebody: sets all four limits. They may take more than that already; then they may take no more before it is less. `EOPNOTSUPP`:
// quota is off.
//
// # Safety
// `fs` is a handle; `limits` what they are to be.
int persimmon_set_quota(const struct persimmon_fs *fs,
                        uint32_t kind,
                        uint32_t id,
                        const struct persimmon_quota *limits);

// Calls `visit` with each owner who takes anything, or is limited.
//
// # Safety
// `fs` is a handle; `visit` may be called with `data`, and does not keep what it is told.
int persimmon_list_quota(const struct persimmon_fs *fs, persimmon_quota_visit visit, void *data);

// Gives a directory and all that is in it a project, or none (0): what is made in it has it too. `EOPNOTSUPP`: quota was never on.
//
// # Safety
// `fs` is a handle; `name` a string.
int persimmon_set_project(const struct persimmon_fs *fs,
                          const char *name,
                          uint32_t project);

// Submits a read. Give it back by [`persimmon_read_finish`] or [`persimmon_read_abort`].
//
// # Safety
// `file` is open; `read` a place for the answer.
int persimmon_read_submit(const struct persimmon_file *file,
                          size_t len,
                          uint64_t offset,
                          struct persimmon_read **read);

// 1 where [`persimmon_read_finish`] would return at once, else 0. Of NULL it is 1: finishing it fails at once.
//
// # Safety
// `read` is under way.
int persimmon_read_is_done(const struct persimmon_read *read);

// Waits for a read, copies at most `len` bytes of what was read to the buffer, tells how many, and gives the read back.
//
// # Safety
// `read` is under way and not used any more; `buffer` has `len` bytes; `done` is a place for the answer.
int persimmon_read_finish(struct persimmon_read *read,
                          uint8_t *buffer,
                          size_t len,
                          size_t *done);

// Gives a read up: one that has not begun is never done.
//
// # Safety
// `read` is NULL, or under way and not used any more.
void persimmon_read_abort(struct persimmon_read *read);

// Writes the stream of a read-only snapshot to a file descriptor: a file, a pipe, a socket. With `from` other than NULL, of what it has
// other than that snapshot, which the receiver has. With `token` other than NULL it goes on where a receiver is
// (`persimmon_resume_token`). Where this fails the stream has no end record, and no receiver takes it for whole.
//
// # Safety
// `fs` is a handle; `name` is a string, `from` and `token` are strings or NULL; `fd` stays open during the call.
int persimmon_send_snapshot(const struct persimmon_fs *fs,
                            const char *name,
                            const char *from,
                            const char *token,
                            int fd);

// Brings the stream of a snapshot, read from a file descriptor, into the root of the volume: a full one into an empty volume, one of what
// differs into one that has what it differs from. Where what comes cannot be there as it was, `warn`, which may be NULL, is called. No
// snapshot is taken: one keeps what was received, while the next stream comes. `ENODATA`: the stream was cut; `persimmon_resume_token`
// tells how to go on. `EINVAL`: it was altered, or does not belong here.
//
// # Safety
// `fs` is a handle; `fd` stays open during the call; `warn` may be called with `data`, and does not keep what it is told.
int persimmon_receive_snapshot(const struct persimmon_fs *fs,
                               int fd,
                               persimmon_warning_visit warn,
                               void *data);

// What a sender needs to go on with a stream that was cut: text, without a zero byte at its end. `ENOENT`: nothing was begun here that is
// not done. `ERANGE`: the buffer is shorter than `length`, which is told.
//
// # Safety
// `fs` is a handle; `buffer` has `buffer_bytes`; `length` is a place for the answer.
int persimmon_resume_token(const struct persimmon_fs *fs,
                           uint8_t *buffer,
                           size_t buffer_bytes,
                           size_t *length);

// Version of the library that the program runs with, which may be newer than its header: 65536 times the major version, plus the minor one.
uint32_t persimmon_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PERSIMMON_H */

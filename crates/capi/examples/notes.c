/* A volume in an image file: notes are written, listed, read back, and are there the next time.
 *
 *     cc notes.c $(pkg-config --cflags --libs persimmon) -o notes && ./notes volume.img
 */
#include <persimmon.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call) check((call), #call)

static void check(int error, const char *call)
{
    if (error != 0) {
        fprintf(stderr, "%s: %s (%s)\n", call, persimmon_error_message(), strerror(error));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: notes IMAGE\n");
        return 2;
    }
    persimmon_create_options create = {.struct_size = sizeof create, .size_bytes = 64 << 20, .label = "notes"};
    CHECK(persimmon_create(argv[1], &create));

    persimmon_fs *fs;
    CHECK(persimmon_open(argv[1], NULL, &fs));
    CHECK(persimmon_mkdir(fs, "/notes"));

    persimmon_file *log;
    uint64_t end;
    CHECK(persimmon_open_file(fs, "/notes/log", PERSIMMON_OPEN_APPEND | PERSIMMON_OPEN_CREATE, 0644, &log));
    CHECK(persimmon_append(log, (const uint8_t *)"pick persimmons\n", 16, &end));
    CHECK(persimmon_append(log, (const uint8_t *)"dry them\n", 9, &end));
    CHECK(persimmon_fsync(log));
    persimmon_file_close(log);

    /* What is appended to this one is there after this process, however it ends; no flush of the device is waited for. */
    persimmon_file *through;
    const uint32_t flags = PERSIMMON_OPEN_APPEND | PERSIMMON_OPEN_CREATE | PERSIMMON_OPEN_WRITE_THROUGH;
    CHECK(persimmon_open_file(fs, "/notes/through", flags, 0644, &through));
    CHECK(persimmon_append(through, (const uint8_t *)"ripe\n", 5, NULL));
    persimmon_file_close(through);
    /* The same for what was written before, when it suits. */
    persimmon_file *later;
    CHECK(persimmon_open_file(fs, "/notes/later", PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE, 0644, &later));
    CHECK(persimmon_pwrite(later, (const uint8_t *)"unripe\n", 7, 0));
    CHECK(persimmon_flush(later));
    persimmon_file_close(later);
    CHECK(persimmon_close(fs));

    CHECK(persimmon_open(argv[1], NULL, &fs));
    persimmon_dir *dir;
    persimmon_dirent entry;
    CHECK(persimmon_opendir(fs, "/notes", &dir));
    for (;;) {
        CHECK(persimmon_readdir(dir, &entry));
        if (entry.name == NULL)
            break;
        printf("%s: inode %llu\n", entry.name, (unsigned long long)entry.ino);
    }
    persimmon_closedir(dir);

    uint8_t text[64];
    size_t done;
    persimmon_file *file;
    CHECK(persimmon_open_file(fs, "/notes/log", PERSIMMON_OPEN_READ, 0, &file));
    CHECK(persimmon_pread(file, text, sizeof text, 0, &done));
    fwrite(text, 1, done, stdout);
    persimmon_read *read;
    CHECK(persimmon_read_submit(file, 15, 0, &read));
    CHECK(persimmon_read_finish(read, text, sizeof text, &done));
    if (done != 15 || end != 25 || memcmp(text, "pick persimmons", 15) != 0) {
        fprintf(stderr, "what was read is not what was written\n");
        return 1;
    }
    /* Two ranges at once; each is told its own result. */
    uint8_t words[2][4];
    persimmon_read_request batch[2] = {{.offset = 0, .buffer = words[0], .len = 4}, {.offset = 16, .buffer = words[1], .len = 3}};
    CHECK(persimmon_read_batch(file, batch, 2));
    if (batch[0].done != 4 || memcmp(words[0], "pick", 4) != 0 || batch[1].done != 3 || memcmp(words[1], "dry", 3) != 0) {
        fprintf(stderr, "a batch read something else\n");
        return 1;
    }
    persimmon_file_close(file);

    int error = persimmon_mkdir(fs, "/notes");
    printf("again: %s\n", persimmon_error_message());
    if (error == 0)
        return 1;
    CHECK(persimmon_close(fs));
    return 0;
}

// The device is gone in the midst of writing: every call of this process that reads or writes a file at an offset, or syncs
// one, fails from then on, with EIO as on a drive that fails, or with ENODEV as on one that was unplugged. RocksDB is told, and nothing
// crashes.
//
//   pulled_test URI STATE EIO|ENODEV   writes, loses the device, writes the number of acknowledged keys to STATE
//   pulled_test URI STATE reopen       in a process after that: all of them are there
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "check.h"

using namespace rocksdb;

namespace {

constexpr uint64_t kBefore = 20000;

std::string Key(uint64_t number) { return "key-" + std::to_string(number); }

// All threads of the process lose their devices.
void PullDevices(unsigned error) {
  const long calls[] = {SYS_pread64,   SYS_pwrite64,  SYS_preadv,         SYS_pwritev, SYS_preadv2, SYS_pwritev2,
                        SYS_fdatasync, SYS_fsync,     SYS_sync_file_range, SYS_fallocate, SYS_io_uring_enter};
  std::vector<sock_filter> filter;
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
  for (long call : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  Check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
  Check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0, "seccomp");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 4 ? argv[3] : "";
  Check(what == "EIO" || what == "ENODEV" || what == "reopen", "usage: pulled_test URI STATE EIO|ENODEV|reopen");
  std::unique_ptr<Env> env = NewCompositeEnv(OpenFileSystem(argv[1]));
  Options options = SmallDatabase(env.get());
  DB* opened = nullptr;
  CheckOk(DB::Open(options, "/pulled", &opened), "opening");
  std::unique_ptr<DB> db(opened);
  if (what == "reopen") {
    uint64_t count = 0;
    std::ifstream(argv[2]) >> count;
    Check(count >= kBefore, "the state tells no number");
    std::string value;
    for (uint64_t number = 0; number < count; number++) {
      CheckOk(db->Get(ReadOptions(), Key(number), &value), Key(number));
    }
    std::printf("%llu keys\n", static_cast<unsigned long long>(count));
    return 0;
  }
  WriteOptions write;
  uint64_t count = 0;
  Status status;
  for (;; count++) {
    if (count == kBefore) PullDevices(what == "EIO" ? EIO : ENODEV);
    // Each 100th acknowledges all before it.
    write.sync = count % 100 == 99 || count >= kBefore;
    status = db->Put(write, Key(count), std::string(200, 'v'));
    if (!status.ok()) break;
    Check(count < 2 * kBefore, "nothing is told");
  }
  std::printf("told after the device was pulled: %s\n", status.ToString().c_str());
  std::ofstream(argv[2]) << count << std::endl;
  std::fflush(stdout);
  // Debian's build of RocksDB keeps its assertions, and ends a process that closes a database after a log could not be
  // written, on every filesystem. What is left on the volume is checked by the next process.
  std::_Exit(0);
}

// Opening one volume does not hold up opening another, however long its recovery takes: the lock of all open volumes was held through it.
//
//   opening_test URI OTHER-URI
//
// The thread that opens the first volume stands still at its first read until the second volume was opened, used and closed.
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "check.h"

using namespace rocksdb;

namespace {

constexpr unsigned kPatienceSeconds = 120;

// From now on each read of this thread, and of those that it starts, waits for a word on the descriptor that is returned.
int HoldReads() {
  const long calls[] = {SYS_pread64, SYS_preadv, SYS_preadv2};
  std::vector<sock_filter> filter;
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
  for (long call : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  Check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
  const long listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
  Check(listener >= 0, "seccomp");
  return static_cast<int>(listener);
}

// Waits for a read that is held; false where none is, as when its thread has ended.
bool Held(int listener, uint64_t* id) {
  seccomp_notif held{};
  if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &held) != 0) return false;
  *id = held.id;
  return true;
}

void LetGo(int listener, uint64_t id) {
  seccomp_notif_resp goes_on{};
  goes_on.id = id;
  goes_on.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &goes_on);
}

void Use(const std::string& uri) {
  std::shared_ptr<FileSystem> filesystem = OpenFileSystem(uri);
  CheckOk(WriteStringToFile(filesystem.get(), "content", "/file", true), uri);
  std::string content;
  CheckOk(ReadFileToString(filesystem.get(), "/file", &content), uri);
  Check(content == "content", uri);
}

}  // namespace

int main(int argc, char** argv) {
  Check(argc == 3, "usage: opening_test URI OTHER-URI");
  const std::string slow = argv[1], other = argv[2];
  // It ends a test that waits for ever.
  alarm(kPatienceSeconds);
  std::promise<int> filtered;
  std::thread opens([&] {
    filtered.set_value(HoldReads());
    Use(slow);
  });
  const int listener = filtered.get_future().get();
  uint64_t held = 0;
  Check(Held(listener, &held), "nothing reads");
  Use(other);
  // All others go on at once.
  std::thread goes_on([&] {
    LetGo(listener, held);
    for (uint64_t next = 0;;) {
      if (Held(listener, &next)) LetGo(listener, next);
    }
  });
  opens.join();
  std::printf("the other volume was opened meanwhile\n");
  std::fflush(stdout);
  std::_Exit(0);
}

// A child of fork that ends by exit() leaves its parent's volume alone. It runs the handlers and destructors of the parent, which wrote what
// was not written when it was forked over what the parent had been told is durable, and closed the volume.
//
//   fork_test URI OTHER-URI   forks a child that ends, writes, and dies without closing anything
//   fork_test URI             what that left
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

using namespace rocksdb;

namespace {

constexpr unsigned kPatienceSeconds = 120;
constexpr char kSynced[] = "/000001.sst";
constexpr char kFlushed[] = "/000002.log";

// Destroyed in the exit of the child: the last that has the volume open there.
std::shared_ptr<FileSystem> filesystem;

// Does not compress.
std::string Content() {
  std::string content(256 << 10, '\0');
  uint64_t state = 1;
  for (char& byte : content) byte = static_cast<char>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
  return content;
}

std::unique_ptr<FSWritableFile> Appended(const std::string& path) {
  std::unique_ptr<FSWritableFile> file;
  CheckOk(filesystem->NewWritableFile(path, FileOptions(), &file, nullptr), path);
  CheckOk(file->Append(Content(), IOOptions(), nullptr), path);
  return file;
}

// Returns from main, and so exits.
void Child(const std::string& uri, const std::string& other) {
  // A child that waits for what only its parent has is ended by this.
  alarm(kPatienceSeconds);
  Check(!WriteStringToFile(filesystem.get(), "content", "/child").ok(), "the child writes to its parent's volume");
  std::shared_ptr<FileSystem> opened;
  const Status status = FileSystem::CreateFromString(ConfigOptions(), uri, &opened);
  Check(!status.ok(), "the child opens its parent's volume");
  std::shared_ptr<FileSystem> own = OpenFileSystem(other);
  CheckOk(WriteStringToFile(own.get(), "content", "/child", true), "a volume of the child's own");
}

}  // namespace

int main(int argc, char** argv) {
  Check(argc == 2 || argc == 3, "usage: fork_test URI [OTHER-URI]");
  filesystem = OpenFileSystem(argv[1]);
  if (argc == 2) {
    for (const char* path : {kSynced, kFlushed}) {
      std::string content;
      CheckOk(ReadFileToString(filesystem.get(), path, &content), path);
      Check(content == Content(), std::string(path) + " has something else");
    }
    return 0;
  }
  // Left alone in the exit of the parent, and so of the child.
  Env* env = nullptr;
  std::shared_ptr<Env> owned;
  CheckOk(Env::CreateFromUri(ConfigOptions(), argv[1], "", &env, &owned), "an environment");
  Check(env != Env::Default(), "the environment is another one");
  std::unique_ptr<FSWritableFile> waits = Appended("/000003.sst");
  int pipes[2];
  Check(pipe(pipes) == 0, "pipe");
  const pid_t child = fork();
  Check(child >= 0, "fork");
  if (child == 0) {
    char word = 0;
    Check(read(pipes[0], &word, 1) == 1, "the parent is gone");
    Child(argv[1], argv[2]);
    return 0;
  }
  std::unique_ptr<FSWritableFile> synced = Appended(kSynced);
  CheckOk(synced->Fsync(IOOptions(), nullptr), kSynced);
  std::unique_ptr<FSWritableFile> flushed = Appended(kFlushed);
  CheckOk(flushed->Flush(IOOptions(), nullptr), kFlushed);
  Check(write(pipes[1], "!", 1) == 1, "pipe");
  int status = -1;
  Check(waitpid(child, &status, 0) == child && status == 0, "the child ends with " + std::to_string(status));
  std::printf("the child has ended\n");
  std::fflush(stdout);
  std::_Exit(0);
}

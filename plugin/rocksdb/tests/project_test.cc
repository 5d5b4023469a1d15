// A database in a directory whose project is limited has the room of that project: tables leave to logs what is theirs there.
//
//   project_test URI BYTES     (a volume where /limited is of a project that may take so many bytes, and nothing is in it)
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <random>

#include "check.h"

using namespace rocksdb;

namespace {

constexpr uint64_t kPiece = 1 << 20;

// Does not compress.
std::string Piece() {
  static std::mt19937_64 noise(1);
  std::string piece(kPiece, '\0');
  for (char& byte : piece) byte = static_cast<char>(noise());
  return piece;
}

uint64_t FreeSpace(FileSystem* filesystem, const std::string& path) {
  uint64_t bytes = 0;
  CheckOk(filesystem->GetFreeSpace(path, IOOptions(), &bytes, nullptr), path);
  return bytes;
}

std::unique_ptr<FSWritableFile> Made(FileSystem* filesystem, const std::string& path) {
  std::unique_ptr<FSWritableFile> file;
  CheckOk(filesystem->NewWritableFile(path, FileOptions(), &file, nullptr), path);
  return file;
}

}  // namespace

int main(int argc, char** argv) {
  Check(argc == 3, "usage: project_test URI BYTES");
  const uint64_t limit = std::stoull(argv[2]), for_logs = limit / 16;
  std::shared_ptr<FileSystem> filesystem = OpenFileSystem(argv[1]);
  const uint64_t room = FreeSpace(filesystem.get(), "/limited");
  Check(room == limit - for_logs, "room in the project: " + std::to_string(room));
  Check(FreeSpace(filesystem.get(), "/") > 2 * limit, "room elsewhere");
  uint64_t bytes = 0;
  Check(filesystem->GetFreeSpace("/missing", IOOptions(), &bytes, nullptr).IsPathNotFound(), "room of what is missing");
  auto table = Made(filesystem.get(), "/limited/000001.sst");
  IOStatus status;
  uint64_t pieces = 0;
  while ((status = table->Append(Piece(), IOOptions(), nullptr)).ok()) {
    Check(++pieces * kPiece <= room, "tables fill what is for logs");
  }
  Check(status.IsNoSpace() && status.ToString().find("logs only") != std::string::npos, "full, but: " + status.ToString());
  Check(pieces == room / kPiece, "tables have " + std::to_string(pieces) + " MiB");
  Check(FreeSpace(filesystem.get(), "/limited") < kPiece, "RocksDB resumes where nothing has room");
  CheckOk(table->Fsync(IOOptions(), nullptr), "table");
  auto log = Made(filesystem.get(), "/limited/000002.log");
  for (uint64_t done = 0; done + 2 * kPiece <= for_logs; done += kPiece) {
    CheckOk(log->Append(Piece(), IOOptions(), nullptr), "log");
  }
  CheckOk(log->Fsync(IOOptions(), nullptr), "log");
  auto other = Made(filesystem.get(), "/000003.sst");
  CheckOk(other->Append(Piece(), IOOptions(), nullptr), "a table elsewhere");
  std::printf("tables have %llu MiB\n", static_cast<unsigned long long>(pieces));
}

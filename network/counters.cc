#include "network/counters.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

namespace hutch::network {
namespace {

constexpr uint64_t kVersion = 1;

}  // namespace

Result<CountersFile> CountersFile::Map(int fd) {
  struct stat st {};
  // Not fstat(3), which asks by path where the egress program's filter has no paths.
  if (::syscall(SYS_fstat, fd, &st) != 0) return SysError(errno, "counters: fstat");
  if (!S_ISREG(st.st_mode))
    return Error{.code = Code::kInvalidArgument, .what = "counters: not a regular file"};
  if (static_cast<size_t>(st.st_size) < sizeof(Counters) && ::ftruncate(fd, sizeof(Counters)) != 0)
    return SysError(errno, "counters: ftruncate");
  // What is not there yet must not be found missing by a SIGBUS later.
  if (const int err = ::posix_fallocate(fd, 0, sizeof(Counters)); err != 0)
    return SysError(err, "counters: fallocate");
  void* memory = ::mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return SysError(errno, "counters: mmap");
  // Zeroes are a fresh file's counters, and what another process counted is kept.
  CountersFile file(std::launder(static_cast<Counters*>(memory)));
  uint64_t fresh = 0;
  if (!file->version.compare_exchange_strong(fresh, kVersion) && fresh != kVersion)
    return Error{.code = Code::kUnsupported, .what = "counters: of a later version"};
  return file;
}

CountersFile::CountersFile(CountersFile&& other) noexcept
    : counters_(std::exchange(other.counters_, nullptr)) {}

CountersFile& CountersFile::operator=(CountersFile&& other) noexcept {
  std::swap(counters_, other.counters_);
  return *this;
}

CountersFile::~CountersFile() {
  if (counters_ != nullptr) ::munmap(counters_, sizeof(Counters));
}

}  // namespace hutch::network

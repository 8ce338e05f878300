#include "network/counters.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <new>

namespace hutch::network {
namespace {

constexpr uint64_t kVersion = 1;

}  // namespace

Result<CountersFile> CountersFile::Map(int fd) {
  // Makes it long enough, so that nothing is found missing by a SIGBUS later, and fails on what is
  // no regular file. The only call on it that the egress program's filter lets through.
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

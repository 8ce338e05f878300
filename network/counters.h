// What a sandbox has sent, received and been refused: numbers in a small file of its own (on tmpfs)
// that the egress program maps and adds to, so that they are exact whoever is killed.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::network {

// The file's form; only ever extended at its end.
struct Counters {
  std::atomic<uint64_t> version;  // 1
  std::atomic<uint64_t> sent_bytes, received_bytes;
  std::atomic<uint64_t> connections;  // allowed and made
  std::atomic<uint64_t> denied;       // everything refused, names included
  std::atomic<uint64_t> names_answered, names_denied;
  std::atomic<uint64_t> failed;  // allowed, but the other side could not be reached
  std::atomic<uint64_t> secrets_used;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// A mapping of the file; the file is made or extended as needed. kKernel.
class CountersFile {
 public:
  static Result<CountersFile> Map(int fd);
  CountersFile(CountersFile&& other) noexcept;
  CountersFile& operator=(CountersFile&& other) noexcept;
  ~CountersFile();
  Counters& operator*() const { return *counters_; }
  Counters* operator->() const { return counters_; }

 private:
  explicit CountersFile(Counters* counters) : counters_(counters) {}
  Counters* counters_ = nullptr;
};

}  // namespace hutch::network

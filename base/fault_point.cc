#include "base/fault_point.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>

#include "base/text.h"

namespace hutch {
namespace {

constexpr char kVariable[] = "HUTCH_FAULT";

struct Wanted {
  std::string name;
  uint64_t times = 1;
};

Wanted ReadWanted() {
  const char* value = ::getenv(kVariable);
  Wanted wanted{.name = value == nullptr ? "" : value};
  const size_t mark = wanted.name.rfind('#');
  if (mark == std::string::npos) return wanted;
  const Result<uint64_t> times = ParseUint(wanted.name.substr(mark + 1));
  if (!times.has_value() || *times == 0) return wanted;  // then it is part of the name, and unknown
  wanted.times = *times;
  wanted.name.resize(mark);
  return wanted;
}

// Read before main(): the variable may be gone when a place is reached.
const Wanted& TheWanted() {
  static const Wanted wanted = ReadWanted();
  return wanted;
}

}  // namespace

namespace internal {

const bool fault_wanted = !TheWanted().name.empty();

void ReachFault(std::string_view prefix, std::string_view name) {
  static std::atomic<uint64_t> reached{0};
  const Wanted& wanted = TheWanted();
  if (wanted.name.size() != prefix.size() + name.size() || !wanted.name.starts_with(prefix) ||
      !wanted.name.ends_with(name) || ++reached != wanted.times)
    return;
  ::kill(::getpid(), SIGKILL);
  while (true) ::pause();  // another thread may be the one that it reaches first
}

}  // namespace internal

void TakeFaultVariable() { ::unsetenv(kVariable); }

}  // namespace hutch

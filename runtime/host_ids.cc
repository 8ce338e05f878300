#include "runtime/host_ids.h"

#include <algorithm>

#include "runtime/spawn_protocol.h"

namespace hutch::runtime {

HostIds::HostIds(uint32_t start, uint32_t ranges) : start_(start), ranges_(ranges) {}

Result<uint32_t> HostIds::Take() {
  while (!free_.empty() || next_ < ranges_) {
    uint32_t id;
    if (!free_.empty()) {
      id = free_.back();
      free_.pop_back();
    } else {
      id = start_ + kIdsPerSandbox * next_++;
    }
    if (taken_.insert(id).second) return id;  // a claimed one may lie ahead
  }
  return Error{.code = Code::kLimit,
               .what = "all " + std::to_string(ranges_) + " host id ranges are in use",
               .hint = "raise host_id_ranges in the configuration"};
}

Status HostIds::Claim(uint32_t start) {
  const bool ours = start >= start_ && (start - start_) % kIdsPerSandbox == 0 &&
                    (start - start_) / kIdsPerSandbox < ranges_;
  if (!ours || !taken_.insert(start).second)
    return Error{.code = Code::kExists,
                 .what = "host id range " + std::to_string(start) + " is not free"};
  std::erase(free_, start);
  return OkStatus();
}

void HostIds::Release(uint32_t start) {
  if (taken_.erase(start) > 0) free_.push_back(start);
}

}  // namespace hutch::runtime

// Ranges of 65536 host ids, one for each living sandbox; the last one given back is the next one
// taken.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/result.h"

namespace hutch::runtime {

class HostIds {
 public:
  HostIds(uint32_t start, uint32_t ranges);
  Result<uint32_t> Take();       // first id of a free range; kLimit when none is left
  Status Claim(uint32_t start);  // a range known from before; kExists when taken or not ours
  void Release(uint32_t start);  // "not taken" is fine

 private:
  uint32_t start_;
  uint32_t ranges_;
  uint32_t next_ = 0;  // ranges from here on were never used
  std::vector<uint32_t> free_;
  std::set<uint32_t> taken_;
};

}  // namespace hutch::runtime

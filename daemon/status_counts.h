// How often each HTTP status was answered by one route.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace hutch::daemon {

struct StatusCounts {
  void Add(int status) {
    for (auto& [known, count] : rows)
      if (known == status) {
        ++count;
        return;
      }
    rows.emplace_back(status, 1);
  }
  std::vector<std::pair<int, uint64_t>> rows;  // in the order of their first
};

}  // namespace hutch::daemon

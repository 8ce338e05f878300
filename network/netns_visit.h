// Being in another network namespace for the length of a scope, on the calling thread
// (setns(2)). Needs CAP_SYS_ADMIN.
#pragma once

#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::network {

class NetnsVisit {
 public:
  // `target`: a descriptor of the namespace, or a pidfd of a process in it. kNotFound when that
  // process has ended.
  static Result<NetnsVisit> Enter(int target);
  NetnsVisit(NetnsVisit&& other) noexcept = default;
  NetnsVisit& operator=(NetnsVisit&&) = delete;
  // A thread left in the wrong network would do its later work there, so failure aborts.
  ~NetnsVisit();

 private:
  explicit NetnsVisit(UniqueFd own) : own_(std::move(own)) {}
  UniqueFd own_;  // the namespace to go back to
};

}  // namespace hutch::network

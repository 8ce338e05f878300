#include "network/netns_visit.h"

#include <fcntl.h>
#include <sched.h>

#include "base/file.h"

namespace hutch::network {

Result<NetnsVisit> NetnsVisit::Enter(int target) {
  ASSIGN_OR_RETURN(UniqueFd own, Open("/proc/thread-self/ns/net", O_RDONLY));
  if (::setns(target, CLONE_NEWNET) != 0) {
    Error error = SysError(errno, "enter a network namespace");
    if (error.sys == ESRCH) error.code = Code::kNotFound;
    return error;
  }
  return NetnsVisit(std::move(own));
}

NetnsVisit::~NetnsVisit() {
  if (own_.valid()) CHECK(::setns(own_.get(), CLONE_NEWNET) == 0);
}

}  // namespace hutch::network

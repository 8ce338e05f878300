#include "runtime/container_report.h"

#include <cstdio>

namespace hutch::runtime {

Status WithoutStep(Status status) {
  if (status) return status;
  Error error = std::move(status).error();
  if (error.code == Code::kCommandNotFound || error.code == Code::kCommandNotExecutable)
    error.step = "";
  return error;
}

void TellSteps(const ContainerHost& host, const std::vector<Timing>& timings,
               const Confinement& confinement) {
  if (!host.debug) return;
  for (const Timing& timing : timings) {
    char took[32];
    std::snprintf(took, sizeof took, "%.3f", timing.ms);
    host.debug("step " + std::string(timing.step) + ": " + took + " ms");
  }
  if (!confinement.filter.empty())
    host.debug("seccomp filter flags: " + std::to_string(confinement.filter_flags));
}

}  // namespace hutch::runtime

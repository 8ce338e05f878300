// Prints what a sandbox's groups cost on this machine: the figures of docs/cgroups.md. Not a test.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cgroups/tree.h"

namespace {

using namespace hutch;

constexpr int kRounds = 300;

double Microseconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

template <class T>
T Must(Result<T> result) {
  if (result) return std::move(result).value();
  std::fprintf(stderr, "%s\n", result.error().ToString().c_str());
  std::exit(1);
}

struct Part {
  const char* name;
  std::vector<double> times = {};
};

}  // namespace

int main() {
  const cgroups::Tree tree = Must(cgroups::Tree::Open(
      Must(cgroups::DetectLayout()), {.parent = "/hutch-test-" + std::to_string(::getpid())}));
  oci::LinuxResources limits;
  limits.memory_limit_bytes = 512u << 20;
  limits.pids_limit = 256;
  limits.cpu_quota_us = 100000;
  Part parts[] = {{"create"}, {"delegate"}, {"limits"},           {"process"},
                  {"stats"},  {"remove"},   {"all but \"stats\""}};
  for (int round = 0; round < kRounds; ++round) {
    double last = Microseconds(), sum = 0;
    const auto lap = [&](int part) {
      const double now = Microseconds();
      parts[part].times.push_back(now - last);
      if (part != 4) sum += now - last;
      last = Microseconds();
    };
    cgroups::SandboxGroup sandbox = Must(tree.Create("sb-time"));
    lap(0);
    Must(sandbox.DelegateTo(1879048192));
    lap(1);
    Must(sandbox.ApplyLimits(limits));
    lap(2);
    cgroups::ProcessGroup process = Must(sandbox.CreateProcess("p1"));
    lap(3);
    sandbox.ReadStats();
    lap(4);
    Must(process.Remove());
    Must(sandbox.Remove());
    lap(5);
    parts[6].times.push_back(sum);
  }
  Must(tree.RemoveParents());
  std::printf("%s, %d rounds, microseconds: min / p50 / p95\n", cgroups::ModeName(tree.mode()),
              kRounds);
  for (Part& part : parts) {
    std::sort(part.times.begin(), part.times.end());
    std::printf("%-16s %6.0f %6.0f %6.0f\n", part.name, part.times.front(), part.times[kRounds / 2],
                part.times[kRounds * 95 / 100]);
  }
}

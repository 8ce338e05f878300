// Prints instructions and load time of each program: the figures of docs/seccomp.md. Not a test.
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/file.h"
#include "oci/seccomp_json.h"
#include "seccomp/filters.h"

namespace {

using hutch::seccomp::Program;
constexpr int kRounds = 300;

double Microseconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// One load in a fresh child, as a create has it.
double LoadOnce(const Program& program) {
  int fds[2];
  if (pipe(fds) != 0) return 0;
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const sock_fprog fprog = {static_cast<unsigned short>(program.size()),
                              const_cast<sock_filter*>(program.data())};
    const double start = Microseconds();
    const long failed = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &fprog);
    const double took = failed == 0 ? Microseconds() - start : -1;
    _exit(write(fds[1], &took, sizeof took) == sizeof took ? 0 : 1);
  }
  double took = 0;
  const bool got = read(fds[0], &took, sizeof took) == sizeof took;
  close(fds[0]);
  close(fds[1]);
  waitpid(pid, nullptr, 0);
  return got ? took : -1;
}

void Report(std::string_view name, const Program& program) {
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) times.push_back(LoadOnce(program));
  std::sort(times.begin(), times.end());
  std::printf("%-24.*s %4zu instructions, load us min %6.1f p50 %6.1f p90 %6.1f\n",
              static_cast<int>(name.size()), name.data(), program.size(), times.front(),
              times[kRounds / 2], times[kRounds * 9 / 10]);
}

}  // namespace

// seccomp_load_time [PROFILE.json]: the default filters, and a profile file for comparison.
int main(int argc, char** argv) {
  const double start = Microseconds();
  const auto filters = hutch::seccomp::DefaultFilters();
  if (!filters.has_value()) return 1;
  std::printf("default profile built in %.0f us\n", Microseconds() - start);
  Report("default agent", (*filters)->agent);
  Report("default process", (*filters)->process);
  if (argc < 2) return 0;
  const auto text = hutch::ReadFile(argv[1], 1 << 20);
  if (!text.has_value()) return 1;
  const auto profile = hutch::oci::ParseSeccompProfile(*text);
  if (!profile.has_value()) return std::puts(profile.error().ToString().c_str()), 1;
  const double compile = Microseconds();
  const auto custom = hutch::seccomp::CompileFilters(*profile);
  if (!custom.has_value()) return std::puts(custom.error().ToString().c_str()), 1;
  std::printf("%s compiled in %.0f us\n", argv[1], Microseconds() - compile);
  Report("custom agent", (*custom)->agent);
  Report("custom process", (*custom)->process);
  return 0;
}

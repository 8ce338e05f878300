#include "tools/bench/programs.h"

#include "base/text.h"
#include "tools/bench/clock.h"

namespace hutch::tools {

Result<double> TimeOf(const Argv& argv, const Streams& streams) {
  const Stopwatch watch;
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(argv, streams));
  ASSIGN_OR_RETURN(const int exit_code, WaitForExit(pid));
  const double elapsed_ms = watch.ElapsedMs();
  if (exit_code == 0) return elapsed_ms;
  return Error{.code = Code::kBadState,
               .what = argv[0] + " ended with " + std::to_string(exit_code)};
}

Status Try(const Argv& argv, int in_fd) {
  ASSIGN_OR_RETURN(const Finished finished, RunToEnd(argv, in_fd));
  if (finished.exit_code == 0) return OkStatus();
  const std::string said = Split(Trim(finished.output), '\n').back();
  return Error{.code = Code::kUnavailable,
               .what = said.empty() ? "exit code " + std::to_string(finished.exit_code) : said};
}

}  // namespace hutch::tools

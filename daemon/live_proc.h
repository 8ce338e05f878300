// Keeps the live files of one sandbox's /proc true. The files are the sandbox's own, hutchd alone
// can write them; nothing of the sandbox's is resolved by path.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "daemon/proc_text.h"
#include "daemon/timers.h"

namespace hutch::daemon {

struct LiveProcLimits {
  uint32_t cpus;  // to show
  uint64_t memory_bytes;
  WallTime created_at;
};

class LiveProc {
 public:
  // `directory_fd` (runtime::Sandbox::proc_files_fd) is borrowed; -1: every call does nothing.
  LiveProc(int directory_fd, const LiveProcLimits& limits);

  // Once, before the sandbox is used: all files, as of a sandbox that has used nothing yet.
  Status WriteFirst(const std::vector<std::string>& host_processors, SteadyTime now);
  // All but cpuinfo, in place: a reader that has a file open reads on in sane text.
  Status Refresh(const cgroups::Usage& usage, SteadyTime now);
  SteadyTime refreshed_at() const { return refreshed_at_; }
  bool active() const { return directory_fd_ >= 0; }

 private:
  Status WriteFile(const char* name, const std::string& text) const;
  Status WriteAllFiles();

  int directory_fd_;
  ProcNumbers numbers_;
  SteadyTime born_, refreshed_at_;
};

}  // namespace hutch::daemon

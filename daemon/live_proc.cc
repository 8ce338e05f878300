#include "daemon/live_proc.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"

namespace hutch::daemon {
namespace {

struct LiveFileRow {
  const char* name;
  std::string (*text)(const ProcNumbers&);
};
constexpr LiveFileRow kLiveFiles[] = {
    {"meminfo", MeminfoText}, {"stat", StatText}, {"uptime", UptimeText}, {"loadavg", LoadavgText}};

}  // namespace

LiveProc::LiveProc(int directory_fd, const LiveProcLimits& limits) : directory_fd_(directory_fd) {
  numbers_.cpus = std::max(1u, limits.cpus);
  numbers_.memory_bytes = limits.memory_bytes;
  numbers_.born_seconds = std::chrono::system_clock::to_time_t(limits.created_at);
  // From here on the wall clock may be set without the uptime jumping.
  const auto age = std::chrono::system_clock::now() - limits.created_at;
  born_ = SteadyTime::clock::now() -
          std::max(std::chrono::duration_cast<SteadyTime::duration>(age), SteadyTime::duration(0));
}

// Within the pages the first write took: a sandbox that has filled its disk keeps true numbers.
Status LiveProc::WriteFile(const char* name, const std::string& text) const {
  ASSIGN_OR_RETURN(const UniqueFd file, OpenAt(directory_fd_, name, O_WRONLY | O_NOFOLLOW));
  const ssize_t written = ::pwrite(file.get(), text.data(), text.size(), 0);
  if (written != static_cast<ssize_t>(text.size()))
    return SysError(written < 0 ? errno : ENOSPC, std::string("write /proc/") + name);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return SysError(errno, std::string("stat /proc/") + name);
  if (info.st_size > written && ::ftruncate(file.get(), written) != 0)
    return SysError(errno, std::string("cut /proc/") + name);
  return OkStatus();
}

Status LiveProc::WriteAllFiles() {
  for (const LiveFileRow& row : kLiveFiles)
    RETURN_IF_ERROR(WriteFile(row.name, row.text(numbers_)));
  return OkStatus();
}

Status LiveProc::WriteFirst(const std::vector<std::string>& host_processors, SteadyTime now) {
  if (!active()) return OkStatus();
  RETURN_IF_ERROR(WriteFile("cpuinfo", CpuinfoText(host_processors, numbers_.cpus)));
  refreshed_at_ = now;
  return WriteAllFiles();
}

Status LiveProc::Refresh(const cgroups::Usage& usage, SteadyTime now) {
  if (!active()) return OkStatus();
  const auto ms = [](auto d) { return std::chrono::duration<double, std::milli>(d).count(); };
  numbers_.uptime_ms = static_cast<uint64_t>(std::max(0.0, ms(now - born_)));
  const cgroups::Usage& before = numbers_.usage;
  const uint64_t cpu = usage.cpu_user_us + usage.cpu_system_us;
  const uint64_t cpu_before = before.cpu_user_us + before.cpu_system_us;
  const double elapsed = ms(now - refreshed_at_) / 1000;
  // The first look after a restart: the use so far belongs to an unknown time.
  const bool known = refreshed_at_ != SteadyTime() && elapsed > 0 && cpu >= cpu_before;
  if (known)
    AdvanceLoad(numbers_.load, static_cast<double>(cpu - cpu_before) / 1e6 / elapsed, elapsed);
  numbers_.usage = usage;
  refreshed_at_ = now;
  return WriteAllFiles();
}

}  // namespace hutch::daemon

#include "daemon/sandbox_numbers.h"

#include "base/log.h"
#include "daemon/limits.h"

namespace hutch::daemon {

void SandboxNumbers::Open(SandboxEntry& entry) {
  const SandboxFields& fields = entry.facts.fields;
  entry.live_proc = std::make_unique<LiveProc>(
      entry.sandbox->proc_files_fd(), LiveProcLimits{.cpus = cpus_.Shown(fields.cpus),
                                                     .memory_bytes = fields.memory_bytes,
                                                     .created_at = entry.facts.created_at});
}

void SandboxNumbers::WriteFirst(SandboxEntry& entry) {
  const Status written = entry.live_proc->WriteFirst(processors_, Loop::Now());
  if (!written.has_value())
    Log(LogLevel::kWarning, "cannot write the numbers in a sandbox's /proc",
        {{"sandbox", entry.facts.id}, {"error", written.error().ToString()}});
}

void SandboxNumbers::Refresh(SandboxEntry& entry) {
  if (!entry.live_proc || !entry.live_proc->active()) return;
  const Status written = entry.live_proc->Refresh(entry.sandbox->group().ReadUsage(), Loop::Now());
  // The next refresh comes soon, and what stands there is only older than it might be.
  if (!written.has_value())
    Log(LogLevel::kDebug, "cannot refresh the numbers in a sandbox's /proc",
        {{"sandbox", entry.facts.id}, {"error", written.error().ToString()}});
}

void SandboxNumbers::RefreshBeforeCommand(SandboxEntry& entry) {
  if (entry.live_proc && Loop::Now() - entry.live_proc->refreshed_at() >= kHonestFresh)
    Refresh(entry);
  Schedule();
}

// One timer for all; it rests while nothing runs anywhere.
void SandboxNumbers::Schedule() {
  if (timer_.running()) return;
  timer_.Start(loop_, kHonestRefresh, [this] {
    bool any = false;
    for (const auto& [id, entry] : living_) {
      if (entry->ending || entry->moments.state == SandboxState::kPaused) continue;
      if (!entry->commands || entry->commands->count() == 0) continue;
      Refresh(*entry);
      any = true;
    }
    if (any) Schedule();
  });
}

}  // namespace hutch::daemon

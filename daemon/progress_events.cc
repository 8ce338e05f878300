#include "daemon/progress_events.h"

#include <map>
#include <mutex>

#include "daemon/limits.h"

namespace hutch::daemon {

rootfs::ProgressFn ToLoop(Loop& loop, Progress progress) {
  struct Last {
    std::mutex mutex;
    std::map<std::pair<std::string, std::string>, SteadyTime> times;  // by stage and subject
  };
  return [&loop, progress = std::move(progress),
          last = std::make_shared<Last>()](const rootfs::Progress& report) {
    const SteadyTime now = Loop::Now();
    {
      const std::lock_guard lock(last->mutex);
      const auto [it, first] = last->times.try_emplace({report.stage, report.subject}, now);
      if (!first && now - it->second < kProgressInterval && report.done != report.total) return;
      it->second = now;
    }
    loop.Post([progress, report] { progress(report); });
  };
}

oci::Json ProgressJson(const rootfs::Progress& report) {
  return {{"stage", report.stage},
          {"subject", report.subject},
          {"done", report.done},
          {"total", report.total}};
}

JobAnswer::JobAnswer(const Request& request, Responder responder)
    : responder_(std::move(responder)),
      events_(request.wants_events || request.wants_ndjson),
      hangup_(std::make_shared<Hangup>()) {
  if (events_) responder_.StartEvents();
  responder_.OnHangup([hangup = hangup_] {
    hangup->gone = true;
    if (const auto handler = std::exchange(hangup->handler, {})) handler();
  });
}

void JobAnswer::OnHangup(std::function<void()> handler) {
  if (hangup_->gone) return handler();
  hangup_->handler = std::move(handler);
}

void JobAnswer::Report(const rootfs::Progress& report) {
  if (events_) responder_.Event("progress", oci::PrintJson(ProgressJson(report)));
}

void JobAnswer::Finish(int status, const Result<oci::Json>& result) {
  hangup_->handler = {};
  if (!events_)
    return result.has_value() ? responder_.Send(JsonReply(status, *result))
                              : responder_.Send(result.error());
  if (result.has_value())
    responder_.Event("result", oci::PrintJson(*result));
  else
    responder_.Event("error", oci::PrintJson(ErrorJson(result.error())));
  responder_.End();
}

}  // namespace hutch::daemon

#include "daemon/pulls.h"

#include <string>
#include <utility>

#include "base/log.h"
#include "daemon/limits.h"

namespace hutch::daemon {

struct Pulls::Pull {
  uint64_t number = 0;
  std::string key;  // of what may be joined; empty: nothing
  std::map<Ticket, Listener> listeners;
  std::map<std::string, rootfs::Progress> latest;  // by subject
  std::atomic<bool> cancelled = false;             // read by the thread that pulls
};

namespace {

std::string KeyOf(const rootfs::PullRequest& request) {
  if (!request.username.empty() || !request.password.empty()) return "";
  return (request.plain_http ? "plain " : "") + request.reference.ToString();
}

}  // namespace

Pulls::Pulls(Loop& loop, Run run) : loop_(loop), run_(std::move(run)), worker_(kPullsAtOnce) {}

Pulls::~Pulls() {
  for (const auto& [number, pull] : pulls_) pull->cancelled = true;
}

Result<Pulls::Ticket> Pulls::Join(const rootfs::PullRequest& request, Listener listener) {
  const std::string key = KeyOf(request);
  std::shared_ptr<Pull> pull;
  for (const auto& [number, other] : pulls_)
    if (!key.empty() && other->key == key && !other->cancelled) pull = other;
  if (pull == nullptr) {
    ASSIGN_OR_RETURN(pull, Begin(request));
  }
  for (const auto& [subject, report] : pull->latest) listener.progress(report);
  pull->listeners.emplace(++last_ticket_, std::move(listener));
  return last_ticket_;
}

Result<std::shared_ptr<Pulls::Pull>> Pulls::Begin(const rootfs::PullRequest& request) {
  const auto pull = std::make_shared<Pull>();
  pull->number = ++last_number_;
  pull->key = KeyOf(request);
  const auto report = ToLoop(loop_, [pull](const rootfs::Progress& progress) {
    pull->latest[progress.subject] = progress;
    for (const auto& [ticket, listener] : pull->listeners) listener.progress(progress);
  });
  RETURN_IF_ERROR(worker_.Submit([this, pull, request, report] {
    Result<rootfs::Image> image =
        pull->cancelled ? Result<rootfs::Image>(
                              Error{.code = Code::kUnavailable, .what = "the pull was cancelled"})
                        : run_(request, report, pull->cancelled);
    loop_.Post([this, pull, image = std::make_shared<Result<rootfs::Image>>(std::move(image))] {
      Finish(pull, *image);
    });
  }));
  pulls_[pull->number] = pull;
  return pull;
}

void Pulls::Leave(Ticket ticket) {
  for (const auto& [number, pull] : pulls_)
    if (pull->listeners.erase(ticket) == 1 && pull->listeners.empty()) pull->cancelled = true;
}

void Pulls::Finish(const std::shared_ptr<Pull>& pull, const Result<rootfs::Image>& image) {
  pulls_.erase(pull->number);
  if (!image.has_value() && !pull->cancelled)
    Log(LogLevel::kWarning, "a pull failed", {{"error", image.error().ToString()}});
  // A listener may leave others, or ask for the next pull.
  const std::map<Ticket, Listener> listeners = std::exchange(pull->listeners, {});
  for (const auto& [ticket, listener] : listeners) listener.done(image);
}

}  // namespace hutch::daemon

#include "daemon/pulls.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "daemon/limits.h"

namespace hutch::daemon {

struct Pulls::Pull {
  uint64_t number = 0;
  uint64_t job = 0;  // the worker's number of it
  std::string key;   // of what may be joined; empty: nothing
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

Result<Pulls::Ticket> Pulls::Join(const rootfs::PullRequest& request, const Listener& listener) {
  const std::string key = KeyOf(request);
  std::shared_ptr<Pull> pull;
  for (const auto& [number, other] : pulls_)
    if (!key.empty() && other->key == key && !other->cancelled) pull = other;
  if (pull == nullptr) {
    ASSIGN_OR_RETURN(pull, Begin(request));
  }
  const Ticket ticket = ++last_ticket_;
  pull->listeners.emplace(ticket, listener);
  // Whoever hears of it may leave, and others with it.
  for (const auto& [subject, report] : std::map(pull->latest))
    if (pull->listeners.contains(ticket)) listener.progress(report);
  return ticket;
}

Result<std::shared_ptr<Pulls::Pull>> Pulls::Begin(const rootfs::PullRequest& request) {
  const auto pull = std::make_shared<Pull>();
  pull->number = ++last_number_;
  pull->key = KeyOf(request);
  const auto report = ToLoop(loop_, [pull](const rootfs::Progress& progress) {
    pull->latest[progress.subject] = progress;
    for (const auto& [ticket, listener] : std::map(pull->listeners))
      if (pull->listeners.contains(ticket)) listener.progress(progress);
  });
  const auto job = [this, pull, request, report] {
    Result<rootfs::Image> image =
        pull->cancelled ? Result<rootfs::Image>(
                              Error{.code = Code::kUnavailable, .what = "the pull was cancelled"})
                        : run_(request, report, pull->cancelled);
    loop_.Post([this, pull, image = std::make_shared<Result<rootfs::Image>>(std::move(image))] {
      Finish(pull, *image);
    });
  };
  RETURN_IF_ERROR(worker_.Submit(job, &pull->job));
  pulls_[pull->number] = pull;
  return pull;
}

void Pulls::Leave(Ticket ticket) {
  const auto left = std::find_if(pulls_.begin(), pulls_.end(), [ticket](const auto& item) {
    return item.second->listeners.contains(ticket);
  });
  if (left == pulls_.end()) return;
  const std::shared_ptr<Pull> pull = left->second;
  pull->listeners.erase(ticket);
  if (!pull->listeners.empty()) return;
  pull->cancelled = true;
  if (worker_.Withdraw(pull->job)) pulls_.erase(pull->number);
}

void Pulls::Finish(const std::shared_ptr<Pull>& pull, const Result<rootfs::Image>& image) {
  pull->key.clear();  // nobody joins it any more
  if (!image.has_value() && !pull->cancelled)
    Log(LogLevel::kWarning, "a pull failed", {{"error", image.error().ToString()}});
  // Told one by one: a listener may make others leave, or ask for the next pull.
  while (!pull->listeners.empty()) {
    const auto told = pull->listeners.extract(pull->listeners.begin());
    told.mapped().done(image);
  }
  pulls_.erase(pull->number);
}

}  // namespace hutch::daemon

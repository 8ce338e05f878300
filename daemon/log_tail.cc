#include "daemon/log_tail.h"

#include "daemon/limits.h"

namespace hutch::daemon {

Result<std::shared_ptr<LogTail>> LogTail::Start(Loop& loop,
                                                std::shared_ptr<BackgroundProcess> process,
                                                uint64_t cursor,
                                                std::shared_ptr<TailClient> client) {
  const std::shared_ptr<LogTail> tail(new LogTail(std::move(process), cursor, std::move(client)));
  ASSIGN_OR_RETURN(tail->follower_, tail->process_->Follow([weak = std::weak_ptr(tail)] {
    if (const auto self = weak.lock()) self->Advance();
  }));
  loop.Post([tail] { tail->Advance(); });
  return tail;
}

LogTail::~LogTail() { process_->Unfollow(follower_); }

void LogTail::Stop() {
  if (client_ == nullptr) return;
  process_->Unfollow(follower_);
  client_ = nullptr;
}

// One bounded step a turn: others get theirs in between.
void LogTail::Advance() {
  if (client_ == nullptr || waiting_) return;
  const auto self = shared_from_this();
  const std::shared_ptr<TailClient> client = client_;
  if (client->Congested()) {
    waiting_ = true;
    return client->OnDrained([self] {
      self->waiting_ = false;
      self->Advance();
    });
  }
  const ProcessLog& log = process_->log();
  if (cursor_ < log.begin()) {
    client->OnGap(log.begin() - cursor_);
    cursor_ = log.begin();
  }
  const Result<std::vector<LogRun>> runs = log.Read(cursor_, kTailReadBytes);
  if (!runs.has_value()) {
    client->OnError(runs.error());
    return Stop();
  }
  for (const LogRun& run : *runs) {
    cursor_ = run.offset + run.bytes.size();
    client->OnRun(run);
    if (client_ == nullptr) return;
  }
  if (cursor_ < log.end()) {
    // More is there: by way of the client's own readiness, never a loop.
    waiting_ = true;
    return client->OnDrained([self] {
      self->waiting_ = false;
      self->Advance();
    });
  }
  if (!process_->ended()) return;
  client->OnEnd();
  Stop();
}

}  // namespace hutch::daemon

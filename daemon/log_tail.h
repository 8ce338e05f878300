// A reader of a process's log that goes along with it: from a cursor to the end of the process, as
// far as its client can take it. A client that is slow is not buffered for: it reads from the disk
// later, and is told when rotation was faster.
#pragma once

#include <functional>
#include <memory>

#include "daemon/background.h"

namespace hutch::daemon {

// Whoever takes what is read.
class TailClient {
 public:
  virtual ~TailClient() = default;
  virtual void OnRun(const LogRun& run) = 0;
  virtual void OnGap(uint64_t dropped_bytes) = 0;  // rotation was faster
  virtual void OnEnd() = 0;                        // the process has ended, all of it was told
  virtual void OnError(const Error& error) = 0;    // the log cannot be read; nothing more comes
  virtual bool Congested() = 0;
  virtual void OnDrained(std::function<void()> handler) = 0;
};

class LogTail : public std::enable_shared_from_this<LogTail> {
 public:
  // kLimit as BackgroundProcess::Follow. Begins to tell when the loop runs next.
  static Result<std::shared_ptr<LogTail>> Start(Loop& loop,
                                                std::shared_ptr<BackgroundProcess> process,
                                                uint64_t cursor,
                                                std::shared_ptr<TailClient> client);
  ~LogTail();
  void Stop();  // the client is gone
  uint64_t cursor() const { return cursor_; }

 private:
  LogTail(std::shared_ptr<BackgroundProcess> process, uint64_t cursor,
          std::shared_ptr<TailClient> client)
      : process_(std::move(process)), cursor_(cursor), client_(std::move(client)) {}
  void Advance();

  std::shared_ptr<BackgroundProcess> process_;
  uint64_t cursor_;
  std::shared_ptr<TailClient> client_;  // nullptr: stopped
  uint64_t follower_ = 0;
  bool waiting_ = false;  // for the client
};

}  // namespace hutch::daemon

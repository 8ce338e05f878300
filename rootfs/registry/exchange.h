// One GET at one endpoint, until it is answered or given up: tokens fetched, redirects followed,
// failures that may pass tried again. Blocks for a token service only; moved on by Step().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "rootfs/registry/http.h"
#include "rootfs/registry/session.h"

namespace hutch::rootfs::registry {

using SteadyTime = std::chrono::steady_clock::time_point;

struct ExchangeRequest {
  std::string path;                                        // "/v2/..."
  std::function<std::vector<std::string>()> headers = {};  // of each attempt; may be empty
  uint64_t max_body_bytes = 0;                             // as HttpRequest
  unsigned total_seconds = 0;                              // of each attempt; 0: no bound
  uint64_t retries = 0;                                    // after the first attempt
  BodySink* sink = nullptr;                                // borrowed
  std::function<uint64_t()> furthest = {};  // bytes ever had of the body; may be empty
};

class Exchange {
 public:
  // Borrows session and endpoint.
  Exchange(Session& session, Endpoint& endpoint, ExchangeRequest request);

  // Moves it on, without waiting; true when reply() is an answer 200, 206 or 416. kNotFound,
  // kForbidden, kUnavailable (with what was tried) in the registry's own words, or the sink's
  // error.
  Result<bool> Step();
  const HttpReply& reply() const { return reply_; }
  // Something to wait for, or the time that Step has to do with.
  bool IsTransferring() const { return transfer_ != nullptr; }

 private:
  Status Begin(const Url& url);
  Result<bool> Judge();
  Status Redirect();
  Status Retry(const std::string& why, unsigned wait_ms);
  Error Refused() const;

  Session& session_;
  Endpoint& endpoint_;
  const ExchangeRequest request_;
  Url url_;
  std::unique_ptr<HttpTransfer> transfer_;
  SteadyTime not_before_ = {};
  uint64_t failures_ = 0;
  uint64_t furthest_ = 0;  // at the last failure that counted anew
  int redirects_ = 0;
  bool authenticated_ = false;
  HttpReply reply_;
};

// How long to wait before attempt number `failures` + 1: doubled each time, up to kLongestRetryMs,
// less up to half of it by `random`, so that not all clients come back at once.
unsigned BackoffMs(uint64_t failures, uint32_t random);
// Seconds of a Retry-After header, a number or a date (`now`: seconds since 1970); 0 for nothing.
unsigned RetryAfterSeconds(const std::string& header, int64_t now);

}  // namespace hutch::rootfs::registry

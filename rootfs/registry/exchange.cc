#include "rootfs/registry/exchange.h"

#include <curl/curl.h>
#include <sys/random.h>

#include <algorithm>
#include <ctime>

#include "base/text.h"
#include "rootfs/registry/limits.h"

namespace hutch::rootfs::registry {
namespace {

constexpr int kRedirectStatuses[] = {301, 302, 303, 307, 308};

uint32_t Random() {
  uint32_t value = 0;
  CHECK(::getrandom(&value, sizeof value, 0) == sizeof value);
  return value;
}

bool IsRedirect(int status) {
  return std::find(std::begin(kRedirectStatuses), std::end(kRedirectStatuses), status) !=
         std::end(kRedirectStatuses);
}

bool SameOrigin(const Url& a, const Url& b) {
  return a.scheme == b.scheme && a.host == b.host && a.port == b.port;
}

Error Unavailable(const std::string& what) {
  return Error{.code = Code::kUnavailable, .what = what};
}

}  // namespace

unsigned BackoffMs(uint64_t failures, uint32_t random) {
  const unsigned doubled = kFirstRetryMs << std::min<uint64_t>(failures, 10);
  const unsigned most = std::min(doubled, kLongestRetryMs);
  return most - random % (most / 2 + 1);
}

unsigned RetryAfterSeconds(const std::string& header, int64_t now) {
  if (header.empty()) return 0;
  constexpr uint64_t kMost = 1'000'000'000;
  if (const auto seconds = ParseUint(header); seconds)
    return static_cast<unsigned>(std::min(*seconds, kMost));
  const int64_t date = ::curl_getdate(header.c_str(), nullptr);
  return date <= now ? 0 : static_cast<unsigned>(std::min<int64_t>(date - now, kMost));
}

Exchange::Exchange(Session& session, Endpoint& endpoint, ExchangeRequest request)
    : session_(session), endpoint_(endpoint), request_(std::move(request)) {}

Status Exchange::Begin(const Url& url) {
  RETURN_IF_ERROR(session_.rules().CheckScheme(url));
  url_ = url;
  HttpRequest http{.url = url,
                   .max_body_bytes = request_.max_body_bytes,
                   .stall_seconds = static_cast<unsigned>(session_.options().stall_seconds),
                   .total_seconds = request_.total_seconds,
                   .sink = request_.sink};
  ASSIGN_OR_RETURN(http.tls, SameOrigin(url, endpoint_.base) ? Result<HostTls>(endpoint_.tls)
                                                             : session_.rules().TlsOf(url));
  if (request_.headers) http.headers = request_.headers();
  // For the registry alone, wherever it sends us.
  if (!endpoint_.authorization.empty() && SameOrigin(url, endpoint_.base))
    http.headers.push_back("Authorization: " + endpoint_.authorization);
  transfer_ = session_.loop().Start(std::move(http));
  return OkStatus();
}

Result<bool> Exchange::Step() {
  if (transfer_ == nullptr) {
    if (std::chrono::steady_clock::now() < not_before_) return false;
    Url url = endpoint_.base;
    url.rest = request_.path;
    redirects_ = 0;
    RETURN_IF_ERROR(Begin(url));
    return false;
  }
  if (!transfer_->done()) return false;
  if (transfer_->sink_error()) return *transfer_->sink_error();
  reply_ = transfer_->reply();
  transfer_.reset();
  return Judge();
}

Result<bool> Exchange::Judge() {
  const int status = reply_.status;
  if (!reply_.failure.empty()) {
    if (!reply_.worth_retry) return Unavailable(url_.Origin() + ": " + reply_.failure);
    RETURN_IF_ERROR(Retry(reply_.failure, 0));
    return false;
  }
  if (status == 200 || status == 206 || status == 416) return true;
  if (IsRedirect(status)) {
    RETURN_IF_ERROR(Redirect());
    return false;
  }
  if (status == 401 && !authenticated_ && SameOrigin(url_, endpoint_.base)) {
    authenticated_ = true;
    RETURN_IF_ERROR(session_.Authenticate(endpoint_, reply_));
    RETURN_IF_ERROR(Begin(url_));
    return false;
  }
  if (status != 429 && status < 500) return Refused();
  const unsigned asked = RetryAfterSeconds(reply_.Header("retry-after"), std::time(nullptr));
  if (asked > kMaxRetryAfterSeconds)
    return Unavailable(url_.Origin() + " asks to be left alone for " + std::to_string(asked) +
                       " s: " + session_.WordsOf(reply_));
  RETURN_IF_ERROR(Retry(session_.WordsOf(reply_), asked * 1000));
  return false;
}

Status Exchange::Redirect() {
  if (++redirects_ > kMaxRedirects)
    return Unavailable(endpoint_.host + ": more than " + std::to_string(kMaxRedirects) +
                       " redirects");
  auto target = ParseUrl(reply_.Header("location"), &url_);
  if (!target) return Unavailable(url_.Origin() + " redirects: " + target.error().what);
  if (target->IsPlain() && !url_.IsPlain())
    return Unavailable(url_.Origin() + " redirects to " + target->Origin() +
                       ", without TLS: not followed");
  return Begin(*target);
}

Status Exchange::Retry(const std::string& why, unsigned wait_ms) {
  const uint64_t furthest = request_.furthest ? request_.furthest() : 0;
  if (furthest >= furthest_ + kRetryProgressBytes) {
    furthest_ = furthest;
    failures_ = 0;
  }
  authenticated_ = false;  // a token may have run out meanwhile
  if (failures_ >= request_.retries)
    return Unavailable(
        url_.Origin() + ": " + why +
        (failures_ == 0 ? "" : " (tried " + std::to_string(failures_ + 1) + " times)"));
  const unsigned wait = std::max(wait_ms, BackoffMs(failures_, Random()));
  not_before_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait);
  ++failures_;
  return OkStatus();
}

Error Exchange::Refused() const {
  const std::string who = SameOrigin(url_, endpoint_.base)
                              ? endpoint_.host + "/" + session_.reference().repository
                              : url_.Origin();
  const std::string what = who + ": " + session_.WordsOf(reply_);
  if (reply_.status == 404) return Error{.code = Code::kNotFound, .what = what};
  if (reply_.status == 401 || reply_.status == 403)
    return Error{.code = Code::kForbidden,
                 .what = what,
                 .hint = "the credentials were refused, or there are none that may"};
  return Unavailable(what);
}

}  // namespace hutch::rootfs::registry

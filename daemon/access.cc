#include "daemon/access.h"

#include <strings.h>

#include "daemon/limits.h"
#include "daemon/routes.h"
#include "daemon/tcp_listener.h"

namespace hutch::daemon {
namespace {

constexpr size_t kMaxToldBytes = 256;  // of a path

Error Forbidden(std::string what, std::string hint) {
  return Error{.code = Code::kForbidden, .what = std::move(what), .hint = std::move(hint)};
}

// Its answer is 401, told by the field.
constexpr char kAuthorization[] = "Authorization";
constexpr char kUnauthenticated[] = "unauthenticated";
constexpr int kUnauthorizedStatus = 401;

Error NoToken(std::string what) {
  return Error{.code = Code::kForbidden,
               .what = std::move(what),
               .field = kAuthorization,
               .hint = "Authorization: Bearer TOKEN; hutchd --new-token makes one"};
}

size_t CountOf(const Request& request, std::string_view name) {
  size_t count = 0;
  for (const auto& [key, value] : request.headers)
    if (key.size() == name.size() && ::strncasecmp(key.data(), name.data(), name.size()) == 0)
      ++count;
  return count;
}

// What a page can make a browser send is refused before anything is compared.
Status CheckNoBrowser(const Request& request) {
  if (CountOf(request, "Host") != 1 || !NamesLoopback(request.Header("Host")))
    return Forbidden("Host must be a loopback address or localhost",
                     "http://127.0.0.1:PORT, also through a tunnel");
  if (CountOf(request, "Origin") > 0)
    return Forbidden("pages in browsers may not ask", "leave the Origin header out");
  return OkStatus();
}

Result<std::string_view> PresentedToken(const Request& request) {
  constexpr std::string_view kScheme = "Bearer ";
  const size_t count = CountOf(request, kAuthorization);
  if (count == 0) return NoToken("a token is needed");
  std::string_view value = request.Header(kAuthorization);
  if (count > 1 || value.size() <= kScheme.size() ||
      ::strncasecmp(value.data(), kScheme.data(), kScheme.size()) != 0)
    return NoToken("the Authorization header must be one Bearer token");
  value.remove_prefix(kScheme.size());
  while (value.starts_with(' ')) value.remove_prefix(1);
  return value;
}

const char* OutcomeOf(const Error& error) {
  return error.field == kAuthorization ? kUnauthenticated : CodeName(error.code);
}

Reply RefusalOf(const Error& error) {
  if (error.field != kAuthorization) return ErrorReply(error);
  oci::Json json = ErrorJson(error);
  json["error"]["code"] = kUnauthenticated;
  Reply reply = JsonReply(kUnauthorizedStatus, json);
  reply.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"hutch\"");
  return reply;
}

std::string CallOf(const Request& request) {
  return (request.method + " " + request.path).substr(0, kMaxToldBytes);
}

}  // namespace

Access::Access(Loop& loop, Audit& audit, Forward forward)
    : loop_(loop), audit_(audit), forward_(std::move(forward)) {}

Access::~Access() { Stop(); }

void Access::Stop() {
  const auto held = std::move(held_);
  held_.clear();
  for (const auto& [number, one] : held) one->responder.Send(std::move(one->reply));
}

Result<Peer> Access::Judge(const Request& request) const {
  RETURN_IF_ERROR(CheckNoBrowser(request));
  ASSIGN_OR_RETURN(const std::string_view presented, PresentedToken(request));
  const TokenRow* row = tokens_.Find(presented);
  if (row == nullptr) return NoToken("the token is not known");
  // A call that there is not is told to whoever has a token.
  const Route* route = FindRoute(request);
  if (route != nullptr && row->role < route->role)
    return Forbidden("token " + row->name + " has the role " + RoleName(row->role) +
                         "; this call needs " + RoleName(route->role),
                     "");
  return Peer{.pid = 0, .uid = kNoUid, .gid = kNoUid, .token = row->name};
}

Body Access::BodyFor(const Request& request) const {
  return Judge(request).has_value() ? BodyOf(request) : Body::kStream;
}

void Access::Dispatch(Request request, Responder responder) {
  Result<Peer> peer = Judge(request);
  if (!peer.has_value()) return Refuse(request, std::move(responder), peer.error());
  request.peer = std::move(*peer);
  forward_(std::move(request), std::move(responder));
}

void Access::Refuse(const Request& request, Responder responder, const Error& error) {
  Record(request, error);
  Reply reply = RefusalOf(error);
  if (refusals_ <= kMaxRefusalsPerSecond || held_.size() >= kMaxHeldRefusals)
    return responder.Send(std::move(reply));
  Hold(std::move(responder), std::move(reply));
}

void Access::Record(const Request& request, const Error& error) {
  const SteadyTime now = Loop::Now();
  if (refusals_ == 0 || now - second_ >= std::chrono::seconds(1)) {
    second_ = now;
    refusals_ = 0;
  }
  if (++refusals_ > kMaxRefusalsPerSecond) {
    ++unrecorded_;
    return;
  }
  AuditEntry entry{.kind = AuditKind::kDenial,
                   .outcome = OutcomeOf(error),
                   .detail = {{"call", CallOf(request)}, {"message", error.what}, {"over", "tcp"}}};
  if (unrecorded_ > 0) entry.detail["others_unrecorded"] = std::exchange(unrecorded_, 0);
  // Of a role that is not enough it is known whose.
  if (const Result<std::string_view> presented = PresentedToken(request); presented.has_value())
    if (const TokenRow* row = tokens_.Find(*presented))
      entry.caller = Peer{.pid = 0, .uid = kNoUid, .gid = kNoUid, .token = row->name};
  audit_.Record(std::move(entry));
}

void Access::Hold(Responder responder, Reply reply) {
  const uint64_t number = ++last_held_;
  auto held = std::make_unique<Held>(std::move(responder), std::move(reply));
  held->timer.Start(loop_, kRefusalDelay, [this, number] {
    const auto node = held_.extract(number);
    if (!node.empty()) node.mapped()->responder.Send(std::move(node.mapped()->reply));
  });
  held_.emplace(number, std::move(held));
}

}  // namespace hutch::daemon

// The door of the TCP listener: who asks, whether a browser was made to ask, and whether the role
// of the token is enough for the call. The Unix socket has no such door: its file mode decides.
// docs/access.md. On the loop's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "daemon/audit.h"
#include "daemon/loop.h"
#include "daemon/message.h"
#include "daemon/tokens.h"

namespace hutch::daemon {

class Access {
 public:
  using Forward = std::function<void(Request, Responder)>;

  // `forward` gets what is let in, with the token's name in its peer. All borrowed.
  Access(Loop& loop, Audit& audit, Forward forward);
  ~Access();

  void SetTokens(Tokens tokens) { tokens_ = std::move(tokens); }

  // Who asks. kForbidden for a browser's request, a Host that is not this machine's, a role that is
  // not enough; with the field "Authorization", answered 401, without a token that is known.
  Result<Peer> Judge(const Request& request) const;
  // As the table of routes has it; of a request that is refused the body is not read at all.
  Body BodyFor(const Request& request) const;
  // Forwards, or answers with the error. Beyond kMaxRefusalsPerSecond answers take kRefusalDelay
  // and only their number gets into the audit log.
  void Dispatch(Request request, Responder responder);
  // Answers what is still held back, before the server goes.
  void Stop();

 private:
  struct Held {
    Held(Responder r, Reply answer) : responder(std::move(r)), reply(std::move(answer)) {}
    Responder responder;
    Reply reply;
    Timer timer;
  };
  void Refuse(const Request& request, Responder responder, const Error& error);
  void Record(const Request& request, const Error& error);
  void Hold(Responder responder, Reply reply);

  Loop& loop_;
  Audit& audit_;
  Forward forward_;
  Tokens tokens_;
  SteadyTime second_;      // when the current count began
  size_t refusals_ = 0;    // since then
  size_t unrecorded_ = 0;  // not in the audit log yet, not even as a number
  uint64_t last_held_ = 0;
  std::map<uint64_t, std::unique_ptr<Held>> held_;
};

}  // namespace hutch::daemon

// What the handlers of files share.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/files.h"
#include "daemon/message.h"

namespace hutch::daemon {

// The lines of an answer that comes whole: the value of "ok", and of the others those of each kind.
struct FileAnswer {
  oci::Json ok;
  std::map<std::string, std::vector<oci::Json>> lines;
};

// Runs a request without bytes of its own and answers with what `reply` makes of it.
void AskFiles(Api& api, const std::string& sandbox, oci::Json request, Responder responder,
              std::function<Reply(FileAnswer&)> reply);

// The client is gone: so is the process.
void KillOnHangup(Responder& responder, const std::shared_ptr<FileCall>& call);

// Answers with the process's output once it said "ok"; `head` makes the answer's head of it, or
// none where the answer has no bytes (then `reply` is sent).
struct StreamPlan {
  std::optional<StreamHead> head = {};
  Reply reply = {};
};
void StreamFiles(Api& api, const std::string& sandbox, oci::Json request, Responder responder,
                 std::function<Result<StreamPlan>(const oci::Json& ok)> plan);

// Gives the request's body to the process and answers with what `reply` makes of its "ok".
void TakeFiles(Api& api, const std::string& sandbox, oci::Json request, Responder responder,
               std::function<Reply(const oci::Json& ok)> reply);

}  // namespace hutch::daemon

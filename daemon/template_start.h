// POST /v1/sandboxes from the request to the answer: what a template says is put under the request,
// an image that is missing is pulled, and the template's commands run before the answer. On the
// loop's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/create_claims.h"
#include "daemon/devcontainer.h"
#include "daemon/output_events.h"
#include "daemon/routes.h"

namespace hutch::daemon {

struct CreatePlan {
  SandboxFields fields;
  std::vector<TemplateStage> stages;  // of the template
  size_t awaited = 0;                 // so many of them before the answer
};

// A request with "template" gets its settings as defaults; one without is taken as it is. Errors as
// ParseSandboxFields(), TemplateLibrary::Find() and ParseDevcontainer(), and kInvalidArgument for
// an image beside a template.
Result<CreatePlan> PlanCreate(const oci::Json& request, const Config& config);

// Answers one creation: 201, or events when the client asked for them ("progress", "output", then
// "result" or "error"). A command that fails before the answer ends the sandbox, and so does a
// client that goes away, if no other waits for it; one that fails later is told by the sandbox's
// record and the log.
class SandboxStart : public std::enable_shared_from_this<SandboxStart> {
 public:
  SandboxStart(Api& api, const Request& request, Responder responder, const CreatePlan& plan);

  // Before Run(): what it makes is made for others, too. Then it goes on when its own client is
  // gone, as long as any of them waits.
  void Hold(std::shared_ptr<CreateClaim> claim);
  // Gets the image where it has to be got, and makes the sandbox.
  void Run(SandboxFields fields);

 private:
  struct Command;

  void Prepare(SandboxFields fields, Result<std::string> image);
  void ShareVolumes(SandboxFields fields);
  void Create(SandboxFields fields);
  void Refused(const Error& error);
  void Made(Result<SandboxEntry*> entry);
  void OpenEvents();
  void Next();
  void Begin(const std::shared_ptr<Command>& command);
  void Ended(const std::shared_ptr<Command>& command, const Result<ExecResult>& result);
  Status Record(LifecycleFacts::State state, const std::string& error = {});
  void Answer();
  // `reason` is the object of an error reply.
  void Fail(oci::Json reason, const Error& error);
  void Tell(const char* event, const oci::Json& json);
  void Close(int status, const oci::Json& json);
  void HungUp();
  void Leave();
  bool Congested();

  Api& api_;
  Request audited_;  // the caller, for the records of commands
  Responder responder_;
  Heartbeat heartbeat_;
  bool events_, opened_ = false, answered_ = false, failed_ = false, drain_asked_ = false;
  bool ahead_;                          // for a pool: nobody asked for it yet
  bool hung_up_ = false;                // its own client is gone
  bool gone_ = false;                   // nobody waits any more
  std::shared_ptr<CreateClaim> claim_;  // until the answer; empty: no key
  std::vector<TemplateStage> stages_;
  size_t awaited_;
  size_t stage_ = 0;    // that runs
  size_t running_ = 0;  // of its commands
  std::vector<std::weak_ptr<Exec>> execs_;
  std::string id_;               // empty until it is being made
  std::function<void()> leave_;  // the pull that is waited for
};

}  // namespace hutch::daemon

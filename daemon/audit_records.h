// What handlers record: entries made of requests and their results.
#pragma once

#include "daemon/audit.h"
#include "daemon/exec_request.h"
#include "daemon/routes.h"

namespace hutch::daemon {

// A sandbox that was made, and by name each way in which it is weaker; or that could not be made.
void AuditCreation(Api& api, const Peer& caller, const Result<SandboxEntry*>& made);
// A request that was refused. `sandbox` may be nullptr.
void AuditDenial(Api& api, const Peer& caller, const SandboxEntry* sandbox, const char* call,
                 const Error& error);
// A command: begun before it runs, when its fields and its sandbox are still there; recorded with
// its end.
AuditEntry BeginExecAudit(Api& api, const SandboxEntry& sandbox, const Request& request,
                          const ExecFields& fields);
void EndExecAudit(Api& api, AuditEntry entry, const Result<ExecResult>& result);
// A background process that was started.
void AuditProcess(Api& api, const Peer& caller, const SandboxEntry& sandbox,
                  const BackgroundProcess& process);
// An image that was imported, built or deleted, or was not.
void AuditImage(Api& api, const Peer& caller, AuditKind kind, const std::string& subject,
                const Status& outcome);

// Something done to a volume, or that was not.
void AuditVolume(Api& api, const Peer& caller, AuditKind kind, const std::string& name,
                 const Status& outcome, oci::Json detail = oci::Json::object());

}  // namespace hutch::daemon

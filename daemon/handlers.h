// One function a route, named in the table of routes.cc. docs/api.md says what each does.
#pragma once

#include "daemon/message.h"
#include "daemon/routes.h"

namespace hutch::daemon {

void HandleCreateSandbox(Api& api, Request request, Responder responder);
void HandleListSandboxes(Api& api, Request request, Responder responder);
void HandleGetSandbox(Api& api, Request request, Responder responder);
void HandleDeleteSandbox(Api& api, Request request, Responder responder);
void HandleHeartbeat(Api& api, Request request, Responder responder);
void HandleExec(Api& api, Request request, Responder responder);

void HandleListImages(Api& api, Request request, Responder responder);
void HandleGetImage(Api& api, Request request, Responder responder);
void HandleImportImage(Api& api, Request request, Responder responder);
void HandleBuildImage(Api& api, Request request, Responder responder);
void HandleDeleteImage(Api& api, Request request, Responder responder);

oci::Json AuditStateJson(const Audit& audit);  // for GET /v1/info
void HandleAudit(Api& api, Request request, Responder responder);
void HandleSandboxAudit(Api& api, Request request, Responder responder);

void HandleHealth(Api& api, Request request, Responder responder);
void HandleInfo(Api& api, Request request, Responder responder);
void HandleOpenApi(Api& api, Request request, Responder responder);

}  // namespace hutch::daemon

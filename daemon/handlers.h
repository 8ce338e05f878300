// One function a route, named in the table of routes.cc. docs/api.md says what each does.
#pragma once

#include "daemon/message.h"
#include "daemon/routes.h"

namespace hutch::daemon {

void HandleCreateSandbox(Api& api, Request request, Responder responder);
void HandleListSandboxes(Api& api, Request request, Responder responder);
void HandleGetSandbox(Api& api, Request request, Responder responder);
void HandleDeleteSandbox(Api& api, Request request, Responder responder);
void HandleChangeSandbox(Api& api, Request request, Responder responder);
void ChangeLabels(Api& api, SandboxEntry& entry, const oci::Json& labels, const Peer& caller,
                  Responder responder);  // sandbox_label_handlers.cc
void HandleSandboxNetwork(Api& api, Request request, Responder responder);
void HandleHeartbeat(Api& api, Request request, Responder responder);
void HandlePause(Api& api, Request request, Responder responder);
void HandleResume(Api& api, Request request, Responder responder);
void HandleStop(Api& api, Request request, Responder responder);
void HandleStart(Api& api, Request request, Responder responder);
void HandleExec(Api& api, Request request, Responder responder);

void HandleSnapshot(Api& api, Request request, Responder responder);  // snapshot_handlers.cc
void HandleFork(Api& api, Request request, Responder responder);
void HandleDiff(Api& api, Request request, Responder responder);

void HandleEvents(Api& api, Request request, Responder responder);
void HandleMetrics(Api& api, Request request, Responder responder);
void HandleStats(Api& api, Request request, Responder responder);

void HandleStartProcess(Api& api, Request request, Responder responder);
void HandleListProcesses(Api& api, Request request, Responder responder);
void HandleGetProcess(Api& api, Request request, Responder responder);
void HandleDeleteProcess(Api& api, Request request, Responder responder);
void HandleSignalProcess(Api& api, Request request, Responder responder);
void HandleWriteStdin(Api& api, Request request, Responder responder);
void HandleResizeProcess(Api& api, Request request, Responder responder);
void HandleReadOutput(Api& api, Request request, Responder responder);
void HandleAttach(Api& api, Request request, Responder responder);

void HandleListFiles(Api& api, Request request, Responder responder);
void HandleGetFile(Api& api, Request request, Responder responder);
void HandleHeadFile(Api& api, Request request, Responder responder);
void HandlePutFile(Api& api, Request request, Responder responder);
void HandleDeleteFile(Api& api, Request request, Responder responder);
void HandleMakeDirectory(Api& api, Request request, Responder responder);
void HandleMoveFile(Api& api, Request request, Responder responder);
void HandleCopyFile(Api& api, Request request, Responder responder);
void HandleEditFile(Api& api, Request request, Responder responder);
void HandleGlobFiles(Api& api, Request request, Responder responder);
void HandleGrepFiles(Api& api, Request request, Responder responder);
void HandleReadFiles(Api& api, Request request, Responder responder);
void HandleWriteFiles(Api& api, Request request, Responder responder);
void HandleGetArchive(Api& api, Request request, Responder responder);
void HandlePutArchive(Api& api, Request request, Responder responder);
void HandleWatchFiles(Api& api, Request request, Responder responder);

void HandleListPorts(Api& api, Request request, Responder responder);  // port_handlers.cc
void HandleAddPort(Api& api, Request request, Responder responder);
void HandleRemovePort(Api& api, Request request, Responder responder);
void HandleProxy(Api& api, Request request, Responder responder);

void HandleListImages(Api& api, Request request, Responder responder);
void HandleListCatalog(Api& api, Request request, Responder responder);
void HandleGetImage(Api& api, Request request, Responder responder);
void HandlePullImage(Api& api, Request request, Responder responder);
void HandleImportImage(Api& api, Request request, Responder responder);
void HandleBuildImage(Api& api, Request request, Responder responder);
void HandleDeleteImage(Api& api, Request request, Responder responder);
void HandleImageHistory(Api& api, Request request, Responder responder);
void HandleTagImage(Api& api, Request request, Responder responder);
void HandlePruneImages(Api& api, Request request, Responder responder);
void HandleSaveImage(Api& api, Request request, Responder responder);
void HandleLoadImage(Api& api, Request request, Responder responder);

void HandleListVolumes(Api& api, Request request, Responder responder);
void HandleCreateVolume(Api& api, Request request, Responder responder);
void HandleGetVolume(Api& api, Request request, Responder responder);
void HandleChangeVolume(Api& api, Request request, Responder responder);
void HandleDeleteVolume(Api& api, Request request, Responder responder);
void HandleCopyVolume(Api& api, Request request, Responder responder);
void HandlePruneVolumes(Api& api, Request request, Responder responder);
void HandleExportVolume(Api& api, Request request, Responder responder);
void HandleImportVolume(Api& api, Request request, Responder responder);

void HandleListTemplates(Api& api, Request request, Responder responder);
void HandleGetTemplate(Api& api, Request request, Responder responder);
void HandleValidateTemplate(Api& api, Request request, Responder responder);

void HandleCreateNetwork(Api& api, Request request, Responder responder);
void HandleListNetworks(Api& api, Request request, Responder responder);
void HandleGetNetwork(Api& api, Request request, Responder responder);
void HandleDeleteNetwork(Api& api, Request request, Responder responder);
void HandleListPresets(Api& api, Request request, Responder responder);
void HandleListSecrets(Api& api, Request request, Responder responder);

void HandleListPools(Api& api, Request request, Responder responder);
void HandleGetPool(Api& api, Request request, Responder responder);
void HandlePutPool(Api& api, Request request, Responder responder);
void HandleDeletePool(Api& api, Request request, Responder responder);

oci::Json AuditStateJson(const Audit& audit);  // for GET /v1/info
void HandleAudit(Api& api, Request request, Responder responder);
void HandleSandboxAudit(Api& api, Request request, Responder responder);

void HandleHealth(Api& api, Request request, Responder responder);
void HandleInfo(Api& api, Request request, Responder responder);
void HandleOpenApi(Api& api, Request request, Responder responder);

}  // namespace hutch::daemon

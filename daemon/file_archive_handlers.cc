// Whole trees of a sandbox: archives, copies between sandboxes, and watching.
#include "base/file.h"
#include "daemon/file_calls.h"
#include "daemon/handlers.h"

namespace hutch::daemon {
namespace {

using oci::Json;
using Call = std::shared_ptr<FileCall>;

struct TypeRow {
  std::string_view format;
  const char* content_type;
};
constexpr TypeRow kTypes[] = {
    {"tar", "application/x-tar"},
    {"tar.gz", "application/gzip"},
    {"tar.zst", "application/zstd"},
    {"zip", "application/zip"},
};

Result<StreamPlan> PlanArchive(const Json& ok) {
  StreamHead head;
  for (const TypeRow& row : kTypes)
    if (row.format == ok.value("format", "")) head.content_type = row.content_type;
  return StreamPlan{.head = std::move(head), .reply = {}};
}

// --- copies

struct CopyFields {
  std::string from_sandbox, from, to;
  bool overwrite = false, parents = false, recursive = false;
};

// Two processes and one pipe: the bytes never come here.
struct Transfer {
  explicit Transfer(Responder r) : responder(std::move(r)) {}
  Responder responder;
  Call packing, unpacking;
  std::optional<Status> packed, unpacked;
  Json counts;

  void Kill() {
    if (packing) packing->Kill();
    if (unpacking) unpacking->Kill();
  }
  void End() {
    if (!packed || !unpacked) return;
    // The first cause: an archive that breaks off is only its effect.
    if (!*packed && (*packed).error().sys != EPIPE) return responder.Send(packed->error());
    if (!*unpacked) return responder.Send(unpacked->error());
    if (!*packed) return responder.Send(packed->error());
    responder.Send(JsonReply(200, {{"copied", counts}}));
  }
};

Result<CopyFields> ParseCopy(const Json& json) {
  CopyFields copy;
  oci::ObjectReader reader(json, "");
  reader.String("from_sandbox", &copy.from_sandbox).String("from", &copy.from);
  reader.String("to", &copy.to).Bool("overwrite", &copy.overwrite);
  reader.Bool("parents", &copy.parents).Bool("recursive", &copy.recursive);
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kRefuse));
  for (const auto& [name, path] : {std::pair{"from", &copy.from}, std::pair{"to", &copy.to}})
    if (!path->starts_with('/'))
      return Error{.code = Code::kInvalidArgument, .what = "must be absolute", .field = name};
  return copy;
}

// What is written where: the directory that `to` is in, and its name there.
Status SplitTarget(const std::string& to, std::string* directory, std::string* name) {
  std::string trimmed = to;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const size_t slash = trimmed.rfind('/');
  *directory = slash == 0 ? "/" : trimmed.substr(0, slash);
  *name = trimmed.substr(slash + 1);
  if (!name->empty() && *name != "." && *name != "..") return OkStatus();
  return Error{.code = Code::kInvalidArgument, .what = "has no name at its end", .field = "to"};
}

Result<Json> UnpackRequest(const CopyFields& copy, std::string* name) {
  std::string directory;
  RETURN_IF_ERROR(SplitTarget(copy.to, &directory, name));
  Json asked = {{"op", "unpack"}, {"format", "tar"}, {"path", directory}};
  asked["parents"] = copy.parents;
  if (!copy.overwrite) asked["fresh"] = *name;
  return asked;
}

Status StartTransfer(Api& api, const FileTarget& target, const CopyFields& copy,
                     const std::shared_ptr<Transfer>& transfer) {
  std::string name;
  ASSIGN_OR_RETURN(Json asked, UnpackRequest(copy, &name));
  ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  FileCall::Spec pack{.request = {{"op", "pack"},
                                  {"path", copy.from},
                                  {"format", "tar"},
                                  {"as", name},
                                  {"recursive", copy.recursive}},
                      .stdout_fd = std::move(pipe.write)};
  pack.on_end = [transfer](const Status& status) {
    transfer->packed = status;
    transfer->End();
  };
  FileCall::Spec unpack{.request = std::move(asked), .stdin_fd = std::move(pipe.read)};
  unpack.on_line = [transfer](FileCall&, FileLine& line) {
    if (line.kind == "ok") transfer->counts = std::move(line.value);
  };
  unpack.on_end = [transfer](const Status& status) {
    transfer->unpacked = status;
    transfer->End();
  };
  // The reader first: it waits until there is something to read.
  ASSIGN_OR_RETURN(transfer->unpacking, FileCall::Start(api, target, std::move(unpack)));
  auto packing = FileCall::Start(api, {copy.from_sandbox, target.caller}, std::move(pack));
  if (!packing) {
    transfer->unpacking->Kill();
    transfer->packed = packing.error();
    return OkStatus();  // told when the other has ended
  }
  transfer->packing = std::move(*packing);
  return OkStatus();
}

}  // namespace

void HandleGetArchive(Api& api, Request request, Responder responder) {
  Json asked = {{"op", "pack"}};
  PutPath(asked, "path", QueryValue(request, "path"));
  if (const std::string format = QueryValue(request, "format"); !format.empty())
    asked["format"] = format;
  StreamFiles(api, TargetOf(request), std::move(asked), std::move(responder), PlanArchive);
}

void HandlePutArchive(Api& api, Request request, Responder responder) {
  Json asked = {{"op", "unpack"}};
  PutPath(asked, "path", QueryValue(request, "path"));
  const auto parents = QueryFlag(request, "parents");
  if (!parents) return responder.Send(parents.error());
  asked["parents"] = *parents;
  asked["format"] = QueryValue(request, "format");
  TakeFiles(api, TargetOf(request), std::move(asked), std::move(responder),
            [](const Json& ok) { return JsonReply(200, ok); });
}

void HandleCopyFile(Api& api, Request request, Responder responder) {
  if (!request.json.is_object() || request.json.contains("op"))
    return responder.Send(
        Error{.code = Code::kInvalidArgument, .what = "must be an object without \"op\""});
  if (!request.json.contains("from_sandbox")) {
    request.json["op"] = "copy";
    return AskFiles(api, TargetOf(request), std::move(request.json), std::move(responder),
                    [](FileAnswer& answer) { return JsonReply(200, answer.ok); });
  }
  const auto copy = ParseCopy(request.json);
  if (!copy) return responder.Send(copy.error());
  const auto source = api.sandboxes.FindRunning(copy->from_sandbox);
  if (!source) return responder.Send(source.error());
  const auto transfer = std::make_shared<Transfer>(std::move(responder));
  const Status started = StartTransfer(api, TargetOf(request), *copy, transfer);
  if (!started) return transfer->responder.Send(started.error());
  transfer->responder.OnHangup([weak = std::weak_ptr(transfer)] {
    if (const auto running = weak.lock()) running->Kill();
  });
}

void HandleWatchFiles(Api& api, Request request, Responder responder) {
  Json asked = {{"op", "watch"}};
  PutPath(asked, "path", QueryValue(request, "path"));
  const auto recursive = QueryFlag(request, "recursive");
  if (!recursive) return responder.Send(recursive.error());
  asked["recursive"] = *recursive;
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const auto begun = std::make_shared<bool>(false);
  FileCall::Spec spec{.request = std::move(asked), .endless = true};
  spec.on_line = [shared, begun](FileCall& call, const FileLine& line) {
    if (!std::exchange(*begun, true)) shared->StartEvents();
    constexpr std::pair<std::string_view, const char*> kNames[] = {
        {"ok", "watching"}, {"event", "change"}, {"done", "end"}};
    for (const auto& [kind, name] : kNames)
      if (line.kind == kind) shared->Event(name, oci::PrintJson(line.value));
    // A slow reader slows the process down; the kernel tells of what it dropped.
    if (!shared->Congested()) return;
    call.Pause(true);
    // Held: a process that has ended meanwhile still has lines to tell.
    shared->OnDrained([running = call.shared_from_this()] { running->Pause(false); });
  };
  spec.on_end = [shared, begun](const Status& status) {
    if (!*begun) return shared->Send(status ? ErrorReply({}) : ErrorReply(status.error()));
    if (!status) shared->Event("error", oci::PrintJson(ErrorJson(status.error())));
    shared->End();
  };
  const auto call = FileCall::Start(api, TargetOf(request), std::move(spec));
  if (!call) return shared->Send(call.error());
  KillOnHangup(*shared, *call);
}

}  // namespace hutch::daemon

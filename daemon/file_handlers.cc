// Files of a sandbox: single ones with HTTP's own means, and calls with JSON.
#include "base/base64.h"
#include "base/text.h"
#include "daemon/file_calls.h"
#include "daemon/handlers.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

using oci::Json;

Error BadHeader(const char* name, std::string what) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = name};
}

Json RequestFor(const char* op, const Request& request) {
  Json asked = {{"op", op}};
  PutPath(asked, "path", "/" + request.parameters[1]);
  return asked;
}

// W/"..." and "..." lists of RFC 9110; "*" stays as it is. Tags that are not ours match nothing.
Result<std::vector<std::string>> ParseTags(const char* name, std::string_view text) {
  std::vector<std::string> tags;
  for (const std::string& part : Split(text, ',')) {
    std::string_view tag = Trim(part);
    if (tag == "*") {
      tags.emplace_back(tag);
      continue;
    }
    if (tag.starts_with("W/")) tag.remove_prefix(2);
    if (tag.size() < 2 || tag.front() != '"' || tag.back() != '"')
      return BadHeader(name, "is no list of entity tags");
    tags.emplace_back(tag.substr(1, tag.size() - 2));
  }
  return tags;
}

// One range; several, and units that are unknown, are answered with the whole, as RFC 9110 allows.
Status PutRange(std::string_view text, Json& asked) {
  constexpr std::string_view kUnit = "bytes=";
  if (!text.starts_with(kUnit) || text.find(',') != std::string_view::npos) return OkStatus();
  text.remove_prefix(kUnit.size());
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) return BadHeader("Range", "is no range of bytes");
  const std::string_view first = text.substr(0, dash), last = text.substr(dash + 1);
  const auto from = first.empty() ? Result<uint64_t>(0) : ParseUint(first, INT64_MAX);
  const auto to = last.empty() ? Result<uint64_t>(INT64_MAX) : ParseUint(last, INT64_MAX);
  if (!from || !to || (first.empty() && last.empty()) || (!first.empty() && *to < *from))
    return BadHeader("Range", "is no range of bytes");
  if (first.empty() && *to == 0) {
    asked["offset"] = INT64_MAX;  // the last no bytes: not satisfiable
  } else if (first.empty()) {
    asked["suffix"] = *to;
  } else {
    asked["offset"] = *from;
    if (!last.empty()) asked["length"] = *to - *from + 1;
  }
  return OkStatus();
}

Result<Json> ReadRequest(const Request& request) {
  Json asked = RequestFor("read", request);
  for (const auto& [header, member] :
       {std::pair{"If-Match", "if_match"}, std::pair{"If-None-Match", "if_none_match"}}) {
    if (request.Header(header).empty()) continue;
    ASSIGN_OR_RETURN(asked[member], ParseTags(header, request.Header(header)));
  }
  if (!request.Header("Range").empty()) RETURN_IF_ERROR(PutRange(request.Header("Range"), asked));
  const std::string_view if_range = request.Header("If-Range");
  // A date, or a weak tag, is nothing that could be compared: the whole is sent.
  if (!if_range.empty())
    asked["if_range"] = if_range.size() > 2 && if_range.front() == '"'
                            ? std::string(if_range.substr(1, if_range.size() - 2))
                            : "none";
  return asked;
}

Result<StreamPlan> PlanRead(const Json& ok) {
  ASSIGN_OR_RETURN(const std::string tag, EntityTagOf(ok));
  const std::string outcome = ok.value("outcome", "");
  const uint64_t size = ok.value("size", uint64_t{0});
  const uint64_t offset = ok.value("offset", uint64_t{0});
  StreamHead head;
  head.headers = {{"ETag", "\"" + tag + "\""}, {"Accept-Ranges", "bytes"}};
  if (ok.contains("length")) head.length = ok["length"].get<uint64_t>();
  if (outcome == "not_modified")
    return StreamPlan{.head = {}, .reply = {.status = 304, .body = {}, .headers = head.headers}};
  if (outcome == "unsatisfiable") {
    Reply reply = ErrorReply({.code = Code::kInvalidArgument,
                              .what = "the file has only " + std::to_string(size) + " bytes",
                              .field = "Range"});
    reply.status = 416;
    reply.headers.emplace_back("Content-Range", "bytes */" + std::to_string(size));
    return StreamPlan{.head = {}, .reply = std::move(reply)};
  }
  if (outcome == "partial" && head.length && *head.length > 0) {
    head.status = 206;
    head.headers.emplace_back("Content-Range", "bytes " + std::to_string(offset) + "-" +
                                                   std::to_string(offset + *head.length - 1) + "/" +
                                                   std::to_string(size));
  }
  return StreamPlan{.head = std::move(head), .reply = {}};
}

// sha-256=:<base64>: of RFC 9530; other algorithms are not looked at.
Status PutDigest(std::string_view text, Json& asked) {
  constexpr std::string_view kName = "sha-256=:";
  for (const std::string& part : Split(text, ',')) {
    std::string_view digest = Trim(part);
    if (!digest.starts_with(kName)) continue;
    digest.remove_prefix(kName.size());
    std::string bytes;
    if (!digest.ends_with(':') || !Base64Decode(digest.substr(0, digest.size() - 1), &bytes) ||
        bytes.size() != 32)
      return BadHeader("Content-Digest", "is no sha-256 digest");
    asked["sha256"] = HexEncode(bytes);
  }
  return OkStatus();
}

Result<Json> WriteRequest(const Request& request) {
  Json asked = RequestFor("write", request);
  ASSIGN_OR_RETURN(const bool append, QueryFlag(request, "append"));
  ASSIGN_OR_RETURN(asked["parents"], QueryFlag(request, "parents"));
  const std::string mode = QueryValue(request, "mode");
  if (!mode.empty()) asked["mode"] = mode;
  if (append) asked["how"] = "append";
  if (!request.Header("If-None-Match").empty()) {
    if (request.Header("If-None-Match") != "*" || append)
      return BadHeader("If-None-Match", "must be * and without append");
    asked["how"] = "create";
  }
  if (!request.Header("If-Match").empty()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> tags,
                     ParseTags("If-Match", request.Header("If-Match")));
    if (tags.size() != 1) return BadHeader("If-Match", "must be one entity tag");
    asked["if_match"] = tags[0];
  }
  if (request.content_length) asked["expected_bytes"] = *request.content_length;
  RETURN_IF_ERROR(PutDigest(request.Header("Content-Digest"), asked));
  return asked;
}

Reply EntryReply(const Json& entry) {
  const bool created = entry.value("created", false);
  Reply reply = JsonReply(created ? 201 : 200, entry);
  const auto tag = EntityTagOf(entry);
  if (tag) reply.headers.emplace_back("ETag", "\"" + *tag + "\"");
  return reply;
}

// A call whose JSON the process itself checks, member by member; "op" is ours to say.
void Forward(Api& api, const char* op, Request request, Responder responder,
             std::function<Reply(FileAnswer&)> reply) {
  if (!request.json.is_object() || request.json.contains("op"))
    return responder.Send(
        Error{.code = Code::kInvalidArgument, .what = "must be an object without \"op\""});
  request.json["op"] = op;
  AskFiles(api, request.parameters[0], std::move(request.json), std::move(responder),
           std::move(reply));
}

Reply OkReply(FileAnswer& answer) { return JsonReply(200, answer.ok); }

// {"<name>": [...], ...ok}
std::function<Reply(FileAnswer&)> ListReply(const char* kind, const char* name) {
  return [kind, name](FileAnswer& answer) {
    Json reply = std::move(answer.ok);
    reply[name] = std::move(answer.lines[kind]);
    return JsonReply(200, reply);
  };
}

Result<Json> ListRequest(const Request& request) {
  Json asked = {{"op", "list"}};
  PutPath(asked, "path", QueryValue(request, "path"));
  for (const char* name : {"glob", "cursor"})
    if (const std::string value = QueryValue(request, name); !value.empty()) asked[name] = value;
  for (const char* name : {"depth", "limit"}) {
    const std::string value = QueryValue(request, name);
    if (value.empty()) continue;
    const auto number = ParseUint(value);
    if (!number)
      return Error{.code = Code::kInvalidArgument, .what = "must be a number", .field = name};
    asked[name] = *number;
  }
  return asked;
}

void SendFile(Api& api, Request request, Responder responder, bool head) {
  auto asked = ReadRequest(request);
  if (!asked) return responder.Send(asked.error());
  if (head) (*asked)["head"] = true;
  StreamFiles(api, request.parameters[0], std::move(*asked), std::move(responder), PlanRead);
}

}  // namespace

void HandleListFiles(Api& api, Request request, Responder responder) {
  auto asked = ListRequest(request);
  if (!asked) return responder.Send(asked.error());
  AskFiles(api, request.parameters[0], std::move(*asked), std::move(responder),
           ListReply("entry", "entries"));
}

void HandleGetFile(Api& api, Request request, Responder responder) {
  SendFile(api, std::move(request), std::move(responder), false);
}

void HandleHeadFile(Api& api, Request request, Responder responder) {
  SendFile(api, std::move(request), std::move(responder), true);
}

void HandlePutFile(Api& api, Request request, Responder responder) {
  auto asked = WriteRequest(request);
  if (!asked) return responder.Send(asked.error());
  TakeFiles(api, request.parameters[0], std::move(*asked), std::move(responder), EntryReply);
}

void HandleDeleteFile(Api& api, Request request, Responder responder) {
  Json asked = RequestFor("delete", request);
  const auto recursive = QueryFlag(request, "recursive");
  if (!recursive) return responder.Send(recursive.error());
  asked["recursive"] = *recursive;
  AskFiles(api, request.parameters[0], std::move(asked), std::move(responder), OkReply);
}

void HandleMakeDirectory(Api& api, Request request, Responder responder) {
  Forward(api, "mkdir", std::move(request), std::move(responder),
          [](FileAnswer& answer) { return EntryReply(answer.ok); });
}

void HandleMoveFile(Api& api, Request request, Responder responder) {
  Forward(api, "move", std::move(request), std::move(responder), OkReply);
}

void HandleEditFile(Api& api, Request request, Responder responder) {
  Forward(api, "edit", std::move(request), std::move(responder), OkReply);
}

void HandleGlobFiles(Api& api, Request request, Responder responder) {
  Forward(api, "glob", std::move(request), std::move(responder), ListReply("entry", "entries"));
}

void HandleGrepFiles(Api& api, Request request, Responder responder) {
  Forward(api, "grep", std::move(request), std::move(responder), [](FileAnswer& answer) {
    Json reply = std::move(answer.ok);
    reply["match_count"] = reply["matches"];
    reply["matches"] = std::move(answer.lines["match"]);
    return JsonReply(200, reply);
  });
}

void HandleReadFiles(Api& api, Request request, Responder responder) {
  Forward(api, "batch_read", std::move(request), std::move(responder),
          ListReply("result", "results"));
}

void HandleWriteFiles(Api& api, Request request, Responder responder) {
  Forward(api, "batch_write", std::move(request), std::move(responder),
          ListReply("result", "results"));
}

}  // namespace hutch::daemon

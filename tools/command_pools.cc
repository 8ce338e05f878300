// pool ls, set, rm.
#include "base/text.h"
#include "tools/commands.h"
#include "tools/request_bodies.h"

namespace hutch::tools {
namespace {

using oci::Json;

std::string TextOf(const Json& object, const char* member) {
  if (!object.is_object() || !object.contains(member) || object[member].is_null()) return "-";
  return object[member].is_string() ? object[member].get<std::string>() : object[member].dump();
}

Json ObjectOf(const Json& object, const char* member) {
  const bool has = object.is_object() && object.contains(member) && object[member].is_object();
  return has ? object[member] : Json::object();
}

std::string PoolPath(const std::string& name) { return "/v1/pools/" + EncodeSegment(name); }

// What keeps it from being full: the last failure says more than that there was one.
std::string TroubleOf(const Json& pool) {
  const Json error = ObjectOf(pool, "last_error");
  if (!error.empty()) return TextOf(error, "message");
  const std::string waits = TextOf(pool, "waits_for");
  return waits == "-" || waits == "turn" || waits == "plan" ? "" : "waits: " + waits;
}

Result<uint64_t> Count(const char* flag, const std::string& text) {
  const auto count = ParseUint(text);
  if (count) return *count;
  return Error{.code = Code::kInvalidArgument,
               .what = std::string(flag) + ": " + count.error().what,
               .field = flag};
}

}  // namespace

Result<int> RunPoolList(Context& context) {
  ASSIGN_OR_RETURN(const Json reply, context.client.Get("/v1/pools"));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(reply));
    return 0;
  }
  Table table({{"NAME"},
               {"OF"},
               {"READY", Align::kRight},
               {"WANTED", Align::kRight},
               {"MAX", Align::kRight},
               {"HITS", Align::kRight},
               {"MISSES", Align::kRight},
               {"FAILED", Align::kRight},
               {"TROUBLE"}});
  std::string names;
  if (reply.is_object() && reply.contains("pools") && reply["pools"].is_array())
    for (const Json& pool : reply["pools"]) {
      const Json counts = ObjectOf(pool, "counts");
      const std::string of = TextOf(pool, "template");
      names += TextOf(pool, "name") + "\n";
      table.Add({TextOf(pool, "name"), of == "-" ? TextOf(pool, "image") : of,
                 TextOf(counts, "ready"), TextOf(counts, "wanted"), TextOf(pool, "max"),
                 TextOf(counts, "hits"), TextOf(counts, "misses"), TextOf(counts, "failed"),
                 Cell{TroubleOf(pool), Colour::kYellow}});
    }
  RETURN_IF_ERROR(Print(context.options.ids_only ? names : table.Render(context.colours)));
  return 0;
}

Result<int> RunPoolSet(Context& context) {
  const Options& options = context.options;
  ASSIGN_OR_RETURN(Json request, PlanCreateBody(options));
  Json body = Json::object();
  for (const char* subject : {"image", "template"})
    if (request.contains(subject)) {
      body[subject] = request[subject];
      request.erase(subject);
    }
  if (!request.empty()) body["request"] = std::move(request);
  if (!options.ready.empty()) {
    ASSIGN_OR_RETURN(body["ready"], Count("--ready", options.ready));
  }
  if (!options.most.empty()) {
    ASSIGN_OR_RETURN(body["max"], Count("--max", options.most));
  }
  if (options.demand) body["demand"] = true;
  ASSIGN_OR_RETURN(const Json pool, context.client.Call({.method = "PUT",
                                                         .target = PoolPath(options.id),
                                                         .body = oci::PrintJson(body)}));
  if (options.json)
    RETURN_IF_ERROR(PrintJsonText(pool));
  else
    RETURN_IF_ERROR(Print(TextOf(pool, "name") + "\n"));
  return 0;
}

Result<int> RunPoolRemove(Context& context) {
  int exit_code = 0;
  for (const std::string& name : context.options.ids) {
    const auto removed = context.client.Delete(PoolPath(name));
    if (removed && !context.options.json) RETURN_IF_ERROR(Print(name + "\n"));
    if (removed) continue;
    PrintError(removed.error(), context.options);
    exit_code = kExitFailed;  // and on with the others
  }
  return exit_code;
}

}  // namespace hutch::tools

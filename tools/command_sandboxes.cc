// create, ls, inspect, rm, heartbeat.
#include "base/text.h"
#include "tools/commands.h"
#include "tools/creation.h"
#include "tools/request_bodies.h"

namespace hutch::tools {
namespace {

using oci::Json;
using Unknown = oci::ObjectReader::Unknown;

std::string TargetOf(const std::string& id) { return "/v1/sandboxes/" + EncodeSegment(id); }

struct SandboxLine {
  std::string id, name, state, image, user, created_at, ended_at, cause;
  uint64_t processes = 0, memory_bytes = 0;
};

Result<SandboxLine> ReadLine(const Json& sandbox) {
  SandboxLine line;
  oci::ObjectReader reader(sandbox, "sandbox");
  reader.String("id", &line.id)
      .String("name", &line.name)
      .String("state", &line.state)
      .String("image", &line.image)
      .String("user", &line.user)
      .String("created_at", &line.created_at)
      .String("ended_at", &line.ended_at)
      .String("cause", &line.cause)
      .Uint("processes", &line.processes);
  const Json* limits = reader.Member("limits");
  RETURN_IF_ERROR(reader.Done(Unknown::kIgnore));
  if (limits == nullptr) return line;
  RETURN_IF_ERROR(oci::ObjectReader(*limits, "limits")
                      .Uint("memory_bytes", &line.memory_bytes)
                      .Done(Unknown::kIgnore));
  return line;
}

Result<Json> GetList(Context& context) {
  return context.client.Get("/v1/sandboxes" + PlanListQuery(context.options));
}

Result<std::vector<SandboxLine>> ReadLines(const Json& reply) {
  oci::ObjectReader reader(reply, "");
  const Json* sandboxes = reader.Member("sandboxes");
  if (sandboxes == nullptr || !sandboxes->is_array())
    return Error{.what = "the daemon's reply has no list of sandboxes"};
  std::vector<SandboxLine> lines;
  for (const Json& sandbox : *sandboxes) {
    ASSIGN_OR_RETURN(SandboxLine line, ReadLine(sandbox));
    lines.push_back(std::move(line));
  }
  return lines;
}

// Living ones that --label is about.
Result<std::vector<std::string>> SelectedIds(Context& context) {
  ASSIGN_OR_RETURN(const Json reply, GetList(context));
  ASSIGN_OR_RETURN(const std::vector<SandboxLine> lines, ReadLines(reply));
  std::vector<std::string> ids;
  for (const SandboxLine& line : lines) {
    if (line.ended_at.empty()) ids.push_back(line.id);
  }
  return ids;
}

// The exit code; one that fails does not hold up the others.
Result<int> RemoveAll(Context& context, const std::vector<std::string>& ids) {
  int exit_code = 0;
  for (const std::string& id : ids) {
    const auto removed = context.client.Delete(TargetOf(id));
    if (removed && !context.options.json) RETURN_IF_ERROR(Print(id + "\n"));
    if (removed) continue;
    PrintError(removed.error(), context.options);
    exit_code = kExitFailed;  // and on with the others
  }
  return exit_code;
}

Cell StateCell(const SandboxLine& line) {
  if (line.state == "running") return {line.state, Colour::kGreen};
  if (line.ended_at.empty()) return {line.state, Colour::kYellow};
  return {line.state + " (" + line.cause + ")", Colour::kDim};
}

}  // namespace

Result<int> RunCreate(Context& context) {
  ASSIGN_OR_RETURN(const Json body, PlanCreateBody(context.options));
  ASSIGN_OR_RETURN(const Json sandbox, CreateSandbox(context, body));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(sandbox));
    return 0;
  }
  ASSIGN_OR_RETURN(const SandboxLine line, ReadLine(sandbox));
  RETURN_IF_ERROR(Print(line.id + "\n"));
  return 0;
}

Result<int> RunList(Context& context) {
  ASSIGN_OR_RETURN(const Json reply, GetList(context));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(reply));
    return 0;
  }
  ASSIGN_OR_RETURN(const std::vector<SandboxLine> lines, ReadLines(reply));
  Table table({{"ID"},
               {"NAME"},
               {"STATE"},
               {"IMAGE"},
               {"USER"},
               {"MEMORY", Align::kRight},
               {"PROCESSES", Align::kRight},
               {"AGE", Align::kRight}});
  const bool with_ended = context.options.show_all || !context.options.state.empty();
  std::string ids;
  for (const SandboxLine& line : lines) {
    if (!line.ended_at.empty() && !with_ended) continue;
    ids += line.id + "\n";
    table.Add({line.id, line.name.empty() ? "-" : line.name, StateCell(line), line.image, line.user,
               line.memory_bytes == 0 ? "-" : FormatSize(line.memory_bytes),
               std::to_string(line.processes), Age(line.created_at)});
  }
  RETURN_IF_ERROR(Print(context.options.ids_only ? ids : table.Render(context.colours)));
  return 0;
}

Result<int> RunInspect(Context& context) {
  ASSIGN_OR_RETURN(const Json sandbox, context.client.Get(TargetOf(context.options.id)));
  RETURN_IF_ERROR(PrintJsonText(sandbox));
  return 0;
}

Result<int> RunRemove(Context& context) {
  const Options& options = context.options;
  if (options.ids.empty() == options.selectors.empty())
    return Error{.code = Code::kInvalidArgument,
                 .what = "rm needs ids, or --label, and not both",
                 .hint = "hutch rm ID..., or hutch rm --label KEY=VALUE --yes"};
  if (options.selectors.empty()) return RemoveAll(context, options.ids);
  ASSIGN_OR_RETURN(const std::vector<std::string> ids, SelectedIds(context));
  if (options.yes) return RemoveAll(context, ids);
  if (options.json) {
    RETURN_IF_ERROR(PrintJsonText({{"would_remove", ids}}));
    return 0;
  }
  RETURN_IF_ERROR(Print(ids.empty() ? "" : Join(ids, "\n") + "\n"));
  Note(std::to_string(ids.size()) + " would be removed; with --yes they are");
  return 0;
}

Result<int> RunHeartbeat(Context& context) {
  RETURN_IF_ERROR(context.client.Post(TargetOf(context.options.id) + "/heartbeat", Json::object()));
  return 0;
}

}  // namespace hutch::tools

// snapshot, fork, diff.
#include "base/text.h"
#include "tools/commands.h"
#include "tools/show_progress.h"

namespace hutch::tools {
namespace {

using oci::Json;
using Unknown = oci::ObjectReader::Unknown;

constexpr char kMostChanges[] = "10000";

std::string TargetOf(const std::string& id, const char* what) {
  return "/v1/sandboxes/" + EncodeSegment(id) + what;
}

// What the copy lacks is said even where only ids are printed.
Status NoteSkipped(const Json& reply) {
  oci::ObjectReader reader(reply, "");
  const Json* skipped = reader.Member("skipped");
  if (skipped == nullptr) return OkStatus();
  uint64_t count = 0;
  RETURN_IF_ERROR(
      oci::ObjectReader(*skipped, "skipped").Uint("count", &count).Done(Unknown::kIgnore));
  if (count == 0) return OkStatus();
  Note(std::to_string(count) + " entries are left out, which no image can hold:");
  ASSIGN_OR_RETURN(const std::vector<Json> examples, ListIn(*skipped, "examples"));
  for (const Json& one : examples) {
    std::string path, reason;
    RETURN_IF_ERROR(oci::ObjectReader(one, "skipped")
                        .String("path", &path)
                        .String("reason", &reason)
                        .Done(Unknown::kIgnore));
    Note("  " + Printable(path) + ": " + Printable(reason));
  }
  return OkStatus();
}

}  // namespace

Result<int> RunSnapshot(Context& context) {
  const std::string target = TargetOf(context.options.id, "/snapshot");
  ASSIGN_OR_RETURN(
      const Json reply,
      PostShowingProgress(context, target.c_str(), {{"reference", context.options.reference}}));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(reply));
    return 0;
  }
  RETURN_IF_ERROR(NoteSkipped(reply));
  oci::ObjectReader reader(reply, "");
  const Json* image = reader.Member("image");
  std::string id;
  if (image != nullptr)
    RETURN_IF_ERROR(oci::ObjectReader(*image, "image").String("id", &id).Done(Unknown::kIgnore));
  RETURN_IF_ERROR(Print(Printable(id) + "\n"));
  return 0;
}

Result<int> RunFork(Context& context) {
  const Options& options = context.options;
  Json body = Json::object();
  if (!options.count.empty()) {
    const Result<uint64_t> count = ParseUint(options.count);
    if (!count.has_value())
      return Error{.code = Code::kInvalidArgument, .what = "must be a number", .field = "--count"};
    body["count"] = *count;
  }
  if (!options.name.empty()) body["name"] = options.name;
  const std::string target = TargetOf(options.id, "/fork");
  ASSIGN_OR_RETURN(const Json reply, PostShowingProgress(context, target.c_str(), body));
  if (options.json) {
    RETURN_IF_ERROR(PrintJsonText(reply));
    return 0;
  }
  RETURN_IF_ERROR(NoteSkipped(reply));
  ASSIGN_OR_RETURN(const std::vector<Json> sandboxes, ListIn(reply, "sandboxes"));
  std::string text;
  for (const Json& sandbox : sandboxes) {
    std::string id, name;
    RETURN_IF_ERROR(oci::ObjectReader(sandbox, "sandbox")
                        .String("id", &id)
                        .String("name", &name)
                        .Done(Unknown::kIgnore));
    text += Printable(name.empty() ? id : name) + "\n";
  }
  RETURN_IF_ERROR(Print(text));
  return 0;
}

Result<int> RunDiff(Context& context) {
  const std::string& path = context.options.path;
  std::string target = TargetOf(context.options.id, "/diff?limit=") + kMostChanges;
  if (!path.empty()) target += "&path=" + EncodeSegment(path);
  ASSIGN_OR_RETURN(const Json reply, context.client.Get(target));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(reply));
    return 0;
  }
  ASSIGN_OR_RETURN(const std::vector<Json> changes, ListIn(reply, "changes"));
  Table table({{"CHANGE"}, {"TYPE"}, {"SIZE", Align::kRight}, {"PATH"}});
  for (const Json& change : changes) {
    std::string action, type, name;
    uint64_t size = 0;
    RETURN_IF_ERROR(oci::ObjectReader(change, "change")
                        .String("action", &action)
                        .String("type", &type)
                        .String("path", &name)
                        .Uint("size_bytes", &size)
                        .Done(Unknown::kIgnore));
    table.Add({Printable(action), Printable(type), FormatSize(size), Printable(name)});
  }
  RETURN_IF_ERROR(Print(table.Render(context.colours)));
  bool truncated = false;
  RETURN_IF_ERROR(
      oci::ObjectReader(reply, "").Bool("truncated", &truncated).Done(Unknown::kIgnore));
  if (truncated) Note("there are more changes than are listed: name a directory");
  return 0;
}

}  // namespace hutch::tools

// audit: the daemon's log, a line an entry, oldest first; whatever a tenant put into it is
// printable.
#include <algorithm>
#include <chrono>

#include "base/text.h"
#include "tools/commands.h"

namespace hutch::tools {
namespace {

using oci::Json;

constexpr size_t kMaxShownPages = 1000;

std::string TextOf(const Json& value) {
  return value.is_string() ? Printable(value.get_ref<const std::string&>()) : "-";
}

std::string CallerOf(const Json& entry) {
  const Json& caller = entry["caller"];
  if (!caller.is_object()) return "-";
  if (caller.contains("token")) return "token " + TextOf(caller["token"]);
  return "uid " + oci::PrintJson(caller["uid"]) + " pid " + oci::PrintJson(caller["pid"]);
}

Result<std::string> TargetOf(const Options& options) {
  std::string target =
      options.id.empty() ? "/v1/audit" : "/v1/sandboxes/" + EncodeSegment(options.id) + "/audit";
  target += "?limit=1000";
  if (!options.kind.empty()) target += "&kind=" + EncodeSegment(options.kind);
  if (options.since.empty()) return target;
  ASSIGN_OR_RETURN(const double seconds, ParseSeconds(options.since));
  const auto ago = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  return target + "&since=" + FormatRfc3339(std::chrono::system_clock::now() - ago);
}

}  // namespace

Result<int> RunAudit(Context& context) {
  ASSIGN_OR_RETURN(const std::string target, TargetOf(context.options));
  std::vector<Json> entries;
  std::string cursor;
  for (size_t page = 0; page < kMaxShownPages; ++page) {
    ASSIGN_OR_RETURN(const Json reply, context.client.Get(target + cursor));
    if (!reply.is_object() || !reply.contains("entries") || !reply["entries"].is_array())
      return Error{.what = "the daemon's reply has no list of entries"};
    for (const Json& entry : reply["entries"])
      if (entry.is_object() && entry.contains("caller")) entries.push_back(entry);
    const auto next = reply.find("next_cursor");
    if (next == reply.end() || !next->is_string()) break;
    cursor = "&cursor=" + EncodeSegment(next->get<std::string>());
  }
  std::reverse(entries.begin(), entries.end());
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText({{"entries", entries}}));
    return 0;
  }
  Table table({{"TIME"}, {"KIND"}, {"SANDBOX"}, {"CALLER"}, {"OUTCOME"}, {"DETAIL"}});
  for (const Json& entry : entries) {
    const auto member = [&](const char* key) { return TextOf(entry.value(key, Json())); };
    table.Add({member("time"), member("kind"), member("sandbox"), CallerOf(entry),
               member("outcome"), Printable(oci::PrintJson(entry.value("detail", Json())))});
  }
  RETURN_IF_ERROR(Print(table.Render(context.colours)));
  return 0;
}

}  // namespace hutch::tools

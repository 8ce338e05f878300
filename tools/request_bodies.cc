#include "tools/request_bodies.h"

#include <charconv>

#include "base/base64.h"
#include "base/file.h"
#include "base/text.h"
#include "tools/client.h"

namespace hutch::tools {
namespace {

using oci::Json;

constexpr size_t kMaxProfileBytes = size_t{1} << 20;
constexpr uint64_t kPipedLogBytes = uint64_t{256} << 20;

Error BadOption(const char* flag, const Error& error) {
  return Error{.code = Code::kInvalidArgument,
               .what = std::string(flag) + ": " + error.what,
               .field = flag,
               .hint = error.hint};
}

Result<Json> SizeValue(const std::string& text) {
  auto size = ParseSize(text);
  if (!size) return Error{.what = size.error().what, .hint = "write 512MiB, 1GiB or bytes"};
  return Json(*size);
}
Result<Json> CountValue(const std::string& text) {
  ASSIGN_OR_RETURN(const uint64_t count, ParseUint(text));
  return Json(count);
}
Result<Json> WholeSecondsValue(const std::string& text) {
  ASSIGN_OR_RETURN(const double seconds, ParseSeconds(text));
  return Json(static_cast<uint64_t>(seconds));
}
Result<Json> SecondsValue(const std::string& text) {
  ASSIGN_OR_RETURN(const double seconds, ParseSeconds(text));
  return Json(seconds);
}
Result<Json> NumberValue(const std::string& text) {
  double value = 0;
  const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || rest != text.data() + text.size())
    return Error{.what = "\"" + text + "\" is not a number", .hint = "write 2 or 0.5"};
  return Json(value);
}
Result<Json> TextValue(const std::string& text) { return Json(text); }

struct ValueRow {
  const char* flag;
  std::string Options::*field;
  const char* object;  // "" for the top
  const char* member;
  Result<Json> (*convert)(const std::string&);
};

constexpr ValueRow kCreateValues[] = {
    {"IMAGE", &Options::image, "", "image", TextValue},
    {"--pull", &Options::pull, "", "pull", TextValue},
    {"--template", &Options::template_name, "", "template", TextValue},
    {"--name", &Options::name, "", "name", TextValue},
    {"--owner", &Options::owner, "", "owner", TextValue},
    {"--session-key", &Options::session_key, "", "session_key", TextValue},
    {"--workdir", &Options::workdir, "", "workdir", TextValue},
    {"--user", &Options::user, "", "user", TextValue},
    {"--memory", &Options::memory, "limits", "memory_bytes", SizeValue},
    {"--cpus", &Options::cpus, "limits", "cpus", NumberValue},
    {"--pids", &Options::pids, "limits", "pids", CountValue},
    {"--disk", &Options::disk, "limits", "disk_bytes", SizeValue},
    {"--open-files", &Options::open_files, "limits", "open_files", CountValue},
    {"--idle", &Options::idle, "timeouts", "idle_seconds", WholeSecondsValue},
    {"--lifetime", &Options::lifetime, "timeouts", "lifetime_seconds", WholeSecondsValue},
    {"--on-expiry", &Options::on_expiry, "timeouts", "on_expiry", TextValue},
};

constexpr ValueRow kExecValues[] = {
    {"--timeout", &Options::timeout, "", "timeout_seconds", SecondsValue},
    {"--max-output", &Options::max_output, "", "max_output_bytes", SizeValue},
    {"--wait", &Options::wait, "", "wait_seconds", SecondsValue},
};

constexpr ValueRow kProcessValues[] = {
    {"--timeout", &Options::timeout, "", "timeout_seconds", SecondsValue},
};

constexpr ValueRow kExecInExisting[] = {
    {"--workdir", &Options::workdir, "", "workdir", TextValue},
    {"--user", &Options::user, "", "user", TextValue},
};

Status AddValues(std::span<const ValueRow> rows, const Options& options, Json* body) {
  for (const ValueRow& row : rows) {
    const std::string& text = options.*row.field;
    if (text.empty()) continue;
    auto value = row.convert(text);
    if (!value) return BadOption(row.flag, value.error());
    Json& object = *row.object == '\0' ? *body : (*body)[row.object];
    object[row.member] = std::move(value).value();
  }
  return OkStatus();
}

Status AddPairs(const char* flag, const std::vector<std::string>& pairs, const char* member,
                Json* body) {
  for (const std::string& pair : pairs) {
    const size_t equals = pair.find('=');
    if (equals == 0 || equals == std::string::npos)
      return BadOption(flag, Error{.what = "\"" + pair + "\" is not KEY=VALUE"});
    (*body)[member][pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return OkStatus();
}

Status AddCommandFields(const Options& options, std::string_view stdin_bytes, ExecIn where,
                        Json* body) {
  if (where == ExecIn::kExistingSandbox) {
    RETURN_IF_ERROR(AddValues(kExecInExisting, options, body));
    RETURN_IF_ERROR(AddPairs("--env", options.env, "env", body));
    if (options.resume) (*body)["resume"] = true;
  }
  if (stdin_bytes.empty()) return OkStatus();
  if (IsUtf8(stdin_bytes) && stdin_bytes.find('\0') == std::string_view::npos)
    (*body)["stdin"] = stdin_bytes;
  else
    (*body)["stdin_base64"] = Base64Encode(stdin_bytes);
  return OkStatus();
}

Status AddRelaxations(const Options& options, Json* body) {
  if (options.relax_proc_full) (*body)["relax"]["proc"] = "full";
  if (options.relax_new_privileges) (*body)["relax"]["no_new_privileges"] = false;
  if (options.relax_seccomp.empty()) return OkStatus();
  auto text = ReadFile(options.relax_seccomp, kMaxProfileBytes);
  if (!text) return BadOption("--relax-seccomp", text.error());
  auto profile = oci::ParseJson(*text);
  if (!profile) return BadOption("--relax-seccomp", profile.error());
  (*body)["relax"]["seccomp"] = std::move(profile).value();
  return OkStatus();
}

struct NetLimitRow {
  const char* key;
  const char* member;
  Result<Json> (*convert)(const std::string&);
};
constexpr NetLimitRow kNetLimits[] = {
    {"rate", "bytes_per_second", SizeValue},
    {"total", "total_bytes", SizeValue},
    {"connections", "connections", CountValue},
};

Status AddNetLimit(const std::string& pair, Json* network) {
  const std::string key = pair.substr(0, pair.find('='));
  for (const NetLimitRow& row : kNetLimits) {
    if (key != row.key || pair.size() == key.size()) continue;
    auto value = row.convert(pair.substr(key.size() + 1));
    if (!value) return BadOption("--net-limit", value.error());
    (*network)["limits"][row.member] = std::move(value).value();
    return OkStatus();
  }
  return BadOption("--net-limit", Error{.what = "\"" + pair + "\" is no limit",
                                        .hint = "write rate=1MiB, total=1GiB or connections=100"});
}

Result<uint64_t> PortValue(std::string_view text) {
  auto port = ParseUint(text, UINT16_MAX);
  if (port && *port > 0) return port;
  return Error{.what = "\"" + std::string(text) + "\" is not a port",
               .hint = "write 3000, 8080:3000 or 127.0.0.1:8080:3000"};
}

// Without the part behind the last colon, which is returned.
std::string_view TakeLast(std::string_view* text) {
  const size_t colon = text->rfind(':');
  const std::string_view last = text->substr(colon == std::string_view::npos ? 0 : colon + 1);
  *text = text->substr(0, colon == std::string_view::npos ? 0 : colon);
  return last;
}

Result<Json> PortFields(std::string_view text) {
  const bool alone = text.find(':') == std::string_view::npos;
  ASSIGN_OR_RETURN(const uint64_t port, PortValue(TakeLast(&text)));
  Json json = {{"port", port}};
  if (alone) return json;
  const bool has_address = text.find(':') != std::string_view::npos;
  if (const std::string_view host = TakeLast(&text); !host.empty()) {
    ASSIGN_OR_RETURN(json["host_port"], PortValue(host));
  } else if (!has_address) {
    return PortValue("").error();
  }
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  if (has_address) json["address"] = text;
  return json;
}

}  // namespace

Result<Json> PlanNetwork(const Options& options) {
  Json network;
  if (!options.network.empty()) network["mode"] = options.network;
  if (!options.allow.empty() && options.network.empty()) network["mode"] = "allowlist";
  for (const std::string& rule : options.allow) {
    if (!rule.starts_with('{')) {
      network["allow"].push_back(rule);
      continue;
    }
    auto object = oci::ParseJson(rule);
    if (!object) return BadOption("--allow", object.error());
    network["allow"].push_back(std::move(object).value());
  }
  if (!options.join.empty()) network["join"] = options.join;
  for (const std::string& pair : options.net_limits) RETURN_IF_ERROR(AddNetLimit(pair, &network));
  return network;
}

Result<Json> PlanPort(const char* flag, const std::string& text) {
  Result<Json> json = PortFields(text);
  return json ? std::move(json) : BadOption(flag, json.error());
}

Result<Json> PlanVolume(const std::string& text) {
  const std::vector<std::string> parts = Split(text, ':');
  const Error wrong{.what = "\"" + text + "\" is no volume",
                    .hint = "write NAME:TARGET, NAME:TARGET:ro or NAME:TARGET:size=1GiB"};
  if (parts.size() < 2 || parts[0].empty() || !parts[1].starts_with('/'))
    return BadOption("--volume", wrong);
  Json json = {{"name", parts[0]}, {"target", parts[1]}};
  for (size_t i = 2; i < parts.size(); ++i) {
    if (parts[i] == "rw") continue;
    if (parts[i] == "ro") {
      json["readonly"] = true;
    } else if (parts[i].starts_with("size=")) {
      auto size = SizeValue(parts[i].substr(5));
      if (!size) return BadOption("--volume", size.error());
      json["size_bytes"] = std::move(size).value();
    } else {
      return BadOption("--volume", wrong);
    }
  }
  return json;
}

Result<Json> PlanCreateBody(const Options& options) {
  Json body = Json::object();
  RETURN_IF_ERROR(AddValues(kCreateValues, options, &body));
  RETURN_IF_ERROR(AddPairs("--label", options.labels, "labels", &body));
  RETURN_IF_ERROR(AddPairs("--env", options.env, "env", &body));
  for (const std::string& port : options.publish) {
    ASSIGN_OR_RETURN(Json item, PlanPort("--publish", port));
    body["ports"].push_back(std::move(item));
  }
  for (const std::string& volume : options.volumes) {
    ASSIGN_OR_RETURN(Json item, PlanVolume(volume));
    body["volumes"].push_back(std::move(item));
  }
  if (options.writable) body["rootfs"]["readonly"] = false;
  RETURN_IF_ERROR(AddRelaxations(options, &body));
  ASSIGN_OR_RETURN(Json network, PlanNetwork(options));
  if (!network.is_null()) body["network"] = std::move(network);
  return body;
}

Result<Json> PlanExecBody(const Options& options, std::string_view stdin_bytes, ExecIn where) {
  Json body = Json::object();
  if (!options.command.empty()) body["command"] = options.command;  // else the image's
  RETURN_IF_ERROR(AddValues(kExecValues, options, &body));
  RETURN_IF_ERROR(AddCommandFields(options, stdin_bytes, where, &body));
  return body;
}

Result<Json> PlanProcessBody(const Options& options, std::string_view stdin_bytes,
                             const TerminalSize& size, ExecIn where) {
  Json body = Json::object();
  if (!options.command.empty()) body["command"] = options.command;
  RETURN_IF_ERROR(AddValues(kProcessValues, options, &body));
  RETURN_IF_ERROR(AddCommandFields(options, stdin_bytes, where, &body));
  if (options.terminal)
    body["terminal"] = {{"rows", size.rows}, {"columns", size.columns}};
  else if (options.interactive)
    body["stdin_open"] = true;
  // A reader of a pipe may be slower than the command and still wants every byte.
  if (options.interactive && !options.terminal) body["log_bytes"] = kPipedLogBytes;
  return body;
}

Status CheckExecOptions(const Options& options) {
  const struct {
    const char* name;
    bool given;
  } told[] = {{"-t", options.terminal},
              {"-i", options.interactive},
              {"-d", options.detach},
              {"--wait", !options.wait.empty()},
              {"--stdin", options.read_stdin},
              {"--json", options.json},
              {"--max-output", !options.max_output.empty()}};
  constexpr std::pair<size_t, size_t> kContradictions[] = {{0, 3}, {0, 4}, {0, 5}, {0, 6}, {1, 3},
                                                           {1, 4}, {1, 5}, {1, 6}, {2, 3}, {2, 6}};
  // In the background there is no output that JSON would be mixed with.
  for (const auto& [one, other] : kContradictions) {
    if (!told[one].given || !told[other].given) continue;
    if (options.detach && one < 2 && other == 5) continue;
    return Error{
        .code = Code::kInvalidArgument,
        .what = std::string(told[one].name) + " and " + told[other].name + " do not go together"};
  }
  return OkStatus();
}

Result<std::string> PlanLogsQuery(const Options& options, WallTime now) {
  std::string query;
  if (!options.tail.empty()) {
    const auto tail = ParseSize(options.tail);
    if (!tail) return BadOption("--tail", tail.error());
    query += "&tail_bytes=" + std::to_string(*tail);
  }
  if (!options.since.empty()) {
    ASSIGN_OR_RETURN(const std::string since, ParseSince(options.since, now));
    query += "&since=" + EncodeSegment(since);
  }
  if (!options.stream.empty()) query += "&stream=" + EncodeSegment(options.stream);
  return query;
}

std::string PlanListQuery(const Options& options) {
  std::string query;
  for (const std::string& label : options.selectors) query += "&label=" + EncodeSegment(label);
  if (!options.session_key.empty()) query += "&session_key=" + EncodeSegment(options.session_key);
  if (!options.state.empty()) query += "&state=" + EncodeSegment(options.state);
  if (!query.empty()) query[0] = '?';
  return query;
}

}  // namespace hutch::tools

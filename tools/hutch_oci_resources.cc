// update, events.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/file.h"
#include "base/text.h"
#include "oci/container_config.h"
#include "runtime/container_config_reading.h"
#include "tools/hutch_oci_commands.h"

namespace hutch::tools {
namespace {

// An option of update and where its number stands in linux.resources.
struct ResourceOption {
  const char* option;
  const char* pointer;  // RFC 6901
  enum { kNumber, kSize, kText } kind;
};
constexpr ResourceOption kResourceOptions[] = {
    {"--memory", "/memory/limit", ResourceOption::kSize},
    {"--memory-reservation", "/memory/reservation", ResourceOption::kSize},
    {"--memory-swap", "/memory/swap", ResourceOption::kSize},
    {"--pids-limit", "/pids/limit", ResourceOption::kNumber},
    {"--cpu-period", "/cpu/period", ResourceOption::kNumber},
    {"--cpu-quota", "/cpu/quota", ResourceOption::kNumber},
    {"--cpu-burst", "/cpu/burst", ResourceOption::kNumber},
    {"--cpu-share", "/cpu/shares", ResourceOption::kNumber},
    {"--cpu-idle", "/cpu/idle", ResourceOption::kNumber},
    {"--cpu-rt-period", "/cpu/realtimePeriod", ResourceOption::kNumber},
    {"--cpu-rt-runtime", "/cpu/realtimeRuntime", ResourceOption::kNumber},
    {"--cpuset-cpus", "/cpu/cpus", ResourceOption::kText},
    {"--cpuset-mems", "/cpu/mems", ResourceOption::kText},
    {"--blkio-weight", "/blockIO/weight", ResourceOption::kNumber},
};

// As engines write them: "50M" and "50mb" are 50 MiB.
Result<uint64_t> ParseMemorySize(const std::string& text) {
  constexpr char kUnits[] = "bkmgtp";
  std::string unit;
  for (const char c : text.substr(std::min(text.find_first_not_of("0123456789"), text.size())))
    unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  ASSIGN_OR_RETURN(const uint64_t number, ParseUint(text.substr(0, text.size() - unit.size())));
  const char* known = unit.empty() ? kUnits : std::strchr(kUnits, unit[0]);
  const std::string rest = unit.empty() ? "" : unit.substr(1);
  if (known == nullptr || (rest != "" && rest != "b" && rest != "ib"))
    return Error{.code = Code::kInvalidArgument, .what = "\"" + text + "\" is no size"};
  const int shift = static_cast<int>(known - kUnits) * 10;
  if (number > (static_cast<uint64_t>(INT64_MAX) >> shift))
    return Error{.code = Code::kInvalidArgument, .what = "\"" + text + "\" is out of range"};
  return number << shift;
}

Result<oci::Json> ValueOf(const ResourceOption& row, const std::string& text) {
  if (row.kind == ResourceOption::kText) return oci::Json(text);
  if (text.starts_with("-")) {
    ASSIGN_OR_RETURN(const uint64_t number, ParseUint(text.substr(1), INT64_MAX));
    return oci::Json(-static_cast<int64_t>(number));
  }
  if (row.kind == ResourceOption::kSize) {
    ASSIGN_OR_RETURN(const uint64_t size, ParseMemorySize(text));
    return oci::Json(size);
  }
  ASSIGN_OR_RETURN(const uint64_t number, ParseUint(text));
  return oci::Json(number);
}

struct UpdateOptions {
  std::string id, file;
  std::string values[std::size(kResourceOptions)];
};

Result<oci::Json> ResourcesOf(const UpdateOptions& options) {
  oci::Json resources = oci::Json::object();
  if (options.file == "-") {
    ASSIGN_OR_RETURN(const std::string text, ReadAll(STDIN_FILENO, 1u << 20));
    ASSIGN_OR_RETURN(resources, oci::ParseJson(text));
  } else if (!options.file.empty()) {
    ASSIGN_OR_RETURN(const std::string text, runtime::ReadContainerConfigFile(options.file));
    ASSIGN_OR_RETURN(resources, oci::ParseJson(text));
  }
  for (size_t i = 0; i < std::size(kResourceOptions); ++i) {
    if (options.values[i].empty()) continue;
    ASSIGN_OR_RETURN(oci::Json value, ValueOf(kResourceOptions[i], options.values[i]));
    resources[oci::Json::json_pointer(kResourceOptions[i].pointer)] = std::move(value);
  }
  return resources;
}

// In this order, and without data that is none: scripts compare the beginning of the line.
void PrintEvent(const char* type, const std::string& id, const oci::Json& data) {
  std::string event = "{\"type\":\"" + std::string(type) + "\",\"id\":\"" + id + "\"";
  if (!data.is_null()) event += ",\"data\":" + oci::PrintJson(data);
  std::printf("%s}\n", event.c_str());
  std::fflush(stdout);
}

Result<int> Watch(const OciGlobals& globals, const std::string& id, bool once, int interval_ms) {
  ASSIGN_OR_RETURN(const runtime::ContainerHost host, ContainerHostOf(globals));
  ASSIGN_OR_RETURN(const runtime::ContainerView view, runtime::ViewContainer(host, id));
  if (view.status == runtime::ContainerStatus::kStopped)
    return Error{.code = Code::kBadState, .what = "container " + id + " is not running"};
  ASSIGN_OR_RETURN(const cgroups::ContainerGroup group, runtime::OpenContainerGroup(host, id));
  uint64_t kills = group.OomKills();
  const Result<Pidfd> first = Pidfd::Open(view.record.pid);
  while (true) {
    ASSIGN_OR_RETURN(const oci::Json stats, group.ReadStats());
    PrintEvent("stats", id, stats);
    if (once || !first) return 0;
    const bool ended = first->WaitEnded(interval_ms);
    const uint64_t now = group.OomKills();
    if (now > kills) PrintEvent("oom", id, nullptr);
    kills = now;
    if (ended) return 0;
  }
}

Result<int> IntervalMs(const std::string& text) {
  std::string number = text;
  uint64_t unit = 1000;
  if (number.ends_with("ms")) {
    unit = 1;
    number.resize(number.size() - 2);
  } else if (number.ends_with("s")) {
    number.pop_back();
  } else if (number.ends_with("m")) {
    unit = 60000;
    number.pop_back();
  }
  ASSIGN_OR_RETURN(const uint64_t count, ParseUint(number, 86400));
  if (count == 0)
    return Error{.code = Code::kInvalidArgument,
                 .what = "duration interval must be greater than 0"};
  return static_cast<int>(count * unit);
}

}  // namespace

OciCommand AddUpdate(CLI::App& app, const OciGlobals& globals) {
  const auto options = std::make_shared<UpdateOptions>();
  app.add_option("id", options->id, "the container's name")->required();
  app.add_option("-r,--resources", options->file, "file with linux.resources; - for stdin");
  for (size_t i = 0; i < std::size(kResourceOptions); ++i)
    app.add_option(kResourceOptions[i].option, options->values[i], kResourceOptions[i].pointer);
  return [options, &globals]() -> Result<int> {
    ASSIGN_OR_RETURN(const runtime::ContainerHost host, ContainerHostOf(globals));
    ASSIGN_OR_RETURN(const oci::Json json, ResourcesOf(*options));
    ASSIGN_OR_RETURN(const oci::ContainerResources resources, oci::ParseContainerResources(json));
    RETURN_IF_ERROR(runtime::UpdateContainer(host, options->id, resources));
    return 0;
  };
}

OciCommand AddEvents(CLI::App& app, const OciGlobals& globals) {
  struct Options {
    std::string id, interval = "5s";
    bool stats = false;
  };
  const auto options = std::make_shared<Options>();
  app.add_option("id", options->id, "the container's name")->required();
  app.add_option("--interval", options->interval, "between statistics: 500ms, 5s, 1m");
  app.add_flag("--stats", options->stats, "print once");
  return [options, &globals]() -> Result<int> {
    ASSIGN_OR_RETURN(const int interval_ms, IntervalMs(options->interval));
    return Watch(globals, options->id, options->stats, interval_ms);
  };
}

}  // namespace hutch::tools

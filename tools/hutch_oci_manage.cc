// state, list, kill, delete, pause, resume, mounts.
#include <pwd.h>
#include <regex.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/file.h"
#include "base/text.h"
#include "tools/hutch_oci_commands.h"

namespace hutch::tools {
namespace {

using IdOption = std::shared_ptr<std::string>;

IdOption AddId(CLI::App& app) {
  auto id = std::make_shared<std::string>();
  app.add_option("id", *id, "the container's name")->required();
  return id;
}

// A command of one call that prints nothing.
OciCommand Simple(const IdOption& id, const OciGlobals& globals,
                  Status (*call)(const runtime::ContainerHost&, const std::string&)) {
  return [id, call, &globals]() -> Result<int> {
    ASSIGN_OR_RETURN(const runtime::ContainerHost host, ContainerHostOf(globals));
    RETURN_IF_ERROR(call(host, *id));
    return 0;
  };
}

std::string OwnerName(uint32_t uid) {
  const passwd* entry = ::getpwuid(uid);
  return entry != nullptr ? entry->pw_name : std::to_string(uid);
}

// As runc prints it, which scripts compare.
oci::OrderedJson StateOf(const runtime::ContainerView& view) {
  oci::Json state = runtime::StateDocument(view.record, view.status);
  state["owner"] = OwnerName(view.record.owner);
  oci::OrderedJson ordered = oci::OrderedJson::object();
  for (const char* name :
       {"ociVersion", "id", "pid", "status", "bundle", "rootfs", "created", "annotations", "owner"})
    if (state.contains(name)) ordered[name] = state[name];
  return ordered;
}

// Annotations are anybody's bytes.
void Print(const oci::OrderedJson& json, int indent) {
  std::printf("%s\n",
              json.dump(indent, ' ', false, oci::OrderedJson::error_handler_t::replace).c_str());
}

Result<int> List(const OciGlobals& globals, const std::string& format, bool quiet) {
  ASSIGN_OR_RETURN(const runtime::ContainerHost host, ContainerHostOf(globals));
  ASSIGN_OR_RETURN(const std::vector<std::string> ids, runtime::ListContainers(host.root));
  oci::OrderedJson all = oci::OrderedJson::array();
  if (!quiet && format != "json")
    std::printf("%-20s %-10s %-10s %-40s %-26s %s\n", "ID", "PID", "STATUS", "BUNDLE", "CREATED",
                "OWNER");
  for (const std::string& id : ids) {
    const Result<runtime::ContainerView> view = runtime::ViewContainer(host, id);
    if (!view) continue;  // removed meanwhile, or being made
    const oci::OrderedJson one = StateOf(*view);
    if (quiet)
      std::printf("%s\n", id.c_str());
    else if (format == "json")
      all.push_back(one);
    else
      std::printf("%-20s %-10d %-10s %-40s %-26s %s\n", id.c_str(), one["pid"].get<int>(),
                  runtime::ContainerStatusName(view->status), view->record.bundle.c_str(),
                  view->record.created.c_str(), one["owner"].get<std::string>().c_str());
  }
  if (!quiet && format == "json") Print(all, -1);
  return 0;
}

Result<int> SignalNumber(const std::string& text) {
  if (!text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) != 0) {
    ASSIGN_OR_RETURN(const uint64_t number, ParseUint(text, 64));
    return static_cast<int>(number);
  }
  std::string name = text;
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (name.starts_with("SIG")) name.erase(0, 3);
  for (int number = 1; number < 32; ++number) {
    const char* known = ::sigabbrev_np(number);
    if (known != nullptr && name == known) return number;
  }
  if (name == "RTMIN") return SIGRTMIN;
  if (name == "RTMAX") return SIGRTMAX;
  if (name.starts_with("RTMIN+")) {
    ASSIGN_OR_RETURN(const uint64_t more, ParseUint(name.substr(6), 30));
    return SIGRTMIN + static_cast<int>(more);
  }
  return Error{.code = Code::kInvalidArgument, .what = "unknown signal \"" + text + "\""};
}

// --regex: a POSIX extended one, of the ids below --root; the first failure is told, all are tried.
Status DeleteMatching(const runtime::ContainerHost& host, const std::string& pattern,
                      runtime::DeleteMode mode) {
  regex_t compiled;
  if (::regcomp(&compiled, pattern.c_str(), REG_EXTENDED | REG_NOSUB) != 0)
    return Error{.code = Code::kInvalidArgument,
                 .what = "\"" + pattern + "\" is no regular expression",
                 .field = "--regex"};
  Status first = OkStatus();
  Result<std::vector<std::string>> ids = runtime::ListContainers(host.root);
  for (const std::string& id : ids ? *ids : std::vector<std::string>()) {
    if (::regexec(&compiled, id.c_str(), 0, nullptr, 0) != 0) continue;
    Status deleted = runtime::DeleteContainer(host, id, mode);
    if (first && !deleted) first = std::move(deleted);
  }
  ::regfree(&compiled);
  return ids ? first : Status(std::move(ids).error());
}

}  // namespace

OciCommand AddState(CLI::App& app, const OciGlobals& globals) {
  const IdOption id = AddId(app);
  app.add_flag_function(
      "-a,--all", [](int64_t) {}, "accepted, without effect");
  return [id, &globals]() -> Result<int> {
    ASSIGN_OR_RETURN(const runtime::ContainerHost host, ContainerHostOf(globals));
    ASSIGN_OR_RETURN(const runtime::ContainerView view, runtime::ViewContainer(host, *id));
    Print(StateOf(view), 2);
    return 0;
  };
}

OciCommand AddList(CLI::App& app, const OciGlobals& globals) {
  const auto format = std::make_shared<std::string>("table");
  const auto quiet = std::make_shared<bool>(false);
  app.add_option("-f,--format", *format, "table or json")->check(CLI::IsMember({"table", "json"}));
  app.add_flag("-q,--quiet", *quiet, "ids only");
  return [format, quiet, &globals] { return List(globals, *format, *quiet); };
}

OciCommand AddKill(CLI::App& app, const OciGlobals& globals) {
  const IdOption id = AddId(app);
  const auto signal = std::make_shared<std::string>("SIGTERM");
  const auto all = std::make_shared<bool>(false);
  app.add_option("signal", *signal, "name or number; SIGTERM when there is none");
  app.add_flag("-a,--all", *all, "to every process of the container");
  return [id, signal, all, &globals]() -> Result<int> {
    ASSIGN_OR_RETURN(const runtime::ContainerHost host, ContainerHostOf(globals));
    ASSIGN_OR_RETURN(const int number, SignalNumber(*signal));
    RETURN_IF_ERROR(runtime::SignalContainer(
        host, *id, number,
        *all ? runtime::SignalTo::kAllProcesses : runtime::SignalTo::kFirstProcess));
    return 0;
  };
}

OciCommand AddDelete(CLI::App& app, const OciGlobals& globals) {
  const IdOption id = AddId(app);
  const auto force = std::make_shared<bool>(false);
  const auto regex = std::make_shared<bool>(false);
  app.add_flag("-f,--force", *force, "kill it first; one that is not there is no error");
  app.add_flag("-r,--regex", *regex, "ID is a regular expression: all that it matches");
  return [id, force, regex, &globals]() -> Result<int> {
    ASSIGN_OR_RETURN(const runtime::ContainerHost host, ContainerHostOf(globals));
    const auto mode = *force ? runtime::DeleteMode::kForce : runtime::DeleteMode::kStoppedOnly;
    RETURN_IF_ERROR(*regex ? DeleteMatching(host, *id, mode)
                           : runtime::DeleteContainer(host, *id, mode));
    return 0;
  };
}

OciCommand AddPause(CLI::App& app, const OciGlobals& globals) {
  return Simple(AddId(app), globals, runtime::PauseContainer);
}

OciCommand AddResume(CLI::App& app, const OciGlobals& globals) {
  return Simple(AddId(app), globals, runtime::ResumeContainer);
}

OciCommand AddMountsCommand(CLI::App& app, const OciGlobals& globals) {
  const auto action = std::make_shared<std::string>();
  app.add_option("action", *action, "add or remove")
      ->required()
      ->check(CLI::IsMember({"add", "remove"}));
  const IdOption id = AddId(app);
  const auto file = std::make_shared<std::string>();
  app.add_option("file", *file, "a JSON array, as `mounts` of config.json")->required();
  return [action, id, file, &globals]() -> Result<int> {
    ASSIGN_OR_RETURN(const runtime::ContainerHost host, ContainerHostOf(globals));
    RETURN_IF_ERROR(
        runtime::ProtectOwnProgram(globals.argv, runtime::ConfigFileOf(host.root, *id)));
    const auto change = *action == "add" ? runtime::AddMounts : runtime::RemoveMounts;
    RETURN_IF_ERROR(change(host, *id, *file));
    return 0;
  };
}

}  // namespace hutch::tools

// The commands of hutch-oci: what engines and runc's users type.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "base/result.h"
#include "runtime/container.h"

namespace hutch::tools {

struct OciGlobals {
  char** argv = nullptr;
  std::string root;  // --root; empty: the default, see ContainerHostOf
  std::string log, log_format = "text", rootless = "auto", cgroup_manager;
  bool debug = false, systemd_cgroup = false;
};

// --root and the cgroup manager as the options say; by default /run/hutch-oci, or for an ordinary
// user $XDG_RUNTIME_DIR/hutch-oci.
Result<runtime::ContainerHost> ContainerHostOf(const OciGlobals& globals);

// A command once it has been parsed: its exit code, or the error to print (exit code 1).
using OciCommand = std::function<Result<int>()>;

struct OciCommandRow {
  const char* name;
  const char* help;
  OciCommand (*add)(CLI::App& app, const OciGlobals& globals);
};

OciCommand AddCreate(CLI::App& app, const OciGlobals& globals);
OciCommand AddRun(CLI::App& app, const OciGlobals& globals);
OciCommand AddStart(CLI::App& app, const OciGlobals& globals);
OciCommand AddExec(CLI::App& app, const OciGlobals& globals);
OciCommand AddState(CLI::App& app, const OciGlobals& globals);
OciCommand AddList(CLI::App& app, const OciGlobals& globals);
OciCommand AddKill(CLI::App& app, const OciGlobals& globals);
OciCommand AddDelete(CLI::App& app, const OciGlobals& globals);
OciCommand AddPs(CLI::App& app, const OciGlobals& globals);
OciCommand AddPause(CLI::App& app, const OciGlobals& globals);
OciCommand AddResume(CLI::App& app, const OciGlobals& globals);
OciCommand AddMountsCommand(CLI::App& app, const OciGlobals& globals);
OciCommand AddUpdate(CLI::App& app, const OciGlobals& globals);
OciCommand AddEvents(CLI::App& app, const OciGlobals& globals);
OciCommand AddFeatures(CLI::App& app, const OciGlobals& globals);
OciCommand AddSpec(CLI::App& app, const OciGlobals& globals);

}  // namespace hutch::tools

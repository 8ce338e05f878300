// doctor: every check, as a table of rows and the fixes behind it.
#include "tools/commands.h"
#include "tools/doctor/check.h"

namespace hutch::tools {
namespace {

constexpr CheckRow kChecks[] = {
    {"kernel", CheckKernelVersion},
    {"user namespaces", CheckUserNamespaces},
    {"time namespace", CheckTimeNamespace},
    {"cgroups", CheckCgroups},
    {"CLONE_INTO_CGROUP", CheckCloneIntoCgroup},
    {"system calls", CheckSystemCalls},
    {"seccomp", CheckSeccomp},
    {"Landlock", CheckLandlock},
    {"overlayfs", CheckOverlay},
    {"id-mapped mounts", CheckIdmappedMounts},
    {"fresh /proc", CheckProcMounts},
    {"io_uring", CheckIoUring},
    {"sched_autogroup", CheckAutogroup},
    {"nf_tables", CheckPacketFilter},
    {"veth", CheckVeth},
    {"IPv6", CheckIpv6},
    {"forwarding", CheckForwarding},
    {"other firewalls", CheckFirewall},
    {"hutch-egress", CheckEgress},
    {"subordinate ids", CheckSubordinateIds},
    {"open files", CheckOpenFiles},
    {"CAP_SYS_RESOURCE", CheckResourceCapability},
    {"disk space", CheckDiskSpace},
    {"mmdebstrap", CheckDebianPackages},
    {"group hutch", CheckGroup},
    {"daemon", CheckDaemon},
};

struct LevelRow {
  Level level;
  const char* name;
  Colour colour;
};
constexpr LevelRow kLevels[] = {
    {Level::kOk, "OK", Colour::kGreen},
    {Level::kWarn, "WARN", Colour::kYellow},
    {Level::kFail, "FAIL", Colour::kRed},
};

const LevelRow& RowOf(Level level) { return kLevels[static_cast<size_t>(level)]; }

}  // namespace

Result<int> RunDoctor(Context& context) {
  Table table({{"CHECK"}, {"RESULT"}, {"FOUND"}});
  oci::Json checks = oci::Json::array();
  std::string fixes;
  bool failed = false;
  for (const CheckRow& check : kChecks) {
    const Finding finding = check.run(context.client);
    const LevelRow& level = RowOf(finding.level);
    failed = failed || finding.level == Level::kFail;
    table.Add({check.name, {level.name, level.colour}, finding.found});
    oci::Json entry = {{"name", check.name}, {"result", level.name}, {"found", finding.found}};
    if (!finding.fix.empty()) {
      entry["fix"] = finding.fix;
      fixes += Paint(level.name, level.colour, context.colours) + " " + check.name + ": " +
               Printable(finding.fix) + "\n";
    }
    checks.push_back(std::move(entry));
  }
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText({{"ok", !failed}, {"checks", checks}}));
    return failed ? kExitFailed : 0;
  }
  std::string text = table.Render(context.colours);
  if (!fixes.empty()) text += "\nWhat to do:\n" + fixes;
  RETURN_IF_ERROR(Print(text));
  return failed ? kExitFailed : 0;
}

}  // namespace hutch::tools

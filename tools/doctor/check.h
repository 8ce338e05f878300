// One check of the host: what was found, and the exact fix when it is not right.
#pragma once

#include <string>
#include <vector>

#include "tools/client.h"

namespace hutch::tools {

enum class Level { kOk, kWarn, kFail };

struct Finding {
  Level level = Level::kOk;
  std::string found;
  std::string fix = {};  // a command or a setting; empty when all is well
};

struct CheckRow {
  const char* name;
  Finding (*run)(Client& client);
};

inline Finding Fine(std::string found) { return {.level = Level::kOk, .found = std::move(found)}; }
inline Finding Warning(std::string found, std::string fix) {
  return {.level = Level::kWarn, .found = std::move(found), .fix = std::move(fix)};
}
inline Finding Failure(std::string found, std::string fix) {
  return {.level = Level::kFail, .found = std::move(found), .fix = std::move(fix)};
}

// The first 64 KiB of a file without white space at its ends; empty when it cannot be read.
std::string Setting(const std::string& path);

// kernel_checks.cc
Finding CheckKernelVersion(Client& client);
Finding CheckUserNamespaces(Client& client);
Finding CheckTimeNamespace(Client& client);
Finding CheckCgroups(Client& client);
Finding CheckCloneIntoCgroup(Client& client);
Finding CheckSystemCalls(Client& client);
Finding CheckSeccomp(Client& client);
Finding CheckLandlock(Client& client);
Finding CheckOverlay(Client& client);
Finding CheckIdmappedMounts(Client& client);
Finding CheckIoUring(Client& client);
Finding CheckAutogroup(Client& client);
Finding CheckProcMounts(Client& client);
// network_checks.cc
Finding CheckPacketFilter(Client& client);
Finding CheckVeth(Client& client);
Finding CheckIpv6(Client& client);
Finding CheckForwarding(Client& client);
Finding CheckFirewall(Client& client);
Finding CheckEgress(Client& client);
// host_checks.cc
Finding CheckSubordinateIds(Client& client);
Finding CheckOpenFiles(Client& client);
Finding CheckResourceCapability(Client& client);
Finding CheckGroup(Client& client);
Finding CheckDaemon(Client& client);
Finding CheckDebianPackages(Client& client);
Finding CheckDiskSpace(Client& client);

// The pure parts, for tests.

struct Version {
  unsigned major = 0, minor = 0;
  auto operator<=>(const Version&) const = default;
};
Version ParseKernelRelease(const std::string& release);  // 0.0 when it is none

struct CgroupView {
  std::string v2_mount;                     // empty: no v2 tree
  std::vector<std::string> v2_controllers;  // of the root
  std::vector<std::string> v1_controllers;  // memory, cpu, pids, ... each with a hierarchy
};
CgroupView ParseCgroupMounts(const std::string& mountinfo);  // v2_controllers stays empty
Finding JudgeCgroups(const CgroupView& view);

// Lines of /etc/subuid or /etc/subgid that overlap hutch's ids, e.g. "alice:1900000000:65536".
std::vector<std::string> OverlappingRanges(const std::string& subid_file);

// Mounts over parts of /proc, which keep the kernel from giving a sandbox a fresh one.
std::vector<std::string> MountsBelowProc(const std::string& mountinfo);

enum class FilterUse { kAll, kOpen };  // every mode but none; mode open alone
struct MissingOption {
  const char* option;  // of the kernel's configuration
  FilterUse use;
};
Finding JudgeFilter(const std::vector<MissingOption>& missing);

// The values of net.ipv4.ip_forward and net.ipv6.conf.all.forwarding; empty: no such setting.
Finding JudgeForwarding(const std::string& v4, const std::string& v6);

struct NftChain {
  std::string family, table, name;
};
// Of what `nft -j list chains` prints: those that drop what is forwarded by their policy.
Result<std::vector<NftChain>> DroppingForwardChains(const std::string& nft_json);

}  // namespace hutch::tools

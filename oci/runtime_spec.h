// The OCI runtime specification's config.json as plain structs (runtime-spec 1.2, config.md and
// config-linux.md): the names of the specification, no behaviour. This is the "container spec": the
// one language between daemon/ and runtime/.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace hutch::oci {

struct User {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::optional<uint32_t> umask;
  std::vector<uint32_t> additional_gids;
};

struct Capabilities {  // names like "CAP_CHOWN"
  std::vector<std::string> bounding, effective, inheritable, permitted, ambient;
};

struct Rlimit {
  std::string type;  // "RLIMIT_NOFILE"
  uint64_t soft = 0;
  uint64_t hard = 0;
};

struct ProcessSpec {
  User user;
  std::vector<std::string> args;
  std::vector<std::string> env;  // "NAME=value"
  std::string cwd = "/";
  Capabilities capabilities;
  std::vector<Rlimit> rlimits;
  bool no_new_privileges = true;
  std::optional<int> oom_score_adj;
  std::vector<uint32_t> cpus;  // execCPUAffinity.final: CPUs it starts on; empty: all
};

struct Root {
  std::string path;
  bool readonly = false;
};

struct Mount {
  std::string destination;  // absolute, in the container
  std::string type;
  std::string source;
  std::vector<std::string> options;
};

struct IdMapping {
  uint32_t container_id = 0;
  uint32_t host_id = 0;
  uint32_t size = 0;
};

struct LinuxResources {                        // absent: no limit
  std::optional<uint64_t> memory_limit_bytes;  // memory.limit
  std::optional<uint64_t> memory_swap_bytes;   // swap alone (memory.swap.max); hutch always sets 0
  std::optional<uint64_t> pids_limit;
  std::optional<uint64_t> cpu_quota_us;  // per cpu_period_us
  uint64_t cpu_period_us = 100000;
  std::optional<uint64_t> cpu_weight;  // 1..10000
  struct IoLimit {
    uint32_t major = 0, minor = 0;
    std::optional<uint64_t> read_bps, write_bps, read_iops, write_iops;
  };
  std::vector<IoLimit> io;
};

// linux.seccomp, also the format of Docker's and podman's profile files.
struct SeccompArg {
  uint32_t index = 0;
  uint64_t value = 0;
  uint64_t value_two = 0;
  std::string op;  // SCMP_CMP_EQ ...
};
struct SeccompSyscall {
  std::vector<std::string> names;
  std::string action;  // SCMP_ACT_ALLOW ...
  std::optional<uint32_t> errno_ret;
  std::vector<SeccompArg> args;
  // Docker's profile format only: the rule applies when these hold.
  std::vector<std::string> includes_caps, excludes_caps, includes_arches, excludes_arches;
  std::string includes_min_kernel, excludes_min_kernel;
};
struct LinuxSeccomp {
  std::string default_action;
  std::optional<uint32_t> default_errno_ret;
  std::vector<std::string> architectures;  // SCMP_ARCH_X86_64 ...
  std::vector<std::string> flags;
  std::vector<SeccompSyscall> syscalls;
  std::string listener_path, listener_metadata;  // of SCMP_ACT_NOTIFY; hutch-oci only
};

struct Linux {
  std::vector<IdMapping> uid_mappings, gid_mappings;
  LinuxResources resources;
  std::optional<LinuxSeccomp> seccomp;  // absent: the default profile
  std::vector<std::string> masked_paths, readonly_paths;
};

struct Spec {
  std::string oci_version = "1.2.0";
  std::string hostname;
  Root root;
  ProcessSpec process;
  std::vector<Mount> mounts;
  std::map<std::string, std::string> annotations;
  Linux linux_;
};

}  // namespace hutch::oci

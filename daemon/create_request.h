// POST /v1/sandboxes: what a client asked for, and the container spec that follows from it. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/config.h"
#include "daemon/port_facts.h"
#include "daemon/timeouts.h"
#include "daemon/volume_request.h"
#include "network/policy.h"
#include "oci/image_spec.h"
#include "oci/json.h"
#include "oci/runtime_spec.h"

namespace hutch::daemon {

using StringMap = std::map<std::string, std::string>;
// What commands get besides the sandbox's environment; nothing: the name is taken out of it.
using RemoteEnv = std::map<std::string, std::optional<std::string>>;

// A place of the root that can be written, empty at first, on the sandbox's scratch file system.
struct WritableDirectory {
  std::string path = {};  // as NormalDirectory() makes it
  uint32_t mode = 0755;
  bool users = false;            // it belongs to the sandbox's user; else to root
  bool only_if_missing = false;  // the image's own is left as it is
  int volume = -1;               // not empty: this one of the sandbox's volumes
};

// Every value is known: defaults are filled in, ceilings kept.
struct SandboxFields {
  std::string image;
  std::string pull = "missing";  // "missing", "never", "always": from its registry
  std::string name, owner;       // empty: none
  std::string session_key;       // empty: none; daemon/create_keys.h
  StringMap labels;
  StringMap env;        // what the request adds
  std::string workdir;  // empty: the image's
  std::string user;     // empty: the image's
  uint64_t memory_bytes = 0, pids = 0, disk_bytes = 0, open_files = 0;
  double cpus = 0;
  bool readonly_root = true;
  std::vector<PortFacts> ports;  // wanted; those it has are SandboxFacts'
  std::string proc;              // "honest" or "pids"; empty with full_proc
  std::vector<VolumeFields> volumes;
  Timeouts timeouts;
  oci::Json relax = oci::Json::object();  // as given
  bool full_proc = false, no_new_privileges = true;
  std::optional<oci::LinuxSeccomp> seccomp;
  network::Policy network;

  // Of the template it is made from; not in a request.
  std::string template_name;  // empty: none
  RemoteEnv remote_env;
  std::vector<WritableDirectory> directories;
  bool has_lifecycle = false;  // commands follow before it counts as made

  // Made ahead (daemon/sandbox_pools.h); not in a request.
  std::string pool, pool_key;  // the pool it is or was of, and what it was made as; empty: none
  bool pooled = false;         // it waits there still: nobody's yet

  // Of the request as it came, where it had a key; not in it (daemon/create_keys.h).
  std::string idempotency_key;
  StringMap digests;
};

// kInvalidArgument with the field, kLimit past a ceiling, kNotFound for a preset of the network's
// that the operator's file lacks. Reads that file, and nothing else.
Result<SandboxFields> ParseSandboxFields(const oci::Json& json, const Config& config);

// A user of the image. Its home in passwd is not used: HOME is /root for root and /home/sandbox,
// writable, for all others.
struct ResolvedUser {
  uint32_t uid = 0, gid = 0;
  std::string name;  // empty: unknown
};
// Turns "1000", "1000:1000", "node", "node:node" into numbers. See daemon/image_users.h.
using UserResolver = std::function<Result<ResolvedUser>(const std::string& user)>;

// DefaultSpec changed by the image's configuration, then by the request; process.args are the
// image's entrypoint and command. kLimit for an image whose environment or command is larger than
// one of a request may be.
Result<oci::Spec> BuildSpec(const SandboxFields& fields, const oci::ImageConfig& image,
                            const UserResolver& resolve_user);

// Shared with changes of labels.
Status CheckLabels(const StringMap& labels);
// Shared with exec requests.
Status CheckEnv(const StringMap& env, const std::string& field);
Status CheckWorkdir(const std::string& path, const std::string& field);
// "/a//b/" as "/a/b". kInvalidArgument for what is relative, has "." or "..", is the root, or is
// below /proc, /sys or /dev.
Result<std::string> NormalDirectory(const std::string& path, const std::string& field);
// Sets or replaces NAME=value.
void SetEnv(std::vector<std::string>& env, const std::string& name, const std::string& value);
void UnsetEnv(std::vector<std::string>& env, const std::string& name);
bool IsRoot(const std::string& user);  // "root", "0" and the like
// HOME and USER that fit a user.
void SetUserEnv(std::vector<std::string>& env, const ResolvedUser& user);
// `value` with the default, against the ceiling of the operator: 0 asks for the most there is.
Result<uint64_t> WithinCeiling(uint64_t value, uint64_t ceiling, const std::string& field);

}  // namespace hutch::daemon

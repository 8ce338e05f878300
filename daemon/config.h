// What an operator can set: defaults, then the file, then the command line. docs/config.md is the
// prose, checked against ConfigKeys().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "daemon/pool_spec.h"
#include "oci/json.h"
#include "rootfs/registry/registry.h"

namespace hutch::daemon {

// Values a request may leave out. Ceilings of the same names: 0 is "no ceiling of the operator's".
struct Amounts {
  uint64_t memory_bytes;
  double cpus;
  uint64_t pids;
  uint64_t disk_bytes;
  uint64_t open_files;
  uint64_t idle_seconds;
  uint64_t lifetime_seconds;
  double exec_timeout_seconds;
  uint64_t max_output_bytes;
};

// Ranges are texts here and checked by CheckConfig(): network::ParseRuleCidr() takes them.
struct NetworkConfig {
  std::string presets_file = "/etc/hutch/presets.json";  // empty: none
  std::string secrets_dir = "/etc/hutch/secrets";        // empty: none
  // Of sandboxes in mode open, one address each.
  std::string pool_v4 = "100.96.0.0/16", pool_v6 = "fd68:7574:6368::/64";
  // Networks that sandboxes join: a /24 and a /64 of them each.
  std::string workspaces_v4 = "10.213.0.0/16", workspaces_v6 = "fd68:7574:6369::/48";
  uint64_t links_ahead = 2;  // blanks with a link kept ready once a sandbox of mode open was made
  std::vector<std::string> reachable;  // closed ranges that mode open reaches all the same
};

// A second listener (docs/access.md).
struct TcpConfig {
  std::string listen;  // "127.0.0.1:7788"; empty: none
  std::string tokens_file = "/etc/hutch/tokens.json";
  uint64_t connections = 256;
};

// The most sandboxes of one owner at once; 0: no bound.
struct OwnerLimits {
  struct Label {
    std::string label;  // its key; each value is an owner
    uint64_t max = 0;
  };
  uint64_t sandboxes_per_user = 0;            // of the socket
  uint64_t sandboxes_per_session_prefix = 0;  // what stands before the separator, of one user
  std::string session_separator = "/";
  std::vector<Label> labels;
};

struct Config {
  std::string socket = "/run/hutch/hutchd.sock";
  std::string socket_group = "hutch";
  std::string state_dir = "/var/lib/hutch";
  std::string run_dir = "/run/hutch";
  std::string log_format = "text";                 // "text", "json"
  std::string log_level = "info";                  // "debug", "info", "warning", "error"
  std::string pools = "on";                        // "on", "off"
  std::string cgroup_parent;                       // empty: the delegated cgroup, else /hutch
  std::string init_path;                           // empty: found beside the program
  std::string catalog_dir = "/etc/hutch/catalog";  // of the operator's catalog entries
  std::string audit = "on";                        // "on", "off"
  std::string audit_content = "off";  // "on": what commands read and wrote is logged, too
  std::string templates_dir = "/etc/hutch/templates";  // empty: built-in ones alone
  std::string template_relax = "off";                  // "on": templates may weaken sandboxes
  uint64_t audit_retention_days = 30;                  // 0: for ever
  uint64_t audit_max_bytes = 1ull << 30;               // 0: no bound
  uint64_t template_command_seconds = 600;             // of one lifecycle command
  uint64_t retention_seconds = 600;                    // ended sandboxes stay listed
  uint64_t expiry_warning_seconds = 60;                // before an expiry; 0: none
  uint64_t blanks = 8;
  uint64_t host_id_start = 0x70000000;
  uint64_t host_id_ranges = 4096;

  Amounts defaults{.memory_bytes = 512ull << 20,
                   .cpus = 1,
                   .pids = 256,
                   .disk_bytes = 1ull << 30,
                   .open_files = 4096,
                   .idle_seconds = 1800,
                   .lifetime_seconds = 86400,
                   .exec_timeout_seconds = 60,
                   .max_output_bytes = 1ull << 20};
  Amounts ceilings{.memory_bytes = 0,
                   .cpus = 0,
                   .pids = 32768,
                   .disk_bytes = 0,
                   .open_files = 65536,
                   .idle_seconds = 0,
                   .lifetime_seconds = 0,
                   .exec_timeout_seconds = 3600,
                   .max_output_bytes = 16ull << 20};

  rootfs::RegistryOptions registries = [] {
    rootfs::RegistryOptions options;
    options.certs_dir = "/etc/hutch/certs.d";
    options.auth_file = "/etc/hutch/auth.json";
    return options;
  }();
  std::vector<std::string> allowed_registries;  // hosts; empty: any
  NetworkConfig network;

  TcpConfig tcp;

  std::vector<std::string> port_addresses;  // of the host, for forwards, beside loopback

  uint64_t max_sandboxes = 4096;
  uint64_t max_commands_per_sandbox = 64;  // at once
  uint64_t max_connections = 1024;
  double process_timeout_ceiling_seconds = 0;  // of background processes; 0: none
  double memory_overcommit = 100;  // sum of memory limits, in times of the host's memory
  double cpus_overcommit = 1000;   // and so on
  double pids_overcommit = 100;
  double disk_overcommit = 100;
  double memory_pressure_percent = 60;          // of ten seconds; beyond it none is made; 0: never
  uint64_t memory_reserve_bytes = 64ull << 20;  // left available on the host; 0: none
  uint64_t volumes_total_bytes = 0;             // of all volumes together; 0: no bound
  OwnerLimits owner_limits;
  std::vector<PoolSpec> sandbox_pools;
  uint64_t http_timeout_seconds = 60;
  uint64_t shutdown_seconds = 5;  // what requests under way get at SIGTERM
};

// Applies a JSON document. Unknown members and wrong types are kInvalidArgument with the field.
Status ApplyConfigText(std::string_view json, Config* config);
// Reads and applies a file. kNotFound when there is none; the error of its text names the file.
Status ApplyConfigFile(const std::string& path, Config* config);
// What no single field can tell: enumerations, absolute paths, defaults within ceilings.
// kInvalidArgument with the field.
Status CheckConfig(const Config& config);
// Every key as "socket" or "defaults.memory_bytes", in the order of the table.
std::vector<std::string> ConfigKeys();

struct ConfigFact {
  std::string key;
  oci::Json value;
  std::string range;  // "1 to 1024" or "on, off"; empty: what CheckConfig() says
};
// Every key with what it is set to, in the same order.
std::vector<ConfigFact> ConfigFacts(const Config& config);

}  // namespace hutch::daemon

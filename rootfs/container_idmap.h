// User namespaces that exist only to map the owners of a mount.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "oci/runtime_spec.h"

namespace hutch::rootfs {

// As /proc/<pid>/uid_map takes them: user_namespaces(7).
std::string IdMapText(const std::vector<oci::IdMapping>& maps);

// A user namespace with these maps, held by the descriptor alone. By a process of ours that ends at
// once; needs CAP_SETUID and CAP_SETGID in the caller's namespace. kInvalidArgument for empty maps.
Result<UniqueFd> MakeMappingNamespace(const std::vector<oci::IdMapping>& uids,
                                      const std::vector<oci::IdMapping>& gids);

// What an id of the container's is outside; empty when it is not mapped.
std::optional<uint32_t> HostId(const std::vector<oci::IdMapping>& maps, uint32_t id);

}  // namespace hutch::rootfs

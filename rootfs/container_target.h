// Where in a container's root something is mounted or made.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::rootfs {

enum class TargetKind { kDirectory, kFile };
enum class LastLink { kFollow, kKeep };  // a link at the end of the path

// Resolves `path` as the container would see it ("/", ".." and links stay inside root_fd) and gives
// a descriptor (O_PATH). What is missing is made on the way, a link's missing target included:
// directories 0755, and an empty file 0644 at the end for kFile, owned by the caller. Each step is
// made on the descriptor of the one before and follows no link by itself, so that whoever changes
// the tree meanwhile cannot lead it out of the root (CVE-2021-30465, CVE-2024-45310). kForbidden
// (ELOOP) for too many links. Allocates.
Result<UniqueFd> OpenOrMakeTarget(int root_fd, std::string_view path, TargetKind kind,
                                  LastLink last = LastLink::kFollow);

// A clean absolute path: "." and ".." resolved by the letter, no double slashes.
std::string CleanPath(std::string_view path);

}  // namespace hutch::rootfs

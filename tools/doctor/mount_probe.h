// Tries what hutchd does with mounts, on mounts that are attached nowhere. Needs CAP_SYS_ADMIN.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hutch::tools {

// An overlay with a lower, upper and work directory below a temporary directory of `parent`, made
// and dropped. The parent's file system must carry upper directories: it is the one of hutchd's
// state.
Status ProbeOverlay(const std::string& parent);

// A detached copy of `directory`'s mount, id-mapped by a user namespace of a helper's.
Status ProbeIdmap(const std::string& directory);

// Whether a process may make such namespaces (CLONE_NEWUSER, CLONE_NEWTIME).
Status ProbeNamespace(int clone_flag);

// The helper: `hutch __hold-namespace FLAGS` makes the namespaces, prints the errno (0), and holds
// them until its stdin ends. A program of its own because unshare(2) changes the process for good.
int HoldNamespace(const std::vector<std::string>& words);

}  // namespace hutch::tools

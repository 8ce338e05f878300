// The option words of a mount in config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace hutch::rootfs {

struct ContainerMountOptions {
  uint64_t set = 0, clear = 0;            // MOUNT_ATTR_*
  uint64_t set_all = 0, clear_all = 0;    // the same, recursively: "rro"
  uint64_t propagation = 0;               // MS_SHARED ...
  bool propagation_all = false;           // "rshared"
  bool bind = false, bind_all = false;    // "bind", "rbind"
  bool idmap = false, idmap_all = false;  // "idmap", "ridmap"
  bool copy_up = false;                   // "tmpcopyup"
  bool copy_link = false;                 // "copy-symlink": a source that is a link becomes one
  bool link_source = false;               // "src-nofollow": the source itself when it is a link
  bool link_target = false;               // "dest-nofollow": on a link, not where it leads
  std::vector<std::string> superblock;    // "sync", "size=64k": for the file system
};
// kInvalidArgument for a bind mount with a word that no bind mount knows, kUnsupported for id maps
// as words.
Result<ContainerMountOptions> ReadMountOptions(const std::vector<std::string>& options,
                                               const std::string& path);

// Every word that is no file system's own.
std::vector<std::string> KnownMountOptions();

}  // namespace hutch::rootfs

#include "rootfs/container_mount_options.h"

#include <sys/mount.h>

#include <algorithm>
#include <iterator>

#include "base/sys_raw.h"

namespace hutch::rootfs {
namespace {

struct Attribute {
  const char* word;
  uint64_t set, clear;
};
constexpr uint64_t kTimes = MOUNT_ATTR__ATIME;
constexpr Attribute kAttributes[] = {
    {"ro", MOUNT_ATTR_RDONLY, 0},
    {"rw", 0, MOUNT_ATTR_RDONLY},
    {"nosuid", MOUNT_ATTR_NOSUID, 0},
    {"suid", 0, MOUNT_ATTR_NOSUID},
    {"nodev", MOUNT_ATTR_NODEV, 0},
    {"dev", 0, MOUNT_ATTR_NODEV},
    {"noexec", MOUNT_ATTR_NOEXEC, 0},
    {"exec", 0, MOUNT_ATTR_NOEXEC},
    {"nodiratime", MOUNT_ATTR_NODIRATIME, 0},
    {"diratime", 0, MOUNT_ATTR_NODIRATIME},
    {"relatime", MOUNT_ATTR_RELATIME, kTimes},
    {"norelatime", 0, kTimes},
    {"noatime", MOUNT_ATTR_NOATIME, kTimes},
    {"atime", 0, kTimes},
    {"strictatime", MOUNT_ATTR_STRICTATIME, kTimes},
    {"nostrictatime", 0, kTimes},
    {"nosymfollow", MOUNT_ATTR_NOSYMFOLLOW, 0},
    {"symfollow", 0, MOUNT_ATTR_NOSYMFOLLOW},
};
struct Propagation {
  const char* word;
  uint64_t value;
  bool all;
};
constexpr Propagation kPropagations[] = {
    {"shared", MS_SHARED, false},         {"rshared", MS_SHARED, true},
    {"slave", MS_SLAVE, false},           {"rslave", MS_SLAVE, true},
    {"private", MS_PRIVATE, false},       {"rprivate", MS_PRIVATE, true},
    {"unbindable", MS_UNBINDABLE, false}, {"runbindable", MS_UNBINDABLE, true},
};
// Of the superblock, and said in another way or not at all by the new mount calls.
constexpr const char* kIgnored[] = {"defaults", "async",   "nomand",     "silent",
                                    "loud",     "remount", "noiversion", "nolazytime"};

// Of the superblock, as the file system itself reads them; nothing to a bind mount.
constexpr const char* kSuperblocks[] = {"sync", "dirsync", "lazytime", "mand", "iversion"};

bool IsSuperblockWord(const std::string& word) {
  for (const char* one : kSuperblocks)
    if (word == one) return true;
  return false;
}

struct Flag {
  const char* word;
  bool ContainerMountOptions::*member;
};
constexpr Flag kFlags[] = {
    {"bind", &ContainerMountOptions::bind},
    {"rbind", &ContainerMountOptions::bind_all},  // whatever else says "bind"
    {"idmap", &ContainerMountOptions::idmap},
    {"ridmap", &ContainerMountOptions::idmap_all},
    {"tmpcopyup", &ContainerMountOptions::copy_up},
    {"copy-symlink", &ContainerMountOptions::copy_link},
    {"src-nofollow", &ContainerMountOptions::link_source},
    {"dest-nofollow", &ContainerMountOptions::link_target},
};

bool TakeFlag(const std::string& word, ContainerMountOptions* out) {
  for (const Flag& flag : kFlags) {
    if (word != flag.word) continue;
    out->*flag.member = true;
    return true;
  }
  return false;
}

bool TakeWord(const std::string& word, ContainerMountOptions* out) {
  for (const Attribute& one : kAttributes) {
    const bool all = word == std::string("r") + one.word;
    if (word != one.word && !all) continue;
    uint64_t& set = all ? out->set_all : out->set;
    uint64_t& clear = all ? out->clear_all : out->clear;
    set = (set & ~one.clear) | one.set;
    clear = (clear & ~one.set) | one.clear;
    return true;
  }
  for (const Propagation& one : kPropagations) {
    if (word != one.word) continue;
    out->propagation = one.value;
    out->propagation_all = one.all;
    return true;
  }
  for (const char* ignored : kIgnored)
    if (word == ignored) return true;
  return false;
}

}  // namespace

Result<ContainerMountOptions> ReadMountOptions(const std::vector<std::string>& options,
                                               const std::string& path) {
  ContainerMountOptions out;
  for (const std::string& word : options) {
    if (word.starts_with("idmap=") || word.starts_with("ridmap="))
      return Error{.code = Code::kUnsupported,
                   .what = "option \"" + word + "\" of the mount at " + path,
                   .field = "mounts",
                   .hint = "uidMappings and gidMappings of the mount say the same"};
    if (!TakeFlag(word, &out) && !TakeWord(word, &out)) out.superblock.push_back(word);
  }
  out.bind = out.bind || out.bind_all;
  out.idmap = out.idmap || out.idmap_all;
  // Of a bind mount a word that nobody knows could have been meant to take something away.
  for (const std::string& word : out.superblock)
    if (out.bind && word.find('=') == std::string::npos && !IsSuperblockWord(word))
      return Error{.code = Code::kInvalidArgument,
                   .what = "unknown option \"" + word + "\" of the mount at " + path,
                   .field = "mounts"};
  return out;
}

std::vector<std::string> KnownMountOptions() {
  std::vector<std::string> words;
  for (const Attribute& one : kAttributes)
    for (const char* all : {"", "r"}) words.push_back(std::string(all) + one.word);
  for (const Propagation& one : kPropagations) words.emplace_back(one.word);
  for (const Flag& one : kFlags) words.emplace_back(one.word);
  words.insert(words.end(), std::begin(kSuperblocks), std::end(kSuperblocks));
  words.insert(words.end(), std::begin(kIgnored), std::end(kIgnored));
  std::sort(words.begin(), words.end());
  return words;
}

}  // namespace hutch::rootfs

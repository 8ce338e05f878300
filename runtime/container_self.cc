// The runtime's own program file against those it runs (CVE-2019-5736).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/sys_raw.h"
#include "runtime/container.h"
#include "runtime/container_config_reading.h"

namespace hutch::runtime {
namespace {

constexpr char kOwnProgram[] = "/proc/self/exe";
constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

Status ExecuteFrom(int fd, char** argv) {
  const long rc = sys::Raw(SYS_execveat, fd, "", argv, environ, AT_EMPTY_PATH);
  return SysError(static_cast<int>(-rc), "execute from the clone");
}

Result<UniqueFd> ReadOnlyClone() {
  UniqueFd tree(sys::OpenTree(AT_FDCWD, kOwnProgram, OPEN_TREE_CLONE));
  if (tree.get() < 0) return SysError(-tree.get(), "clone the program's mount");
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  const int rc = sys::MountSetattr(tree.get(), "", AT_EMPTY_PATH, &attributes);
  if (rc < 0) return SysError(-rc, "make the clone read-only");
  return tree;
}

Result<UniqueFd> SealedCopy() {
  ASSIGN_OR_RETURN(const UniqueFd program, Open(kOwnProgram, O_RDONLY));
  UniqueFd copy(::memfd_create("hutch-oci", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  struct stat st;
  if (!copy.valid() || ::fstat(program.get(), &st) != 0) return SysError(errno, "memfd_create");
  off_t at = 0;
  while (at < st.st_size) {
    const ssize_t n = ::copy_file_range(program.get(), &at, copy.get(), nullptr,
                                        static_cast<size_t>(st.st_size - at), 0);
    if (n > 0) continue;
    // Across file systems of some kinds it is not possible.
    ASSIGN_OR_RETURN(const std::string bytes, ReadFile(kOwnProgram, 256u << 20));
    return SealedMemfd("hutch-oci", bytes);
  }
  if (::fcntl(copy.get(), F_ADD_SEALS, kAllSeals | F_SEAL_SEAL) != 0)
    return SysError(errno, "seal the program");
  return copy;
}

bool IsProtected() {
  struct statvfs fs;
  if (::statvfs(kOwnProgram, &fs) == 0 && (fs.f_flag & ST_RDONLY) != 0) return true;
  const Result<UniqueFd> program = Open(kOwnProgram, O_RDONLY);
  if (!program) return false;
  const int seals = ::fcntl(program->get(), F_GET_SEALS);
  return seals >= 0 && (seals & kAllSeals) == kAllSeals;
}

// An ordinary user's containers have no more rights over the file than that user.
bool OthersCannotWrite() {
  struct stat st;
  return ::geteuid() != 0 && ::stat(kOwnProgram, &st) == 0 && st.st_uid != ::geteuid() &&
         ::faccessat(AT_FDCWD, kOwnProgram, W_OK, AT_EACCESS) != 0 && errno == EACCES;
}

// Privilege over a file needs a user namespace that maps its owner: user_namespaces(7),
// "Capabilities". What cannot be read is said by who needs it; here it counts as dangerous.
bool ContainerCannotWrite(const std::string& config_file) {
  struct stat st;
  if (::stat(kOwnProgram, &st) != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0) return false;
  const Result<std::string> text = ReadContainerConfigFile(config_file);
  if (!text) return false;
  const Result<oci::ContainerConfig> config = ParseContainerConfigText(*text);
  if (!config) return false;
  const std::vector<oci::Namespace>& namespaces = config->linux_.namespaces;
  const bool own = std::any_of(namespaces.begin(), namespaces.end(), [](const auto& one) {
    return one.type == "user" && one.path.empty();
  });
  const std::vector<oci::IdMapping>& maps = config->linux_.uid_mappings;
  return own && !maps.empty() && std::none_of(maps.begin(), maps.end(), [&st](const auto& map) {
           return st.st_uid >= map.host_id && st.st_uid - map.host_id < map.size;
         });
}

}  // namespace

Status ProtectOwnProgram(char** argv, const std::string& config_file) {
  if (IsProtected()) {
    ::prctl(PR_SET_NAME, "hutch-oci");
    return OkStatus();
  }
  if (OthersCannotWrite() || ContainerCannotWrite(config_file)) return OkStatus();
  Result<UniqueFd> clone = ReadOnlyClone();
  if (!clone) clone = SealedCopy();
  if (!clone) return std::move(clone).error();
  return ExecuteFrom(clone->get(), argv);
}

}  // namespace hutch::runtime

#include "rootfs/tree_copy_attributes.h"

#include <endian.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <string_view>

#include "rootfs/limits.h"

namespace hutch::rootfs {
namespace {

constexpr uint32_t kIdsOfRange = 65536;
constexpr char kCapability[] = "security.capability";
constexpr std::string_view kAccessList = "system.posix_acl_";

Result<uint32_t> Shift(uint32_t id, const TreeCopy& copy) {
  if (copy.by == CopyBy::kContainer) return id;
  if (id < copy.from_start || id - copy.from_start >= kIdsOfRange)
    return Error{.code = Code::kCorrupt,
                 .what = "a file belongs to " + std::to_string(id) + ", which is nobody inside"};
  return id - copy.from_start + copy.to_start;
}

// Of a file capability the id of the root user that it is for. The kernel shows one for the host's
// root without it.
Status ShiftCapability(const TreeCopy& copy, std::string* value) {
  vfs_ns_cap_data data{};
  if (value->size() != XATTR_CAPS_SZ_2 && value->size() != XATTR_CAPS_SZ_3)
    return Error{.code = Code::kCorrupt, .what = "a file capability of an unknown form"};
  std::memcpy(&data, value->data(), value->size());
  const uint32_t root = value->size() == XATTR_CAPS_SZ_3 ? le32toh(data.rootid) : 0;
  ASSIGN_OR_RETURN(const uint32_t shifted, Shift(root, copy));
  const uint32_t flags = le32toh(data.magic_etc) & ~VFS_CAP_REVISION_MASK;
  const uint32_t revision = shifted == 0 ? VFS_CAP_REVISION_2 : VFS_CAP_REVISION_3;
  data.magic_etc = htole32(revision | flags);
  data.rootid = htole32(shifted);
  value->assign(reinterpret_cast<const char*>(&data),
                shifted == 0 ? XATTR_CAPS_SZ_2 : XATTR_CAPS_SZ_3);
  return OkStatus();
}

// A header of four bytes, then entries of two times two bytes and an id.
Status ShiftAccessList(const TreeCopy& copy, std::string* value) {
  constexpr uint16_t kUser = 0x02, kGroup = 0x08;
  for (size_t at = 4; at + 8 <= value->size(); at += 8) {
    uint16_t tag = 0;
    uint32_t id = 0;
    std::memcpy(&tag, value->data() + at, sizeof tag);
    std::memcpy(&id, value->data() + at + 4, sizeof id);
    tag = le16toh(tag);
    if (tag != kUser && tag != kGroup) continue;
    ASSIGN_OR_RETURN(const uint32_t shifted, Shift(le32toh(id), copy));
    id = htole32(shifted);
    std::memcpy(value->data() + at + 4, &id, sizeof id);
  }
  return OkStatus();
}

bool IsKept(std::string_view name) {
  return name.starts_with("user.") || name.starts_with("trusted.overlay.") || name == kCapability ||
         name.starts_with(kAccessList);
}

Status CopyAttribute(int from, int to, const char* name, const TreeCopy& copy) {
  std::string value(kMaxXattrBytes, '\0');
  const ssize_t size = ::fgetxattr(from, name, value.data(), value.size());
  const bool capability = std::strcmp(name, kCapability) == 0;
  if (size < 0 && errno == EOVERFLOW && capability && copy.by == CopyBy::kContainer)
    return OkStatus();
  if (size < 0) return SysError(errno, std::string("read attribute ") + name);
  value.resize(static_cast<size_t>(size));
  if (capability) RETURN_IF_ERROR(ShiftCapability(copy, &value));
  if (std::string_view(name).starts_with(kAccessList))
    RETURN_IF_ERROR(ShiftAccessList(copy, &value));
  if (::fsetxattr(to, name, value.data(), value.size(), 0) == 0) return OkStatus();
  if (errno == EOPNOTSUPP && copy.by == CopyBy::kContainer &&
      std::string_view(name).starts_with("user."))
    return OkStatus();
  return SysError(errno, std::string("set attribute ") + name);
}

}  // namespace

Status SetOwner(int directory, const char* name, const struct stat& info, const TreeCopy& copy) {
  ASSIGN_OR_RETURN(const uint32_t uid, Shift(info.st_uid, copy));
  ASSIGN_OR_RETURN(const uint32_t gid, Shift(info.st_gid, copy));
  const int flags = AT_SYMLINK_NOFOLLOW | (*name == '\0' ? AT_EMPTY_PATH : 0);
  if (::fchownat(directory, name, uid, gid, flags) == 0) return OkStatus();
  return SysError(errno, "chown");
}

Status SetOwnerAndMode(int fd, const struct stat& info, const TreeCopy& copy) {
  RETURN_IF_ERROR(SetOwner(fd, "", info, copy));
  if (::fchmod(fd, info.st_mode & 07777) == 0) return OkStatus();
  return SysError(errno, "chmod");
}

Status SetTimes(int directory, const char* name, const struct stat& info) {
  const struct timespec times[2] = {info.st_atim, info.st_mtim};
  const int failed = *name == '\0' ? ::futimens(directory, times)
                                   : ::utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW);
  return failed == 0 ? OkStatus() : Status(SysError(errno, "set times"));
}

Status CopyAttributes(int from, int to, const TreeCopy& copy) {
  std::string names(kMaxXattrBytes, '\0');
  const ssize_t size = ::flistxattr(from, names.data(), names.size());
  if (size < 0 && errno == EOPNOTSUPP) return OkStatus();
  if (size < 0) return SysError(errno, "list attributes");
  for (const char* name = names.data(); name < names.data() + size; name += std::strlen(name) + 1)
    if (IsKept(name)) RETURN_IF_ERROR(CopyAttribute(from, to, name, copy));
  return OkStatus();
}

}  // namespace hutch::rootfs

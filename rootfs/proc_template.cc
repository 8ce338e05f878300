#include "rootfs/proc_template.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "base/file.h"
#include "base/text.h"
#include "rootfs/proc_files.h"

namespace hutch::rootfs {
namespace {

constexpr size_t kMaxSettingBytes = 4096;

Status MakeDirectory(int directory, const std::string& path) {
  if (::mkdirat(directory, path.c_str(), 0755) != 0 && errno != EEXIST)
    return SysError(errno, "mkdir " + path);
  if (::fchmodat(directory, path.c_str(), 0555, 0) != 0) return SysError(errno, "chmod " + path);
  return OkStatus();
}

Status WriteNew(int directory, const std::string& path, std::string_view text) {
  ASSIGN_OR_RETURN(const UniqueFd file, OpenAt(directory, path, O_WRONLY | O_CREAT | O_EXCL, 0444));
  if (::fchmod(file.get(), 0444) != 0) return SysError(errno, "chmod " + path);
  return text.empty() ? OkStatus() : WriteAll(file.get(), text);
}

// "a/b/c": a and a/b.
Status MakeParents(int directory, const std::string& path) {
  for (size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1))
    RETURN_IF_ERROR(MakeDirectory(directory, path.substr(0, at)));
  return OkStatus();
}

// What uname(2) says anyway: not who built the kernel, and with what.
std::string VersionText() {
  struct utsname name {};
  if (::uname(&name) != 0) return {};
  return std::string(name.sysname) + " version " + name.release + " (hutch) " + name.version + "\n";
}

}  // namespace

Status FillProcTemplate(int directory_fd) {
  RETURN_IF_ERROR(MakeDirectory(directory_fd, kProcTemplate));
  const std::string top = std::string(kProcTemplate) + "/";
  for (const ProcTextRow& row : kProcTexts)
    RETURN_IF_ERROR(
        WriteNew(directory_fd, top + row.name, row.text ? std::string(row.text) : VersionText()));
  const std::string sys = top + "sys/";
  for (const char* setting : kProcSettings) {
    const Result<std::string> text =
        ReadFile(std::string("/proc/sys/") + setting, kMaxSettingBytes);
    if (!text.has_value()) continue;  // this kernel has no such setting
    RETURN_IF_ERROR(MakeParents(directory_fd, sys + setting));
    RETURN_IF_ERROR(WriteNew(directory_fd, sys + setting, *text));
  }
  RETURN_IF_ERROR(MakeParents(directory_fd, sys + kProcUuid));
  return WriteNew(directory_fd, sys + kProcUuid, "");
}

}  // namespace hutch::rootfs

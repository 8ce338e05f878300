#include "tools/doctor/mount_probe.h"

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/file.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "tools/process.h"

namespace hutch::tools {
namespace {

constexpr const char* kIdMap = "0 1879048192 65536";  // hutch's first range

class NamespaceHolder {
 public:
  NamespaceHolder(pid_t pid, UniqueFd hold) : pid_(pid), hold_(std::move(hold)) {}
  NamespaceHolder(NamespaceHolder&& o) noexcept
      : pid_(std::exchange(o.pid_, 0)), hold_(std::move(o.hold_)) {}
  NamespaceHolder& operator=(NamespaceHolder&&) = delete;
  ~NamespaceHolder() {
    hold_.reset();  // end of file: it exits
    if (pid_ > 0) IgnoreError(WaitForExit(pid_), "it was ours, and nothing is left to do");
  }
  std::string ProcPath(const char* name) const {
    return "/proc/" + std::to_string(pid_) + "/" + name;
  }

 private:
  pid_t pid_;
  UniqueFd hold_;
};

Result<NamespaceHolder> StartHolder(int clone_flags) {
  ASSIGN_OR_RETURN(Pipe input, MakePipe());
  ASSIGN_OR_RETURN(Pipe output, MakePipe());
  const std::vector<std::string> argv = {"/proc/self/exe", "__hold-namespace",
                                         std::to_string(clone_flags)};
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(argv, {input.read.get(), output.write.get(), -1}));
  NamespaceHolder holder(pid, std::move(input.write));
  input.read.reset();
  output.write.reset();
  char answer[16] = {};
  const ssize_t n = ::read(output.read.get(), answer, sizeof answer - 1);
  const auto sys = ParseUint(Trim(std::string_view(answer, n > 0 ? static_cast<size_t>(n) : 0)));
  if (!sys) return Error{.what = "the helper said nothing"};
  if (*sys != 0) return SysError(static_cast<int>(*sys), "unshare");
  return holder;
}

Result<std::string> MakeTemporary(const std::string& parent) {
  std::string path = parent + "/.hutch-doctor-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return SysError(errno, "make a directory in " + parent);
  return path;
}

Status MountDetachedOverlay(const std::string& base) {
  for (const char* name : {"/lower", "/upper", "/work"})
    RETURN_IF_ERROR(MakeDirectories(base + name, 0700));
  const UniqueFd fs(sys::Fsopen("overlay"));
  if (fs.get() < 0) return SysError(-fs.get(), "fsopen overlay");
  const std::pair<const char*, std::string> settings[] = {
      {"lowerdir", base + "/lower"}, {"upperdir", base + "/upper"}, {"workdir", base + "/work"}};
  for (const auto& [key, value] : settings)
    if (const int failed = sys::Fsconfig(fs.get(), FSCONFIG_SET_STRING, key, value.c_str(), 0);
        failed < 0)
      return SysError(-failed, std::string("overlay option ") + key);
  if (const int failed = sys::Fsconfig(fs.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0);
      failed < 0)
    return SysError(-failed, "create an overlay");
  const UniqueFd mount(sys::Fsmount(fs.get(), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  if (mount.get() < 0) return SysError(-mount.get(), "fsmount");
  // The kernel answers an upper directory that it cannot use with a read-only overlay, not an
  // error.
  if (::faccessat(mount.get(), ".", W_OK, 0) != 0) return SysError(errno, "write to the overlay");
  return OkStatus();
}

}  // namespace

Status ProbeOverlay(const std::string& parent) {
  ASSIGN_OR_RETURN(const std::string base, MakeTemporary(parent));
  Status probed = MountDetachedOverlay(base);
  IgnoreError(RemoveTree(base), "four empty directories");
  return probed;
}

Status ProbeIdmap(const std::string& directory) {
  ASSIGN_OR_RETURN(const NamespaceHolder holder, StartHolder(CLONE_NEWUSER));
  RETURN_IF_ERROR(WriteExisting(holder.ProcPath("uid_map"), kIdMap));
  RETURN_IF_ERROR(WriteExisting(holder.ProcPath("gid_map"), kIdMap));
  ASSIGN_OR_RETURN(const UniqueFd user, Open(holder.ProcPath("ns/user"), O_RDONLY));
  const UniqueFd tree(sys::OpenTree(AT_FDCWD, directory.c_str(), OPEN_TREE_CLONE));
  if (tree.get() < 0) return SysError(-tree.get(), "open_tree " + directory);
  struct mount_attr map = {};
  map.attr_set = MOUNT_ATTR_IDMAP;
  map.userns_fd = static_cast<uint64_t>(user.get());
  const int failed = sys::MountSetattr(tree.get(), "", AT_EMPTY_PATH, &map);
  if (failed < 0) return SysError(-failed, "map the ids of " + directory);
  return OkStatus();
}

Status ProbeNamespace(int clone_flag) {
  auto holder = StartHolder(clone_flag);
  if (!holder) return std::move(holder).error();
  return OkStatus();
}

int HoldNamespace(const std::vector<std::string>& words) {
  const auto flags = ParseUint(words.size() > 1 ? words[1] : "", INT32_MAX);
  if (!flags) return 2;
  const int failed = ::unshare(static_cast<int>(*flags)) == 0 ? 0 : errno;
  IgnoreError(WriteAll(STDOUT_FILENO, std::to_string(failed)), "the parent sees the end of file");
  IgnoreError(ReadAll(STDIN_FILENO, 1), "only its end matters");
  return 0;
}

}  // namespace hutch::tools

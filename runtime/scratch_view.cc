#include "runtime/scratch_view.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <map>

#include "base/sys_raw.h"
#include "runtime/agent_child.h"

namespace hutch::runtime {
namespace {

constexpr size_t kMaxSavedRoots = 128;

Result<struct stat> StatOf(int fd) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return SysError(errno, "fstat of the scratch file system");
  return st;
}

}  // namespace

Result<oci::Json> SaveScratch(const ScratchView& view) {
  ASSIGN_OR_RETURN(const struct stat st, StatOf(view.fd.get()));
  oci::Json roots = oci::Json::object();
  for (const rootfs::TrackedRoot& root : view.roots) roots[root.source] = root.target;
  return oci::Json{
      {"device", uint64_t{st.st_dev}}, {"inode", uint64_t{st.st_ino}}, {"roots", roots}};
}

Result<ScratchView> TakeUpScratch(const Pidfd& agent, const oci::Json& saved) {
  uint64_t device = 0, inode = 0;
  std::map<std::string, std::string> roots;
  RETURN_IF_ERROR(oci::ObjectReader(saved, "scratch")
                      .Uint("device", &device)
                      .Uint("inode", &inode)
                      .StringMap("roots", &roots, kMaxSavedRoots)
                      .Done(oci::ObjectReader::Unknown::kIgnore));
  ScratchView view;
  view.fd.reset(sys::PidfdGetfd(agent.fd(), kScratchFd));
  if (!view.fd.valid()) return SysError(-view.fd.release(), "pidfd_getfd of the agent");
  struct statfs fs {};
  if (::fstatfs(view.fd.get(), &fs) != 0) return SysError(errno, "fstatfs of the agent's scratch");
  ASSIGN_OR_RETURN(const struct stat st, StatOf(view.fd.get()));
  if (fs.f_type != TMPFS_MAGIC || st.st_dev != device || st.st_ino != inode)
    return Error{.code = Code::kCorrupt, .what = "the agent keeps another file as its scratch"};
  for (const auto& [source, target] : roots)
    view.roots.push_back({.source = source, .target = target, .is_upper = target == "/"});
  return view;
}

}  // namespace hutch::runtime

// hutch-volume make IMAGE UID GID | check IMAGE | grow IMAGE: runs e2fsprogs on one image, where
// nothing of the host but its programs can be seen, without a capability. Started by hutchd; not
// for people. Descriptor 3 is the image, locked: the lock lasts as long as the tool.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "rootfs/limits.h"

namespace hutch::rootfs {
namespace {

constexpr char kStage[] = "/proc";  // any directory that is there; covered in our namespace alone
constexpr char kImagePlace[] = "/image";
// What programs and their libraries need; links of a merged /usr stay links.
constexpr const char* kPrograms[] = {"usr", "bin", "sbin", "lib", "lib32", "lib64"};
constexpr unsigned kLocked = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

Error Fail(const std::string& step) { return SysError(errno, "confine: " + step); }

Status Bind(const std::string& from, const std::string& to, uint64_t attributes) {
  if (::mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
    return Fail("bind " + from);
  struct mount_attr attr {};
  attr.attr_set = attributes;
  const int rc = sys::MountSetattr(AT_FDCWD, to.c_str(), AT_RECURSIVE, &attr);
  return rc < 0 ? SysError(-rc, "confine: attributes of " + from) : OkStatus();
}

Status ShowPrograms(const std::string& root) {
  for (const char* name : kPrograms) {
    const std::string from = std::string("/") + name, to = root + from;
    struct stat st {};
    if (::lstat(from.c_str(), &st) != 0) continue;
    if (S_ISLNK(st.st_mode)) {
      char target[256] = {};
      if (::readlink(from.c_str(), target, sizeof target - 1) <= 0 ||
          ::symlink(target, to.c_str()) != 0)
        return Fail("link " + from);
      continue;
    }
    if (::mkdir(to.c_str(), 0755) != 0) return Fail("mkdir " + to);
    RETURN_IF_ERROR(Bind(from, to, kLocked));
  }
  return OkStatus();
}

// A root with programs, the image, and tables that say that nothing is mounted.
Status EnterRoot(const std::string& image) {
  if (::unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) != 0)
    return Fail("unshare");
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return Fail("private mounts");
  const std::string root = kStage;
  if (::mount("tmpfs", kStage, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=1m") != 0)
    return Fail("a root");
  RETURN_IF_ERROR(ShowPrograms(root));
  for (const char* directory : {"/etc", "/proc"})
    if (::mkdir((root + directory).c_str(), 0755) != 0) return Fail("mkdir");
  for (const char* file : {"/etc/mtab", "/proc/mounts", "/proc/swaps", kImagePlace})
    RETURN_IF_ERROR(WriteFileAtomic(root + file, "", Durability::kMemory));
  RETURN_IF_ERROR(
      Bind(image, root + kImagePlace, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  if (::chdir(kStage) != 0) return Fail("enter the root");
  if (const int rc = sys::PivotRoot(".", "."); rc < 0) return SysError(-rc, "confine: pivot_root");
  if (::umount2(".", MNT_DETACH) != 0 || ::chdir("/") != 0) return Fail("leave the host");
  return OkStatus();
}

Status DropPrivileges() {
  for (int cap = 0; ::prctl(PR_CAPBSET_READ, cap) >= 0; ++cap)
    if (::prctl(PR_CAPBSET_DROP, cap) != 0) return Fail("bounding set");
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (sys::Capset(&header, data) < 0) return Fail("capabilities");
  if (sys::Capget(&header, data) < 0 || data[0].permitted != 0 || data[1].permitted != 0)
    return Fail("capabilities stay");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Fail("no new privileges");
  const struct rlimit memory { kVolumeToolMemoryBytes, kVolumeToolMemoryBytes }, none{0, 0};
  if (::setrlimit(RLIMIT_AS, &memory) != 0 || ::setrlimit(RLIMIT_CORE, &none) != 0)
    return Fail("resource limits");
  return OkStatus();
}

[[noreturn]] void Execute(std::vector<std::string> words) {
  std::vector<char*> args;
  for (std::string& word : words) args.push_back(word.data());
  args.push_back(nullptr);
  char* env[] = {nullptr};
  for (const char* directory : {"/usr/sbin/", "/sbin/"})
    ::execve((directory + words[0]).c_str(), args.data(), env);
  std::fprintf(stderr, "%s cannot be run: %s\n", args[0], ErrnoName(errno).c_str());
  ::_exit(127);
}

// A new sparse file is all zeros, so nothing needs to be written to say so; what a later owner of
// the disk would reserve for root is the tenants'.
std::vector<std::string> MakeWords(const std::string& owner) {
  return {"mke2fs",   "-q",   "-F",
          "-t",       "ext4", "-b",
          "4096",     "-I",   "256",
          "-i",       "8192", "-m",
          "0",        "-E",   "assume_storage_prezeroed=1,lazy_journal_init=1,root_owner=" + owner,
          kImagePlace};
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[1] : "";
  const bool make = mode == "make" && argc == 5 && ParseUint(argv[3]) && ParseUint(argv[4]);
  if (!make && !((mode == "check" || mode == "grow") && argc == 3)) {
    std::fputs("hutch-volume makes file systems for hutchd; it is not started by hand.\n", stderr);
    return 2;
  }
  Status confined = EnterRoot(argv[2]);
  if (confined.has_value()) confined = DropPrivileges();
  if (!confined.has_value()) {
    std::fprintf(stderr, "%s\n", confined.error().ToString().c_str());
    return 126;
  }
  ::umask(0);
  if (make) Execute(MakeWords(std::string(argv[3]) + ":" + argv[4]));
  if (mode == "check") Execute({"e2fsck", "-f", "-p", kImagePlace});
  Execute({"resize2fs", kImagePlace});
}

}  // namespace
}  // namespace hutch::rootfs

int main(int argc, char** argv) { return hutch::rootfs::Main(argc, argv); }

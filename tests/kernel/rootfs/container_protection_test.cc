// Images and neighbours that want the container's mounts elsewhere, by the CVE each of them was.
#include <sys/syscall.h>

#include <atomic>
#include <thread>

#include "rootfs/container_sysctl.h"
#include "rootfs/container_target.h"
#include "tests/kernel/rootfs/container_mounts_fixture.h"

namespace hutch::rootfs {
namespace {

class ContainerProtectionTest : public ContainerMountsFixture {
 protected:
  void Link(const std::string& target, const std::string& name) {
    ASSERT_EQ(::symlink(target.c_str(), (root_ + name).c_str()), 0);
  }
  bool OutsideIsEmpty() {
    const auto names = ListDirectory(outside_);
    return names && names->empty();
  }
};

// CVE-2019-18837, CVE-2021-30465.
TEST_F(ContainerProtectionTest, mount_target_symlink_abs_rel_dotdot) {
  Write(source_ + "/file", "text");
  Link(outside_, "/abs");
  Link("../../../../../../.." + outside_, "/dotdot");
  ASSERT_EQ(::mkdir((root_ + "/real").c_str(), 0755), 0);
  Link("real", "/rel");
  Add("/abs/a", "bind", source_, {"bind"});
  Add("/dotdot/b", "bind", source_ + "/file", {"bind"});
  Add("/rel/c", "bind", source_, {"bind"});
  const std::string out = outside_;
  EXPECT_EQ(InContainer([&out] {
              return ReadText(out + "/a/file") + ReadText(out + "/b") + ReadText("/real/c/file");
            }),
            "texttexttext");  // as the container sees these links
  EXPECT_TRUE(OutsideIsEmpty());
}

// CVE-2021-30465, CVE-2024-45310.
TEST_F(ContainerProtectionTest, mount_race_exchange_mkdir_race_outside_root) {
  ASSERT_EQ(::mkdir((root_ + "/x").c_str(), 0755), 0);
  Link(outside_, "/y");
  std::atomic<bool> done{false};
  std::thread neighbour([this, &done] {
    const std::string x = root_ + "/x", y = root_ + "/y";
    while (!done) ::syscall(SYS_renameat2, AT_FDCWD, x.c_str(), AT_FDCWD, y.c_str(), 2u);
  });
  const UniqueFd root(::open(root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 10'000; ++i) {
    const std::string path = "/x/" + std::to_string(i % 100) + "/deep";
    const auto target = OpenOrMakeTarget(root.get(), path, TargetKind::kDirectory);
    if (i % 100 == 99) IgnoreError(RemoveTree(root_ + "/x/0"), "made anew");
    if (!target) continue;  // a race that was seen is an error, and nothing is outside
    char at[4096] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(target->get());
    ASSERT_GT(::readlink(link.c_str(), at, sizeof at - 1), 0);
    ASSERT_TRUE(std::string(at).starts_with(root_ + "/")) << at;
  }
  done = true;
  neighbour.join();
  EXPECT_TRUE(OutsideIsEmpty());
}

// CVE-2023-28642, CVE-2019-19921.
TEST_F(ContainerProtectionTest, image_proc_symlink) {
  ASSERT_EQ(::mkdir((root_ + "/elsewhere").c_str(), 0755), 0);
  Link("elsewhere", "/proc");
  AddUsual();
  EXPECT_NE(InContainer([] { return "in"; }).find("must be mounted on ordinary directory"),
            std::string::npos);
}

// CVE-2025-54867.
TEST_F(ContainerProtectionTest, image_sys_symlink) {
  Link(outside_, "/sys");
  Add("/sys", "sysfs", "sysfs");
  EXPECT_NE(InContainer([] { return "in"; }).find("must be mounted on ordinary directory"),
            std::string::npos);
}

// CVE-2026-41579.
TEST_F(ContainerProtectionTest, image_dev_symlink) {
  Link(outside_, "/dev");
  EXPECT_NE(InContainer([] { return "in"; }).find("/dev is no directory"), std::string::npos);
  EXPECT_TRUE(OutsideIsEmpty());
}

// CVE-2019-16884.
TEST_F(ContainerProtectionTest, proc_overmount_refused) {
  ASSERT_EQ(::mkdir((root_ + "/by-link").c_str(), 0755), 0);
  Link("../proc", "/by-link/p");
  for (const char* place : {"/proc", "/proc/self/attr", "/proc/sys", "/by-link/p/sys"}) {
    config_.mounts.clear();
    AddUsual();
    Add(place, "bind", source_, {"bind"});
    EXPECT_NE(InContainer([] { return "in"; }).find("inside /proc"), std::string::npos) << place;
  }
  Write(source_ + "/up", "1 2\n");
  config_.mounts.clear();
  AddUsual();
  Add("/proc/uptime", "bind", source_ + "/up", {"bind"});
  EXPECT_EQ(InContainer([] { return ReadText("/proc/uptime"); }), "1 2\n");
}

// CVE-2025-31133: what hides a file is the host's null device whatever the container's is.
TEST_F(ContainerProtectionTest, mask_devnull_symlink) {
  AddUsual();
  Write(root_ + "/secret", "secret");
  ASSERT_EQ(::mkdir((root_ + "/hidden").c_str(), 0755), 0);
  Write(root_ + "/hidden/file", "secret");
  ASSERT_EQ(::mkdir((root_ + "/hidden2").c_str(), 0755), 0);
  config_.linux_.masked_paths = {"/secret", "/hidden", "/hidden2", "/proc/version", "/not/there"};
  EXPECT_EQ(InContainer(
                [] {
                  return "[" + ReadText("/secret") + "]" + ReadText("/hidden/file") +
                         TryToWrite("/hidden/new") + "[" + ReadText("/proc/version") + "]";
                },
                [this] {
                  ::unlink((root_ + "/dev/null").c_str());
                  EXPECT_EQ(
                      ::symlink("/proc/sys/kernel/core_pattern", (root_ + "/dev/null").c_str()), 0);
                }),
            "[]error ENOENTEROFS[]");
}

TEST_F(ContainerProtectionTest, ReadonlyPathsAreAndMissingOnesDoNotMatter) {
  AddUsual();
  config_.linux_.readonly_paths = {"/proc/sys", "/not/there"};
  EXPECT_EQ(InContainer([] { return TryToWrite("/proc/sys/kernel/core_pattern"); }), "EROFS");
}

TEST_F(ContainerProtectionTest, ADanglingLinkIsFollowedInTheRoot) {
  Write(source_ + "/file", "names");
  ASSERT_EQ(::mkdir((root_ + "/etc").c_str(), 0755), 0);
  Link("../run/systemd/resolv.conf", "/etc/resolv.conf");
  Add("/etc/resolv.conf", "bind", source_ + "/file", {"bind"});
  EXPECT_EQ(InContainer([] { return ReadText("/run/systemd/resolv.conf"); }), "names");
}

TEST_F(ContainerProtectionTest, LinksInACircleAreAnError) {
  Link("b", "/a");
  Link("a", "/b");
  Add("/a/x", "bind", source_, {"bind"});
  EXPECT_NE(InContainer([] { return "in"; }).find("error"), 0u);
  EXPECT_NE(InContainer([] { return "in"; }), "in");
}

// CVE-2022-0811.
TEST_F(ContainerProtectionTest, sysctl_injection) {
  where_.own_ipc = where_.own_network = true;
  for (const char* key : {"kernel.core_pattern", "kernel.shm_rmid_forced+kernel.core_pattern",
                          "net..core", "net/../kernel/core_pattern", "net.", "", "vm.swappiness",
                          "kernel.msgmaxx", "kernel.hostname", "net/ipv4/\nx"})
    EXPECT_FALSE(CheckSysctl(key, "1", where_).has_value()) << key;
  EXPECT_FALSE(CheckSysctl("kernel.msgmax", "1\n2", where_).has_value());
  EXPECT_TRUE(CheckSysctl("net.ipv4.ip_forward", "1", where_).has_value());
  EXPECT_TRUE(CheckSysctl("kernel/msgmax", "1", where_).has_value());
  where_.own_network = false;
  EXPECT_FALSE(CheckSysctl("net.ipv4.ip_forward", "1", where_).has_value());
}

// CVE-2025-52881.
TEST_F(ContainerProtectionTest, procfs_write_redirect) {
  AddUsual();
  where_.own_ipc = true;
  config_.linux_.sysctl = {{"kernel.msgmax", "4321"}};
  EXPECT_EQ(InContainer([] { return ReadText("/proc/sys/kernel/msgmax"); }), "4321\n");
  const auto redirected = InContainer([] { return "in"; },
                                      [this] {
                                        const std::string to = root_ + "/proc/sys/kernel";
                                        ::mount("tmpfs", to.c_str(), "tmpfs", 0, nullptr);
                                        Write(to + "/msgmax", "");
                                      });
  EXPECT_NE(redirected.find("sysctl kernel.msgmax"), std::string::npos) << redirected;
}

TEST_F(ContainerProtectionTest, host_mountinfo_unchanged) {
  AddUsual();
  ASSERT_EQ(::mount(dir_.path().c_str(), dir_.path().c_str(), nullptr, MS_BIND, nullptr), 0);
  ASSERT_EQ(::mount(nullptr, dir_.path().c_str(), nullptr, MS_SHARED, nullptr), 0);
  for (const char* word : {"", "rshared", "rprivate"}) {
    config_.linux_.rootfs_propagation = word;
    const std::string before = ReadText("/proc/self/mountinfo");
    EXPECT_EQ(InContainer([] { return "in"; }), "in") << word;
    EXPECT_EQ(ReadText("/proc/self/mountinfo"), before) << word;
  }
  ::umount2(dir_.path().c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace hutch::rootfs

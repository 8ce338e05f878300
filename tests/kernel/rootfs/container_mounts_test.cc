// What config.json's mounts and devices become, on the real kernel.
#include "rootfs/container_mounts.h"

#include <sys/statvfs.h>
#include <sys/vfs.h>

#include "tests/kernel/rootfs/container_mounts_fixture.h"

namespace hutch::rootfs {
namespace {

using testing::Test;
class ContainerMountsTest : public ContainerMountsFixture {};

TEST_F(ContainerMountsTest, TheUsualMountsAndDevicesAreThere) {
  AddUsual();
  EXPECT_EQ(InContainer([] {
              std::string out;
              struct stat st {};
              ::stat("/dev/null", &st);
              out +=
                  S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3) && (st.st_mode & 07777) == 0666
                      ? "null "
                      : "no-null ";
              out += PathExists("/proc/self/status") ? "proc " : "no-proc ";
              char link[64] = {};
              IgnoreError(::readlink("/dev/ptmx", link, sizeof link - 1) > 0
                              ? OkStatus()
                              : Status(SysError(errno, "")),
                          "shown");
              out += link;
              out += PathExists("/dev/pts/ptmx") ? " pts" : " no-pts";
              return out + (::access("/etc/passwd", F_OK) == 0 ? " host" : "");
            }),
            "null proc pts/ptmx pts");
}

TEST_F(ContainerMountsTest, ABindMountHasItsOptions) {
  Write(source_ + "/file", "text");
  Add("/made/on/the/way", "bind", source_, {"rbind", "ro", "nosuid", "nodev", "rprivate"});
  Add("/one.txt", "", "source/file", {"bind"});  // relative: to the bundle
  EXPECT_EQ(InContainer([] {
              struct statvfs fs {};
              ::statvfs("/made/on/the/way", &fs);
              return ReadText("/made/on/the/way/file") + " " + TryToWrite("/made/on/the/way/new") +
                     ((fs.f_flag & ST_NOSUID) != 0 ? " nosuid" : "") +
                     ((fs.f_flag & ST_NODEV) != 0 ? " nodev " : " ") + ReadText("/one.txt");
            }),
            "text EROFS nosuid nodev text");
}

TEST_F(ContainerMountsTest, RecursiveAttributesReachWhatIsBelow) {
  ASSERT_EQ(::mkdir((source_ + "/below").c_str(), 0755), 0);
  ASSERT_EQ(::mount("tmpfs", (source_ + "/below").c_str(), "tmpfs", 0, nullptr), 0);
  Add("/plain", "bind", source_, {"rbind", "ro"});
  Add("/all", "bind", source_, {"rbind", "rro"});
  EXPECT_EQ(
      InContainer([] { return TryToWrite("/plain/below/a") + " " + TryToWrite("/all/below/b"); }),
      "ok EROFS");
  ::umount2((source_ + "/below").c_str(), MNT_DETACH);
}

TEST_F(ContainerMountsTest, UnknownWordsOfABindMountAreRefusedByName) {
  Add("/x", "bind", source_, {"bind", "rdonly"});
  EXPECT_NE(InContainer([] { return ""; }).find("unknown option \"rdonly\""), std::string::npos);
}

TEST_F(ContainerMountsTest, ATmpfsHasItsSizeAndTheModeOfWhatItCovers) {
  ASSERT_EQ(::mkdir((root_ + "/t").c_str(), 0710), 0);
  Add("/t", "tmpfs", "tmpfs", {"size=1m", "noexec"});
  EXPECT_EQ(InContainer([] {
              struct stat st {};
              struct statvfs fs {};
              ::stat("/t", &st);
              ::statvfs("/t", &fs);
              return std::to_string(fs.f_blocks * fs.f_frsize) + " " +
                     std::to_string(st.st_mode & 07777) +
                     ((fs.f_flag & ST_NOEXEC) != 0 ? " noexec" : "");
            }),
            "1048576 " + std::to_string(0710) + " noexec");
}

TEST_F(ContainerMountsTest, TmpcopyupBringsWhatWasThere) {
  ASSERT_EQ(::mkdir((root_ + "/t").c_str(), 0755), 0);
  Write(root_ + "/t/file", "kept");
  Add("/t", "tmpfs", "tmpfs", {"tmpcopyup", "ro"});
  EXPECT_EQ(InContainer([] { return ReadText("/t/file") + " " + TryToWrite("/t/new"); }),
            "kept EROFS");
  EXPECT_FALSE(PathExists(root_ + "/t/new"));
}

TEST_F(ContainerMountsTest, AnIdMappedMountMapsOwners) {
  Write(source_ + "/file", "text");
  ASSERT_EQ(::chown((source_ + "/file").c_str(), 0, 0), 0);
  Add("/mapped", "bind", source_, {"bind", "idmap"});
  config_.mounts[0].uid_mappings = {{.container_id = 0, .host_id = 5000, .size = 1}};
  config_.mounts[0].gid_mappings = {{.container_id = 0, .host_id = 6000, .size = 1}};
  EXPECT_EQ(InContainer([] {
              struct stat st {};
              ::stat("/mapped/file", &st);
              return std::to_string(st.st_uid) + ":" + std::to_string(st.st_gid);
            }),
            "5000:6000");
}

TEST_F(ContainerMountsTest, DevicesAreMadeAndAWrongOneIsAnError) {
  AddUsual();
  oci::Device device;
  device.path = "/dev/sub/mine";
  device.type = "c";
  device.major = 1;
  device.minor = 7;
  device.file_mode = 0640;
  device.uid = 12;
  device.gid = 13;
  config_.linux_.devices = {device};
  const auto look = [] {
    struct stat st {};
    ::stat("/dev/sub/mine", &st);
    return std::to_string(minor(st.st_rdev)) + " " + std::to_string(st.st_mode & 07777) + " " +
           std::to_string(st.st_uid) + " " + std::to_string(st.st_gid);
  };
  EXPECT_EQ(InContainer(look), "7 " + std::to_string(0640) + " 12 13");
  config_.linux_.devices[0].path = "/there";
  Write(root_ + "/there", "a file");
  EXPECT_NE(InContainer(look).find("something else is at /there"), std::string::npos);
}

TEST_F(ContainerMountsTest, TheRootIsReadOnlyAndTheRestIsNot) {
  AddUsual();
  Add("/data", "tmpfs", "tmpfs");
  config_.root.readonly = true;
  EXPECT_EQ(InContainer([] { return TryToWrite("/file") + " " + TryToWrite("/data/file"); }),
            "EROFS ok");
  EXPECT_EQ(TryToWrite(root_ + "/file"), "ok");  // the mount is, not what it shows
}

TEST_F(ContainerMountsTest, ReadOnlyDevHasItsDevicesAllTheSame) {
  Add("/dev", "tmpfs", "tmpfs", {"ro"});
  EXPECT_EQ(InContainer([] {
              return std::string(PathExists("/dev/null") ? "null " : "") + TryToWrite("/dev/new");
            }),
            "null EROFS");
}

TEST_F(ContainerMountsTest, TheRootCanBeMovedWithoutPivot) {
  AddUsual();
  where_.no_pivot = true;
  EXPECT_EQ(InContainer([] {
              return std::string(PathExists("/proc/self/status") ? "proc" : "none") +
                     (PathExists("/etc/passwd") ? " host" : "");
            }),
            "proc");
}

TEST_F(ContainerMountsTest, PropagationsOfTheRootAreThoseAskedFor) {
  const auto look = [] {
    const Result<std::string> table = ReadFile("/proc/self/mountinfo", 1 << 20);
    const std::string first = table ? table->substr(0, table->find('\n')) : "";
    return std::string(first.find("shared:") != std::string::npos      ? "shared"
                       : first.find("unbindable") != std::string::npos ? "unbindable"
                       : first.find("master:") != std::string::npos    ? "slave"
                                                                       : "private");
  };
  AddUsual();
  for (const char* word : {"shared", "unbindable", "private"}) {
    config_.linux_.rootfs_propagation = word;
    EXPECT_EQ(InContainer(look), word);
  }
}

TEST_F(ContainerMountsTest, CgroupsShowTheContainersOwnOnly) {
  Add("/sys", "sysfs", "sysfs", {"ro"});
  Add("/sys/fs/cgroup", "cgroup", "cgroup", {"ro", "nosuid", "noexec", "nodev"});
  where_.cgroup_namespace = true;
  clone_more_ = CLONE_NEWCGROUP;
  EXPECT_EQ(InContainer([] {
              struct statfs fs {};
              if (::statfs("/sys/fs/cgroup", &fs) != 0) return ErrnoName(errno);
              const bool pure = PathExists("/sys/fs/cgroup/cgroup.procs");
              const std::string tree = pure ? "/sys/fs/cgroup" : "/sys/fs/cgroup/unified";
              return (PathExists(tree + "/cgroup.procs") ? "there " : "not there ") +
                     TryToWrite(tree + "/cgroup.procs");
            }),
            "there EROFS");
}

}  // namespace
}  // namespace hutch::rootfs

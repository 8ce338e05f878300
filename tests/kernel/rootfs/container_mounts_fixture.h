// A root for containers and processes that make its mounts.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "base/file.h"
#include "rootfs/container_mounts.h"
#include "tests/base/temp_dir.h"

namespace hutch::rootfs {

class ContainerMountsFixture : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    ASSERT_EQ(::unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS), 0);
    ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    for (const char* name : {"/rootfs", "/source", "/outside"})
      ASSERT_EQ(::mkdir((dir_.path() + name).c_str(), 0755), 0);
    config_.root.path = root_;
    where_.rootfs = root_;
    where_.bundle = dir_.path();
  }

  void Add(const std::string& destination, const std::string& type, const std::string& source,
           std::vector<std::string> options = {}) {
    oci::ContainerMount mount;
    mount.destination = destination;
    mount.type = type;
    mount.source = source;
    mount.options = std::move(options);
    config_.mounts.push_back(std::move(mount));
  }
  void AddUsual() {
    Add("/proc", "proc", "proc");
    Add("/dev", "tmpfs", "tmpfs", {"nosuid", "strictatime", "mode=755", "size=65536k"});
    Add("/dev/pts", "devpts", "devpts", {"nosuid", "noexec", "newinstance", "ptmxmode=0666"});
  }
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }

  // Makes everything in a process with mount and pid namespaces of its own and looks inside: the
  // error, or what `look` answers. `before` runs between the mounts and the new root.
  std::string InContainer(const std::function<std::string()>& look,
                          const std::function<void()>& before = nullptr) {
    Result<PreparedContainerMounts> mounts = PrepareContainerMounts(config_, where_);
    if (!mounts) return "prepare: " + mounts.error().ToString();
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return "pipe";
    const pid_t outer = ::fork();
    if (outer == 0) {
      if (::unshare(CLONE_NEWNS | CLONE_NEWPID | clone_more_) != 0) ::_exit(1);
      const pid_t inner = ::fork();
      if (inner == 0) {
        const std::string text = Run(*mounts, look, before);
        IgnoreError(WriteAll(ends[1], text), "the reader sees less");
        ::_exit(0);
      }
      ::waitpid(inner, nullptr, 0);
      ::_exit(0);
    }
    ::close(ends[1]);
    const Result<std::string> text = ReadAll(ends[0], 1 << 20);
    ::close(ends[0]);
    ::waitpid(outer, nullptr, 0);
    return text ? *text : "nothing";
  }

  static std::string Run(PreparedContainerMounts& mounts, const std::function<std::string()>& look,
                         const std::function<void()>& before) {
    if (Status made = MakeContainerMounts(mounts); !made)
      return "mounts: " + made.error().ToString();
    if (before) before();
    if (Status in = EnterContainerRoot(mounts); !in) return "enter: " + in.error().ToString();
    if (Status sealed = SealContainerRoot(mounts); !sealed)
      return "seal: " + sealed.error().ToString();
    return look();
  }

  static std::string ReadText(const std::string& path) {
    const Result<std::string> text = ReadFile(path, 1 << 20);
    return text ? *text : "error " + ErrnoName(text.error().sys);
  }
  // "ok" or the name of the error.
  static std::string TryToWrite(const std::string& path) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return ErrnoName(errno);
    ::close(fd);
    return "ok";
  }

  TempDir dir_;
  const std::string root_ = dir_.path() + "/rootfs", source_ = dir_.path() + "/source",
                    outside_ = dir_.path() + "/outside";
  oci::ContainerConfig config_;
  ContainerMountSurroundings where_;
  int clone_more_ = 0;
};

}  // namespace hutch::rootfs

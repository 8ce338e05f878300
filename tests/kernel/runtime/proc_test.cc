// What can be found in a sandbox's /proc, and that none of it can be written.
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "rootfs/mount_plan.h"
#include "rootfs/proc_files.h"
#include "tests/kernel/runtime/sandbox_fixture.h"

namespace hutch::runtime {
namespace {

using Names = std::set<std::string>;

constexpr char kNoSeal[] = "this kernel cannot reduce a mounted /proc to processes";

Names Allowed() {
  Names names = {"self", "thread-self", "sys"};
  names.insert(std::begin(rootfs::kLiveProcFiles), std::end(rootfs::kLiveProcFiles));
  for (const rootfs::ProcTextRow& row : rootfs::kProcTexts) names.insert(row.name);
  names.insert(std::begin(rootfs::kProcLinks), std::end(rootfs::kProcLinks));
  return names;
}

// Everything that is not a process in the /proc of this kernel, and what others have.
Names OfTheKernel() {
  Names names = {"kcore",       "kpagecount", "sysrq-trigger", "sched_debug", "latency_stats",
                 "timer_stats", "modules",    "scsi",          "asound",      "config.gz",
                 "vmcore",      "pressure",   "bootconfig",    "mdstat"};
  const auto listed = ListDirectory("/proc");
  EXPECT_TRUE(listed.has_value());
  for (const std::string& name : *listed)
    if (name.find_first_not_of("0123456789") != std::string::npos) names.insert(name);
  return names;
}

std::string Found(const std::string& names) {
  return "for n in " + names + "; do [ -e /proc/$n ] || [ -L /proc/$n ] && echo $n; done; true";
}

Names Lines(const std::string& text) {
  Names names;
  for (const std::string& line : Split(text, '\n'))
    if (!line.empty()) names.insert(line);
  return names;
}

std::string Joined(const Names& names) { return Join({names.begin(), names.end()}, " "); }

TEST_F(SandboxTest, OfTheKernelsProcOnlyTheListIsToBeFound) {
  if (!rootfs::CanSealProc()) GTEST_SKIP() << kNoSeal;
  oci::Spec root = DefaultSpec();
  UseRootUser(root);
  for (const oci::Spec& spec : {DefaultSpec(), root}) {
    const auto sandbox = Make(spec);
    ASSERT_NE(sandbox, nullptr);
    const std::vector<std::string> command = {"/bin/sh", "-c", Found(Joined(OfTheKernel()))};
    for (const std::string& name : Lines(RunAs(*sandbox, command, spec).out))
      EXPECT_TRUE(Allowed().contains(name)) << name;
    for (const std::string& name : Allowed())
      EXPECT_EQ(RunAs(*sandbox, {"/bin/sh", "-c", Found(name)}, spec).out, name + "\n");
    Destroy(*sandbox);
  }
}

TEST_F(SandboxTest, WhatLooksUpFindsItHiddenHowManyTimesItAsks) {
  if (!rootfs::CanSealProc()) GTEST_SKIP() << kNoSeal;
  const auto sandbox = Make();
  ASSERT_NE(sandbox, nullptr);
  // Also by way of directories: nothing below a hidden one, nothing beside /proc/sys's list.
  const std::string paths =
      "/proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/vm/drop_caches "
      "/proc/bus/pci /proc/irq/0 /proc/fs/ext4 /proc/tty/drivers /proc/self/../kmsg "
      "/proc/sys/../kallsyms /proc/net/../../../kcore";
  const std::string script =
      "for i in 1 2 3; do for f in " + paths + "; do [ -e $f ] && echo $f; done; done; true";
  EXPECT_EQ(Shell(*sandbox, script).out, "");
  Destroy(*sandbox);
}

TEST_F(SandboxTest, NothingInProcButTheProcessesCanBeWritten) {
  oci::Spec root = DefaultSpec();
  UseRootUser(root);
  const auto sandbox = Make(root);
  ASSERT_NE(sandbox, nullptr);
  Names tops = Allowed();
  for (const char* own : {"self", "thread-self", "net", "mounts"}) tops.erase(own);
  std::string paths;
  for (const std::string& name : tops) paths += " /proc/" + name;
  const std::string script =
      "find" + paths +
      " -type f | while read f; do echo $f; (: >> $f) 2>/dev/null && echo BAD $f; "
      "chmod 666 $f 2>/dev/null && echo BAD chmod $f; rm -f $f 2>/dev/null && echo BAD rm $f; "
      "done; "
      "for d in /proc /proc/sys /proc/sys/kernel /proc/sys/kernel/random; do "
      "touch $d/x 2>/dev/null && echo BAD $d; done; true";
  const std::string out = RunAs(*sandbox, {"/bin/sh", "-c", script}, root).out;
  EXPECT_EQ(out.find("BAD"), std::string::npos) << out;
  // Without a seal there are no files to try.
  EXPECT_GE(Lines(out).size(), rootfs::CanSealProc() ? 15u : 0u) << "the files were tried: " << out;
  Destroy(*sandbox);
}

TEST_F(SandboxTest, TheUuidOfTheKernelIsAnotherOneEachTime) {
  if (!rootfs::CanSealProc()) GTEST_SKIP() << kNoSeal;
  const auto sandbox = Make();
  ASSERT_NE(sandbox, nullptr);
  const std::string twice = Shell(*sandbox,
                                  "cat /proc/sys/kernel/random/uuid "
                                  "/proc/sys/kernel/random/uuid")
                                .out;
  EXPECT_EQ(twice.size(), 74u);
  EXPECT_EQ(Lines(twice).size(), 2u);
  EXPECT_EQ(Shell(*sandbox, "cat /proc/sys/kernel/ostype").out, "Linux\n");
  EXPECT_EQ(Shell(*sandbox, "cat /proc/net/dev | grep -c lo:").out, "1\n");
  EXPECT_NE(Shell(*sandbox, "grep -c overlay /proc/mounts").out, "0\n");
  Destroy(*sandbox);
}

TEST_F(SandboxTest, AProcOfPidsHasNothingButProcesses) {
  oci::Spec spec = DefaultSpec();
  UsePidsProc(spec);
  const auto sandbox = Make(spec);
  ASSERT_NE(sandbox, nullptr);
  EXPECT_EQ(sandbox->proc_files_fd(), -1);
  Names names = OfTheKernel();
  names.merge(Allowed());
  names.erase("self");
  names.erase("thread-self");
  EXPECT_EQ(Shell(*sandbox, Found(Joined(names))).out, "");
  Destroy(*sandbox);
}

Status Write(const Sandbox& sandbox, const char* name, const std::string& text) {
  return WriteExistingAt(sandbox.proc_files_fd(), name, text);
}

TEST_F(SandboxTest, WhatIsWrittenToTheLiveFilesIsReadInside) {
  if (!rootfs::CanSealProc()) GTEST_SKIP() << kNoSeal;
  for (const bool readonly : {true, false}) {
    oci::Spec spec = DefaultSpec();
    spec.root.readonly = readonly;
    const auto sandbox = Make(spec);
    ASSERT_NE(sandbox, nullptr);
    for (const char* name : rootfs::kLiveProcFiles) {
      ASSERT_TRUE(Write(*sandbox, name, std::string("of ") + name).has_value());
      EXPECT_EQ(Run(*sandbox, {"cat", std::string("/proc/") + name}).out,
                std::string("of ") + name);
    }
    Destroy(*sandbox);
  }
}

TEST_F(SandboxTest, LiveFilesCanBeWrittenWhenTheTenantHasFilledItsDisk) {
  if (!rootfs::CanSealProc()) GTEST_SKIP() << kNoSeal;
  const auto sandbox = Make();
  ASSERT_NE(sandbox, nullptr);
  ASSERT_TRUE(Write(*sandbox, "meminfo", "first").has_value());
  Shell(*sandbox, "dd if=/dev/zero of=/tmp/big bs=1M count=80");
  ASSERT_TRUE(Write(*sandbox, "meminfo", std::string(2000, 'x')).has_value());
  EXPECT_EQ(Shell(*sandbox, "wc -c < /proc/meminfo").out, "2000\n");
  Destroy(*sandbox);
}

TEST_F(SandboxTest, TheNextDaemonWritesTheSameFiles) {
  if (!rootfs::CanSealProc()) GTEST_SKIP() << kNoSeal;
  auto sandbox = Make();
  ASSERT_NE(sandbox, nullptr);
  struct stat before {};
  ASSERT_EQ(::fstat(sandbox->proc_files_fd(), &before), 0);
  ASSERT_TRUE(runtime_->SaveState(*sandbox, "x").has_value());
  sandbox.reset();
  StopRuntime();
  StartRuntime(Pools::kOff, 0);
  std::vector<std::string> removed;
  auto recovered = runtime_->Recover(&removed);
  ASSERT_TRUE(recovered.has_value());
  ASSERT_EQ(recovered->size(), 1u);
  sandbox = std::move(recovered->front().sandbox);
  struct stat after {};
  ASSERT_EQ(::fstat(sandbox->proc_files_fd(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(before.st_dev, after.st_dev);
  ASSERT_TRUE(Write(*sandbox, "stat", "again").has_value());
  EXPECT_EQ(Run(*sandbox, {"cat", "/proc/stat"}).out, "again");
  Destroy(*sandbox);
}

TEST_F(SandboxTest, AProcessStartsOnTheCpusOfItsSpec) {
  cpu_set_t usable;
  ASSERT_EQ(::sched_getaffinity(0, sizeof usable, &usable), 0);
  uint32_t last = 0;
  for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &usable)) last = cpu;
  for (const bool no_new_privileges : {true, false}) {
    oci::Spec spec = DefaultSpec();
    spec.process.no_new_privileges = no_new_privileges;
    spec.process.cpus = {last};
    const auto sandbox = Make(spec);
    ASSERT_NE(sandbox, nullptr);
    EXPECT_EQ(RunAs(*sandbox, {"grep", "Cpus_allowed_list", "/proc/self/status"}, spec).out,
              "Cpus_allowed_list:\t" + std::to_string(last) + "\n");
    spec.process.cpus = {1023};  // gone meanwhile
    EXPECT_EQ(RunAs(*sandbox, {"true"}, spec).exit_code(), 0);
    Destroy(*sandbox);
  }
}

double Uptime() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

TEST_F(SandboxTest, StartTimesCountFromTheCreation) {
  const double begun = Uptime();
  const auto sandbox = Make();
  ASSERT_NE(sandbox, nullptr);
  const std::vector<std::string> fields = Split(Run(*sandbox, {"cat", "/proc/self/stat"}).out, ' ');
  ASSERT_GT(fields.size(), 22u);
  const double started = std::stod(fields[21]) / 100;
  // A kernel without time namespaces counts from its own boot.
  const double zero = PathExists("/proc/self/timens_offsets") ? begun : 0;
  EXPECT_GE(started, begun - zero - 1);
  EXPECT_LE(started, Uptime() - zero + 1);
  Destroy(*sandbox);
}

}  // namespace
}  // namespace hutch::runtime

#include "rootfs/mount_planner.h"

#include <gtest/gtest.h>

#include <sstream>

namespace hutch::rootfs {
namespace {

const char* KindName(MountOpKind kind) {
  constexpr const char* kNames[] = {"scratch",   "attach",    "proc",     "filesystem", "mask-dir",
                                    "mask-file", "read-only", "template", "proc-sys",   "pin",
                                    "seal",      "view",      "root-ro"};
  return kNames[static_cast<size_t>(kind)];
}

// One line an op: kind target source options attributes.
std::string Print(const MountPlan& plan) {
  std::ostringstream out;
  for (const MountOp& op : plan.ops) {
    const auto text = [&](uint32_t at) { return plan.strings.c_str() + at; };
    out << KindName(op.kind) << " " << text(op.target) << " [" << text(op.source) << "]";
    uint32_t at = op.options_at;
    for (int i = 0; i < op.options; ++i) {
      const std::string key = text(at), value = text(at + static_cast<uint32_t>(key.size()) + 1);
      out << " " << key << "=" << value;
      at += static_cast<uint32_t>(key.size() + value.size()) + 2;
    }
    out << " " << std::hex << op.attributes << std::dec << "\n";
  }
  return out.str();
}

oci::Spec With(oci::Mount mount) {
  oci::Spec spec;
  spec.mounts = {std::move(mount)};
  return spec;
}

constexpr char kDev[] =
    "attach dev [] 0\n"
    "filesystem dev/pts [devpts] 0\n"
    "filesystem dev/mqueue [mqueue] 0\n";

TEST(MountPlanner, ATmpfsWithoutASizeIsADirectoryOfTheScratch) {
  const auto plan =
      PlanMounts(With({"/tmp", "tmpfs", "", {"mode=1777", "uid=5", "noexec"}}), {.dev = 3});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(Print(*plan), std::string(kDev) + "scratch tmp [m0] e\n");
  ASSERT_EQ(plan->scratch_directories.size(), 1u);
  EXPECT_EQ(plan->scratch_directories[0].mode, 01777u);
  EXPECT_EQ(plan->scratch_directories[0].uid, 5u);
  EXPECT_EQ(plan->ops[0].fd_index, 3);
}

TEST(MountPlanner, ATmpfsBelowAnotherIsADirectoryInIt) {
  oci::Spec spec;
  spec.mounts = {{"/w", "tmpfs", "", {"mode=755"}},
                 {"/w/a/b", "tmpfs", "", {"mode=700", "uid=5"}},
                 {"/w/a", "tmpfs", "", {"mode=711"}},
                 {"/wide", "tmpfs", "", {"mode=755"}}};
  const auto plan = PlanMounts(spec, {.dev = 0});
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->scratch_directories.size(), 4u);
  EXPECT_EQ(Print(*plan), std::string(kDev) + "scratch w [m0] 6\nscratch wide [" +
                              plan->scratch_directories[3].name + "] 6\n");
  EXPECT_EQ(plan->scratch_directories[1].name, "m0/a");
  EXPECT_EQ(plan->scratch_directories[1].mode, 0755u);
  EXPECT_EQ(plan->scratch_directories[2].name, "m0/a/b");
  EXPECT_EQ(plan->scratch_directories[2].mode, 0700u);
  EXPECT_EQ(plan->scratch_directories[2].uid, 5u);
}

TEST(MountPlanner, ATmpfsWithASizeIsAFileSystemOfItsOwn) {
  const auto plan = PlanMounts(With({"/a/b", "tmpfs", "", {"size=1m"}}), {.dev = 0});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(Print(*plan), std::string(kDev) + "filesystem a/b [tmpfs] size=1m 6\n");
}

TEST(MountPlanner, OnlyTheDefaultProcMayBeTheOneMadeAhead) {
  EXPECT_TRUE(
      PlanMounts(With({"/proc", "proc", "", {"hidepid=invisible", "subset=pid"}}), {.dev = 0})
          ->default_proc);
  EXPECT_FALSE(
      PlanMounts(With({"/proc", "proc", "", {"hidepid=invisible"}}), {.dev = 0})->default_proc);
}

// The one made ahead is sealed by nobody else.
TEST(MountPlanner, EverySubsetOfProcIsSealedLast) {
  for (const char* subset : {"subset=pid", "subset=honest"}) {
    const auto plan =
        PlanMounts(With({"/proc", "proc", "", {"hidepid=invisible", subset}}), {.dev = 0});
    ASSERT_TRUE(plan.has_value());
    EXPECT_TRUE(plan->default_proc);
    EXPECT_EQ(plan->ops.back().kind, MountOpKind::kSealProc) << subset;
  }
}

TEST(MountPlanner, AnHonestProcIsFilledAndThenSealed) {
  const auto plan =
      PlanMounts(With({"/proc", "proc", "", {"hidepid=invisible", "subset=honest"}}), {.dev = 0});
  ASSERT_TRUE(plan.has_value());
  EXPECT_TRUE(plan->live_proc);
  EXPECT_EQ(Print(*plan), std::string(kDev) +
                              "proc proc [] hidepid=invisible e\n"
                              "scratch proc/cpuinfo [proc/cpuinfo] f\n"
                              "scratch proc/meminfo [proc/meminfo] f\n"
                              "scratch proc/stat [proc/stat] f\n"
                              "scratch proc/uptime [proc/uptime] f\n"
                              "scratch proc/loadavg [proc/loadavg] f\n"
                              "template proc/version [proc/version] 0\n"
                              "template proc/filesystems [proc/filesystems] 0\n"
                              "template proc/swaps [proc/swaps] 0\n"
                              "template proc/vmstat [proc/vmstat] 0\n"
                              "proc-sys proc/sys [proc/sys] 0\n"
                              "pin proc/mounts [] 0\n"
                              "pin proc/net [] 0\n"
                              "seal proc [meminfo] 0\n");
}

TEST(MountPlanner, RefusesWhatIsNotAPlainMount) {
  const oci::Mount kBad[] = {
      {"tmp", "tmpfs", "", {}},
      {"/", "tmpfs", "", {}},
      {"/a/../b", "tmpfs", "", {}},
      {"/a//b", "tmpfs", "", {}},
      {"/dev", "tmpfs", "", {}},
      {"/dev/pts", "tmpfs", "", {}},
      {"/x", "tmpfs", "", {"suid"}},
      {"/x", "tmpfs", "", {"mode=9"}},
      {"/x", "tmpfs", "", {"mode="}},
      {"/x", "tmpfs", "", {"uid=-1"}},
      {"/x", "bind", "/etc", {}},
      {"/x", "", "", {}},
      {"/proc", "proc", "", {"subset=all"}},
      {"/x", "proc", "", {"subset=pid"}},
  };
  for (const oci::Mount& mount : kBad)
    EXPECT_FALSE(PlanMounts(With(mount), {.dev = 0}).has_value())
        << mount.destination << " " << mount.type;
}

TEST(MountPlanner, HasABoundOnMounts) {
  oci::Spec spec;
  for (size_t i = 0; i <= kMaxMountOps; ++i)
    spec.mounts.push_back({"/m" + std::to_string(i), "tmpfs", "", {}});
  EXPECT_EQ(PlanMounts(spec, {.dev = 0}).error().code, Code::kLimit);
}

TEST(MountPlanner, MasksAndReadonlyPathsComeLast) {
  oci::Spec spec = With({"/proc", "proc", "", {}});
  spec.linux_.masked_paths = {"/proc/kcore", "/proc/acpi"};
  spec.linux_.readonly_paths = {"/proc/sys"};
  const auto plan = PlanMounts(spec, {.dev = 0});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(Print(*plan), std::string(kDev) +
                              "proc proc [] e\nread-only proc/sys [] 0\nmask-file proc/kcore [] "
                              "0\nmask-dir proc/acpi [] 0\n");
}

TEST(MountPlanner, APartOfTheRootIsWritableBeforeTheRootIsReadOnly) {
  oci::Spec spec;
  spec.root.readonly = true;
  spec.mounts = {{"/workspace", "root", "root", {"nosuid", "nodev"}},
                 {"/workspace/in", "tmpfs", "tmpfs", {"mode=700", "uid=5"}},
                 {"/tmp", "tmpfs", "tmpfs", {}}};
  const auto plan = PlanMounts(spec, {.dev = 3});
  ASSERT_TRUE(plan.has_value()) << plan.error().what;
  EXPECT_TRUE(plan->root_upper);
  ASSERT_GE(plan->ops.size(), 3u);
  EXPECT_EQ(KindName(plan->ops[plan->ops.size() - 3].kind), std::string("view"));
  EXPECT_EQ(KindName(plan->ops[plan->ops.size() - 2].kind), std::string("scratch"));
  EXPECT_EQ(KindName(plan->ops.back().kind), std::string("root-ro"));
  // What is mounted in a view is a directory of the upper.
  ASSERT_EQ(plan->scratch_directories.size(), 2u);
  EXPECT_EQ(plan->scratch_directories[0].name, "upper/workspace/in");
  EXPECT_EQ(plan->scratch_directories[0].uid, 5u);
}

TEST(MountPlanner, InAWritableRootAPartOfItIsNothingOfItsOwn) {
  oci::Spec spec;
  spec.root.readonly = false;
  spec.mounts = {{"/workspace", "root", "root", {"nosuid", "nodev"}}};
  const auto plan = PlanMounts(spec, {.dev = 3});
  ASSERT_TRUE(plan.has_value()) << plan.error().what;
  EXPECT_TRUE(plan->root_upper);
  for (const MountOp& op : plan->ops) {
    EXPECT_NE(op.kind, MountOpKind::kRootView);
    EXPECT_NE(op.kind, MountOpKind::kRootReadonly);
  }
}

TEST(PlanMounts, AVolumeIsAttachedByItsNumberAndGetsItsPlace) {
  oci::Spec spec = With({"/workspace", "tmpfs", "", {"mode=755"}});
  spec.mounts.push_back({"/workspace/a/b", "volume", "1", {"uid=5", "gid=6"}});
  const AttachSlots slots{.dev = 0, .first_volume = 4, .volumes = 2};
  const auto plan = PlanMounts(spec, slots);
  ASSERT_TRUE(plan.has_value()) << plan.error().ToString();
  const MountOp& op = plan->ops.back();
  EXPECT_EQ(op.kind, MountOpKind::kAttach);
  EXPECT_EQ(op.fd_index, 5);
  EXPECT_STREQ(plan->strings.c_str() + op.target, "workspace/a/b");
  const ScratchDirectory& place = plan->scratch_directories.back();
  EXPECT_TRUE(place.name.ends_with("/a/b"));
  EXPECT_EQ(place.uid, 5u);
  for (const char* source : {"2", "x", ""})
    EXPECT_FALSE(PlanMounts(With({"/v", "volume", source, {}}), slots).has_value()) << source;
  EXPECT_FALSE(PlanMounts(With({"/v", "volume", "0", {"exec"}}), slots).has_value());
}

}  // namespace
}  // namespace hutch::rootfs

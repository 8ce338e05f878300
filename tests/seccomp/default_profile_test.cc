#include "seccomp/default_profile.h"

#include <gtest/gtest.h>
#include <seccomp.h>

#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "base/text.h"
#include "seccomp/syscall_numbers.h"

namespace hutch::seccomp {
namespace {

TEST(DefaultProfile, ResolvesAndNamesEachCallOnce) {
  auto profile = ResolveDefaultProfile();
  ASSERT_TRUE(profile.has_value()) << profile.error().ToString();
  EXPECT_GT(profile->size(), 250u);
}

// A call that nobody judged would be ENOSYS by accident.
TEST(DefaultProfile, JudgesEveryCallThatLibseccompKnows) {
  auto profile = ResolveDefaultProfile();
  ASSERT_TRUE(profile.has_value());
  for (int nr = 0; nr <= 456; ++nr) {
    char* name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, nr);
    if (name != nullptr) {
      EXPECT_TRUE(profile->contains(static_cast<uint32_t>(nr))) << name;
    }
    std::free(name);
  }
}

TEST(DefaultProfile, KeepsCallsInOrder) {
  for (const SyscallGroup& group : DefaultProfile()) {
    const std::vector<std::string> names = Split(group.calls, ' ');
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end())) << group.name;
  }
}

// Known on both architectures; a typing error would otherwise pass for "not here".
TEST(DefaultProfile, NamesExistOnX8664OrAarch64) {
  for (const SyscallGroup& group : DefaultProfile())
    for (const std::string& name : Split(group.calls, ' '))
      EXPECT_TRUE(FindSyscall(name).kind == SyscallName::kHere ||
                  seccomp_syscall_resolve_name_arch(SCMP_ARCH_X86_64, name.c_str()) >= 0 ||
                  seccomp_syscall_resolve_name_arch(SCMP_ARCH_AARCH64, name.c_str()) >= 0)
          << name;
}

TEST(DefaultProfile, IsTheOneInTheDocument) {
  auto text = ReadFile(std::string(HUTCH_SOURCE_DIR) + "/docs/seccomp.md", 1 << 20);
  ASSERT_TRUE(text.has_value()) << text.error().ToString();
  std::vector<std::string> documented, expected;
  for (const std::string& line : Split(*text, '\n'))
    if (line.rfind("| ", 0) == 0 && line.find(" | `") != std::string::npos)
      documented.push_back(line);
  for (const SyscallGroup& group : DefaultProfile())
    expected.push_back(std::string("| ") + group.name + " | " + VerdictName(group.verdict) +
                       " | `" + group.calls + "` |");
  EXPECT_EQ(documented, expected);
}

TEST(SyscallNumbers, KnowsWhatIsElsewhereAndWhatIsNowhere) {
  EXPECT_EQ(FindSyscall("read").kind, SyscallName::kHere);
  EXPECT_EQ(FindSyscall("s390_pci_mmio_read").kind, SyscallName::kElsewhere);
  EXPECT_EQ(FindSyscall("raed").kind, SyscallName::kUnknown);
  EXPECT_EQ(FindSyscall("").kind, SyscallName::kUnknown);
  EXPECT_EQ(FindSyscall("fchmodat2").number, 452u);
  EXPECT_EQ(FindSyscall("mseal").number, 462u);
}

}  // namespace
}  // namespace hutch::seccomp

#include "cgroups/device_filter.h"

#include <gtest/gtest.h>

namespace hutch::cgroups {
namespace {

// Runs the instructions that the compiler uses, and no others.
int RunFilter(const std::vector<bpf_insn>& program, char type, uint32_t major, uint32_t minor,
              uint32_t access) {
  const uint32_t kind = type == 'b' ? BPF_DEVCG_DEV_BLOCK : BPF_DEVCG_DEV_CHAR;
  const uint32_t context[] = {(access << 16) | kind, major, minor};
  uint32_t r[11] = {};
  for (size_t at = 0; at < program.size(); ++at) {
    const bpf_insn& i = program[at];
    const auto imm = static_cast<uint32_t>(i.imm);
    switch (i.code) {
      case BPF_LDX | BPF_MEM | BPF_W:
        r[i.dst_reg] = context[i.off / 4];
        break;
      case BPF_ALU | BPF_MOV | BPF_X:
        r[i.dst_reg] = r[i.src_reg];
        break;
      case BPF_ALU64 | BPF_MOV | BPF_K:
        r[i.dst_reg] = imm;
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        r[i.dst_reg] &= imm;
        break;
      case BPF_ALU | BPF_RSH | BPF_K:
        r[i.dst_reg] >>= imm;
        break;
      case BPF_JMP32 | BPF_JNE | BPF_K:
        if (r[i.dst_reg] != imm) at += static_cast<size_t>(i.off);
        break;
      case BPF_JMP32 | BPF_JEQ | BPF_K:
        if (r[i.dst_reg] == imm) at += static_cast<size_t>(i.off);
        break;
      case BPF_JMP | BPF_EXIT:
        return static_cast<int>(r[0]);
      default:
        ADD_FAILURE() << "unknown instruction " << int{i.code};
        return -1;
    }
  }
  ADD_FAILURE() << "ran off the end";
  return -1;
}

using Rules = std::vector<DeviceRule>;

const std::vector<Rules>& Lists() {
  static const std::vector<Rules> lists = {
      {},
      {{.allow = true}},
      {{.allow = false}},
      {{.allow = true}, {.allow = false, .type = 'c', .major = 1, .minor = 11}},
      {{.allow = false}, {.allow = true, .type = 'c', .major = 1, .access = kDeviceRead}},
      {{.allow = true, .type = 'b', .access = kDeviceRead},
       {.allow = true, .type = 'b', .access = kDeviceWrite}},
      {{.allow = true, .type = 'c', .major = 1},
       {.allow = false, .type = 'c', .major = 1, .access = kDeviceWrite},
       {.allow = true, .type = 'a', .major = 1, .minor = 3}},
      WithDefaultDevices({}),
      WithDefaultDevices({{.allow = false}, {.allow = true, .type = 'c', .major = 10}}),
  };
  return lists;
}

TEST(DeviceFilter, TheProgramDecidesAsTheRulesDo) {
  for (size_t list = 0; list < Lists().size(); ++list) {
    const std::vector<bpf_insn> program = CompileDeviceFilter(Lists()[list]);
    for (const char type : {'b', 'c'})
      for (const uint32_t major : {1u, 5u, 10u, 136u})
        for (const uint32_t minor : {0u, 3u, 11u})
          for (uint32_t access = 1; access <= kDeviceAll; ++access)
            EXPECT_EQ(RunFilter(program, type, major, minor, access),
                      DeviceAllowed(Lists()[list], type, major, minor, access) ? 1 : 0)
                << "list " << list << ": " << type << " " << major << ":" << minor << " " << access;
  }
}

TEST(DeviceFilter, TheLastRuleThatMatchesDecides) {
  const Rules& hole = Lists()[3];
  EXPECT_TRUE(DeviceAllowed(hole, 'c', 1, 3, kDeviceAll));
  EXPECT_FALSE(DeviceAllowed(hole, 'c', 1, 11, kDeviceRead));
  EXPECT_FALSE(DeviceAllowed({}, 'c', 1, 3, kDeviceRead)) << "no rule: denied";
}

TEST(DeviceFilter, KindsOfAccessAreDecidedOneByOne) {
  const Rules& two = Lists()[5];
  EXPECT_TRUE(DeviceAllowed(two, 'b', 8, 0, kDeviceRead | kDeviceWrite));
  EXPECT_FALSE(DeviceAllowed(two, 'b', 8, 0, kDeviceRead | kDeviceMknod));
}

TEST(DeviceFilter, DefaultDevicesAreThereAndKmsgIsNot) {
  const Rules rules = WithDefaultDevices({{.allow = false}});
  for (const uint32_t minor : {3u, 5u, 7u, 8u, 9u})
    EXPECT_TRUE(DeviceAllowed(rules, 'c', 1, minor, kDeviceAll)) << minor;
  EXPECT_TRUE(DeviceAllowed(rules, 'c', 136, 7, kDeviceRead | kDeviceWrite));
  EXPECT_FALSE(DeviceAllowed(rules, 'c', 1, 11, kDeviceRead)) << "kmsg";
  EXPECT_FALSE(DeviceAllowed(rules, 'b', 8, 0, kDeviceRead)) << "a disk";
  EXPECT_TRUE(DeviceAllowed(rules, 'b', 8, 0, kDeviceMknod));
}

TEST(DeviceFilter, V1SaysTheSameOrNothing) {
  const auto plain = PlanV1Devices({{.allow = false},
                                    {.allow = true, .type = 'c', .major = 1, .minor = 3},
                                    {.allow = true, .type = 'a', .major = 7, .access = 2}});
  ASSERT_TRUE(plain);
  const DeviceWrites expected = {{"devices.deny", "a"},
                                 {"devices.allow", "c 1:3 rwm"},
                                 {"devices.allow", "b 7:* r"},
                                 {"devices.allow", "c 7:* r"}};
  ASSERT_EQ(plain->size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_STREQ((*plain)[i].first, expected[i].first);
    EXPECT_EQ((*plain)[i].second, expected[i].second);
  }
  EXPECT_FALSE(PlanV1Devices({{.allow = true, .type = 'c', .major = 1},
                              {.allow = false, .type = 'c', .major = 1, .minor = 11}}))
      << "a hole in a wider rule";
  EXPECT_TRUE(PlanV1Devices({{.allow = true, .type = 'c', .major = 1, .minor = 11},
                             {.allow = false, .type = 'c', .major = 1, .minor = 11}}));
}

}  // namespace
}  // namespace hutch::cgroups

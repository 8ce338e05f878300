#include "runtime/agent_messages.h"

#include <gtest/gtest.h>

#include <cstring>

#include "runtime/child_plan.h"
#include "runtime/default_spec.h"

namespace hutch::runtime {
namespace {

template <class Message>
std::string Bytes(AgentMessage type, Message message) {
  message.header = {kAgentMagic, kAgentVersion, type, sizeof message, 7};
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

TEST(AgentReply, ReadsWhatTheAgentMaySay) {
  ExitedMessage exited{};
  exited.wait_status = 3 << 8;
  exited.user_us = 1500000;
  const auto reply = ParseAgentReply(Bytes(AgentMessage::kExited, exited));
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->process, 7u);
  EXPECT_EQ(reply->wait_status, 3 << 8);
  EXPECT_EQ(reply->usage.ru_utime.tv_sec, 1);
}

TEST(AgentReply, RefusesEveryOtherLength) {
  const std::string whole = Bytes(AgentMessage::kExited, ExitedMessage{});
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(ParseAgentReply(whole.substr(0, size))) << size;
  EXPECT_FALSE(ParseAgentReply(whole + "x"));
}

TEST(AgentReply, RefusesForeignHeadersAndImpossibleValues) {
  const std::string whole = Bytes(AgentMessage::kExited, ExitedMessage{});
  for (size_t i = 0; i < offsetof(AgentHeader, process); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x40);
    EXPECT_FALSE(ParseAgentReply(changed)) << i;
  }
  ExitedMessage negative{};
  negative.user_us = -1;
  EXPECT_FALSE(ParseAgentReply(Bytes(AgentMessage::kExited, negative)));
  ReadyMessage many{};
  many.note_count = kMaxNotes + 1;
  EXPECT_FALSE(ParseAgentReply(Bytes(AgentMessage::kReady, many)));
  FailedMessage step{};
  step.step = static_cast<uint32_t>(AgentStep::kCount);
  step.error = EPERM;
  EXPECT_FALSE(ParseAgentReply(Bytes(AgentMessage::kFailed, step)));
  EXPECT_FALSE(ParseAgentReply(Bytes(AgentMessage::kPlan, BlankMessage{})));
}

class Plan : public ::testing::Test {
 protected:
  void SetUp() override {
    auto mounts = rootfs::PlanMounts(DefaultSpec(), {.dev = 3});
    ASSERT_TRUE(mounts.has_value());
    mounts_ = std::move(*mounts);
    filters_.agent = {sock_filter{6, 0, 0, 0x7fff0000}};
    filters_.process = filters_.agent;
    auto bytes = PrintPlan(DefaultSpec(), mounts_, filters_);
    ASSERT_TRUE(bytes.has_value());
    bytes_ = std::move(*bytes);
  }
  int Parse(const std::string& bytes, size_t size) {
    std::vector<uint64_t> aligned(bytes.size() / 8 + 1);
    std::memcpy(aligned.data(), bytes.data(), bytes.size());
    ChildPlan plan{};
    return ParsePlan(aligned.data(), size, &plan);
  }
  rootfs::MountPlan mounts_;
  seccomp::FilterSet filters_;
  std::string bytes_;
};

TEST_F(Plan, CrossesWhole) {
  EXPECT_EQ(Parse(bytes_, bytes_.size()), 0);
  for (size_t size = 0; size < bytes_.size(); size += 3)
    EXPECT_EQ(Parse(bytes_, size), EPROTO) << size;
}

TEST_F(Plan, NoOffsetReachesOutside) {
  const size_t first = sizeof(PlanMessage);
  for (size_t op = 0; op < mounts_.ops.size(); ++op) {
    for (const size_t field :
         {offsetof(rootfs::MountOp, target), offsetof(rootfs::MountOp, source)}) {
      std::string changed = bytes_;
      const uint32_t outside = static_cast<uint32_t>(mounts_.strings.size());
      std::memcpy(changed.data() + first + op * sizeof(rootfs::MountOp) + field, &outside,
                  sizeof outside);
      EXPECT_EQ(Parse(changed, changed.size()), EPROTO);
    }
    std::string changed = bytes_;
    const uint16_t pairs = 20000;
    std::memcpy(
        changed.data() + first + op * sizeof(rootfs::MountOp) + offsetof(rootfs::MountOp, options),
        &pairs, sizeof pairs);
    EXPECT_EQ(Parse(changed, changed.size()), EPROTO);
  }
}

TEST(Start, CrossesWholeAndOnlyWhole) {
  oci::ProcessSpec spec = DefaultSpec().process;
  spec.args = {"printf", "%s", "", "x y"};
  spec.cpus = {0, 65, 1023, 5000};
  auto bytes = PrintStart(9, spec, {});
  ASSERT_TRUE(bytes.has_value());
  static char* table[kMaxArgs + 2];
  ChildStart start{};
  std::string copy = *bytes;
  ASSERT_EQ(ParseStart(copy.data(), copy.size(), table, &start), 0);
  EXPECT_STREQ(start.workdir, "/workspace");
  EXPECT_EQ(start.message->cpu_mask[0], 1u);
  EXPECT_EQ(start.message->cpu_mask[1], 2u);
  EXPECT_EQ(start.message->cpu_mask[15], uint64_t{1} << 63);
  EXPECT_STREQ(start.argv[3], "x y");
  EXPECT_STREQ(start.argv[2], "");
  EXPECT_EQ(start.argv[4], nullptr);
  EXPECT_EQ(std::string(start.envp[1]), "LANG=C.UTF-8");
  for (size_t size = 0; size < bytes->size(); ++size) {
    std::string cut = bytes->substr(0, size);
    EXPECT_EQ(ParseStart(cut.data(), cut.size(), table, &start), EPROTO) << size;
  }
}

TEST(Start, RefusesWhatTheAgentCouldNotHold) {
  oci::ProcessSpec spec;
  EXPECT_EQ(PrintStart(1, spec, {}).error().code, Code::kInvalidArgument);
  spec.args = {std::string(kMaxStartBytes, 'x')};
  EXPECT_EQ(PrintStart(1, spec, {}).error().code, Code::kTooLarge);
  spec.args.assign(kMaxArgs + 1, "x");
  EXPECT_EQ(PrintStart(1, spec, {}).error().code, Code::kTooLarge);
}

TEST(StartReport, MissingAndUnusableProgramsHaveTheirOwnCodes) {
  oci::ProcessSpec spec;
  spec.args = {"prog"};
  spec.cwd = "/w";
  const auto step = [](ProcessStep s) { return static_cast<uint32_t>(s); };
  EXPECT_EQ(StartReportError(step(ProcessStep::kExec), ENOENT, spec).code, Code::kCommandNotFound);
  EXPECT_EQ(StartReportError(step(ProcessStep::kExec), EACCES, spec).code,
            Code::kCommandNotExecutable);
  EXPECT_EQ(StartReportError(step(ProcessStep::kExec), ENOEXEC, spec).code,
            Code::kCommandNotExecutable);
  EXPECT_EQ(StartReportError(step(ProcessStep::kExec), E2BIG, spec).code, Code::kTooLarge);
  EXPECT_EQ(StartReportError(step(ProcessStep::kWorkdir), ENOENT, spec).field, "workdir");
  EXPECT_EQ(StartReportError(step(ProcessStep::kUser), EPERM, spec).code, Code::kKernel);
  EXPECT_EQ(StartReportError(9999, EPERM, spec).code, Code::kKernel);
}

}  // namespace
}  // namespace hutch::runtime

// A sandbox's own memory of names, with a resolver that the test answers for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "base/unique_fd.h"
#include "network/counters.h"
#include "network/egress/names.h"
#include "network/egress/protocol.h"
#include "network/egress/tenant.h"

namespace hutch::network {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using State = NameAnswer::State;

class HeldResolver final : public Resolver {
 public:
  void Configure(const std::string&, const std::string&) override {}
  void Lookup(const std::string& host, std::function<void(Resolved)> callback) override {
    asked.push_back(host);
    held.push_back(std::move(callback));
  }
  void AnswerAll(const Resolved& resolved) {
    for (const auto& callback : std::exchange(held, {})) callback(resolved);
  }
  std::vector<std::string> asked;
  std::vector<std::function<void(Resolved)>> held;
};

class EgressNameMemory : public ::testing::Test {
 protected:
  State Ask(const std::string& name) {
    State state = State::kFailed;
    names.Lookup(name, [&](const NameAnswer& answer) { state = answer.state; });
    resolver.AnswerAll({Resolved::State::kFound, {address}, std::chrono::seconds(60)});
    return state;
  }
  HeldResolver resolver;
  LookupBudget budget;
  Names names{resolver, budget};
  const Address address = ParseAddress("11.0.0.2").value();
};

TEST_F(EgressNameMemory, OneLookupServesAllWhoWait) {
  int answered = 0;
  for (int i = 0; i < 3; ++i) names.Lookup("a.test", [&](const NameAnswer&) { ++answered; });
  EXPECT_THAT(resolver.asked, ElementsAre("a.test"));
  EXPECT_EQ(answered, 0);
  resolver.AnswerAll({Resolved::State::kFound, {address}, std::chrono::seconds(60)});
  EXPECT_EQ(answered, 3);
  EXPECT_THAT(names.NamesOf(address), ElementsAre("a.test"));
  EXPECT_EQ(budget.in_flight, 0u);
}

TEST_F(EgressNameMemory, LookupsInFlightAreBounded) {
  size_t busy = 0;
  const auto count = [&](const NameAnswer& answer) { busy += answer.state == State::kTooMany; };
  for (size_t i = 0; i < kMaxLookupsPerSandbox + 3; ++i)
    names.Lookup("n" + std::to_string(i) + ".test", count);
  EXPECT_EQ(busy, 3u);
  busy = 0;
  for (size_t i = 0; i < kMaxWaitingPerName + 3; ++i) names.Lookup("n0.test", count);
  EXPECT_EQ(busy, 4u);  // the first one waits as well
}

TEST_F(EgressNameMemory, AllSandboxesTogetherAreBounded) {
  budget.in_flight = kMaxLookups;
  EXPECT_EQ(Ask("a.test"), State::kTooMany);
  budget.in_flight = 0;
  EXPECT_EQ(Ask("a.test"), State::kFound);
}

TEST_F(EgressNameMemory, OldNamesMakeRoom) {
  size_t found = 0;
  for (size_t i = 0; i < kMaxNamesAtOnce; ++i)
    found += Ask("n" + std::to_string(i) + ".test") == State::kFound;
  EXPECT_EQ(found, kMaxNamesAtOnce);
  EXPECT_EQ(Ask("one-more.test"), State::kTooMany);
  EXPECT_LE(names.size(), kMaxNamesPerSandbox);
}

TEST_F(EgressNameMemory, AnAnswerForASandboxThatIsGoneIsDropped) {
  auto gone = std::make_unique<Names>(resolver, budget);
  bool called = false;
  gone->Lookup("a.test", [&](const NameAnswer&) { called = true; });
  gone.reset();
  EXPECT_EQ(budget.in_flight, 0u);
  resolver.AnswerAll({});
  EXPECT_FALSE(called);
}

TEST(NameServersTest, ResolvConfIsReadAsTheResolverDoes) {
  EXPECT_EQ(NameServers("# x\nsearch a b\nnameserver 10.0.0.1\nnameserver\tfd00::1 # y\n"),
            "10.0.0.1,[fd00::1]:53");
  EXPECT_EQ(NameServers("nameserver nonsense\n"), "127.0.0.1");
  EXPECT_EQ(NameServers("nameserver 1.1.1.1\nnameserver 1.1.1.2\nnameserver 1.1.1.3\n"
                        "nameserver 1.1.1.4\n"),
            "1.1.1.1,1.1.1.2,1.1.1.3");
}

TEST(EgressDenials, DifferentOnesAreBounded) {
  Loop loop;
  std::vector<Denial> told;
  Denials denials(loop, [&](const Denial& denial) {
    told.push_back(denial);
    if (denial.reason.starts_with("more different")) loop.Stop();
  });
  for (size_t i = 0; i < kMaxDenialKinds + 10; ++i) {
    Denial denial;
    denial.host = std::to_string(i);
    denials.Add(denial);
    denials.Add(denial);
  }
  EXPECT_EQ(told.size(), kMaxDenialKinds);
  loop.Run();
  EXPECT_EQ(told.size(), 2 * kMaxDenialKinds + 1);
  EXPECT_EQ(told.back().times, 20u);
}

TEST(EgressCounters, AreKeptInTheFile) {
  const UniqueFd fd(::memfd_create("counters", MFD_CLOEXEC));
  {
    auto file = CountersFile::Map(fd.get());
    ASSERT_TRUE(file);
    (*file)->sent_bytes += 5;
  }
  auto again = CountersFile::Map(fd.get());
  ASSERT_TRUE(again);
  EXPECT_EQ((*again)->sent_bytes, 5u);
  EXPECT_EQ((*again)->version, 1u);
  (*again)->version = 2;
  EXPECT_FALSE(CountersFile::Map(fd.get()));
}

TEST(EgressProtocol, SettingsArriveAsTheyWereSent) {
  EgressSettings settings;
  settings.policy =
      ParsePolicy(
          oci::ParseJson(R"({"mode":"allowlist","allow":[{"host":"a.test","secret":"key"}]})")
              .value(),
          {})
          .value();
  settings.hosts["web"] = {ParseAddress("10.0.0.2").value()};
  settings.secrets["key"] = {"Authorization", "Bearer x", {"a.test"}};
  settings.secrets["unused"] = {"Authorization", "Bearer y", {"a.test"}};
  const std::string text = PrintSet("box", 7, settings, {}, -1);
  EXPECT_EQ(text.find("Bearer y"), std::string::npos);
  auto command = ReadCommand({text, {}});
  ASSERT_TRUE(command) << command.error().ToString();
  EXPECT_EQ(command->set.number, 7u);
  EXPECT_EQ(PolicyJson(command->set.settings.policy), PolicyJson(settings.policy));
  EXPECT_EQ(command->set.settings.hosts, settings.hosts);
  EXPECT_EQ(command->set.settings.secrets.at("key").value, "Bearer x");
  EXPECT_FALSE(ReadCommand({"{\"op\":\"set\"}", {}}).value().error == std::nullopt);
  EXPECT_FALSE(ReadCommand({"nonsense", {}}));
}

TEST(EgressProtocol, WhatTheProgramSaysIsBounded) {
  EXPECT_FALSE(ReadEvent(R"({"event":"denied","sandbox":"box","denial":{"host":")" +
                         std::string(300, 'x') + "\"}}"));
  EXPECT_FALSE(ReadEvent(R"({"event":"other"})"));
  EXPECT_FALSE(ReadEvent(R"({"event":"applied","more":1})"));
  const std::string settings(kMaxSettingsBytes + 1, 'x');
  EXPECT_EQ(SendControl(-1, settings, {}).error().code, Code::kTooLarge);
}

}  // namespace
}  // namespace hutch::network

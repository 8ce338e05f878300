#include "daemon/workspaces.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <future>

#include "daemon/limits.h"
#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

using oci::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

// What the kernel was asked for, in order. Written by the worker, read when it is idle.
struct Asked {
  std::vector<std::string> calls;
  std::optional<Error> join_fails, leave_fails;
};

class WorkspacesTest : public DaemonTest {
 protected:
  WorkspacesTest() {
    config_.run_dir = directory_.path() + "/run";
    for (const std::string& dir : {config_.state_dir, config_.run_dir})
      EXPECT_TRUE(MakeDirectories(dir, 0700).has_value());
  }
  ~WorkspacesTest() override { Settle(); }

  WorkspaceKernel Fake() {
    return {
        .make = [this](const network::WorkspaceSubnet& subnet) -> Result<UniqueFd> {
          asked_.calls.push_back("make " + subnet.v4.ToString() + " " + subnet.v6.ToString());
          return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        },
        .join = [this](int, int, const std::string& link, const network::Member& member) -> Status {
          asked_.calls.push_back("join " + link + " " + member.v4.ToString() + " " +
                                 member.v6.ToString());
          if (asked_.join_fails) return *asked_.join_fails;
          return OkStatus();
        },
        .leave = [this](int, const std::string& link) -> Status {
          asked_.calls.push_back("leave " + link);
          if (asked_.leave_fails) return *asked_.leave_fails;
          return OkStatus();
        }};
  }
  Workspaces& Fresh() {
    own_ = std::make_unique<Workspaces>(loop_, worker_, config_, Fake());
    own_->OnHostsChanged([this](const std::set<std::string>& ids) { changed_ = ids; });
    return *own_;
  }
  Workspaces& Own() { return own_ ? *own_ : Fresh(); }
  std::string Await(const std::function<void(Workspaces::Done)>& call) {
    std::optional<Status> status;
    call([&](const Status& done) { status = done; });
    RunUntil([&] { return status.has_value(); });
    return status->has_value() ? "" : CodeName(status->error().code);
  }
  std::string Create(const std::string& name) {
    return Await([&](auto done) { Own().Create(name, done); });
  }
  std::string Remove(const std::string& name) {
    return Await([&](auto done) { Own().Remove(name, done); });
  }
  std::string Join(const std::string& network, const std::string& id,
                   const std::string& name = "") {
    return Await([&](auto done) { Own().Join(network, id, name, 0, done); });
  }
  std::string Leave(const std::string& network, const std::string& id) {
    return Await([&](auto done) { Own().Leave(network, id, 0, done); });
  }
  // Of calls in this order, which operands of "+" would not be in.
  static std::string Failures(std::initializer_list<std::string> codes) {
    std::string all;
    for (const std::string& code : codes) all += code;
    return all;
  }
  void Settle() {  // what nobody waits for
    RunUntil([&] { return worker_.idle(); });
    loop_.RunPending();
  }
  std::string AddressOf(const std::string& asker, const std::string& name) {
    const Workspaces::Hosts hosts = Own().HostsFor(asker);
    const auto it = hosts.find(name);
    return it == hosts.end() ? "" : it->second.at(0).ToString();
  }

  Asked asked_;
  std::set<std::string> changed_;
  std::unique_ptr<Workspaces> own_;
};

TEST_F(WorkspacesTest, RoutesMakeListAndRemoveThem) {
  const auto made = Call("POST", "/v1/networks", R"({"name":"ws"})");
  EXPECT_EQ(made->status(), 201);
  EXPECT_EQ(made->json()["subnet_v4"], "10.213.0.0/24");
  EXPECT_EQ(made->json()["subnet_v6"], "fd68:7574:6369::/64");
  EXPECT_EQ(Call("POST", "/v1/networks", R"({"name":"ws"})")->code(), "exists");
  for (const char* body : {R"({"name":""})", R"({"name":"../a"})", R"({})", R"({"name":"a","x":1})",
                           R"({"name":"-a"})", R"({"name":7})"})
    EXPECT_EQ(Call("POST", "/v1/networks", body)->code(), "invalid_argument") << body;
  EXPECT_EQ(Call("POST", "/v1/networks", R"({"name":"b"})")->json()["subnet_v4"], "10.213.1.0/24");
  EXPECT_EQ(Call("GET", "/v1/networks")->json()["networks"].size(), 2u);
  EXPECT_EQ(Call("GET", "/v1/networks/ws")->json()["members"], Json::array());
  EXPECT_EQ(Call("DELETE", "/v1/networks/ws")->status(), 204);
  EXPECT_EQ(Call("GET", "/v1/networks/ws")->code(), "not_found");
  EXPECT_EQ(Call("DELETE", "/v1/networks/ws")->code(), "not_found");
  // The first free subnet is used again.
  EXPECT_EQ(Call("POST", "/v1/networks", R"({"name":"c"})")->json()["subnet_v4"], "10.213.0.0/24");
}

TEST_F(WorkspacesTest, TheNamespaceIsMadeForTheFirstMember) {
  EXPECT_EQ(Create("ws"), "");
  EXPECT_TRUE(asked_.calls.empty());
  EXPECT_EQ(Join("ws", "sb-a", "one"), "");
  EXPECT_EQ(Join("ws", "sb-b", "two"), "");
  EXPECT_THAT(asked_.calls, ElementsAre("make 10.213.0.0/24 fd68:7574:6369::/64", "leave net0",
                                        "join net0 10.213.0.2 fd68:7574:6369::2", "leave net0",
                                        "join net0 10.213.0.3 fd68:7574:6369::3"));
  EXPECT_EQ(Join("none", "sb-a"), "not_found");
}

TEST_F(WorkspacesTest, MembersKnowEachOtherAndNobodyElseDoes) {
  EXPECT_EQ(Failures({Create("ws"), Create("other")}), "");
  EXPECT_EQ(Failures({Join("ws", "sb-a", "one"), Join("ws", "sb-b", "Two"),
                      Join("other", "sb-c", "three")}),
            "");
  EXPECT_EQ(AddressOf("sb-a", "two"), "10.213.0.3");
  EXPECT_EQ(AddressOf("sb-a", "sb-b"), "10.213.0.3");
  EXPECT_EQ(AddressOf("sb-b", "one"), "10.213.0.2");
  EXPECT_EQ(AddressOf("sb-a", "three"), "");
  EXPECT_EQ(AddressOf("sb-c", "one"), "");
  EXPECT_TRUE(Own().HostsFor("sb-x").empty());
  EXPECT_EQ(Join("other", "sb-a", "one"), "");
  EXPECT_EQ(asked_.calls.back(), "join net1 10.213.1.3 fd68:7574:6369:1::3");
  EXPECT_EQ(AddressOf("sb-a", "three"), "10.213.1.2");
  EXPECT_EQ(AddressOf("sb-b", "three"), "");
  EXPECT_THAT(changed_, ElementsAre("sb-a", "sb-c"));
  EXPECT_THAT(Own().NetworksOf("sb-a"), ElementsAre("other", "ws"));
}

TEST_F(WorkspacesTest, ANameOfTheInternetIsNobodysName) {
  EXPECT_EQ(Create("ws"), "");
  EXPECT_EQ(Failures({Join("ws", "sb-a", "pkgs.example.org"), Join("ws", "sb-b", "a_b"),
                      Join("ws", "sb-c", "LocalHost")}),
            "");
  const Workspaces::Hosts hosts = Own().HostsFor("sb-b");
  EXPECT_FALSE(hosts.contains("pkgs.example.org"));
  EXPECT_FALSE(hosts.contains("localhost"));
  EXPECT_TRUE(hosts.contains("sb-a"));
  EXPECT_TRUE(hosts.contains("a_b"));
}

TEST_F(WorkspacesTest, OneThatLeavesIsForgotten) {
  EXPECT_EQ(Create("ws"), "");
  EXPECT_EQ(Failures({Join("ws", "sb-a", "one"), Join("ws", "sb-b", "two")}), "");
  EXPECT_EQ(Remove("ws"), "bad_state");
  EXPECT_EQ(Leave("ws", "sb-a"), "");
  EXPECT_EQ(asked_.calls.back(), "leave net0");
  EXPECT_EQ(AddressOf("sb-b", "one"), "");
  EXPECT_THAT(changed_, ElementsAre("sb-b"));
  EXPECT_EQ(Failures({Leave("ws", "sb-a"), Leave("none", "sb-a")}), "");
  // Not the address of one that may not be gone for the kernel yet.
  EXPECT_EQ(Join("ws", "sb-c", "three"), "");
  EXPECT_EQ(AddressOf("sb-b", "three"), "10.213.0.4");
  Own().Forget("sb-c");
  Own().Forget("sb-b");
  EXPECT_TRUE(Own().HostsFor("sb-b").empty());
  EXPECT_EQ(Remove("ws"), "");
}

TEST_F(WorkspacesTest, OneThatCannotJoinIsNoMember) {
  EXPECT_EQ(Create("ws"), "");
  asked_.join_fails = SysError(EPERM, "make a link");
  EXPECT_EQ(Join("ws", "sb-a", "one"), "kernel");
  EXPECT_TRUE(Own().HostsFor("sb-a").empty());
  EXPECT_EQ(Own().ToJson("ws")->at("members").size(), 0u);
  EXPECT_EQ(Remove("ws"), "");
}

TEST_F(WorkspacesTest, AddressesOutliveTheDaemon) {
  EXPECT_EQ(Failures({Create("a"), Create("ws")}), "");
  EXPECT_EQ(
      Failures({Join("ws", "sb-a", "one"), Join("ws", "sb-b", "two"), Join("a", "sb-b", "two")}),
      "");
  EXPECT_EQ(Leave("ws", "sb-a"), "");
  Settle();
  asked_.calls.clear();
  ASSERT_TRUE(Fresh().Recover({"sb-b"}).has_value());
  EXPECT_TRUE(Own().Exists("ws"));
  EXPECT_THAT(Own().NetworksOf("sb-b"), ElementsAre("a", "ws"));
  EXPECT_EQ(AddressOf("sb-b", "two"), "");  // not before it is joined anew
  EXPECT_EQ(Failures({Join("ws", "sb-c", "three"), Join("ws", "sb-b", "two")}), "");
  EXPECT_THAT(asked_.calls, ElementsAre("make 10.213.1.0/24 fd68:7574:6369:1::/64", "leave net0",
                                        "join net0 10.213.1.2 fd68:7574:6369:1::2", "leave net0",
                                        "join net0 10.213.1.3 fd68:7574:6369:1::3"));
  EXPECT_EQ(AddressOf("sb-c", "two"), "10.213.1.3");
  ASSERT_TRUE(Fresh().Recover({}).has_value());
  EXPECT_TRUE(Own().NetworksOf("sb-b").empty());
  EXPECT_TRUE(Own().Exists("a"));
}

TEST_F(WorkspacesTest, AFileThatCannotBeReadIsMovedAside) {
  for (const std::string& dir : {config_.state_dir, config_.run_dir}) {
    const std::string path = dir + "/networks.json";
    for (const char* text :
         {"", "{", "{}", R"({"networks":[{"name":"a","index":0,"members":{}}]})",
          R"({"networks":[{"name":"kept","index":0,"members":[{"id":"b","host":999}]},7]})"}) {
      EXPECT_EQ(Failures({Create("kept"), Join("kept", "b", "b")}), "");
      Settle();
      ASSERT_TRUE(WriteFileAtomic(path, text, Durability::kMemory).has_value());
      ASSERT_TRUE(Fresh().Recover({"b"}).has_value()) << text;
      EXPECT_EQ(*ReadFile(path + ".broken", 1000), text);
      EXPECT_FALSE(PathExists(path));
      EXPECT_EQ(Own().Exists("kept"), dir == config_.run_dir) << text;
      EXPECT_TRUE(Own().NetworksOf("b").empty());
      if (Own().Exists("kept")) {
        EXPECT_EQ(Remove("kept"), "");
      }
    }
  }
}

TEST_F(WorkspacesTest, NetworksBeyondThePoolsAreTheOperatorsToMend) {
  EXPECT_EQ(Failures({Create("a"), Create("b")}), "");
  config_.network.workspaces_v4 = "10.213.0.0/24";
  const Status status = Fresh().Recover({});
  ASSERT_FALSE(status.has_value());
  EXPECT_THAT(status.error().what, HasSubstr("networks.json: network \"b\" is beyond"));
  EXPECT_TRUE(PathExists(config_.state_dir + "/networks.json"));
}

TEST_F(WorkspacesTest, OneLeavesWhereNothingCanBeWritten) {
  EXPECT_EQ(Failures({Create("ws"), Join("ws", "sb-a", "one")}), "");
  Settle();
  for (const std::string& dir : {config_.state_dir, config_.run_dir})
    ASSERT_TRUE(MakeDirectories(dir + "/networks.json.tmp", 0700).has_value());
  EXPECT_NE(Join("ws", "sb-b", "two"), "");
  asked_.calls.clear();
  EXPECT_EQ(Leave("ws", "sb-a"), "");
  EXPECT_THAT(asked_.calls, ElementsAre("leave net0"));
  EXPECT_TRUE(Own().NetworksOf("sb-a").empty());
}

TEST_F(WorkspacesTest, OneIsAMemberUntilItsLinkIsGone) {
  EXPECT_EQ(Failures({Create("ws"), Join("ws", "sb-a", "one"), Join("ws", "sb-b", "two")}), "");
  asked_.leave_fails = SysError(EPERM, "remove a link");
  EXPECT_EQ(Leave("ws", "sb-a"), "kernel");
  EXPECT_EQ(AddressOf("sb-b", "one"), "10.213.0.2");
  EXPECT_EQ(Join("ws", "sb-a", "one"), "kernel");
  EXPECT_EQ(AddressOf("sb-b", "one"), "10.213.0.2");
  EXPECT_EQ(Remove("ws"), "bad_state");
  asked_.leave_fails.reset();
  asked_.join_fails = SysError(EPERM, "make a link");
  EXPECT_EQ(Join("ws", "sb-b", "two"), "kernel");  // its old link is gone
  EXPECT_TRUE(Own().NetworksOf("sb-b").empty());
  EXPECT_EQ(Leave("ws", "sb-a"), "");
  EXPECT_EQ(Remove("ws"), "");
}

TEST_F(WorkspacesTest, AFullQueueIsAnErrorAndTheMemberStays) {
  Worker narrow(1, 1);
  own_ = std::make_unique<Workspaces>(loop_, narrow, config_, Fake());
  EXPECT_EQ(Failures({Create("ws"), Join("ws", "sb-a", "one")}), "");
  std::promise<void> begun, go;
  ASSERT_TRUE(narrow
                  .Submit([&] {
                    begun.set_value();
                    go.get_future().wait();
                  })
                  .has_value());
  begun.get_future().wait();
  ASSERT_TRUE(narrow.Submit([] {}).has_value());
  EXPECT_EQ(Leave("ws", "sb-a"), "unavailable");
  EXPECT_EQ(Join("ws", "sb-a", "one"), "unavailable");
  EXPECT_EQ(AddressOf("sb-a", "one"), "10.213.0.2");
  go.set_value();
  RunUntil([&] { return narrow.idle(); });
  EXPECT_EQ(Leave("ws", "sb-a"), "");
  EXPECT_EQ(asked_.calls.back(), "leave net0");
  RunUntil([&] { return narrow.idle(); });
  loop_.RunPending();
  own_.reset();
}

TEST_F(WorkspacesTest, OneThatJoinsAnewWhileItLeavesIsAMember) {
  EXPECT_EQ(Failures({Create("ws"), Join("ws", "sb-a", "one")}), "");
  Own().Leave("ws", "sb-a", 0, [](const Status&) {});
  EXPECT_EQ(Join("ws", "sb-a", "one"), "");
  EXPECT_EQ(asked_.calls.back(), "join net0 10.213.0.2 fd68:7574:6369::2");
  EXPECT_EQ(AddressOf("sb-a", "one"), "10.213.0.2");
}

TEST_F(WorkspacesTest, ANameIsThatOfTheMemberWhichHadItFirst) {
  EXPECT_EQ(Failures({Create("ws"), Create("a")}), "");
  EXPECT_EQ(
      Failures({Join("ws", "sb-z", "db"), Join("ws", "sb-a", "DB"), Join("ws", "sb-c", "SB-A"),
                Join("a", "sb-d", "Db"), Join("a", "sb-z", "db")}),
      "");
  const auto addresses = [&] {
    std::vector<std::string> all;
    const Workspaces::Hosts hosts = Own().HostsFor("sb-z");
    for (const network::Address& one : hosts.at("db")) all.push_back(one.ToString());
    return all;
  };
  // Its own in either network, and nobody else's.
  EXPECT_THAT(addresses(), UnorderedElementsAre("10.213.0.2", "fd68:7574:6369::2", "10.213.1.3",
                                                "fd68:7574:6369:1::3"));
  EXPECT_EQ(AddressOf("sb-z", "sb-a"), "10.213.0.3");
  EXPECT_EQ(Own().HostsFor("sb-z")["sb-a"].size(), 2u);
  EXPECT_EQ(AddressOf("sb-d", "db"), "10.213.1.2");  // who came first in what it can see
  Settle();
  ASSERT_TRUE(Fresh().Recover({"sb-z", "sb-a", "sb-c"}).has_value());
  EXPECT_EQ(Join("ws", "sb-a", "DB"), "");
  EXPECT_EQ(AddressOf("sb-a", "db"), "");  // still the other's, which is on its way
  EXPECT_EQ(Join("ws", "sb-z", "db"), "");
  EXPECT_EQ(AddressOf("sb-a", "db"), "10.213.0.2");
  EXPECT_EQ(Failures({Leave("ws", "sb-z"), Leave("a", "sb-z")}), "");
  EXPECT_EQ(AddressOf("sb-a", "db"), "10.213.0.3");
}

TEST_F(WorkspacesTest, NothingIsMadeThatCannotBeKept) {
  config_.state_dir = "/dev/null/none";
  EXPECT_NE(Create("ws"), "");
  EXPECT_FALSE(Own().Exists("ws"));
}

TEST_F(WorkspacesTest, TheirNumberIsBounded) {
  config_.network.workspaces_v4 = "10.213.0.0/22";
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Create("n" + std::to_string(i)), "");
  EXPECT_EQ(Create("more"), "limit");
  config_.network.workspaces_v4 = "10.0.0.0/8";
  Fresh();
  for (size_t i = 0; i < kMaxNetworks; ++i) EXPECT_EQ(Create("n" + std::to_string(i)), "");
  EXPECT_EQ(Create("more"), "limit");
}

TEST_F(WorkspacesTest, MembersOfOneAreBoundedByItsAddresses) {
  EXPECT_EQ(Create("ws"), "");
  size_t members = 0;
  while (members < 1000 && Join("ws", "sb-" + std::to_string(members)).empty()) ++members;
  EXPECT_EQ(members, 253u);
  EXPECT_EQ(Join("ws", "sb-more"), "limit");
}

}  // namespace
}  // namespace hutch::daemon

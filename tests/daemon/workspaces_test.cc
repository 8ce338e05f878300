#include "daemon/workspaces.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include "daemon/limits.h"
#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

using oci::Json;
using testing::ElementsAre;
using testing::HasSubstr;

// What the kernel was asked for, in order. Written by the worker, read when it is idle.
struct Asked {
  std::vector<std::string> calls;
  std::optional<Error> join_fails;
};

class WorkspacesTest : public DaemonTest {
 protected:
  WorkspacesTest() { EXPECT_TRUE(MakeDirectories(config_.state_dir, 0700).has_value()); }
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

TEST_F(WorkspacesTest, AFileThatIsNotOursIsAnError) {
  const std::string path = config_.state_dir + "/networks.json";
  for (const char* text :
       {"{", "{}", R"({"networks":[{"name":"../a","index":0,"members":[]}]})",
        R"({"networks":[{"name":"a","index":256,"members":[]}]})",
        R"({"networks":[{"name":"a","index":0,"members":[{"id":"b","host":999}]}]})"}) {
    ASSERT_TRUE(WriteFileAtomic(path, text, Durability::kMemory).has_value());
    const Status status = Fresh().Recover({});
    ASSERT_FALSE(status.has_value()) << text;
    EXPECT_THAT(status.error().what, HasSubstr("networks.json"));
  }
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

#include "daemon/port_facts.h"

#include <gmock/gmock.h>

#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

Result<std::vector<PortFacts>> Parse(const std::string& text, const Config& config = {}) {
  const Result<oci::Json> json = oci::ParseJson(text);
  EXPECT_TRUE(json.has_value()) << text;
  return ParsePorts(*json, "ports", config);
}

std::string FieldAtFault(const std::string& text) {
  const auto ports = Parse(text);
  return ports.has_value() ? "none" : ports.error().field;
}

TEST(Ports, AreReadShortAndLong) {
  const auto ports =
      Parse(R"([3000, {"port": 8080, "host_port": 18080, "address": "0:0::1", "label": "web"}])");
  ASSERT_TRUE(ports.has_value()) << ports.error().what;
  ASSERT_EQ(ports->size(), 2u);
  EXPECT_EQ(HostPortText((*ports)[0]), "127.0.0.1:0");
  EXPECT_EQ(HostPortText((*ports)[1]), "[::1]:18080");
  EXPECT_EQ(PortUrl((*ports)[1]), "http://[::1]:18080/");
  const auto again = LoadPorts(PortListJson(*ports));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(PortListJson(*again), PortListJson(*ports));
}

TEST(Ports, AreBounded) {
  std::string list = "[1000";
  for (size_t i = 1; i < kMaxForwards; ++i) list += "," + std::to_string(1000 + i);
  EXPECT_EQ(FieldAtFault(list + "]"), "none");
  EXPECT_EQ(FieldAtFault(list + ",9]"), "ports");
}

TEST(Ports, OfTheHostsOwnServicesAreRefused) {
  EXPECT_EQ(FieldAtFault(R"([{"port":1,"host_port":)" + std::to_string(kMinHostPort - 1) + "}]"),
            "ports[0].host_port");
  EXPECT_EQ(FieldAtFault(R"([{"port":1,"host_port":)" + std::to_string(kMinHostPort) + "}]"),
            "none");
}

TEST(Ports, AreRefusedByField) {
  EXPECT_EQ(FieldAtFault("{}"), "ports");
  EXPECT_EQ(FieldAtFault("[0]"), "ports[0]");
  EXPECT_EQ(FieldAtFault("[-1]"), "ports[0]");
  EXPECT_EQ(FieldAtFault("[65536]"), "ports[0]");
  EXPECT_EQ(FieldAtFault("[1, 53]"), "ports[1]");
  EXPECT_EQ(FieldAtFault(R"([{"port":3128}])"), "ports[0].port");
  EXPECT_EQ(FieldAtFault("[1, 1]"), "ports[1]");
  EXPECT_EQ(FieldAtFault(R"(["3000"])"), "ports[0]");
  EXPECT_EQ(FieldAtFault("[{}]"), "ports[0].port");
  EXPECT_EQ(FieldAtFault(R"([{"port":1,"x":1}])"), "ports[0].x");
  for (const char* address : {"localhost", "127.1", "0127.0.0.1", "::1%lo", "", "[::1]"})
    EXPECT_EQ(FieldAtFault(R"([{"port":1,"address":")" + std::string(address) + "\"}]"),
              "ports[0].address")
        << address;
}

TEST(Ports, AddressesAreLoopbackOrTheOperators) {
  for (const char* address : {"0.0.0.0", "::", "192.0.2.1", "::ffff:127.0.0.1"}) {
    const std::string list = R"([{"port":1,"address":")" + std::string(address) + "\"}]";
    const auto refused = Parse(list);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Code::kForbidden) << address;
    Config config;
    config.port_addresses = {address};
    EXPECT_TRUE(Parse(list, config).has_value()) << address;
  }
  // What was granted stays granted.
  PortFacts facts;
  facts.port = 1;
  facts.address = "192.0.2.1";
  EXPECT_TRUE(LoadPorts(PortListJson({facts})).has_value());
}

}  // namespace
}  // namespace hutch::daemon

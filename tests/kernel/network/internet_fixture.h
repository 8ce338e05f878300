// A host with an uplink to an internet of one namespace, for tests: nothing leaves the machine.
//
//   sandboxes ── the calling thread's namespace: "the host" ── internet
//                5.5.5.1, 2a00:5::1                            5.5.5.2, 2a00:5::2 and all below
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "network/netns.h"
#include "network/open_network.h"
#include "tests/kernel/network/network_fixture.h"

namespace hutch::network {

inline const Address kHostV4 = V4(5, 5, 5, 1), kHostV6 = V6(0x2a00, 1);
// The internet's, each with servers.
inline const Address kPublicV4 = V4(8, 8, 8, 8), kPrivateV4 = V4(10, 1, 2, 3),
                     kMetadataV4 = V4(169, 254, 169, 254), kSharedV4 = V4(100, 100, 1, 1);
inline const Address kPublicV6 = V6(0x2606, 8), kPrivateV6 = V6(0xfd11, 8);
inline constexpr uint16_t kTcpPort = 4000, kUdpPort = 4001;

class InternetTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void Start();  // an OpenNetwork
  OpenConfig config() const;
  // Attaches a fresh namespace; the result is an index into `sandboxes`.
  int Add(const std::string& id, const Policy& policy = {});
  int netns(int sandbox) const { return sandboxes_[static_cast<size_t>(sandbox)].get(); }
  // Servers in a namespace at an address: a TCP listener and a UDP socket.
  void Serve(int netns, const Address& at);
  // Whether one byte goes there and back.
  int TalkTcp(int from, const Address& to);
  int TalkUdp(int from, const Address& to);
  OpenCounters Counters(const std::string& id);

  UniqueFd internet_, host_;
  std::unique_ptr<OpenNetwork> network_;
  std::vector<UniqueFd> sandboxes_;
  std::vector<OpenLease> leases_;
  struct Server {
    Address address;
    UniqueFd tcp, udp;
  };
  std::vector<Server> servers_;
};

}  // namespace hutch::network

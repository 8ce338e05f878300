// Sockets in namespaces, for tests. Every test of this folder first leaves the machine's network.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "network/policy.h"

namespace hutch::network {

// The calling thread gets a network namespace of its own in which lo is up: "the host".
void LeaveTheMachinesNetwork();

// Bytes of an address, so that these tests need no parser.
Address V4(uint8_t a, uint8_t b, uint8_t c, uint8_t d);
Address V6(uint16_t first, uint16_t last);  // first::last
inline const Address kLoopbackV4 = V4(127, 0, 0, 1), kLoopbackV6 = V6(0, 1);

struct Peer {
  Address address;
  uint16_t port = 0;
  bool operator==(const Peer&) const = default;
};
std::string Text(const Peer& peer);

// Each in `netns`; errors are negative errno values.
UniqueFd Listen(int netns, const Peer& at);  // TCP
UniqueFd BindUdp(int netns, const Peer& at);
int Connect(int netns, const Peer& to, UniqueFd* fd);  // TCP; 0, or -errno within two seconds
int SendUdp(int netns, const Peer& to, UniqueFd* fd);  // connected; one byte; 0 or -errno
int Ping(int netns, const Address& to);                // one echo; 0 when answered, or -errno
// What arrives within two seconds; -ETIMEDOUT.
int ReceiveByte(int fd);
int SendByte(int fd);
UniqueFd Accept(int listener);
Peer OriginalDestination(int fd);
Peer PeerOf(int fd);

// Runs f on the calling thread inside.
void Inside(int netns, const std::function<void()>& f);
// Runs a command there and returns its exit code.
int Command(int netns, const std::string& command);
// What it prints.
std::string Output(int netns, const std::string& command);

}  // namespace hutch::network

// Netlink requests, written and sent as the kernel takes them (netlink(7), rtnetlink(7); nf_tables
// has no page: linux/netfilter/nf_tables.h). One write holds any number of messages, so that what
// a sandbox needs costs one system call, and what is always the same is written once.
#pragma once

#include <linux/netlink.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::network {

// Messages one after the other. Numbers are in the byte order of the host unless a name says Be.
class NetlinkRequest {
 public:
  // Ends the message before. NLM_F_REQUEST is added. `needs` says in an error what the kernel lacks
  // when it does not know the message ("CONFIG_NFT_NAT"): a literal.
  void Begin(uint16_t type, uint16_t flags, const char* needs = "");
  template <class T>
  void Header(const T& header) {  // the fixed part behind nlmsghdr
    Raw(&header, sizeof header);
  }
  void Bytes(uint16_t type, std::string_view value);
  void Text(uint16_t type, std::string_view value);  // ended by NUL
  void Flag(uint16_t type) { Bytes(type, {}); }
  void U8(uint16_t type, uint8_t value) { Number(type, value); }
  void U16(uint16_t type, uint16_t value) { Number(type, value); }
  void U32(uint16_t type, uint32_t value) { Number(type, value); }
  void Be16(uint16_t type, uint16_t value) { Number(type, __builtin_bswap16(value)); }
  void Be32(uint16_t type, uint32_t value) { Number(type, __builtin_bswap32(value)); }
  void Be64(uint16_t type, uint64_t value) { Number(type, __builtin_bswap64(value)); }
  // Attributes until EndNest are inside it.
  void Nest(uint16_t type);
  void EndNest();
  void AcknowledgeLast();  // as if begun with NLM_F_ACK; one message at least needs it
  std::string Finish();
  const char* NeedsOf(size_t message) const { return needs_[message]; }
  size_t messages() const { return needs_.size(); }

 private:
  template <class T>
  void Number(uint16_t type, T value) {
    Bytes(type, {reinterpret_cast<const char*>(&value), sizeof value});
  }
  void Raw(const void* bytes, size_t size);
  void EndMessage();

  std::string bytes_;
  std::vector<const char*> needs_;  // by message, whose number is also its nlmsg_seq
  std::vector<size_t> nests_;       // where the open ones begin
  size_t message_ = 0;              // where the last one begins
};
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

// The fixed part of an answer's body; none when it is too short.
template <class T>
std::optional<T> HeaderOf(std::string_view body) {
  T header;
  if (body.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, body.data(), sizeof header);
  return header;
}

// Attributes of an answer. A malformed one ends the list.
class NetlinkAttributes {
 public:
  explicit NetlinkAttributes(std::string_view bytes) : bytes_(bytes) {}
  // The value of the first of this type; empty when there is none.
  std::string_view Find(uint16_t type) const;
  void ForEach(const std::function<void(uint16_t type, std::string_view value)>& f) const;
  uint64_t FindBe64(uint16_t type) const;
  std::string FindText(uint16_t type) const;

 private:
  std::string_view bytes_;
};

class NetlinkSocket {
 public:
  // In the network namespace of the calling thread, where it stays. kUnsupported when the kernel
  // has no such protocol.
  static Result<NetlinkSocket> Open(int protocol);

  // Sends the messages and returns the first error among the answers; kUnsupported for what the
  // kernel does not know. `what` begins its text: "set up the catch".
  Status Run(NetlinkRequest request, const char* what);
  // The same, and hands over what is answered beside acknowledgements; also for dumps
  // (NLM_F_DUMP). `header_size`: of the fixed part, which is not handed over with the attributes.
  using Handler = std::function<void(const nlmsghdr& header, std::string_view payload)>;
  Status Ask(NetlinkRequest request, const char* what, const Handler& handler);

 private:
  explicit NetlinkSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace hutch::network

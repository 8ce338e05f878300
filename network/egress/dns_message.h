// Questions and answers of DNS (RFC 1035, RFC 6891). Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "network/policy.h"

namespace hutch::network {

enum class DnsCode : uint8_t {
  kOk = 0,
  kFormat = 1,
  kServerFailure = 2,
  kNoSuchName = 3,
  kNotImplemented = 4,
  kRefused = 5
};
inline constexpr uint16_t kTypeA = 1, kTypePtr = 12, kTypeAaaa = 28, kTypeAny = 255;

struct DnsQuestion {
  // kOk: all below is set. Else: what to answer.
  DnsCode code = DnsCode::kFormat;
  bool answerable = false;  // a question at all: with a header, and no answer
  uint16_t id = 0;
  bool recursion = false;
  std::string name;  // dotted, as asked, without the last dot; printable or code is kRefused
  std::string raw;   // the question as it stands, to be sent back
  uint16_t type = 0;
  bool edns = false;
  size_t max_bytes = 512;  // that the asker takes by UDP
};
DnsQuestion ReadQuestion(std::string_view message);

// Addresses of the other family are left out; what does not fit into max_bytes is cut off and
// marked so.
std::string MakeAnswer(const DnsQuestion& question, DnsCode code,
                       std::span<const Address> addresses, uint32_t ttl_seconds, size_t max_bytes);

}  // namespace hutch::network

#include <arpa/inet.h>

#include <algorithm>
#include <iterator>

#include "network/policy.h"

namespace hutch::network {
namespace {

constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

struct ClosedRange {
  const char* text;
  uint8_t bits;  // as it is written
  const char* reason;
};
// The registries of special-purpose addresses (RFC 6890 and what followed). Narrower ones first
// where they overlap, so that the reason is the nearest.
constexpr ClosedRange kClosed[] = {
    {"0.0.0.0", 8, "unspecified"},
    {"10.0.0.0", 8, "private"},
    {"100.64.0.0", 10, "shared address space"},
    {"127.0.0.0", 8, "loopback"},
    {"168.63.129.16", 32, "metadata service"},
    {"169.254.0.0", 16, "link-local, where metadata services are"},
    {"172.16.0.0", 12, "private"},
    {"192.0.0.0", 24, "protocol assignments"},
    {"192.0.2.0", 24, "documentation"},
    {"192.88.99.0", 24, "6to4 relay"},
    {"192.168.0.0", 16, "private"},
    {"198.18.0.0", 15, "benchmarking"},
    {"198.51.100.0", 24, "documentation"},
    {"203.0.113.0", 24, "documentation"},
    {"224.0.0.0", 4, "multicast"},
    {"240.0.0.0", 4, "reserved"},
    {"::", 128, "unspecified"},
    {"::1", 128, "loopback"},
    {"::", 96, "IPv4-compatible"},
    {"::ffff:0:0:0", 96, "IPv4-translated"},
    {"64:ff9b::", 96, "NAT64"},
    {"64:ff9b:1::", 48, "NAT64"},
    {"100::", 64, "discard-only"},
    {"2001::", 32, "Teredo"},
    {"2001::", 23, "protocol assignments"},
    {"2001:db8::", 32, "documentation"},
    {"2002::", 16, "6to4"},
    {"3fff::", 20, "documentation"},
    {"5f00::", 16, "segment routing"},
    {"fc00::", 7, "unique local"},
    {"fe80::", 10, "link-local"},
    {"fec0::", 10, "site-local"},
    {"ff00::", 8, "multicast"},
};

struct Closed {
  Cidr range;
  const char* reason;
};

const std::vector<Closed>& ClosedTable() {
  static const std::vector<Closed> table = [] {
    std::vector<Closed> all;
    for (const ClosedRange& row : kClosed) {
      const Address base = ParseAddress(row.text).value();
      const int bits = row.bits + (base.is_v4() ? 96 : 0);
      all.push_back({{.base = base, .bits = static_cast<uint8_t>(bits)}, row.reason});
    }
    return all;
  }();
  return table;
}

// The first `bits` bits are equal.
bool SamePrefix(const Address& a, const Address& b, unsigned bits) {
  const unsigned whole = bits / 8, rest = bits % 8;
  if (!std::equal(a.bytes.begin(), a.bytes.begin() + whole, b.bytes.begin())) return false;
  if (rest == 0) return true;
  const unsigned mask = 0xffu << (8 - rest) & 0xffu;
  return ((a.bytes[whole] ^ b.bytes[whole]) & mask) == 0;
}

}  // namespace

const char* ModeName(Mode mode) {
  switch (mode) {
    case Mode::kNone:
      return "none";
    case Mode::kAllowlist:
      return "allowlist";
    case Mode::kOpen:
      return "open";
  }
  return "none";
}

bool Address::is_v4() const { return std::equal(kMapped.begin(), kMapped.end(), bytes.begin()); }

std::string Address::ToString() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_v4())
    ::inet_ntop(AF_INET, &bytes[12], text, sizeof text);
  else
    ::inet_ntop(AF_INET6, bytes.data(), text, sizeof text);
  return text;
}

Result<Address> ParseAddress(std::string_view text) {
  const std::string whole(text);  // inet_pton reads up to a NUL
  Address address;
  if (whole.find('\0') == std::string::npos) {
    if (::inet_pton(AF_INET, whole.c_str(), &address.bytes[12]) == 1) {
      std::copy(kMapped.begin(), kMapped.end(), address.bytes.begin());
      return address;
    }
    if (::inet_pton(AF_INET6, whole.c_str(), address.bytes.data()) == 1) return address;
  }
  if (text.find('%') != std::string_view::npos)
    return Error{.code = Code::kInvalidArgument, .what = "an address with a zone is not taken"};
  return Error{.code = Code::kInvalidArgument, .what = "not an IPv4 or IPv6 address"};
}

bool Cidr::Contains(const Address& address) const {
  // "::/0" is no IPv4 range, though its bits would cover the mapped ones.
  const bool v4 = base.is_v4() && bits >= 96;
  return v4 == address.is_v4() && SamePrefix(base, address, bits);
}

std::string Cidr::ToString() const {
  const bool v4 = base.is_v4() && bits >= 96;
  return base.ToString() + "/" + std::to_string(v4 ? bits - 96 : bits);
}

const char* WhyClosed(const Address& address) {
  for (const Closed& row : ClosedTable())
    if (row.range.Contains(address)) return row.reason;
  return nullptr;
}

std::vector<Cidr> ClosedRanges() {
  std::vector<Cidr> ranges;
  for (const Closed& row : ClosedTable()) ranges.push_back(row.range);
  // One within another says nothing more, and sets of a packet filter refuse overlaps.
  std::vector<Cidr> widest;
  std::copy_if(ranges.begin(), ranges.end(), std::back_inserter(widest), [&](const Cidr& one) {
    return std::none_of(ranges.begin(), ranges.end(), [&](const Cidr& other) {
      return other.bits < one.bits && other.Contains(one.base);
    });
  });
  return widest;
}

}  // namespace hutch::network

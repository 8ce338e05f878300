#include "network/egress/tenant.h"

#include <algorithm>

#include "network/egress/protocol.h"

namespace hutch::network {
namespace {

constexpr size_t kMaxShownHost = 253;
constexpr uint64_t kMinBurst = 16384;  // bytes, so that small rates still move something

std::string Printable(std::string text) {
  if (text.size() > kMaxShownHost) text.resize(kMaxShownHost);
  for (char& c : text)
    if (c <= ' ' || c >= 0x7f) c = '?';
  return text;
}

}  // namespace

void Denials::Add(const Denial& denial) {
  const Key key{denial.protocol, denial.host, denial.address, denial.port, denial.reason};
  if (!timer_.running()) timer_.Start(kDenialPeriod, [this] { Flush(); });
  if (const auto it = kinds_.find(key); it != kinds_.end()) {
    ++it->second.second;
    return;
  }
  if (kinds_.size() >= kMaxDenialKinds) {
    ++others_;
    return;
  }
  kinds_.emplace(key, std::pair(denial, 0));
  tell_(denial);
}

void Denials::Flush() {
  const auto kinds = std::move(kinds_);
  kinds_.clear();
  for (const auto& [key, row] : kinds) {
    if (row.second == 0) continue;
    Denial again = row.first;
    again.times = row.second;
    tell_(again);
  }
  if (others_ == 0) return;
  Denial more;
  more.protocol = "tcp";
  more.reason = "more different ones within a second than are told";
  more.times = std::exchange(others_, 0);
  tell_(more);
}

size_t Tenant::Allowance(Direction direction, size_t wanted) {
  auto& bucket = buckets[static_cast<size_t>(direction)];
  if (spent()) return 0;
  const uint64_t total = settings.policy.limits.total_bytes;
  if (total != 0)
    wanted = static_cast<size_t>(
        std::min<uint64_t>(wanted, total - counters().sent_bytes - counters().received_bytes));
  return bucket ? static_cast<size_t>(std::min<uint64_t>(wanted, bucket->Peek())) : wanted;
}

void Tenant::Count(Direction direction, size_t bytes) {
  (direction == Direction::kSent ? counters().sent_bytes : counters().received_bytes) += bytes;
  if (auto& bucket = buckets[static_cast<size_t>(direction)]) bucket->Take(bytes);
}

bool Tenant::spent() const {
  const uint64_t total = settings.policy.limits.total_bytes;
  return total != 0 && counters().sent_bytes + counters().received_bytes >= total;
}

void Tenant::Apply(EgressSettings fresh) {
  const uint64_t rate = fresh.policy.limits.bytes_per_second;
  if (rate != settings.policy.limits.bytes_per_second)
    for (auto& bucket : buckets) {
      bucket.reset();
      if (rate != 0) bucket.emplace(rate, std::max(rate / 4, kMinBurst));
    }
  WipeSecrets(&settings);
  settings = std::move(fresh);
}

void Tenant::Deny(const char* protocol, const std::string& host, const std::string& address,
                  uint16_t port, const std::string& reason) {
  ++counters().denied;
  Denial denial;
  denial.sandbox = id;
  denial.protocol = protocol;
  denial.host = Printable(host);
  denial.address = address;
  denial.port = port;
  denial.reason = reason;
  denials.Add(denial);
}

}  // namespace hutch::network

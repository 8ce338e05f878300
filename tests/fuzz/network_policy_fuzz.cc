// Policies: whatever the JSON, an answer; what is taken is printed so that it is read again as the
// same, and opens nothing that its rules do not say.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "network/host_names.h"
#include "network/policy.h"

namespace {

using namespace hutch::network;

void CheckPolicy(const Policy& policy) {
  const hutch::oci::Json printed = PolicyJson(policy);
  const auto again = ParsePolicy(printed, {});
  if (!again.has_value() || PolicyJson(*again) != printed) std::abort();
  for (const char* host : {"com", "a.com", "localhost", "", "127.0.0.1", "a.co.uk"}) {
    const Rule* const rule = FindByHost(policy, host, 443);
    if (rule != nullptr && rule->host != host) std::abort();
  }
  for (const char* text : {"127.0.0.1", "169.254.169.254", "fd00:ec2::254"}) {
    const Address address = ParseAddress(text).value();
    const Rule* const rule = FindByAddress(policy, address, 80);
    if (rule != nullptr && WhyClosed(rule->cidr->base) == nullptr) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto json = hutch::oci::ParseJson(text); json.has_value()) {
    const auto policy = ParsePolicy(*json, {});
    if (policy.has_value()) CheckPolicy(*policy);
  }
  const hutch::oci::Json one = {{"mode", "allowlist"}, {"allow", {text}}};
  if (const auto policy = ParsePolicy(one, {}); policy.has_value()) CheckPolicy(*policy);
  const auto host = NormalHost(text);
  if (host.has_value() && NormalHost(*host).value() != *host) std::abort();
  const auto in_rule = ParseRuleHost(text);
  if (in_rule.has_value() && ParseRuleHost(*in_rule).value() != *in_rule) std::abort();
  const auto address = ParseAddress(text);
  if (address.has_value() && ParseAddress(address->ToString()).value() != *address) std::abort();
  return 0;
}

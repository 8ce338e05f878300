#include "network/policy.h"

#include <algorithm>

#include "network/host_names.h"
#include "network/rule_text.h"

namespace hutch::network {
namespace {

bool HasPort(const Rule& rule, uint16_t port) {
  return std::any_of(rule.ports.begin(), rule.ports.end(), [&](const PortRange& range) {
    return port >= range.first && port <= range.last;
  });
}

bool IsForHost(const Rule& rule, std::string_view host, uint16_t port) {
  return !rule.cidr && HostMatches(rule.host, host) && HasPort(rule, port);
}

bool IsExact(const Rule& rule) { return !rule.host.starts_with("*."); }

// Servers undo these before they look at a path, so that what was allowed is not what is served.
constexpr std::string_view kEscapes[] = {"%2e", "%2f", "%5c", "%25", "%00", "%u", "%c0", "%c1",
                                         // Longer than need be: a decoder takes them for ASCII.
                                         "%e0%8", "%e0%9", "%f0%8", "%f8%8", "%fc%8"};

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

// "." or "..", also with the parameters that some servers cut off (RFC 3986, 3.3).
bool IsDots(std::string_view segment) {
  segment = segment.substr(0, segment.find(';'));
  return segment == "." || segment == "..";
}

}  // namespace

bool IsPlainPath(std::string_view path) {
  if (!path.starts_with('/')) return false;
  const std::string lower = Lower(path);
  for (const std::string_view escape : kEscapes)
    if (lower.find(escape) != std::string::npos) return false;
  for (const char c : path)
    if (c <= ' ' || c >= 0x7f || c == '\\' || c == '#') return false;
  path.remove_prefix(1);
  while (true) {
    const size_t end = path.find('/');
    const std::string_view segment = path.substr(0, end);
    if (IsDots(segment)) return false;
    if (end == std::string_view::npos) return true;
    if (segment.empty()) return false;
    path.remove_prefix(end + 1);
  }
}

const Rule* FindByHost(const Policy& policy, std::string_view host, uint16_t port) {
  const Rule* best = nullptr;
  int best_rank = 0;
  if (policy.mode != Mode::kAllowlist) return nullptr;
  for (const Rule& rule : policy.allow) {
    if (!IsForHost(rule, host, port)) continue;
    const bool whole = rule.methods.empty() && rule.paths.empty();
    const int rank = 1 + (whole ? 2 : 0) + (IsExact(rule) ? 1 : 0);
    if (rank > best_rank) best = &rule, best_rank = rank;
  }
  return best;
}

const Rule* FindByRequest(const Policy& policy, std::string_view host, uint16_t port,
                          std::string_view method, std::string_view target) {
  const Rule* best = nullptr;
  if (policy.mode != Mode::kAllowlist) return nullptr;
  for (const Rule& rule : policy.allow) {
    if (!IsForHost(rule, host, port) || !AllowsRequest(rule, method, target)) continue;
    if (best == nullptr || (IsExact(rule) && !IsExact(*best))) best = &rule;
  }
  return best;
}

bool AllowsName(const Policy& policy, std::string_view host) {
  return policy.mode == Mode::kAllowlist &&
         std::any_of(policy.allow.begin(), policy.allow.end(),
                     [&](const Rule& rule) { return !rule.cidr && HostMatches(rule.host, host); });
}

const Rule* FindByAddress(const Policy& policy, const Address& address, uint16_t port) {
  for (const Rule& rule : policy.allow)
    if (rule.cidr && rule.cidr->Contains(address) && HasPort(rule, port)) return &rule;
  return nullptr;
}

bool AllowsRequest(const Rule& rule, std::string_view method, std::string_view target) {
  if (!rule.methods.empty() &&
      std::find(rule.methods.begin(), rule.methods.end(), method) == rule.methods.end())
    return false;
  if (rule.paths.empty()) return true;
  const std::string_view path = target.substr(0, target.find('?'));
  return IsPlainPath(path) &&
         std::any_of(rule.paths.begin(), rule.paths.end(), [&](std::string_view allowed) {
           if (!allowed.ends_with("/*")) return path == allowed;
           return path.starts_with(allowed.substr(0, allowed.size() - 1));
         });
}

}  // namespace hutch::network

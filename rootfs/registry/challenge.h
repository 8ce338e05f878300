// WWW-Authenticate (RFC 9110, 11.6.1), as it comes from a registry that is not trusted.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hutch::rootfs::registry {

struct Challenge {
  std::string scheme;                             // lower case: "basic", "bearer"
  std::map<std::string, std::string> parameters;  // lower-case names; the first of a name counts

  std::string Parameter(const std::string& name) const;
};

// All challenges of the header, or of several joined by ", ". What is malformed ends the list;
// bounded by kMaxChallenges and kMaxChallengeParameters.
std::vector<Challenge> ParseChallenges(std::string_view header);

}  // namespace hutch::rootfs::registry

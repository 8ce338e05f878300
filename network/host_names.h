// Host names as rules write them: stricter than what programs may ask for, because a rule that is
// misread opens what nobody meant. Pure, but for the list of public suffixes (libpsl).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hutch::network {

// "pkgs.example.org" or "*.pkgs.example.org" in its normal form. kInvalidArgument with the reason
// (and a hint) for a public suffix, "localhost", what is not ASCII, an IDN that mixes scripts, and
// all that NormalHost refuses. A name of one label stands for itself only.
Result<std::string> ParseRuleHost(std::string_view text);

// Whether a name in normal form is what a rule's host, or a secret's, stands for.
bool HostMatches(std::string_view rule_host, std::string_view host);

}  // namespace hutch::network

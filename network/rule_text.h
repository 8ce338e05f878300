// One rule of an allowlist as people write it: "pkgs.example.org", "*.x.org:8080",
// "10.1.0.0/16:5432-5440", or an object with more to say. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "network/policy.h"
#include "oci/json.h"

namespace hutch::network {

// Of presets as well as of requests; `field` is what errors name. kInvalidArgument.
Result<Rule> ParseRule(const oci::Json& item, const std::string& field);
// What ParseRule takes again, with every default written out.
oci::Json RuleJson(const Rule& rule);
// "10.0.0.0/8", "2001:db8::/32", "[2001:db8::]/32". kInvalidArgument for bits behind the prefix,
// and for a range that is neither wholly open nor wholly one of the closed ones: whoever means both
// must say so.
Result<Cidr> ParseRuleCidr(std::string_view text);
// Names of networks, presets and secrets: letters, digits, ".", "_", "-"; a letter or digit first.
bool IsNetworkName(std::string_view name);
// A path that every server reads as it is written: no dots, escapes of separators, "//".
bool IsPlainPath(std::string_view path);

}  // namespace hutch::network

// Presets: lists of rules that the operator gave a name, in one file of theirs.
#pragma once

#include <string>

#include "base/result.h"
#include "network/policy.h"

namespace hutch::network {

// {"packages": ["deb.example.org:80", ...], ...}: rules as in a request, but no other presets. A
// file that is not there holds none. kForbidden when somebody else could have written it,
// kInvalidArgument with the place (packages[3]) for what is no rule.
Result<Presets> LoadPresets(const std::string& path);
Result<Presets> ParsePresets(std::string_view text);

}  // namespace hutch::network

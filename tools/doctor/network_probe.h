// Tries what sandboxes' networks need of the kernel, in a network namespace of a helper's, which
// goes with it. Without root it is one of a user namespace.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hutch::tools {

enum class Need {
  kLink,        // a kind of link, as ip-link(8) has it
  kExpression,  // of a rule of nf_tables in the family inet, as the kernel has it
  kNat,         // one in a chain of the type nat
};
enum class Presence { kThere, kAbsent, kNoTable, kNoChain };

// In order; an error when no such namespace can be had.
struct NeedRow {
  Need need;
  const char* name;
};
Result<std::vector<Presence>> ProbeNetwork(const std::vector<NeedRow>& rows);

// The helper: `hutch __probe-network NEED:NAME...` makes the namespace, prints the errno (0), then
// for each word the number of its Presence, a line each.
int AnswerNetworkProbe(const std::vector<std::string>& words);

}  // namespace hutch::tools

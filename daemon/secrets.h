// Secrets of the host's, one file each, that the egress program puts into requests on their way
// out. Their values are in no reply, no log and no error, and never inside a sandbox.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "network/egress/client.h"

namespace hutch::daemon {

// <dir>/<name>.json: {"hosts": ["api.example.org"], "header": "Authorization", "value": "Bearer
// x"}, mode 0600, root's, no link. kNotFound, kForbidden (who else could read or write it),
// kInvalidArgument for hosts that are no rule's, a header that frames or routes a request, a value
// with control characters. Blocks.
Result<network::Secret> LoadSecret(const std::string& dir, const std::string& name);
Result<network::Secret> ParseSecret(std::string_view text);

struct FoundSecret {
  std::string name;
  Result<network::Secret> secret;
};
// All of the directory, by name; none when it is not there. kLimit, kForbidden. Blocks.
Result<std::vector<FoundSecret>> ListSecrets(const std::string& dir);

}  // namespace hutch::daemon

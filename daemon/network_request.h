// The "network" of a request: what the operator's presets make of it, what commands get to know of
// it, and its form in records.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/config.h"
#include "network/policy.h"
#include "oci/json.h"

namespace hutch::daemon {

// As network::ParsePolicy; the operator's presets are read when the request names one.
Result<network::Policy> ParseNetworkRequest(const oci::Json& json, const Config& config);

// The variables by which programs find the proxy; those that are set already stay as they are.
void SetProxyEnv(const network::Policy& policy, std::vector<std::string>& env);

// Whether nothing at all can be reached by it: then nothing has to be made for it either.
bool IsClosed(const network::Policy& policy);

}  // namespace hutch::daemon

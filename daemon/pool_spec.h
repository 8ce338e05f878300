// A pool of sandboxes made ahead, as it is asked for. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "oci/json.h"

namespace hutch::daemon {

struct PoolSpec {
  std::string name = {};
  oci::Json request = oci::Json::object();  // a body of POST /v1/sandboxes
  uint64_t ready = 0;                       // kept ready
  uint64_t max = 0;                         // as many as demand may make of it
  bool demand = false;                      // it grows with how often it is taken from
};

// {"template" or "image", "ready", "max", "demand", "request"}; the last has the other fields of a
// body. "name" is a member where `name` is empty. kInvalidArgument with the field below `path`;
// what a request means is judged when sandboxes are made of it.
Result<PoolSpec> ParsePoolSpec(const oci::Json& json, const std::string& path,
                               const std::string& name = {});
oci::Json PoolSpecJson(const PoolSpec& spec);

// A list of them; kInvalidArgument for a name twice.
Result<std::vector<PoolSpec>> ParsePoolSpecs(const oci::Json& json, const std::string& path);
oci::Json PoolSpecsJson(const std::vector<PoolSpec>& specs);

}  // namespace hutch::daemon

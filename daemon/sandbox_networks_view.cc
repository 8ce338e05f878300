// What is told of a sandbox's network.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "daemon/sandbox_networks_state.h"
#include "network/counters.h"

namespace hutch::daemon {
namespace {

// All zero without a file. Read, not mapped: whoever has the file, too, could cut it under a
// mapping.
oci::Json CountersJson(int fd) {
  // In the order of network::Counters, its version first.
  static constexpr const char* kNames[] = {nullptr,        "sent_bytes", "received_bytes",
                                           "connections",  "denied",     "names_answered",
                                           "names_denied", "failed",     "secrets_used"};
  uint64_t numbers[std::size(kNames)] = {};
  static_assert(sizeof numbers == sizeof(network::Counters));
  if (fd >= 0 && ::pread(fd, numbers, sizeof numbers, 0) != static_cast<ssize_t>(sizeof numbers))
    std::fill(std::begin(numbers), std::end(numbers), 0);
  oci::Json json = {{"refused_packets", 0}};
  for (size_t i = 1; i < std::size(kNames); ++i) json[kNames[i]] = numbers[i];
  return json;
}

void AddAddresses(oci::Json& json, const oci::Json& network, const network::Address& v4,
                  const network::Address& v6) {
  for (const network::Address& address : {v4, v6})
    json["addresses"].push_back({{"network", network}, {"address", address.ToString()}});
}

// Its addresses in a network that it joined.
void AddMember(oci::Json& json, const Result<oci::Json>& network, const std::string& id) {
  if (!network.has_value()) return;
  for (const oci::Json& member : (*network)["members"])
    if (member["id"] == id)
      for (const char* address : {"address_v4", "address_v6"})
        json["addresses"].push_back(
            {{"network", (*network)["name"]}, {"address", member[address]}});
}

}  // namespace

void SandboxNetworks::Describe(const std::string& id, const network::Policy& policy,
                               std::function<void(oci::Json)> told) {
  oci::Json json = network::PolicyJson(policy);
  json["presets"] = policy.presets;
  json["addresses"] = oci::Json::array();
  json["denied"] = oci::Json::array();
  json["counters"] = CountersJson(-1);
  const auto it = nets_.find(id);
  if (it == nets_.end()) return told(std::move(json));
  const NetPtr net = it->second;
  json["denied"] = net->denials;
  json["counters"] = CountersJson(net->counters.get());
  if (net->caught)
    if (const auto caught = network::ReadCatch(net->target.get()); caught.has_value())
      json["counters"]["refused_packets"] = caught->refused_packets;
  if (net->in_kernel) return told(std::move(json));  // being changed
  for (const std::string& name : net->joined) AddMember(json, parts_.workspaces.ToJson(name), id);
  if (!net->leased) return told(std::move(json));
  AddAddresses(json, nullptr, net->lease->v4, net->lease->v6);
  CountOpen(net, std::move(json), std::move(told));
}

oci::Json SandboxNetworks::Counted(const std::string& id) const {
  const auto it = nets_.find(id);
  if (it == nets_.end() || it->second->in_kernel || it->second->leased) return nullptr;
  return CountersJson(it->second->counters.get());
}

// The kernel counts what goes around the egress program.
void SandboxNetworks::CountOpen(const NetPtr& net, oci::Json json,
                                std::function<void(oci::Json)> told) {
  const auto shared = std::make_shared<oci::Json>(std::move(json));
  const auto reply = [shared, told] { told(std::move(*shared)); };
  const Status begun =
      parts_.worker.Submit([mode = open_, id = net->id, shared, reply, &loop = parts_.loop] {
        const Result<network::OpenNetwork*> open = mode->Get();
        const Result<network::OpenCounters> counted =
            open.has_value() ? (*open)->Count(id) : Result<network::OpenCounters>(open.error());
        if (counted.has_value()) {
          oci::Json& counters = (*shared)["counters"];
          counters["sent_bytes"] = counters["sent_bytes"].get<uint64_t>() + counted->sent_bytes;
          counters["received_bytes"] =
              counters["received_bytes"].get<uint64_t>() + counted->received_bytes;
          counters["refused_packets"] =
              counters["refused_packets"].get<uint64_t>() + counted->denied_packets;
        }
        loop.Post(reply);
      });
  if (!begun.has_value()) reply();
}

}  // namespace hutch::daemon

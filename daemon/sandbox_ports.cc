// Host ports that lead into sandboxes, as far as the registry has to do with them.
#include <algorithm>

#include "base/fault_point.h"
#include "base/log.h"
#include "daemon/limits.h"
#include "daemon/sandboxes.h"

namespace hutch::daemon {

Result<Forwards*> Sandboxes::Ways() const {
  if (parts_.forwards != nullptr) return parts_.forwards;
  return Error{.code = Code::kUnsupported, .what = "ports of sandboxes are not reached here"};
}

Result<std::vector<ReservedPort>> Sandboxes::ReservePorts(
    const std::vector<PortFacts>& wanted) const {
  if (wanted.empty()) return std::vector<ReservedPort>();
  ASSIGN_OR_RETURN(const Forwards* ways, Ways());
  return ways->ReserveAll(wanted);
}

// Of a new sandbox what it reserved, of one that is taken up what its record says.
Status Sandboxes::OpenPorts(SandboxEntry& entry) {
  if (parts_.forwards == nullptr) return OkStatus();
  const std::string& id = entry.facts.id;
  const Status opened = parts_.forwards->Open(id, entry.sandbox->init().fd());
  if (!opened.has_value()) {
    Log(LogLevel::kError, "ports of a sandbox are not reached",
        {{"sandbox", id}, {"error", opened.error().ToString()}});
    return opened;
  }
  if (entry.reserved_ports.empty()) parts_.forwards->Restore(id, entry.facts.ports);
  for (ReservedPort& port : std::exchange(entry.reserved_ports, {}))
    parts_.forwards->Add(id, std::move(port));
  return OkStatus();
}

bool Sandboxes::PortsInUse(const SandboxEntry& entry) {
  return parts_.forwards != nullptr && parts_.forwards->TakeActivity(entry.facts.id);
}

Result<PortFacts> Sandboxes::AddPort(SandboxEntry& entry, const PortFacts& wanted) {
  ASSIGN_OR_RETURN(Forwards * ways, Ways());
  std::vector<PortFacts>& ports = entry.facts.ports;
  if (ports.size() >= kMaxForwards)
    return Error{.code = Code::kLimit,
                 .what = std::to_string(kMaxForwards) + " ports are forwarded already"};
  for (const PortFacts& other : ports)
    if (other.port == wanted.port)
      return Error{.code = Code::kExists,
                   .what = "port " + std::to_string(other.port) + " is forwarded already, from " +
                           HostPortText(other),
                   .field = "port"};
  ASSIGN_OR_RETURN(ReservedPort port, ways->Reserve(wanted, "host_port"));
  const PortFacts facts = port.facts;
  FaultPoint("port reserved");
  ports.push_back(facts);
  const Status saved = Save(entry);
  FaultPoint("port saved");
  if (!saved.has_value()) {
    ports.pop_back();
    return saved.error();
  }
  Touch(entry, Activity::kCall);
  ways->Add(entry.facts.id, std::move(port));
  return facts;
}

Status Sandboxes::RemovePort(SandboxEntry& entry, uint16_t port, std::function<void()> removed) {
  ASSIGN_OR_RETURN(Forwards * ways, Ways());
  RETURN_IF_ERROR(ways->Remove(entry.facts.id, port, std::move(removed)));
  std::erase_if(entry.facts.ports, [&](const PortFacts& facts) { return facts.port == port; });
  Touch(entry, Activity::kCall);
  IgnoreError(Save(entry), "logged; after a restart it would be forwarded again");
  return OkStatus();
}

}  // namespace hutch::daemon

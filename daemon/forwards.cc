#include "daemon/forwards.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "daemon/kept_sockets.h"
#include "daemon/limits.h"
#include "daemon/proxy_exchange.h"
#include "daemon/relay_group.h"

namespace hutch::daemon {
namespace {

constexpr int kBacklog = 128;

struct SocketAddress {
  union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
  };
  socklen_t size;
};

SocketAddress AddressOf(const PortFacts& facts) {
  SocketAddress address{};
  if (facts.address.find(':') != std::string::npos) {
    address.v6.sin6_family = AF_INET6;
    address.v6.sin6_port = htons(facts.host_port);
    ::inet_pton(AF_INET6, facts.address.c_str(), &address.v6.sin6_addr);  // checked when parsed
    address.size = sizeof address.v6;
  } else {
    address.v4.sin_family = AF_INET;
    address.v4.sin_port = htons(facts.host_port);
    ::inet_pton(AF_INET, facts.address.c_str(), &address.v4.sin_addr);
    address.size = sizeof address.v4;
  }
  return address;
}

// As the kernel writes it, whichever way the request did.
std::string KeptAddress(const PortFacts& facts) {
  const Result<std::string> address = InternetAddress(AddressOf(facts).any);
  return address.has_value() ? *address : "";
}

Result<UniqueFd> Listen(const SocketAddress& address) {
  UniqueFd fd(::socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return SysError(errno, "socket");
  // Connections of a listener before this one may linger; two that listen are refused all the same.
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.any.sa_family == AF_INET6)
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(fd.get(), &address.any, address.size) != 0) return SysError(errno, "bind");
  if (::listen(fd.get(), kBacklog) != 0) return SysError(errno, "listen");
  return fd;
}

Result<uint16_t> BoundPort(int fd) {
  SocketAddress address{};
  address.size = sizeof address.v6;
  if (::getsockname(fd, &address.any, &address.size) != 0) return SysError(errno, "getsockname");
  return ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
}

}  // namespace

Forwards::Forwards(Loop& loop) : loop_(loop) {}

Forwards::~Forwards() {
  for (const auto& [id, sandbox] : sandboxes_)
    thread_.loop().Post([group = sandbox.group] { group->Close(); });
  thread_.Stop();
}

Forwards::Sandbox* Forwards::Find(const std::string& sandbox) {
  const auto it = sandboxes_.find(sandbox);
  return it == sandboxes_.end() ? nullptr : &it->second;
}
const Forwards::Sandbox* Forwards::Find(const std::string& sandbox) const {
  const auto it = sandboxes_.find(sandbox);
  return it == sandboxes_.end() ? nullptr : &it->second;
}

// Who has a host port, as far as it is one of ours.
std::string Forwards::OwnerOf(const PortFacts& wanted) const {
  for (const auto& [id, sandbox] : sandboxes_)
    for (const Forward& forward : sandbox.forwards)
      if (!forward.error && forward.facts.host_port == wanted.host_port)
        return "sandbox " + id + " has it for its port " + std::to_string(forward.facts.port);
  return "another program of this host listens there";
}

Result<ReservedPort> Forwards::Reserve(const PortFacts& wanted, const std::string& field) const {
  ReservedPort port{.facts = wanted, .listener = UniqueFd()};
  if (kept_ != nullptr && wanted.host_port != 0) port.listener = kept_->Take(KeptAddress(wanted));
  if (port.listener.valid()) return port;
  Result<UniqueFd> listener = Listen(AddressOf(wanted));
  if (!listener.has_value()) {
    Error error = std::move(listener).error();
    error.what = "listen on " + HostPortText(wanted) + ": " + std::strerror(error.sys);
    error.field = field;
    if (error.sys == EADDRINUSE) {
      error.code = Code::kExists;
      error.what += ": " + OwnerOf(wanted);
      error.hint = "leave host_port out to get one that is free";
    }
    if (error.sys == EADDRNOTAVAIL) error.code = Code::kInvalidArgument;
    return error;
  }
  port.listener = std::move(*listener);
  ASSIGN_OR_RETURN(port.facts.host_port, BoundPort(port.listener.get()));
  return port;
}

Result<std::vector<ReservedPort>> Forwards::ReserveAll(const std::vector<PortFacts>& wanted) const {
  std::vector<ReservedPort> ports;
  for (const PortFacts& facts : wanted) {
    ASSIGN_OR_RETURN(ReservedPort port,
                     Reserve(facts, "ports[" + std::to_string(ports.size()) + "].host_port"));
    ports.push_back(std::move(port));
  }
  return ports;
}

Status Forwards::Open(const std::string& sandbox, int init) {
  ASSIGN_OR_RETURN(UniqueFd copy, Duplicate(init));
  sandboxes_[sandbox] = Sandbox{.group = std::make_shared<RelayGroup>(std::move(copy)),
                                .forwards = {},
                                .proxied = std::make_shared<PortCounters>()};
  return OkStatus();
}

void Forwards::Add(const std::string& sandbox, ReservedPort port) {
  Sandbox* const found = Find(sandbox);
  if (found == nullptr) return;
  const uint64_t number = ++last_number_;
  auto counters = std::make_shared<PortCounters>();
  found->forwards.push_back(
      {.number = number, .facts = port.facts, .error = {}, .counters = counters});
  if (kept_ != nullptr) kept_->Keep(port.listener.get());
  auto shared = std::make_shared<ReservedPort>(std::move(port));
  thread_.loop().Post([this, group = found->group, number, shared, counters] {
    group->AddListener(
        number, std::make_unique<ForwardListener>(thread_, *group, std::move(*shared), counters));
  });
}

void Forwards::Restore(const std::string& sandbox, const std::vector<PortFacts>& ports) {
  for (const PortFacts& facts : ports) {
    Result<ReservedPort> port = Reserve(facts, "");
    if (port.has_value()) {
      Add(sandbox, std::move(*port));
      continue;
    }
    Log(LogLevel::kError, "a port of a sandbox is no longer forwarded",
        {{"sandbox", sandbox},
         {"port", std::to_string(facts.port)},
         {"error", port.error().ToString()}});
    if (Sandbox* const found = Find(sandbox))
      found->forwards.push_back({.number = ++last_number_,
                                 .facts = facts,
                                 .error = port.error().what,
                                 .counters = std::make_shared<PortCounters>()});
  }
}

Status Forwards::Remove(const std::string& sandbox, uint16_t port, std::function<void()> removed) {
  Sandbox* const found = Find(sandbox);
  const Error none{.code = Code::kNotFound,
                   .what = "port " + std::to_string(port) + " is not forwarded"};
  if (found == nullptr) return none;
  const auto it = std::find_if(found->forwards.begin(), found->forwards.end(),
                               [&](const Forward& one) { return one.facts.port == port; });
  if (it == found->forwards.end()) return none;
  const uint64_t number = it->number;
  DropKept(*it);
  found->forwards.erase(it);
  thread_.loop().Post([this, group = found->group, number, removed = std::move(removed)] {
    group->RemoveListener(number);
    loop_.Post(removed);
  });
  return OkStatus();
}

void Forwards::DropKept(const Forward& forward) {
  if (kept_ != nullptr && !forward.error) kept_->Drop(KeptAddress(forward.facts));
}

void Forwards::Close(const std::string& sandbox) {
  const auto it = sandboxes_.find(sandbox);
  if (it == sandboxes_.end()) return;
  for (const Forward& forward : it->second.forwards) DropKept(forward);
  thread_.loop().Post([group = it->second.group] { group->Close(); });
  sandboxes_.erase(it);
}

Status Forwards::CheckProxy(const std::string& sandbox) const {
  const Sandbox* const found = Find(sandbox);
  if (found == nullptr) return Error{.code = Code::kBadState, .what = "the sandbox has no way in"};
  if (found->proxied->open >= kMaxProxiedConnections)
    return Error{.code = Code::kLimit,
                 .what = "the sandbox has " + std::to_string(kMaxProxiedConnections) +
                         " requests to its ports under way"};
  return OkStatus();
}

void Forwards::Proxy(const std::string& sandbox, ProxyRequest request) {
  Sandbox* const found = Find(sandbox);
  CHECK(found != nullptr);
  ++found->proxied->open;
  ++found->proxied->connections;
  auto shared = std::make_shared<ProxyRequest>(std::move(request));
  thread_.loop().Post([this, group = found->group, shared, counters = found->proxied] {
    if (group->closed()) {
      --counters->open;
      return;
    }
    std::make_shared<ProxyExchange>(thread_, *group, std::move(*shared), counters)->Start();
  });
}

std::vector<ForwardView> Forwards::List(const std::string& sandbox) const {
  std::vector<ForwardView> views;
  const Sandbox* const found = Find(sandbox);
  if (found == nullptr) return views;
  for (const Forward& one : found->forwards)
    views.push_back({.facts = one.facts,
                     .error = one.error,
                     .open = one.counters->open,
                     .connections = one.counters->connections,
                     .sent = one.counters->sent,
                     .received = one.counters->received});
  return views;
}

std::vector<PortFacts> Forwards::Facts(const std::string& sandbox) const {
  std::vector<PortFacts> ports;
  if (const Sandbox* const found = Find(sandbox))
    for (const Forward& one : found->forwards) ports.push_back(one.facts);
  return ports;
}

bool Forwards::TakeActivity(const std::string& sandbox) {
  Sandbox* const found = Find(sandbox);
  if (found == nullptr) return false;
  uint64_t open = 0, sum = 0;
  const auto add = [&](const PortCounters& counters) {
    open += counters.open;
    sum += counters.connections + counters.sent + counters.received;
  };
  add(*found->proxied);
  for (const Forward& one : found->forwards) add(*one.counters);
  return open > 0 || std::exchange(found->seen, sum) != sum;
}

}  // namespace hutch::daemon

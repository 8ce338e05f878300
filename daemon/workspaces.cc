#include "daemon/workspaces.h"

#include <fcntl.h>

#include <algorithm>

#include "daemon/limits.h"
#include "network/rule_text.h"

namespace hutch::daemon {
namespace {

using network::Address;
using network::Cidr;
using oci::Json;
using oci::ObjectReader;

constexpr size_t kMaxFileBytes = 64u << 20;  // all networks full of members
constexpr uint32_t kFirstHost = 2;           // .1 is left to the network itself
constexpr uint32_t kLastHost = 254;
constexpr unsigned kSubnetBitsV4 = 96 + 24, kSubnetBitsV6 = 64;

Error NotThere(const std::string& name) {
  return Error{.code = Code::kNotFound, .what = "there is no network \"" + name + "\""};
}

// `base` with `value` added to the 32 bits that end at `end_bit`.
Address Plus(const Address& base, unsigned end_bit, uint32_t value) {
  Address sum = base;
  uint32_t carry = value;
  for (size_t i = end_bit / 8; i-- > 0 && carry != 0; carry >>= 8) {
    const uint32_t digit = sum.bytes[i] + (carry & 0xff);
    sum.bytes[i] = static_cast<uint8_t>(digit);
    if (digit > 0xff) carry += 0x100;
  }
  return sum;
}

uint64_t SubnetsIn(const Cidr& pool, unsigned subnet_bits) {
  return uint64_t{1} << std::min(subnet_bits - pool.bits, 32u);
}

// The descriptor that a job on another thread works on.
Result<std::shared_ptr<UniqueFd>> Shared(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return SysError(errno, "duplicate a sandbox's descriptor");
  return std::make_shared<UniqueFd>(copy);
}

}  // namespace

Workspaces::Workspaces(Loop& loop, Worker& worker, const Config& config, WorkspaceKernel kernel)
    : loop_(loop),
      worker_(worker),
      path_(config.state_dir + "/networks.json"),
      pool_v4_(network::ParseRuleCidr(config.network.workspaces_v4).value()),
      pool_v6_(network::ParseRuleCidr(config.network.workspaces_v6).value()),
      kernel_(std::move(kernel)) {}

Workspaces::~Workspaces() { *alive_ = false; }

// --- on disk

std::string Workspaces::Text() const {
  Json list = Json::array();
  for (const auto& [name, network] : networks_) {
    Json members = Json::array();
    for (const auto& [id, member] : network.members)
      members.push_back(
          {{"id", id}, {"name", member.name}, {"link", member.link}, {"host", member.host}});
    list.push_back({{"name", name}, {"index", network.index}, {"members", members}});
  }
  return oci::PrintJson({{"version", 1}, {"networks", list}});
}

Status Workspaces::ReadNetwork(const Json& json) {
  std::string name;
  uint64_t index = 0;
  ObjectReader reader(json, "networks");
  reader.String("name", &name, kMaxNameBytes).Uint("index", &index, 0, UINT32_MAX);
  const Json* const members = reader.Member("members");
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kIgnore));
  if (!network::IsNetworkName(name) || members == nullptr || !members->is_array())
    return Error{.code = Code::kInvalidArgument, .what = "a network without name or members"};
  if (index >= SubnetsIn(pool_v4_, kSubnetBitsV4) || index >= SubnetsIn(pool_v6_, kSubnetBitsV6))
    return Error{.code = Code::kInvalidArgument,
                 .what = "network \"" + name + "\" is beyond the pools",
                 .hint = "give network.workspaces_v4 and network.workspaces_v6 their room back"};
  Network& network = networks_[name];
  network.index = static_cast<uint32_t>(index);
  for (const Json& item : *members) {
    std::string id;
    uint64_t host = 0;
    Member member;
    ObjectReader each(item, "members");
    each.String("id", &id, kMaxNameBytes).String("name", &member.name, kMaxNameBytes);
    each.String("link", &member.link, 15).Uint("host", &host, kFirstHost, kLastHost);
    RETURN_IF_ERROR(each.Done(ObjectReader::Unknown::kIgnore));
    member.host = static_cast<uint32_t>(host);
    network.members[id] = std::move(member);
  }
  return OkStatus();
}

Status Workspaces::Read(const Json& document) {
  ObjectReader reader(document, "");
  const Json* const list = reader.Member("networks");
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kIgnore));
  if (list == nullptr || !list->is_array())
    return Error{.code = Code::kInvalidArgument, .what = "no list of networks"};
  for (const Json& json : *list) RETURN_IF_ERROR(ReadNetwork(json));
  return OkStatus();
}

Status Workspaces::Recover(const std::set<std::string>& living) {
  const auto text = ReadFile(path_, kMaxFileBytes);
  if (!text.has_value()) {
    if (text.error().code == Code::kNotFound) return OkStatus();
    return text.error();
  }
  const auto document = oci::ParseJson(*text, {.max_bytes = kMaxFileBytes, .max_depth = 8});
  Status read = document.has_value() ? Read(*document) : Status(document.error());
  if (!read.has_value()) {
    Error error = std::move(read).error();
    error.what = path_ + ": " + error.what;
    return error;
  }
  for (auto& [name, network] : networks_)
    std::erase_if(network.members, [&](const auto& one) { return !living.contains(one.first); });
  return OkStatus();
}

void Workspaces::Submit(Durability durability, std::function<Status()> job, Done done) {
  jobs_.push_back({durability, std::move(job), std::move(done)});
  if (jobs_.size() == 1) StartJob();
}

void Workspaces::StartJob() {
  const std::weak_ptr<bool> alive = alive_;
  const auto finish = [this, &loop = loop_, alive](Status status) {
    loop.Post([this, alive, status = std::move(status)] {
      if (const auto held = alive.lock(); held == nullptr || !*held) return;
      const Done done = std::move(jobs_.front().done);
      jobs_.pop_front();
      if (!jobs_.empty()) StartJob();
      done(status);
    });
  };
  const Job& job = jobs_.front();
  const Status begun = worker_.Submit(
      [path = path_, text = Text(), durability = job.durability, run = job.run, finish] {
        Status status = WriteFileAtomic(path, text, durability);
        if (status.has_value()) status = run();
        finish(std::move(status));
      });
  if (!begun.has_value()) finish(begun);
}

// --- networks

network::WorkspaceSubnet Workspaces::SubnetOf(const Network& network) const {
  return {.v4 = {.base = Plus(pool_v4_.base, kSubnetBitsV4, network.index), .bits = kSubnetBitsV4},
          .v6 = {.base = Plus(pool_v6_.base, kSubnetBitsV6, network.index), .bits = kSubnetBitsV6}};
}

network::Member Workspaces::AddressesOf(const Network& network, const Member& member) const {
  const network::WorkspaceSubnet subnet = SubnetOf(network);
  return {.v4 = Plus(subnet.v4.base, 128, member.host),
          .v6 = Plus(subnet.v6.base, 128, member.host)};
}

void Workspaces::Create(const std::string& name, Done done) {
  const auto refuse = [&](Code code, const std::string& what) {
    loop_.Post([done, error = Error{.code = code, .what = what, .field = "name"}] { done(error); });
  };
  if (!network::IsNetworkName(name))
    return refuse(Code::kInvalidArgument, "must be [a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}");
  if (networks_.contains(name))
    return refuse(Code::kExists, "there is a network \"" + name + "\" already");
  const uint64_t room = std::min({uint64_t{kMaxNetworks}, SubnetsIn(pool_v4_, kSubnetBitsV4),
                                  SubnetsIn(pool_v6_, kSubnetBitsV6)});
  if (networks_.size() >= room)
    return refuse(Code::kLimit, "there are " + std::to_string(room) + " networks already");
  std::set<uint32_t> taken;
  for (const auto& [other, network] : networks_) taken.insert(network.index);
  uint32_t index = 0;
  while (taken.contains(index)) ++index;
  networks_[name].index = index;
  Submit(
      Durability::kDisk, [] { return OkStatus(); },
      [this, name, done](const Status& status) {
        if (!status.has_value()) networks_.erase(name);
        done(status);
      });
}

void Workspaces::Remove(const std::string& name, Done done) {
  const auto it = networks_.find(name);
  const auto refuse = [&](Error error) {
    loop_.Post([done, error = std::move(error)] { done(error); });
  };
  if (it == networks_.end()) return refuse(NotThere(name));
  if (!it->second.members.empty())
    return refuse({.code = Code::kBadState,
                   .what = "network \"" + name + "\" has " +
                           std::to_string(it->second.members.size()) + " members",
                   .hint = "remove them, or take them out of it, first"});
  const auto network = std::make_shared<Network>(std::move(it->second));
  networks_.erase(it);
  Submit(
      Durability::kDisk,
      [space = network->space] {
        space->fd.reset();  // the kernel takes the namespace down by itself
        return OkStatus();
      },
      [this, name, network, done](const Status& status) {
        if (!status.has_value()) networks_.try_emplace(name, std::move(*network));
        done(status);
      });
}

Json Workspaces::NetworkJson(const std::string& name, const Network& network) const {
  const network::WorkspaceSubnet subnet = SubnetOf(network);
  Json members = Json::array();
  for (const auto& [id, member] : network.members) {
    const network::Member addresses = AddressesOf(network, member);
    members.push_back({{"id", id},
                       {"name", member.name},
                       {"address_v4", addresses.v4.ToString()},
                       {"address_v6", addresses.v6.ToString()}});
  }
  return {{"name", name},
          {"subnet_v4", subnet.v4.ToString()},
          {"subnet_v6", subnet.v6.ToString()},
          {"members", members}};
}

Result<Json> Workspaces::ToJson(const std::string& name) const {
  const auto it = networks_.find(name);
  if (it == networks_.end()) return NotThere(name);
  return NetworkJson(name, it->second);
}

Json Workspaces::ListJson() const {
  Json list = Json::array();
  for (const auto& [name, network] : networks_) list.push_back(NetworkJson(name, network));
  return list;
}

// --- members

// The next free one in turn: the kernel takes the links of one that is gone down in its own time.
std::optional<uint32_t> Workspaces::FreeHost(const Network& network) {
  std::set<uint32_t> taken;
  for (const auto& [id, member] : network.members) taken.insert(member.host);
  uint32_t host = std::max(network.last_host, kFirstHost - 1);
  for (uint32_t tried = kFirstHost; tried <= kLastHost; ++tried) {
    host = host >= kLastHost ? kFirstHost : host + 1;
    if (!taken.contains(host)) return host;
  }
  return std::nullopt;
}

std::string Workspaces::FreeLink(const std::string& id) const {
  std::set<std::string> taken;
  for (const auto& [name, network] : networks_)
    if (const auto it = network.members.find(id); it != network.members.end())
      taken.insert(it->second.link);
  for (unsigned number = 0;; ++number) {
    std::string link = "net" + std::to_string(number);
    if (!taken.contains(link)) return link;
  }
}

void Workspaces::Join(const std::string& network_name, const std::string& id,
                      const std::string& sandbox_name, int sandbox_fd, Done done) {
  const auto refuse = [&](Error error) {
    loop_.Post([done, error = std::move(error)] { done(error); });
  };
  const auto found = networks_.find(network_name);
  if (found == networks_.end()) return refuse(NotThere(network_name));
  Network& network = found->second;
  auto fd = Shared(sandbox_fd);
  if (!fd.has_value()) return refuse(std::move(fd).error());
  if (!network.members.contains(id)) {
    const std::optional<uint32_t> host = FreeHost(network);
    if (!host.has_value())
      return refuse({.code = Code::kLimit, .what = "network \"" + network_name + "\" is full"});
    Member fresh;
    fresh.host = network.last_host = *host;
    fresh.link = FreeLink(id);
    network.members[id] = std::move(fresh);
  }
  Member& member = network.members.at(id);
  member.name = sandbox_name;
  const auto job = [kernel = kernel_, space = network.space, subnet = SubnetOf(network),
                    link = member.link, addresses = AddressesOf(network, member),
                    fd = *fd]() -> Status {
    if (!space->fd.valid()) {
      ASSIGN_OR_RETURN(space->fd, kernel.make(subnet));
    }
    RETURN_IF_ERROR(kernel.leave(fd->get(), link));
    return kernel.join(space->fd.get(), fd->get(), link, addresses);
  };
  Submit(Durability::kMemory, job, [this, network_name, id, done](const Status& status) {
    const auto it = networks_.find(network_name);
    if (it != networks_.end() && it->second.members.contains(id)) {
      if (status.has_value())
        it->second.members[id].joined = true;
      else
        it->second.members.erase(id);
      Changed(it->second);
    }
    if (!status.has_value()) Save();
    done(status);
  });
}

void Workspaces::Leave(const std::string& network_name, const std::string& id, int sandbox_fd,
                       Done done) {
  const auto it = networks_.find(network_name);
  const auto answer = [&](Status status) {
    loop_.Post([done, status = std::move(status)] { done(status); });
  };
  if (it == networks_.end() || !it->second.members.contains(id)) return answer(OkStatus());
  auto fd = Shared(sandbox_fd);
  if (!fd.has_value()) return answer(std::move(fd).error());
  const std::string link = it->second.members.at(id).link;
  it->second.members.erase(id);
  Changed(it->second);
  Submit(
      Durability::kMemory,
      [kernel = kernel_, fd = *fd, link] { return kernel.leave(fd->get(), link); },
      std::move(done));
}

void Workspaces::Forget(const std::string& id) {
  bool any = false;
  for (auto& [name, network] : networks_) {
    if (network.members.erase(id) == 0) continue;
    any = true;
    Changed(network);
  }
  if (any) Save();
}

// A file that still names members that are gone does no harm: nobody living has their ids.
void Workspaces::Save() {
  Submit(
      Durability::kMemory, [] { return OkStatus(); }, [](const Status&) {});
}

void Workspaces::Changed(const Network& network) {
  if (!changed_) return;
  std::set<std::string> ids;
  for (const auto& [id, member] : network.members) ids.insert(id);
  if (!ids.empty()) changed_(ids);
}

Workspaces::Hosts Workspaces::HostsFor(const std::string& id) const {
  Hosts hosts;
  for (const auto& [network_name, network] : networks_) {
    if (!network.members.contains(id)) continue;
    for (const auto& [member_id, member] : network.members) {
      if (!member.joined) continue;
      const network::Member addresses = AddressesOf(network, member);
      for (const std::string& written : {member_id, member.name}) {
        const auto name = network::NormalHost(written);
        if (!name.has_value() || *name == "localhost" || name->find('.') != std::string::npos)
          continue;
        std::vector<Address>& list = hosts[*name];
        list.insert(list.end(), {addresses.v4, addresses.v6});
      }
    }
  }
  return hosts;
}

std::vector<std::string> Workspaces::NetworksOf(const std::string& id) const {
  std::vector<std::string> names;
  for (const auto& [name, network] : networks_)
    if (network.members.contains(id)) names.push_back(name);
  return names;
}

}  // namespace hutch::daemon

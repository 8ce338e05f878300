#include "daemon/workspaces.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>

#include "base/log.h"
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
      networks_path_(config.state_dir + "/networks.json"),
      members_path_(config.run_dir + "/networks.json"),
      pool_v4_(network::ParseRuleCidr(config.network.workspaces_v4).value()),
      pool_v6_(network::ParseRuleCidr(config.network.workspaces_v6).value()),
      kernel_(std::move(kernel)) {}

Workspaces::~Workspaces() { *alive_ = false; }

// --- on disk

// Networks outlive the machine's end: each change of them is on the disk before it is answered.
// Members do not, so theirs is a file on the run directory's tmpfs: after a power cut nobody needs
// it, and no rename of it can reach a disk before what it names and leave nothing there.
std::string Workspaces::Text(Kept kept) const {
  Json list = Json::array();
  for (const auto& [name, network] : networks_) {
    Json members = Json::array();
    if (kept == Kept::kMembers)
      for (const auto& [id, member] : network.members)
        members.push_back({{"id", id},
                           {"name", member.name},
                           {"link", member.link},
                           {"host", member.host},
                           {"order", member.order}});
    list.push_back({{"name", name}, {"index", network.index}, {"members", members}});
  }
  return oci::PrintJson({{"version", 1}, {"networks", list}});
}

Status Workspaces::ReadNetwork(const Json& json, Kept kept) {
  std::string name;
  uint64_t index = 0;
  ObjectReader reader(json, "networks");
  reader.String("name", &name, kMaxNameBytes).Uint("index", &index, 0, UINT32_MAX);
  const Json* const members = reader.Member("members");
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kIgnore));
  if (!network::IsNetworkName(name) || members == nullptr || !members->is_array())
    return Error{.code = Code::kInvalidArgument, .what = "a network without name or members"};
  if (kept == Kept::kNetworks) {
    networks_[name].index = static_cast<uint32_t>(index);
    return OkStatus();
  }
  const auto found = networks_.find(name);
  if (found == networks_.end() || found->second.index != index) return OkStatus();  // of before
  for (const Json& item : *members) {
    std::string id;
    uint64_t host = 0;
    Member member;
    ObjectReader each(item, "members");
    each.String("id", &id, kMaxNameBytes).String("name", &member.name, kMaxNameBytes);
    each.String("link", &member.link, 15).Uint("host", &host, kFirstHost, kLastHost);
    each.Uint("order", &member.order, 0, INT64_MAX);
    RETURN_IF_ERROR(each.Done(ObjectReader::Unknown::kIgnore));
    member.host = static_cast<uint32_t>(host);
    last_turn_ = std::max(last_turn_, member.order);
    found->second.members[id] = std::move(member);
  }
  return OkStatus();
}

Status Workspaces::Read(const std::string& path, Kept kept) {
  const auto text = ReadFile(path, kMaxFileBytes);
  if (!text.has_value())
    return text.error().code == Code::kNotFound ? OkStatus() : Status(text.error());
  ASSIGN_OR_RETURN(const Json document,
                   oci::ParseJson(*text, {.max_bytes = kMaxFileBytes, .max_depth = 8}));
  ObjectReader reader(document, "");
  const Json* const list = reader.Member("networks");
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kIgnore));
  if (list == nullptr || !list->is_array())
    return Error{.code = Code::kInvalidArgument, .what = "no list of networks"};
  for (const Json& json : *list) RETURN_IF_ERROR(ReadNetwork(json, kept));
  return OkStatus();
}

// Whether a file is what it should be. Else it is put where somebody can look at it.
bool Workspaces::ReadOrSetAside(const std::string& path, Kept kept) {
  const Status read = Read(path, kept);
  if (read.has_value()) return true;
  const std::string aside = path + ".broken";
  const bool moved = ::rename(path.c_str(), aside.c_str()) == 0;
  const Status status = moved ? OkStatus() : Status(SysError(errno, "rename to " + aside));
  Log(LogLevel::kError, "a file of networks cannot be read and is begun anew",
      {{"path", path},
       {"error", read.error().ToString()},
       {"kept_as", status.has_value() ? aside : status.error().ToString()}});
  return false;
}

Status Workspaces::Recover(const std::set<std::string>& living) {
  if (!ReadOrSetAside(networks_path_, Kept::kNetworks)) networks_.clear();
  for (const auto& [name, network] : networks_)
    if (network.index >= SubnetsIn(pool_v4_, kSubnetBitsV4) ||
        network.index >= SubnetsIn(pool_v6_, kSubnetBitsV6))
      return Error{.code = Code::kInvalidArgument,
                   .what = networks_path_ + ": network \"" + name + "\" is beyond the pools",
                   .hint = "give network.workspaces_v4 and network.workspaces_v6 their room back"};
  const bool members = ReadOrSetAside(members_path_, Kept::kMembers);
  for (auto& [name, network] : networks_)
    std::erase_if(network.members,
                  [&](const auto& one) { return !members || !living.contains(one.first); });
  return OkStatus();
}

void Workspaces::Submit(Kept kept, std::function<Status(const Status&)> job, Done done) {
  jobs_.push_back({kept, std::move(job), std::move(done)});
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
  const std::string path = job.kept == Kept::kNothing    ? ""
                           : job.kept == Kept::kNetworks ? networks_path_
                                                         : members_path_;
  const auto durability = job.kept == Kept::kNetworks ? Durability::kDisk : Durability::kMemory;
  const Status begun =
      worker_.Submit([path, text = Text(job.kept), durability, run = job.run, finish] {
        finish(run(path.empty() ? OkStatus() : WriteFileAtomic(path, text, durability)));
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
      Kept::kNetworks, [](const Status& written) { return written; },
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
      Kept::kNetworks,
      [space = network->space](const Status& written) {
        if (written.has_value())
          space->fd.reset();  // the kernel takes the namespace down by itself
        return written;
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
    fresh.order = last_turn_ + 1;
    network.members[id] = std::move(fresh);
  }
  Member& member = network.members.at(id);
  member.name = sandbox_name;
  member.turn = ++last_turn_;
  const auto unlinked = std::make_shared<bool>(false);  // the link of before is gone
  const auto job = [kernel = kernel_, space = network.space, subnet = SubnetOf(network),
                    link = member.link, addresses = AddressesOf(network, member), fd = *fd,
                    unlinked](const Status& written) -> Status {
    RETURN_IF_ERROR(written);
    if (!space->fd.valid()) {
      ASSIGN_OR_RETURN(space->fd, kernel.make(subnet));
    }
    RETURN_IF_ERROR(kernel.leave(fd->get(), link));
    *unlinked = true;
    return kernel.join(space->fd.get(), fd->get(), link, addresses);
  };
  const auto finish = [this, network_name, id, unlinked, turn = member.turn,
                       done](const Status& status) {
    if (Network* const in = NetworkWith(network_name, id)) {
      Member& joining = in->members.at(id);
      joining.joined = status.has_value() || (joining.joined && !*unlinked);
      if (!joining.joined && joining.turn == turn) in->members.erase(id);
      Changed(*in);
    }
    if (!status.has_value()) Save();
    done(status);
  };
  Submit(Kept::kMembers, job, finish);
}

// A member until its link is gone; then the file is written, which may fail.
void Workspaces::Leave(const std::string& network_name, const std::string& id, int sandbox_fd,
                       Done done) {
  const auto answer = [&](Status status) {
    loop_.Post([done, status = std::move(status)] { done(status); });
  };
  Network* const network = NetworkWith(network_name, id);
  if (network == nullptr) return answer(OkStatus());
  auto fd = Shared(sandbox_fd);
  if (!fd.has_value()) return answer(std::move(fd).error());
  Member& member = network->members.at(id);
  member.turn = ++last_turn_;
  Submit(
      Kept::kNothing,
      [kernel = kernel_, fd = *fd, link = member.link](const Status&) {
        return kernel.leave(fd->get(), link);
      },
      [this, network_name, id, turn = member.turn, done](const Status& left) {
        Network* const of = left.has_value() ? NetworkWith(network_name, id) : nullptr;
        if (of != nullptr) {
          of->members.at(id).joined = false;
          if (of->members.at(id).turn == turn) of->members.erase(id);  // else it joins anew
          Changed(*of);
          Save();
        }
        done(left);
      });
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

// A file that still names members that are gone keeps their addresses from others until the next
// change, and opens nothing.
void Workspaces::Save() {
  const auto said = [](const Status& written) {
    if (!written.has_value())
      Log(LogLevel::kWarning, "the members of networks could not be written down",
          {{"error", written.error().ToString()}});
  };
  Submit(
      Kept::kMembers, [](const Status& written) { return written; }, said);
}

Workspaces::Network* Workspaces::NetworkWith(const std::string& name, const std::string& id) {
  const auto it = networks_.find(name);
  return it == networks_.end() || !it->second.members.contains(id) ? nullptr : &it->second;
}

void Workspaces::Changed(const Network& network) {
  if (!changed_) return;
  std::set<std::string> ids;
  for (const auto& [id, member] : network.members) ids.insert(id);
  if (!ids.empty()) changed_(ids);
}

// Names are compared as they are asked for, in small letters. An id is its sandbox's alone; a name
// is that of the member which had it first, also while that one is on its way.
Workspaces::Hosts Workspaces::HostsFor(const std::string& id) const {
  struct Entry {
    bool is_name;
    uint64_t order;
    const std::string *written, *id;
    const Network* network;
    const Member* member;
  };
  std::vector<Entry> entries;
  for (const auto& [network_name, network] : networks_) {
    if (!network.members.contains(id)) continue;
    for (const auto& [member_id, member] : network.members) {
      entries.push_back({false, member.order, &member_id, &member_id, &network, &member});
      if (member.name != member_id)
        entries.push_back({true, member.order, &member.name, &member_id, &network, &member});
    }
  }
  std::ranges::stable_sort(entries, {},
                           [](const Entry& one) { return std::pair(one.is_name, one.order); });
  Hosts hosts;
  std::map<std::string, std::string> owners;  // ids by name
  for (const Entry& one : entries) {
    const auto name = network::NormalHost(*one.written);
    if (!name.has_value() || *name == "localhost" || name->find('.') != std::string::npos) continue;
    if (owners.try_emplace(*name, *one.id).first->second != *one.id || !one.member->joined)
      continue;
    const network::Member addresses = AddressesOf(*one.network, *one.member);
    std::vector<Address>& list = hosts[*name];
    list.insert(list.end(), {addresses.v4, addresses.v6});
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

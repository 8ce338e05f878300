#include "network/open_network.h"

#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>

#include "network/kernel_limits.h"
#include "network/links.h"
#include "network/netns_visit.h"
#include "network/open_lease.h"
#include "network/open_table.h"

namespace hutch::network {
namespace {

constexpr uint32_t kStrayGroup = 0x68757478;  // links about to be removed, all at once
constexpr size_t kPreparedBeforePrune = 256;
constexpr const char* kSets[] = {kLeasesV4Set, kLeasesV6Set, kOpenedV4Set, kOpenedV6Set,
                                 kSentSet,     kReceivedSet, kDeniedSet,   kSpentSet,
                                 kCrowdedSet,  kFastOutSet,  kFastInSet};

struct Lease {
  uint32_t number = 0;
  Elements fixed, policy;  // as they are in the kernel
};

Cidr Default(bool v4) {
  return v4 ? Cidr{.base = {.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}}, .bits = 96}
            : Cidr{.base = {}, .bits = 0};
}

Cidr Host(const Address& address) { return {.base = address, .bits = 128}; }

class Network : public OpenNetwork {
 public:
  Network(OpenConfig config, bool v6, NetlinkSocket route, NetlinkSocket filter)
      : config_(std::move(config)),
        v6_(v6),
        capacity_(LeaseCapacity(config_)),
        route_(std::move(route)),
        filter_(std::move(filter)) {
    // Addresses are used again as late as can be, for what was sent to the one who had it before
    // may still be on its way; so a new process does not begin with the same ones.
    if (::getrandom(&last_, sizeof last_, GRND_NONBLOCK) != sizeof last_) last_ = 0;
  }

  Status Prepare(int netns) override;
  Result<OpenLease> Attach(const std::string& id, int netns, const Policy& policy) override;
  Status Change(const std::string& id, const Policy& policy) override;
  Status Detach(const std::string& id) override;
  Status Withdraw(const std::string& id, int netns) override;
  Result<OpenCounters> Count(const std::string& id) override;
  Result<std::vector<std::string>> Recover(const std::set<std::string>& living) override;

 private:
  LeaseNumber Numbered(uint32_t number) const { return {config_, v6_, number}; }
  Result<uint32_t> MakePair(int netns);
  Result<uint32_t> PairIn(int netns);
  Status FurnishInside(uint32_t number, int netns);
  Status EmptyInside(uint32_t number, int netns);
  Result<Lease> AttachPair(const std::string& id, uint32_t number, int netns, const Policy& policy);
  Status Apply(const Elements& remove, const Elements& add, const char* what);
  Status RemoveElements(const Elements& elements);
  void RemovePair(uint32_t number);
  void Prune();
  Result<Elements> ListAll(const char* what);

  OpenConfig config_;
  bool v6_;
  uint32_t capacity_, last_ = 0;
  NetlinkSocket route_, filter_;  // kept: closing one may wait for what it removed
  std::map<std::string, Lease> leases_;
  std::map<ino_t, uint32_t> prepared_;  // by namespace
  std::set<uint32_t> used_;             // numbers of leases and of prepared pairs
};

// One number is tried after another: a link of a namespace that is being torn down may still have
// its name.
Result<uint32_t> Network::MakePair(int netns) {
  for (uint32_t tries = 0; tries < capacity_; ++tries) {
    last_ = last_ % capacity_ + 1;
    if (used_.contains(last_)) continue;
    const LeaseNumber number = Numbered(last_);
    const OpenLease addresses = number.lease();
    NetlinkRequest request;
    AddVeth(request,
            {.name = number.link(),
             .index = number.host_index(),
             .hardware = number.hardware(),
             .state = LinkState::kUp,
             .arp = Arp::kNone},
            {.name = kInnerLink,
             .index = number.peer_index(),
             .hardware = number.hardware(),
             .arp = Arp::kNone},
            netns);
    const Status made = route_.Run(std::move(request), "make a pair of links");
    const bool taken = !made && (made.error().code == Code::kExists || made.error().sys == EBUSY);
    if (taken && !FindLink(route_, number.link())) return made.error();  // it is the inner name
    if (taken) continue;
    RETURN_IF_ERROR(made);
    NetlinkRequest routes;
    AddRoute(routes, {.to = Host(addresses.v4), .index = number.host_index()});
    if (v6_) {
      AddAddress(routes, number.host_index(), GatewayV6(), 128);
      AddRoute(routes, {.to = Host(addresses.v6), .index = number.host_index()});
    }
    if (const Status routed = route_.Run(std::move(routes), "route to a sandbox"); !routed) {
      RemovePair(last_);
      return routed.error();
    }
    used_.insert(last_);
    return last_;
  }
  return Error{.code = Code::kLimit,
               .what = "all addresses for sandboxes are in use",
               .hint = "network.pool_v4, network.pool_v6"};
}

void Network::RemovePair(uint32_t number) {
  NetlinkRequest request;
  DeleteLink(request, Numbered(number).host_index());
  IgnoreError(route_.Run(std::move(request), "remove a pair of links"), "gone with its namespace");
  used_.erase(number);
}

// Pairs that went with their namespaces.
void Network::Prune() {
  const auto links = ListLinks(route_);
  if (!links) return;
  std::set<uint32_t> there;
  for (const Link& link : *links) there.insert(NumberOfLink(link.name));
  std::erase_if(prepared_, [&](const auto& each) {
    const bool gone = !there.contains(each.second);
    if (gone) used_.erase(each.second);
    return gone;
  });
}

Result<uint32_t> Network::PairIn(int netns) {
  struct stat st = {};
  if (::fstat(netns, &st) != 0) return SysError(errno, "stat of a network namespace");
  if (const auto ready = prepared_.extract(st.st_ino); !ready.empty()) {
    const uint32_t number = ready.mapped();
    // Inode numbers are used again: is it this namespace's?
    ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(netns));
    ASSIGN_OR_RETURN(NetlinkSocket inner, NetlinkSocket::Open(NETLINK_ROUTE));
    const auto index = FindLink(inner, kInnerLink);
    if (index && *index == Numbered(number).peer_index()) return number;
    used_.erase(number);
  }
  ASSIGN_OR_RETURN(const uint32_t number, MakePair(netns));
  const Status up = [&]() -> Status {
    ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(netns));
    ASSIGN_OR_RETURN(NetlinkSocket inner, NetlinkSocket::Open(NETLINK_ROUTE));
    NetlinkRequest request;
    SetLinkState(request, Numbered(number).peer_index(), LinkState::kUp);
    RETURN_IF_ERROR(inner.Run(std::move(request), "bring up a sandbox's link"));
    AwaitActive(inner, Numbered(number).peer_index());
    AwaitActive(route_, Numbered(number).host_index());
    return OkStatus();
  }();
  if (!up) {
    RemovePair(number);
    return up.error();
  }
  return number;
}

Status Network::Prepare(int netns) {
  ASSIGN_OR_RETURN(const UniqueFd own, NetnsOf(netns));
  struct stat st = {};
  if (::fstat(own.get(), &st) != 0) return SysError(errno, "stat of a network namespace");
  ASSIGN_OR_RETURN(const uint32_t number, PairIn(own.get()));
  prepared_[st.st_ino] = number;
  if (prepared_.size() % kPreparedBeforePrune == 0) Prune();
  return OkStatus();
}

Status Network::FurnishInside(uint32_t number, int netns) {
  const LeaseNumber numbered = Numbered(number);
  const OpenLease addresses = numbered.lease();
  const int index = numbered.peer_index();
  NetlinkRequest request;
  AddAddress(request, index, addresses.v4, 32);
  AddRoute(request, {.to = Default(true), .index = index, .via = GatewayV4()});
  if (v6_) {
    AddAddress(request, index, addresses.v6, 128);
    AddRoute(request, {.to = Default(false), .index = index, .via = GatewayV6()});
  }
  ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(netns));
  ASSIGN_OR_RETURN(NetlinkSocket inner, NetlinkSocket::Open(NETLINK_ROUTE));
  RETURN_IF_ERROR(inner.Run(std::move(request), "give a sandbox its addresses"));
  if (v6_) AwaitOwn(inner, addresses.v6);
  return OkStatus();
}

Status Network::EmptyInside(uint32_t number, int netns) {
  const LeaseNumber numbered = Numbered(number);
  const OpenLease addresses = numbered.lease();
  const int index = numbered.peer_index();
  ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(netns));
  ASSIGN_OR_RETURN(NetlinkSocket inner, NetlinkSocket::Open(NETLINK_ROUTE));
  const auto run = [&inner](auto put) -> Status {
    NetlinkRequest request;
    put(request);
    const Status done = inner.Run(std::move(request), "take a sandbox's addresses");
    const bool gone = !done && (done.error().sys == EADDRNOTAVAIL || done.error().sys == ESRCH ||
                                done.error().sys == ENODEV);
    return gone ? OkStatus() : done;
  };
  for (const bool v4 : {true, false}) {
    if (!v4 && !v6_) continue;
    RETURN_IF_ERROR(run([&](NetlinkRequest& request) {
      DeleteRoute(request,
                  {.to = Default(v4), .index = index, .via = v4 ? GatewayV4() : GatewayV6()});
    }));
    RETURN_IF_ERROR(run([&](NetlinkRequest& request) {
      DeleteAddress(request, index, v4 ? addresses.v4 : addresses.v6, v4 ? 32 : 128);
    }));
  }
  return OkStatus();
}

Status Network::Apply(const Elements& remove, const Elements& add, const char* what) {
  NftBatch batch(kOpenTable);
  for (const auto& [set, elements] : remove) {
    batch.DeleteElements(set, elements);
    for (const NftElement& element : elements)
      if (element.state == NftState::kChain) batch.DeleteChain(element.chain);
  }
  for (const auto& [set, elements] : add) {
    for (const NftElement& element : elements) {
      if (element.state != NftState::kChain) continue;
      batch.AddChain(element.chain);
      batch.BeginRule(element.chain, "CONFIG_NFT_CONNLIMIT");
      batch.CountOver(BoundOfChain(element.chain));
      batch.Goto("refuse");
      batch.EndRule();
    }
    batch.AddElements(set, elements);
  }
  if (batch.empty()) return OkStatus();
  return filter_.Run(batch.Take(), what);
}

// Together; and where one of them is not there, one by one.
Status Network::RemoveElements(const Elements& all) {
  Status removed = Apply(all, {}, "remove a sandbox from the packet filter");
  if (removed || removed.error().code != Code::kNotFound) return removed;
  removed = OkStatus();
  for (const auto& [set, elements] : all) {
    for (const NftElement& element : elements) {
      Status one = Apply({{set, {element}}}, {}, "remove a sandbox from the packet filter");
      if (!one && one.error().code != Code::kNotFound && removed) removed = std::move(one);
    }
  }
  return removed;
}

// The alias is last: a link with one is complete.
Result<Lease> Network::AttachPair(const std::string& id, uint32_t number, int netns,
                                  const Policy& policy) {
  const LeaseNumber numbered = Numbered(number);
  Lease lease = {.number = number, .fixed = numbered.FixedElements(), .policy = {}};
  ASSIGN_OR_RETURN(lease.policy, numbered.PolicyElements(policy, 0));
  Elements all = lease.fixed;
  all.insert(lease.policy.begin(), lease.policy.end());
  const char* what = "let a sandbox through the packet filter";
  Status applied = Apply({}, all, what);
  if (!applied && applied.error().code == Code::kExists) {  // of a lease that was never removed
    RETURN_IF_ERROR(RemoveElements(all));
    applied = Apply({}, all, what);
  }
  RETURN_IF_ERROR(applied);
  const auto finish = [&]() -> Status {
    RETURN_IF_ERROR(FurnishInside(number, netns));
    NetlinkRequest request;
    SetAlias(request, numbered.host_index(), id);
    return route_.Run(std::move(request), "name a sandbox's link");
  };
  if (const Status finished = finish(); !finished) {
    Error error = finished.error();
    if (const Status removed = RemoveElements(all); !removed)
      error.what += "; " + removed.error().ToString();
    return error;
  }
  return lease;
}

Result<OpenLease> Network::Attach(const std::string& id, int netns, const Policy& policy) {
  if (id.empty() || id.size() > kMaxAliasBytes)
    return Error{.code = Code::kInvalidArgument, .what = "id of a sandbox"};
  if (const auto lease = leases_.find(id); lease != leases_.end()) {
    RETURN_IF_ERROR(Change(id, policy));
    return Numbered(lease->second.number).lease();
  }
  ASSIGN_OR_RETURN(const UniqueFd own, NetnsOf(netns));
  ASSIGN_OR_RETURN(const uint32_t number, PairIn(own.get()));
  auto attached = AttachPair(id, number, own.get(), policy);
  if (!attached) {
    RemovePair(number);
    return std::move(attached).error();
  }
  leases_[id] = std::move(*attached);
  return Numbered(number).lease();
}

// What differs.
Elements Missing(const Elements& from, const Elements& in) {
  Elements missing;
  for (const auto& [set, elements] : from) {
    const auto others = in.find(set);
    for (const NftElement& element : elements) {
      const bool there =
          others != in.end() && std::ranges::find(others->second, element) != others->second.end();
      if (!there) missing[set].push_back(element);
    }
  }
  return missing;
}

Status Network::Change(const std::string& id, const Policy& policy) {
  const auto lease = leases_.find(id);
  if (lease == leases_.end())
    return Error{.code = Code::kNotFound, .what = "sandbox " + id + " is not attached"};
  ASSIGN_OR_RETURN(const OpenCounters passed, Count(id));
  ASSIGN_OR_RETURN(Elements wanted,
                   Numbered(lease->second.number)
                       .PolicyElements(policy, passed.sent_bytes + passed.received_bytes));
  Elements& has = lease->second.policy;
  // A quota that stays is not touched: it counts on by itself.
  if (wanted.contains(kSpentSet) && has.contains(kSpentSet) &&
      wanted[kSpentSet][0].amount == has[kSpentSet][0].amount)
    wanted[kSpentSet] = has[kSpentSet];
  const Elements remove = Missing(has, wanted), add = Missing(wanted, has);
  Status changed = Apply(remove, add, "change a sandbox's policy");
  if (!changed && changed.error().code == Code::kNotFound) {  // the kernel has dropped one itself
    RETURN_IF_ERROR(RemoveElements(remove));
    changed = Apply({}, add, "change a sandbox's policy");
  }
  RETURN_IF_ERROR(changed);
  has = std::move(wanted);
  return OkStatus();
}

Status Network::Detach(const std::string& id) {
  const auto lease = leases_.find(id);
  if (lease == leases_.end()) return OkStatus();
  Elements all = lease->second.fixed;
  all.insert(lease->second.policy.begin(), lease->second.policy.end());
  RETURN_IF_ERROR(RemoveElements(all));
  // The link itself goes with its namespace: removing it would hold up the whole host's network
  // configuration for tens of milliseconds. Without elements it is shut, without alias a stray.
  NetlinkRequest request;
  SetAlias(request, Numbered(lease->second.number).host_index(), "");
  IgnoreError(route_.Run(std::move(request), "forget a link"), "it may be gone");
  used_.erase(lease->second.number);
  leases_.erase(lease);
  return OkStatus();
}

// What closes goes first. A link that cannot be emptied for later goes whole.
Status Network::Withdraw(const std::string& id, int netns) {
  const auto lease = leases_.find(id);
  if (lease == leases_.end()) return OkStatus();
  const uint32_t number = lease->second.number;
  RETURN_IF_ERROR(Detach(id));
  const Status emptied = [&]() -> Status {
    ASSIGN_OR_RETURN(const UniqueFd own, NetnsOf(netns));
    struct stat st = {};
    if (::fstat(own.get(), &st) != 0) return SysError(errno, "stat of a network namespace");
    RETURN_IF_ERROR(EmptyInside(number, own.get()));
    prepared_[st.st_ino] = number;
    used_.insert(number);
    return OkStatus();
  }();
  if (!emptied) RemovePair(number);
  return emptied;
}

Result<OpenCounters> Network::Count(const std::string& id) {
  const auto lease = leases_.find(id);
  if (lease == leases_.end())
    return Error{.code = Code::kNotFound, .what = "sandbox " + id + " is not attached"};
  const std::string key = Numbered(lease->second.number).Key();
  ASSIGN_OR_RETURN(const NftCounter sent, ReadElementCounter(filter_, kOpenTable, kSentSet, key));
  ASSIGN_OR_RETURN(const NftCounter received,
                   ReadElementCounter(filter_, kOpenTable, kReceivedSet, key));
  ASSIGN_OR_RETURN(const NftCounter denied,
                   ReadElementCounter(filter_, kOpenTable, kDeniedSet, key));
  return OpenCounters{sent.bytes, sent.packets, received.bytes, received.packets, denied.packets};
}

Result<std::vector<std::string>> Network::Recover(const std::set<std::string>& living) {
  ASSIGN_OR_RETURN(const std::vector<Link> links, ListLinks(route_));
  Elements stray;
  std::map<std::string, Elements> by_link;  // by Key()
  for (const char* set : kSets) {
    ASSIGN_OR_RETURN(const std::vector<NftElement> elements,
                     ListElements(filter_, kOpenTable, set));
    for (const NftElement& element : elements) {
      std::string key = element.key.substr(0, 4);
      if (!element.key_end.empty()) std::ranges::reverse(key);  // see PolicyElements
      by_link[key][set].push_back(element);
    }
  }
  leases_.clear(), prepared_.clear(), used_.clear();
  NetlinkRequest group;
  size_t strays = 0;
  for (const Link& link : links) {
    const uint32_t number = NumberOfLink(link.name);
    if (number == 0 || number > capacity_) continue;
    const LeaseNumber numbered = Numbered(number);
    const auto has = by_link.find(numbered.Key());
    const bool complete = has != by_link.end() && has->second.contains(kLeasesV4Set) &&
                          link.index == numbered.host_index();
    if (!complete || !living.contains(link.alias) || leases_.contains(link.alias)) {
      SetGroup(group, link.index, kStrayGroup);
      ++strays;
      continue;
    }
    Lease lease = {.number = number, .fixed = numbered.FixedElements(), .policy = {}};
    for (auto& [set, elements] : has->second)
      if (!lease.fixed.contains(set)) lease.policy[set] = std::move(elements);
    by_link.erase(has);
    leases_[link.alias] = std::move(lease);
    used_.insert(number);
  }
  for (const auto& [key, sets] : by_link)
    for (const auto& [set, elements] : sets)
      stray[set].insert(stray[set].end(), elements.begin(), elements.end());
  RETURN_IF_ERROR(RemoveElements(stray));
  if (strays != 0) {
    // One of them may go with its namespace meanwhile.
    IgnoreError(route_.Run(std::move(group), "mark stray links"), "the next message tells");
    NetlinkRequest request;
    DeleteGroup(request, kStrayGroup);
    const Status removed = route_.Run(std::move(request), "remove stray links");
    if (!removed && removed.error().code != Code::kNotFound) return removed.error();
  }
  std::vector<std::string> lost;
  for (const std::string& id : living)
    if (!leases_.contains(id)) lost.push_back(id);
  return lost;
}

}  // namespace

Result<std::unique_ptr<OpenNetwork>> OpenNetwork::Start(const OpenConfig& config) {
  ASSIGN_OR_RETURN(NetlinkSocket route, NetlinkSocket::Open(NETLINK_ROUTE));
  ASSIGN_OR_RETURN(NetlinkSocket filter, NetlinkSocket::Open(NETLINK_NETFILTER));
  RETURN_IF_ERROR(CheckForwarding(filter));
  RETURN_IF_ERROR(WriteOpenTable(config.reachable));
  return std::unique_ptr<OpenNetwork>(
      std::make_unique<Network>(config, ForwardsIpv6(), std::move(route), std::move(filter)));
}

}  // namespace hutch::network

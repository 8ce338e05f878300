#include "network/forward_chains.h"

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "network/open_table.h"

namespace hutch::network {
namespace {

constexpr size_t kMaxTableBytes = 16 << 20;
constexpr int kIpLevel = 0;  // SOL_IP of netinet/in.h, which does not go with the kernel's headers

struct BaseChain {
  uint8_t family = 0;
  std::string table, chain;
};

const char* FamilyName(uint8_t family) {
  switch (family) {
    case NFPROTO_INET:
      return "inet";
    case NFPROTO_IPV4:
      return "ip";
    case NFPROTO_IPV6:
      return "ip6";
    default:
      return "?";
  }
}

NetlinkRequest Dump(uint16_t message, uint8_t family) {
  NetlinkRequest request;
  request.Begin(static_cast<uint16_t>(NFNL_SUBSYS_NFTABLES << 8 | message), NLM_F_DUMP,
                "CONFIG_NF_TABLES");
  nfgenmsg header = {};
  header.nfgen_family = family;
  request.Header(header);
  return request;
}

uint32_t Be32(std::string_view value) {
  uint32_t number = 0;
  if (value.size() == sizeof number) std::memcpy(&number, value.data(), sizeof number);
  return __builtin_bswap32(number);
}

Result<std::vector<BaseChain>> ListDropping(NetlinkSocket& filter) {
  std::vector<BaseChain> found;
  RETURN_IF_ERROR(filter.Ask(Dump(NFT_MSG_GETCHAIN, NFPROTO_UNSPEC), "list chains",
                             [&](const nlmsghdr&, std::string_view body) {
                               nfgenmsg header;
                               if (body.size() < sizeof header) return;
                               std::memcpy(&header, body.data(), sizeof header);
                               const NetlinkAttributes chain(body.substr(sizeof header));
                               const NetlinkAttributes hook(chain.Find(NFTA_CHAIN_HOOK));
                               const bool layer3 = header.nfgen_family == NFPROTO_INET ||
                                                   header.nfgen_family == NFPROTO_IPV4 ||
                                                   header.nfgen_family == NFPROTO_IPV6;
                               if (!layer3 || chain.Find(NFTA_CHAIN_POLICY).empty()) return;
                               if (Be32(hook.Find(NFTA_HOOK_HOOKNUM)) != NF_INET_FORWARD) return;
                               if (Be32(chain.Find(NFTA_CHAIN_POLICY)) != NF_DROP) return;
                               found.push_back({header.nfgen_family,
                                                chain.FindText(NFTA_CHAIN_TABLE),
                                                chain.FindText(NFTA_CHAIN_NAME)});
                             }));
  return found;
}

// Whoever opened a firewall for us has named our links in it.
Result<bool> NamesOurLinks(NetlinkSocket& filter, const BaseChain& chain) {
  bool names = false;
  RETURN_IF_ERROR(filter.Ask(Dump(NFT_MSG_GETRULE, chain.family), "list rules",
                             [&](const nlmsghdr&, std::string_view body) {
                               if (body.size() < sizeof(nfgenmsg)) return;
                               const NetlinkAttributes rule(body.substr(sizeof(nfgenmsg)));
                               if (rule.FindText(NFTA_RULE_TABLE) != chain.table) return;
                               const std::string_view text = rule.Find(NFTA_RULE_EXPRESSIONS);
                               if (text.find(kLinkPrefix) != text.npos) names = true;
                             }));
  return names;
}

// iptables of the time before nf_tables keeps its rules where only its own socket option sees them.
Result<std::vector<ForwardChain>> FindOld() {
  std::vector<ForwardChain> found;
  const auto tables = ReadFile("/proc/thread-self/net/ip_tables_names", 4096);
  if (!tables || tables->find("filter") == std::string::npos) return found;
  const UniqueFd socket(::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
  if (!socket.valid()) return SysError(errno, "socket for iptables");
  ipt_getinfo info = {};
  std::strncpy(info.name, "filter", sizeof info.name - 1);
  socklen_t size = sizeof info;
  if (::getsockopt(socket.get(), kIpLevel, IPT_SO_GET_INFO, &info, &size) != 0)
    return SysError(errno, "read the table filter of iptables");
  if (info.size > kMaxTableBytes) return found;
  std::string bytes(sizeof(ipt_get_entries) + info.size, '\0');
  ipt_get_entries query = {};
  std::strncpy(query.name, "filter", sizeof query.name - 1);
  query.size = info.size;
  std::memcpy(bytes.data(), &query, sizeof query);
  size = static_cast<socklen_t>(bytes.size());
  if (::getsockopt(socket.get(), kIpLevel, IPT_SO_GET_ENTRIES, bytes.data(), &size) != 0)
    return SysError(errno, "read the rules of iptables");
  // The policy is the last rule of the chain, which is at its underflow.
  const std::string_view entries =
      std::string_view(bytes).substr(offsetof(ipt_get_entries, entrytable));
  const size_t policy = info.underflow[NF_INET_FORWARD] + sizeof(ipt_entry);
  xt_standard_target target;
  if (policy + sizeof target > entries.size()) return found;
  std::memcpy(&target, entries.data() + policy, sizeof target);
  if (target.verdict == -NF_DROP - 1)
    found.push_back({"FORWARD of iptables-legacy", entries.find(kLinkPrefix) != entries.npos,
                     "iptables -I FORWARD -i hutch+ -j ACCEPT; iptables -I FORWARD -o hutch+ -m "
                     "conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"});
  return found;
}

}  // namespace

Result<std::vector<ForwardChain>> FindDroppingForwardChains(NetlinkSocket& filter) {
  ASSIGN_OR_RETURN(const std::vector<BaseChain> chains, ListDropping(filter));
  ASSIGN_OR_RETURN(std::vector<ForwardChain> found, FindOld());
  for (const BaseChain& chain : chains) {
    ASSIGN_OR_RETURN(const bool names, NamesOurLinks(filter, chain));
    const std::string table = std::string(FamilyName(chain.family)) + " " + chain.table;
    const std::string insert = "nft insert rule " + table + " " + chain.chain;
    found.push_back({chain.chain + " of table " + table, names,
                     insert + " iifname 'hutch*' accept; " + insert +
                         " oifname 'hutch*' ct state established,related accept"});
  }
  return found;
}

}  // namespace hutch::network

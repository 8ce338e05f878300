#include "network/open_table.h"

#include <linux/netfilter/nfnetlink.h>
#include <nftables/libnftables.h>

#include <algorithm>
#include <memory>

#include "base/file.h"
#include "base/text.h"
#include "network/catch_addresses.h"
#include "network/forward_chains.h"
#include "network/kernel_limits.h"
#include "network/links.h"

namespace hutch::network {
namespace {

constexpr size_t kMaxNftErrorBytes = 400;
static_assert(kMaxOpenConnections == 4096, "as in kRules");

// Everything of ours is judged by its link, which nobody inside can choose; a link without elements
// may do nothing. Chains are entered by goto, and the base chain's policy comes behind their end:
// hence each ends in a verdict. Destinations are judged for every packet, not only the first, so
// that a policy holds for connections that are older than it. TCP is refused by resets, for the
// kernel sends one ICMP error a second to each address, after the first six. Of elements that count
// connections the kernel drops those that count none, each time it collects garbage: hence a chain
// for each policy that bounds them, and for all the bound that each packet adds anew.
constexpr char kRules[] = R"(
table inet hutch {
  set leases4 { type iface_index . ipv4_addr
  }
  set leases6 { type iface_index . ipv6_addr
  }
  set opened4 { type iface_index . ipv4_addr . inet_service
    flags interval
  }
  set opened6 { type iface_index . ipv6_addr . inet_service
    flags interval
  }
  set reachable4 { type ipv4_addr
    flags interval
    auto-merge
  }
  set reachable6 { type ipv6_addr
    flags interval
    auto-merge
  }
  set closed4 { type ipv4_addr
    flags interval
  }
  set closed6 { type ipv6_addr
    flags interval
  }
  set sent { type iface_index
    size 1048576
    flags dynamic
    counter
  }
  set received { type iface_index
    size 1048576
    flags dynamic
    counter
  }
  set denied { type iface_index
    size 1048576
    flags dynamic
    counter
  }
  set spent { type iface_index
    size 1048576
    flags dynamic
  }
  map crowded { type iface_index : verdict
  }
  set tracked { type iface_index
    size 1048576
    flags dynamic
  }
  set fast_out { type iface_index
    size 1048576
    flags dynamic
  }
  set fast_in { type iface_index
    size 1048576
    flags dynamic
  }

  chain source {
    type filter hook prerouting priority raw
    policy accept
    iifname != "hutch*" accept
    iif . ip saddr @leases4 accept
    iif . ip6 saddr @leases6 accept
    ip6 saddr { ::, fe80::/10 } drop
    goto discard
  }
  chain input {
    type filter hook input priority filter
    policy accept
    iifname "hutch*" goto refuse
  }
  chain output {
    type filter hook output priority filter
    policy accept
    oifname "hutch*" goto answer
  }
  chain forward {
    type filter hook forward priority filter
    policy accept
    iifname "hutch*" goto outward
    oifname "hutch*" goto inward
  }
  chain postrouting {
    type nat hook postrouting priority srcnat
    policy accept
    iifname "hutch*" oifname != "hutch*" masquerade
  }

  chain outward {
    oifname "hutch*" goto refuse
    meta l4proto != { tcp, udp, icmp, ipv6-icmp } goto refuse
    ct state invalid goto discard
    ct state new iif vmap @crowded
    ct state new add @tracked { iif ct count over 4096 } goto refuse
    meta l4proto { tcp, udp } iif . ip daddr . th dport @opened4 goto leave
    meta l4proto { tcp, udp } iif . ip6 daddr . th dport @opened6 goto leave
    ip daddr @reachable4 goto leave
    ip6 daddr @reachable6 goto leave
    ip daddr @closed4 goto refuse
    ip6 daddr @closed6 goto refuse
    goto leave
  }
  chain leave {
    iif @fast_out drop
    iif @spent goto refuse
    iif @sent accept
    drop
  }
  chain inward {
    oif . ip daddr @leases4 goto enter
    oif . ip6 daddr @leases6 goto enter
    drop
  }
  chain enter {
    ct state != { established, related } drop
    oif @fast_in drop
    oif @spent drop
    oif @received accept
    drop
  }
  chain refuse {
    iif @denied continue
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }
  chain discard {
    iif @denied drop
    drop
  }
  chain answer {
    meta l4proto { icmp, ipv6-icmp } accept
    tcp flags & rst == rst accept
    meta l4proto tcp reject with tcp reset
    drop
  }
}
)";

struct BaseChain {
  const char* name;
  const char* hook;
};
constexpr BaseChain kBaseChains[] = {{"source", "filter hook prerouting priority raw"},
                                     {"input", "filter hook input priority filter"},
                                     {"output", "filter hook output priority filter"},
                                     {"forward", "filter hook forward priority filter"},
                                     {"postrouting", "nat hook postrouting priority srcnat"}};
constexpr const char* kChains[] = {"outward", "leave",   "inward", "enter",
                                   "refuse",  "discard", "answer"};

std::string Elements(const std::vector<Cidr>& ranges, bool v4) {
  std::vector<std::string> texts;
  for (const Cidr& range : ranges)
    if (IsV4(range) == v4) texts.push_back(range.ToString());
  return Join(texts, ", ");
}

void FillSet(std::string* text, const std::string& set, const std::vector<Cidr>& ranges, bool v4) {
  *text += "flush set inet hutch " + set + "\n";
  const std::string elements = Elements(ranges, v4);
  if (!elements.empty()) *text += "add element inet hutch " + set + " { " + elements + " }\n";
}

bool IsOne(const std::string& path) {
  const auto text = ReadFile(path, 64);
  return text && Trim(*text) != "0";
}

}  // namespace

std::string OpenTableText(const std::vector<Cidr>& reachable) {
  // Rules go, sets and the chains of single sandboxes stay.
  std::string text = "add table inet hutch\n";
  for (const BaseChain& chain : kBaseChains)
    text += std::string("add chain inet hutch ") + chain.name + " { type " + chain.hook +
            "; }\nflush chain inet hutch " + chain.name + "\n";
  for (const char* chain : kChains)
    text +=
        std::string("add chain inet hutch ") + chain + "\nflush chain inet hutch " + chain + "\n";
  text += kRules;
  const std::vector<Cidr> closed = ClosedRanges();
  FillSet(&text, "closed4", closed, true);
  FillSet(&text, "closed6", closed, false);
  FillSet(&text, "reachable4", reachable, true);
  FillSet(&text, "reachable6", reachable, false);
  return text;
}

Status RunNft(const std::string& commands, const char* what) {
  const std::unique_ptr<nft_ctx, decltype(&::nft_ctx_free)> nft(::nft_ctx_new(NFT_CTX_DEFAULT),
                                                                &::nft_ctx_free);
  if (nft == nullptr) return Error{.code = Code::kInternal, .what = "libnftables did not start"};
  ::nft_ctx_buffer_error(nft.get());
  ::nft_ctx_buffer_output(nft.get());
  if (::nft_run_cmd_from_buffer(nft.get(), commands.c_str()) == 0) return OkStatus();
  std::string text = ::nft_ctx_get_error_buffer(nft.get());
  text.resize(std::min<size_t>(text.size(), kMaxNftErrorBytes));
  std::ranges::replace(text, '\n', ' ');
  return Error{.code = Code::kUnsupported,
               .what = std::string(what) + ": " + text,
               .hint =
                   "the kernel needs CONFIG_NF_TABLES_INET, NFT_CT, NFT_NAT, NFT_MASQ, "
                   "NFT_REJECT, NFT_QUOTA, NFT_LIMIT and NFT_CONNLIMIT"};
}

Status WriteOpenTable(const std::vector<Cidr>& reachable) {
  return RunNft(OpenTableText(reachable), "the table \"inet hutch\" cannot be made");
}

bool ForwardsIpv6() { return HasIpv6() && IsOne("/proc/sys/net/ipv6/conf/all/forwarding"); }

Status CheckForwarding(NetlinkSocket& filter) {
  if (!IsOne("/proc/sys/net/ipv4/ip_forward"))
    return Error{.code = Code::kUnsupported,
                 .what = "net.ipv4.ip_forward is 0: this host forwards no packets",
                 .hint = "sysctl -w net.ipv4.ip_forward=1, and a file in /etc/sysctl.d to keep it"};
  ASSIGN_OR_RETURN(const std::vector<ForwardChain> chains, FindDroppingForwardChains(filter));
  for (const ForwardChain& chain : chains) {
    if (chain.knows_us) continue;
    return Error{.code = Code::kUnsupported,
                 .what = "another firewall drops what is forwarded: chain " + chain.name,
                 .hint = "let packets pass whose link is named hutch*: " + chain.remedy};
  }
  return OkStatus();
}

}  // namespace hutch::network

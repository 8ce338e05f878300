// What the networks of sandboxes want from the host: docs/kernel.md and docs/network.md, as checks.
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"
#include "base/text.h"
#include "oci/json.h"
#include "tools/doctor/check.h"
#include "tools/doctor/network_probe.h"
#include "tools/process.h"

namespace hutch::tools {
namespace {

constexpr const char* kIpv4Forwarding = "/proc/sys/net/ipv4/ip_forward";
constexpr const char* kIpv6Forwarding = "/proc/sys/net/ipv6/conf/all/forwarding";

struct FilterRow {
  NeedRow need;
  const char* option;
  FilterUse use;
};
constexpr FilterRow kFilter[] = {
    {{Need::kExpression, "ct"}, "CONFIG_NFT_CT", FilterUse::kAll},
    {{Need::kExpression, "connlimit"}, "CONFIG_NFT_CONNLIMIT", FilterUse::kAll},
    {{Need::kExpression, "objref"}, "CONFIG_NFT_OBJREF", FilterUse::kAll},
    {{Need::kExpression, "reject"}, "CONFIG_NFT_REJECT", FilterUse::kAll},
    {{Need::kNat, "redir"}, "CONFIG_NFT_REDIR", FilterUse::kAll},
    {{Need::kNat, "masq"}, "CONFIG_NFT_MASQ", FilterUse::kOpen},
    {{Need::kExpression, "limit"}, "CONFIG_NFT_LIMIT", FilterUse::kOpen},
    {{Need::kExpression, "quota"}, "CONFIG_NFT_QUOTA", FilterUse::kOpen},
};

Finding NotTried(const Error& error) {
  return Warning("not tried: " + error.what,
                 ::geteuid() == 0 ? "let hutch make network namespaces (CAP_SYS_ADMIN)"
                                  : "run `sudo hutch doctor` to try it");
}

// As hutchd looks for it: beside itself, or where packages have it.
std::string ProgramOf(const std::string& hutchd, const char* name) {
  const std::string directory = hutchd.substr(0, hutchd.rfind('/'));
  for (const char* place : {"/", "/../libexec/hutch/"})
    if (PathExists(directory + place + name)) return directory + place + name;
  return "";
}

std::string FindHutchd() {
  char self[4096];
  const ssize_t size = ::readlink("/proc/self/exe", self, sizeof self);
  std::vector<std::string> directories;
  if (size > 0) {
    const std::string path(self, static_cast<size_t>(size));
    directories.push_back(path.substr(0, path.rfind('/')));
  }
  const char* path = std::getenv("PATH");
  for (std::string& directory : Split(path != nullptr ? path : "", ':'))
    directories.push_back(std::move(directory));
  directories.insert(directories.end(), {"/usr/sbin", "/usr/local/sbin"});
  for (const std::string& directory : directories)
    if (PathExists(directory + "/hutchd")) return directory + "/hutchd";
  return "";
}

std::string TableOf(const NftChain& chain) { return chain.family + " " + chain.table; }

// Whoever opened a firewall for us has named our links in it.
Result<bool> NamesOurLinks(const NftChain& chain) {
  ASSIGN_OR_RETURN(const Finished listed,
                   RunToEnd({"nft", "list", "table", chain.family, chain.table}));
  if (listed.exit_code != 0) return Error{.what = std::string(Trim(listed.output))};
  return listed.output.find("\"hutch") != std::string::npos;
}

}  // namespace

Finding JudgeFilter(const std::vector<MissingOption>& missing) {
  if (missing.empty()) return Fine("can do what the modes allowlist and open need");
  std::vector<std::string> options;
  bool only_open = true;
  for (const MissingOption& each : missing) {
    options.emplace_back(each.option);
    only_open = only_open && each.use == FilterUse::kOpen;
  }
  const std::string names = Join(options, ", ");
  return Warning("missing: " + names +
                     (only_open ? "; mode open cannot be used" : "; no mode but none can be used"),
                 "boot a kernel with " + names + ", or install and load its modules");
}

Finding CheckPacketFilter(Client&) {
  std::vector<NeedRow> needs;
  for (const FilterRow& row : kFilter) needs.push_back(row.need);
  const auto found = ProbeNetwork(needs);
  if (!found) return NotTried(found.error());
  std::vector<MissingOption> missing;
  bool nat_chain = true;
  for (size_t i = 0; i < found->size(); ++i) {
    const Presence presence = (*found)[i];
    if (presence == Presence::kNoTable)
      return JudgeFilter(
          {{"CONFIG_NF_TABLES", FilterUse::kAll}, {"CONFIG_NF_TABLES_INET", FilterUse::kAll}});
    if (presence == Presence::kAbsent) missing.push_back({kFilter[i].option, kFilter[i].use});
    if (presence == Presence::kNoChain) nat_chain = false;
  }
  if (!nat_chain) missing.push_back({"CONFIG_NFT_NAT", FilterUse::kAll});
  return JudgeFilter(missing);
}

Finding CheckVeth(Client&) {
  const auto found = ProbeNetwork({{Need::kLink, "veth"}});
  if (!found) return NotTried(found.error());
  if (found->front() == Presence::kThere) return Fine("can be made");
  return Warning("cannot be made: neither mode open nor networks of sandboxes",
                 "boot a kernel with CONFIG_VETH, or load its module: modprobe veth");
}

Finding CheckIpv6(Client&) {
  if (UniqueFd(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0)).valid()) return Fine("present");
  return Warning("none: sandboxes have IPv4 only",
                 "boot a kernel with CONFIG_IPV6, without ipv6.disable=1");
}

Finding JudgeForwarding(const std::string& v4, const std::string& v6) {
  const std::string keep = ", and the same in a file of /etc/sysctl.d; only mode open needs it";
  if (v4 == "0")
    return Warning("net.ipv4.ip_forward is 0: mode open cannot be used",
                   "sysctl -w net.ipv4.ip_forward=1" + keep);
  if (v4.empty()) return Warning("unknown", "");
  if (v6 == "0")
    return Warning("IPv4 only: net.ipv6.conf.all.forwarding is 0",
                   "sysctl -w net.ipv6.conf.all.forwarding=1" + keep +
                       "; a host that learns its own routes from router advertisements needs "
                       "accept_ra=2 on that link as well");
  return Fine(v6.empty() ? "IPv4" : "IPv4 and IPv6");
}

Finding CheckForwarding(Client&) {
  return JudgeForwarding(Setting(kIpv4Forwarding), Setting(kIpv6Forwarding));
}

Finding CheckEgress(Client&) {
  const std::string hutchd = FindHutchd();
  if (hutchd.empty()) return Warning("not looked for: no hutchd here", "install hutchd");
  const std::string path = ProgramOf(hutchd, "hutch-egress");
  if (path.empty())
    return Failure("not beside " + hutchd + ": the daemon does not start",
                   "install hutch-egress beside it, or in ../libexec/hutch");
  if (::getpwnam("hutch-egress") == nullptr)
    return Warning(path + "; no user hutch-egress: it runs as nobody",
                   "systemd-sysusers, or useradd --system hutch-egress");
  return Fine(path);
}

Result<std::vector<NftChain>> DroppingForwardChains(const std::string& nft_json) {
  ASSIGN_OR_RETURN(const oci::Json document, oci::ParseJson(nft_json));
  const Error foreign = {.what = "nft says something else than chains"};
  if (!document.is_object() || !document.contains("nftables")) return foreign;
  std::vector<NftChain> found;
  for (const oci::Json& each : document["nftables"]) {
    if (!each.is_object() || !each.contains("chain") || !each["chain"].is_object()) continue;
    const oci::Json& chain = each["chain"];
    const auto text = [&chain](const char* name) {
      const auto member = chain.find(name);
      return member != chain.end() && member->is_string() ? member->get<std::string>() : "";
    };
    const std::string family = text("family");
    if (text("hook") != "forward" || text("policy") != "drop") continue;
    if (family != "inet" && family != "ip" && family != "ip6") continue;
    found.push_back({family, text("table"), text("name")});
  }
  return found;
}

Finding CheckFirewall(Client&) {
  if (!ProgramExists("nft")) return Warning("not looked at: no nft", "apt-get install nftables");
  const auto listed = RunToEnd({"nft", "-j", "list", "chains"});
  if (!listed) return Warning("not looked at: " + listed.error().what, "");
  if (listed->exit_code != 0)
    return Warning("not looked at: nft may not list the chains",
                   "run `sudo hutch doctor` to try it");
  const auto chains = DroppingForwardChains(listed->output);
  if (!chains) return Warning("not looked at: " + chains.error().what, "");
  std::vector<std::string> names, remedies;
  for (const NftChain& chain : *chains) {
    const auto knows_us = NamesOurLinks(chain);
    if (knows_us && *knows_us) continue;
    names.push_back(chain.name + " of table " + TableOf(chain));
    const std::string insert = "nft insert rule " + TableOf(chain) + " " + chain.name;
    remedies.push_back(insert + " iifname 'hutch*' accept; " + insert +
                       " oifname 'hutch*' ct state established,related accept");
  }
  if (!names.empty())
    return Warning("drops what is forwarded: " + Join(names, ", ") + "; mode open cannot be used",
                   Join(remedies, "; ") + " (and in that firewall's own configuration)");
  const bool older = !Setting("/proc/self/net/ip_tables_names").empty();
  return Fine(older ? "nf_tables drops nothing that is forwarded; iptables-legacy not looked at"
                    : "none drops what is forwarded");
}

}  // namespace hutch::tools

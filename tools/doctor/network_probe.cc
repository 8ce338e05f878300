#include "tools/doctor/network_probe.h"

#include <linux/if_link.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "base/file.h"
#include "base/text.h"
#include "tools/process.h"

namespace hutch::tools {
namespace {

constexpr char kTable[] = "hutch_doctor", kChain[] = "probe";
constexpr uint32_t kBegin = 1, kTableMessage = 2, kChainMessage = 3, kRuleMessage = 4, kEnd = 5;

// Netlink messages, one after the other. tools/ may not use network/, whose client is a larger one.
class Messages {
 public:
  template <class T>
  void Begin(uint32_t number, int type, int flags, const T& header) {
    begin_ = bytes_.size();
    nlmsghdr message = {};
    message.nlmsg_type = static_cast<uint16_t>(type);
    message.nlmsg_flags = static_cast<uint16_t>(flags | NLM_F_REQUEST);
    message.nlmsg_seq = number;
    Raw(&message, sizeof message);
    Raw(&header, sizeof header);
  }
  void Text(int type, const std::string& value) {
    const size_t at = Nest(type);
    Raw(value.c_str(), value.size() + 1);
    EndNest(at);
  }
  void Be32(int type, uint32_t value) {
    const size_t at = Nest(type);
    const uint32_t swapped = __builtin_bswap32(value);
    Raw(&swapped, sizeof swapped);
    EndNest(at);
  }
  size_t Nest(int type) {
    const size_t at = bytes_.size();
    nlattr attribute = {};
    attribute.nla_type = static_cast<uint16_t>(type);
    Raw(&attribute, sizeof attribute);
    return at;
  }
  void EndNest(size_t at) {
    const auto size = static_cast<uint16_t>(bytes_.size() - at);
    std::memcpy(bytes_.data() + at, &size, sizeof size);
    bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  }
  void End() {
    const auto size = static_cast<uint32_t>(bytes_.size() - begin_);
    std::memcpy(bytes_.data() + begin_, &size, sizeof size);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void Raw(const void* bytes, size_t size) {
    bytes_.append(static_cast<const char*>(bytes), size);
    bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  }
  std::string bytes_;
  size_t begin_ = 0;
};

// Errors by the numbers of the messages; the kernel has answered when send(2) is back.
Result<std::map<uint32_t, int>> Send(int protocol, const Messages& messages) {
  const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
  if (!socket.valid()) return SysError(errno, "netlink socket");
  const std::string& bytes = messages.bytes();
  if (::send(socket.get(), bytes.data(), bytes.size(), 0) < 0) return SysError(errno, "netlink");
  std::map<uint32_t, int> errors;
  alignas(nlmsghdr) char answer[16384];
  ssize_t size = 0;
  while ((size = ::recv(socket.get(), answer, sizeof answer, MSG_DONTWAIT)) > 0) {
    auto left = static_cast<unsigned>(size);
    for (auto* message = reinterpret_cast<nlmsghdr*>(answer); NLMSG_OK(message, left);
         message = NLMSG_NEXT(message, left)) {
      nlmsgerr error = {};
      if (message->nlmsg_type != NLMSG_ERROR || message->nlmsg_len < NLMSG_LENGTH(sizeof error))
        continue;
      std::memcpy(&error, NLMSG_DATA(message), sizeof error);
      if (error.error != 0) errors.emplace(message->nlmsg_seq, -error.error);
    }
  }
  return errors;
}

void BeginNft(Messages& messages, uint32_t number, int message, int flags) {
  messages.Begin(number, NFNL_SUBSYS_NFTABLES << 8 | message, NLM_F_CREATE | NLM_F_ACK | flags,
                 nfgenmsg{.nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0, .res_id = 0});
}

void PutBatchEdge(Messages& messages, uint32_t number, int type) {
  messages.Begin(number, type, 0,
                 nfgenmsg{.nfgen_family = AF_UNSPEC,
                          .version = NFNETLINK_V0,
                          .res_id = __builtin_bswap16(NFNL_SUBSYS_NFTABLES)});
  messages.End();
}

void PutChain(Messages& messages, Need need) {
  BeginNft(messages, kChainMessage, NFT_MSG_NEWCHAIN, 0);
  messages.Text(NFTA_CHAIN_TABLE, kTable);
  // A chain of one name keeps its type.
  messages.Text(NFTA_CHAIN_NAME, need == Need::kNat ? "nat" : kChain);
  if (need == Need::kNat) {
    const size_t hook = messages.Nest(NFTA_CHAIN_HOOK | NLA_F_NESTED);
    messages.Be32(NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
    messages.Be32(NFTA_HOOK_PRIORITY, static_cast<uint32_t>(-100));
    messages.EndNest(hook);
    messages.Text(NFTA_CHAIN_TYPE, "nat");
  }
  messages.End();
}

// A rule with this expression and nothing that belongs to it: the kernel looks for the expression
// first, and says ENOENT only when it has none. What it says of the rest is of no interest.
Presence ProbeExpression(Need need, const std::string& name) {
  Messages messages;
  PutBatchEdge(messages, kBegin, NFNL_MSG_BATCH_BEGIN);
  BeginNft(messages, kTableMessage, NFT_MSG_NEWTABLE, 0);
  messages.Text(NFTA_TABLE_NAME, kTable);
  messages.End();
  PutChain(messages, need);
  BeginNft(messages, kRuleMessage, NFT_MSG_NEWRULE, NLM_F_APPEND);
  messages.Text(NFTA_RULE_TABLE, kTable);
  messages.Text(NFTA_RULE_CHAIN, need == Need::kNat ? "nat" : kChain);
  const size_t list = messages.Nest(NFTA_RULE_EXPRESSIONS | NLA_F_NESTED);
  const size_t element = messages.Nest(NFTA_LIST_ELEM | NLA_F_NESTED);
  messages.Text(NFTA_EXPR_NAME, name);
  messages.EndNest(element);
  messages.EndNest(list);
  messages.End();
  PutBatchEdge(messages, kEnd, NFNL_MSG_BATCH_END);
  const auto errors = Send(NETLINK_NETFILTER, messages);
  if (!errors || errors->contains(kBegin) || errors->contains(kTableMessage))
    return Presence::kNoTable;
  if (errors->contains(kChainMessage)) return Presence::kNoChain;
  const auto rule = errors->find(kRuleMessage);
  return rule != errors->end() && rule->second == ENOENT ? Presence::kAbsent : Presence::kThere;
}

Presence ProbeLink(const std::string& kind) {
  Messages messages;
  messages.Begin(kBegin, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, ifinfomsg{});
  const size_t info = messages.Nest(IFLA_LINKINFO | NLA_F_NESTED);
  messages.Text(IFLA_INFO_KIND, kind);
  messages.EndNest(info);
  messages.End();
  const auto errors = Send(NETLINK_ROUTE, messages);
  return errors && errors->empty() ? Presence::kThere : Presence::kAbsent;
}

// A line for each word; empty where a word is none.
std::string Answer(const std::string& word) {
  const size_t colon = word.find(':');
  const auto need = ParseUint(word.substr(0, colon), static_cast<uint64_t>(Need::kNat));
  if (!need || colon == std::string::npos) return "";
  const std::string name = word.substr(colon + 1);
  const auto presence = static_cast<Need>(*need) == Need::kLink
                            ? ProbeLink(name)
                            : ProbeExpression(static_cast<Need>(*need), name);
  return std::to_string(static_cast<int>(presence)) + "\n";
}

}  // namespace

Result<std::vector<Presence>> ProbeNetwork(const std::vector<NeedRow>& rows) {
  std::vector<std::string> argv = {"/proc/self/exe", "__probe-network"};
  for (const NeedRow& row : rows)
    argv.push_back(std::to_string(static_cast<int>(row.need)) + ":" + row.name);
  ASSIGN_OR_RETURN(const Finished finished, RunToEnd(argv));
  const std::vector<std::string> lines = Split(Trim(finished.output), '\n');
  const auto made = ParseUint(lines[0], INT32_MAX);
  if (!made) return Error{.what = "the helper said nothing"};
  if (*made != 0) return SysError(static_cast<int>(*made), "unshare");
  std::vector<Presence> found;
  for (size_t i = 1; i < lines.size(); ++i) {
    ASSIGN_OR_RETURN(const uint64_t number,
                     ParseUint(lines[i], static_cast<uint64_t>(Presence::kNoChain)));
    found.push_back(static_cast<Presence>(number));
  }
  if (found.size() != rows.size()) return Error{.what = "the helper ended too early"};
  return found;
}

int AnswerNetworkProbe(const std::vector<std::string>& words) {
  const bool made = ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
  std::string text = std::to_string(made ? 0 : errno) + "\n";
  for (size_t i = 1; made && i < words.size(); ++i) text += Answer(words[i]);
  return WriteAll(STDOUT_FILENO, text) ? 0 : 1;
}

}  // namespace hutch::tools

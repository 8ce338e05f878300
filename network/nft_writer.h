// Tables, chains, rules and elements of nf_tables as netlink messages
// (linux/netfilter/nf_tables.h). A rule is a list of expressions that work on registers; each
// function here appends one, under the name that nft(8) prints for it.
#pragma once

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "network/netlink.h"

namespace hutch::network {

// Types of keys as nft(8) numbers them; the kernel only keeps the number.
inline constexpr uint32_t kNftIpv4Address = 7, kNftIpv6Address = 8;

// What an element of a set counts or bounds for itself.
enum class NftState {
  kNone,
  kCounter,
  kQuota,  // the rule goes on once more than `amount` bytes have passed
  kRate,   // … when more than `amount` bytes a second pass
  kChain,  // none: an element of a map, which leads to a chain
};
struct NftElement {
  std::string key;           // fields one after the other, each filled up to 4 bytes
  std::string key_end = {};  // of an interval, inclusive
  NftState state = NftState::kNone;
  uint64_t amount = 0;
  uint64_t consumed = 0;  // of a quota, already
  std::string chain = {};
  bool operator==(const NftElement&) const = default;
};

// A transaction: all of it is applied, or nothing.
class NftBatch {
 public:
  // Of the family inet: IPv4 and IPv6.
  explicit NftBatch(std::string table);

  enum class Existing { kKeep, kRefuse };
  void AddTable(Existing existing);
  void DeleteTable();
  void AddCounter(const std::string& name);
  void AddSet(const std::string& name, uint32_t key_type, uint32_t key_size);
  void FlushSet(const std::string& name);
  // kExists when there is one already; kNotFound when there is none.
  void AddElements(const std::string& set, const std::vector<NftElement>& elements);
  void DeleteElements(const std::string& set, const std::vector<NftElement>& elements);
  struct Hook {
    const char* type;  // "filter", "nat"
    uint32_t hook;     // NF_INET_…
    int priority;
    const char* needs;
  };
  void AddChain(const std::string& name, const Hook& hook);  // policy accept

  void AddChain(const std::string& name);     // that others lead to
  void DeleteChain(const std::string& name);  // with its rules

  void BeginRule(const std::string& chain, const char* needs = "");
  void EndRule();
  void Meta(uint32_t key);  // NFT_META_… into the register, as all that load
  void Payload(uint32_t base, uint32_t offset, uint32_t size);
  void Ct(uint32_t key);
  void Mask(std::string_view mask);
  void Compare(uint32_t operation, std::string_view value);  // NFT_CMP_…; the rule ends if false
  void Lookup(const std::string& set);
  void CountOver(uint32_t connections);  // the rule ends unless more are tracked
  void CounterObject(const std::string& name);
  void Verdict(int verdict);  // NF_ACCEPT, NF_DROP, NFT_RETURN
  void Goto(const std::string& chain);
  void Redirect(uint16_t port);
  void RejectAdmin();  // ICMP or ICMPv6 "administratively prohibited"
  void NoTrack();

  bool empty() const { return request_.messages() == 1; }
  // The finished messages.
  NetlinkRequest Take();

  NetlinkRequest& request() { return request_; }
  // Begins a message about the table: NFT_MSG_…, with nfgenmsg; to be filled through request().
  void Message(uint16_t message, uint16_t flags, const char* needs = "");

 private:
  void PutElements(uint16_t message, const std::string& set,
                   const std::vector<NftElement>& elements);
  void PutState(const NftElement& element);
  void PutVerdict(int verdict, const std::string& chain);
  void PutImmediate(int verdict, const std::string& chain);
  void BeginExpression(const char* name);
  void EndExpression();

  NetlinkRequest request_;
  std::string table_;
  uint32_t sets_ = 0;
};

struct NftCounter {
  uint64_t packets = 0, bytes = 0;
};
// A named counter; kNotFound when there is none.
Result<NftCounter> ReadCounter(NetlinkSocket& socket, const std::string& table,
                               const std::string& name);
// That of an element; kNotFound.
Result<NftCounter> ReadElementCounter(NetlinkSocket& socket, const std::string& table,
                                      const std::string& set, const std::string& key);
// Keys of a set; kNotFound.
Result<std::vector<NftElement>> ListElements(NetlinkSocket& socket, const std::string& table,
                                             const std::string& set);

}  // namespace hutch::network

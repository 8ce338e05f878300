#include "network/nft_writer.h"

#include <linux/netfilter/nfnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace hutch::network {
namespace {

constexpr uint32_t kRegister = NFT_REG_1;
constexpr char kTables[] = "CONFIG_NF_TABLES_INET";

nfgenmsg Generic(uint8_t family, uint16_t resource) {
  nfgenmsg header = {};
  header.nfgen_family = family;
  header.version = NFNETLINK_V0;
  header.res_id = __builtin_bswap16(resource);
  return header;
}

// A quarter of a second, and never less than some segments as the kernel makes them: a packet that
// is larger than the burst would never pass.
uint32_t RateBurst(uint64_t bytes_per_second) {
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(bytes_per_second / 4, 256 << 10, uint64_t{1} << 30));
}

uint16_t NftType(uint16_t message) {
  return static_cast<uint16_t>(NFNL_SUBSYS_NFTABLES << 8 | message);
}

NftCounter CounterOf(std::string_view data) {
  const NetlinkAttributes attributes(data);
  return {attributes.FindBe64(NFTA_COUNTER_PACKETS), attributes.FindBe64(NFTA_COUNTER_BYTES)};
}

NetlinkRequest GetElements(uint16_t flags, const std::string& table, const std::string& set) {
  NetlinkRequest request;
  request.Begin(NftType(NFT_MSG_GETSETELEM), flags);
  request.Header(Generic(NFPROTO_INET, 0));
  request.Text(NFTA_SET_ELEM_LIST_TABLE, table);
  request.Text(NFTA_SET_ELEM_LIST_SET, set);
  return request;
}

void ForEachElement(std::string_view payload,
                    const std::function<void(const NetlinkAttributes&)>& f) {
  if (payload.size() < sizeof(nfgenmsg)) return;
  const NetlinkAttributes list(payload.substr(sizeof(nfgenmsg)));
  NetlinkAttributes(list.Find(NFTA_SET_ELEM_LIST_ELEMENTS))
      .ForEach([&f](uint16_t, std::string_view element) { f(NetlinkAttributes(element)); });
}

}  // namespace

NftBatch::NftBatch(std::string table) : table_(std::move(table)) {
  request_.Begin(NFNL_MSG_BATCH_BEGIN, 0, "CONFIG_NF_TABLES");
  request_.Header(Generic(AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
}

void NftBatch::Message(uint16_t message, uint16_t flags, const char* needs) {
  request_.Begin(NftType(message), flags, needs);
  request_.Header(Generic(NFPROTO_INET, 0));
}

void NftBatch::AddTable(Existing existing) {
  const int flags = existing == Existing::kRefuse ? NLM_F_CREATE | NLM_F_EXCL : NLM_F_CREATE;
  Message(NFT_MSG_NEWTABLE, static_cast<uint16_t>(flags), kTables);
  request_.Text(NFTA_TABLE_NAME, table_);
}

void NftBatch::DeleteTable() {
  Message(NFT_MSG_DELTABLE, 0);
  request_.Text(NFTA_TABLE_NAME, table_);
}

void NftBatch::AddCounter(const std::string& name) {
  Message(NFT_MSG_NEWOBJ, NLM_F_CREATE, kTables);
  request_.Text(NFTA_OBJ_TABLE, table_);
  request_.Text(NFTA_OBJ_NAME, name);
  request_.Be32(NFTA_OBJ_TYPE, NFT_OBJECT_COUNTER);
  request_.Nest(NFTA_OBJ_DATA);
  request_.EndNest();
}

void NftBatch::AddSet(const std::string& name, uint32_t key_type, uint32_t key_size) {
  Message(NFT_MSG_NEWSET, NLM_F_CREATE, kTables);
  request_.Text(NFTA_SET_TABLE, table_);
  request_.Text(NFTA_SET_NAME, name);
  request_.Be32(NFTA_SET_ID, ++sets_);
  request_.Be32(NFTA_SET_FLAGS, 0);
  request_.Be32(NFTA_SET_KEY_TYPE, key_type);
  request_.Be32(NFTA_SET_KEY_LEN, key_size);
}

void NftBatch::FlushSet(const std::string& name) {
  Message(NFT_MSG_DELSETELEM, 0);
  request_.Text(NFTA_SET_ELEM_LIST_TABLE, table_);
  request_.Text(NFTA_SET_ELEM_LIST_SET, name);
}

void NftBatch::AddElements(const std::string& set, const std::vector<NftElement>& elements) {
  PutElements(NFT_MSG_NEWSETELEM, set, elements);
}

void NftBatch::DeleteElements(const std::string& set, const std::vector<NftElement>& elements) {
  PutElements(NFT_MSG_DELSETELEM, set, elements);
}

void NftBatch::PutElements(uint16_t message, const std::string& set,
                           const std::vector<NftElement>& elements) {
  if (elements.empty()) return;
  const bool adding = message == NFT_MSG_NEWSETELEM;
  Message(message, static_cast<uint16_t>(adding ? NLM_F_CREATE | NLM_F_EXCL : 0));
  request_.Text(NFTA_SET_ELEM_LIST_TABLE, table_);
  request_.Text(NFTA_SET_ELEM_LIST_SET, set);
  request_.Nest(NFTA_SET_ELEM_LIST_ELEMENTS);
  for (const NftElement& element : elements) {
    request_.Nest(NFTA_LIST_ELEM);
    request_.Nest(NFTA_SET_ELEM_KEY);
    request_.Bytes(NFTA_DATA_VALUE, element.key);
    request_.EndNest();
    if (!element.key_end.empty()) {
      request_.Nest(NFTA_SET_ELEM_KEY_END);
      request_.Bytes(NFTA_DATA_VALUE, element.key_end);
      request_.EndNest();
    }
    if (adding && element.state == NftState::kChain) {
      request_.Nest(NFTA_SET_ELEM_DATA);
      PutVerdict(NFT_JUMP, element.chain);
      request_.EndNest();
    } else if (adding && element.state != NftState::kNone) {
      PutState(element);
    }
    request_.EndNest();
  }
  request_.EndNest();
}

void NftBatch::PutState(const NftElement& element) {
  static constexpr const char* kNames[] = {"", "counter", "quota", "limit"};
  request_.Nest(NFTA_SET_ELEM_EXPR);
  request_.Text(NFTA_EXPR_NAME, kNames[static_cast<size_t>(element.state)]);
  request_.Nest(NFTA_EXPR_DATA);
  if (element.state == NftState::kQuota) {
    request_.Be64(NFTA_QUOTA_BYTES, element.amount);
    request_.Be64(NFTA_QUOTA_CONSUMED, element.consumed);
    request_.Be32(NFTA_QUOTA_FLAGS, NFT_QUOTA_F_INV);
  } else if (element.state == NftState::kRate) {
    request_.Be64(NFTA_LIMIT_RATE, element.amount);
    request_.Be64(NFTA_LIMIT_UNIT, 1);
    request_.Be32(NFTA_LIMIT_BURST, RateBurst(element.amount));
    request_.Be32(NFTA_LIMIT_TYPE, NFT_LIMIT_PKT_BYTES);
    request_.Be32(NFTA_LIMIT_FLAGS, NFT_LIMIT_F_INV);
  }
  request_.EndNest();
  request_.EndNest();
}

void NftBatch::AddChain(const std::string& name, const Hook& hook) {
  Message(NFT_MSG_NEWCHAIN, NLM_F_CREATE, hook.needs);
  request_.Text(NFTA_CHAIN_TABLE, table_);
  request_.Text(NFTA_CHAIN_NAME, name);
  request_.Text(NFTA_CHAIN_TYPE, hook.type);
  request_.Nest(NFTA_CHAIN_HOOK);
  request_.Be32(NFTA_HOOK_HOOKNUM, hook.hook);
  request_.Be32(NFTA_HOOK_PRIORITY, static_cast<uint32_t>(hook.priority));
  request_.EndNest();
  request_.Be32(NFTA_CHAIN_POLICY, NF_ACCEPT);
}

void NftBatch::AddChain(const std::string& name) {
  Message(NFT_MSG_NEWCHAIN, NLM_F_CREATE);
  request_.Text(NFTA_CHAIN_TABLE, table_);
  request_.Text(NFTA_CHAIN_NAME, name);
}

void NftBatch::DeleteChain(const std::string& name) {
  Message(NFT_MSG_DELRULE, 0);
  request_.Text(NFTA_RULE_TABLE, table_);
  request_.Text(NFTA_RULE_CHAIN, name);
  Message(NFT_MSG_DELCHAIN, 0);
  request_.Text(NFTA_CHAIN_TABLE, table_);
  request_.Text(NFTA_CHAIN_NAME, name);
}

void NftBatch::BeginRule(const std::string& chain, const char* needs) {
  Message(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, needs);
  request_.Text(NFTA_RULE_TABLE, table_);
  request_.Text(NFTA_RULE_CHAIN, chain);
  request_.Nest(NFTA_RULE_EXPRESSIONS);
}

void NftBatch::EndRule() { request_.EndNest(); }

void NftBatch::BeginExpression(const char* name) {
  request_.Nest(NFTA_LIST_ELEM);
  request_.Text(NFTA_EXPR_NAME, name);
  request_.Nest(NFTA_EXPR_DATA);
}

void NftBatch::EndExpression() {
  request_.EndNest();
  request_.EndNest();
}

void NftBatch::Meta(uint32_t key) {
  BeginExpression("meta");
  request_.Be32(NFTA_META_DREG, kRegister);
  request_.Be32(NFTA_META_KEY, key);
  EndExpression();
}

void NftBatch::Payload(uint32_t base, uint32_t offset, uint32_t size) {
  BeginExpression("payload");
  request_.Be32(NFTA_PAYLOAD_DREG, kRegister);
  request_.Be32(NFTA_PAYLOAD_BASE, base);
  request_.Be32(NFTA_PAYLOAD_OFFSET, offset);
  request_.Be32(NFTA_PAYLOAD_LEN, size);
  EndExpression();
}

void NftBatch::Ct(uint32_t key) {
  BeginExpression("ct");
  request_.Be32(NFTA_CT_DREG, kRegister);
  request_.Be32(NFTA_CT_KEY, key);
  EndExpression();
}

void NftBatch::Mask(std::string_view mask) {
  BeginExpression("bitwise");
  request_.Be32(NFTA_BITWISE_SREG, kRegister);
  request_.Be32(NFTA_BITWISE_DREG, kRegister);
  request_.Be32(NFTA_BITWISE_LEN, static_cast<uint32_t>(mask.size()));
  request_.Nest(NFTA_BITWISE_MASK);
  request_.Bytes(NFTA_DATA_VALUE, mask);
  request_.EndNest();
  request_.Nest(NFTA_BITWISE_XOR);
  request_.Bytes(NFTA_DATA_VALUE, std::string(mask.size(), '\0'));
  request_.EndNest();
  EndExpression();
}

void NftBatch::Compare(uint32_t operation, std::string_view value) {
  BeginExpression("cmp");
  request_.Be32(NFTA_CMP_SREG, kRegister);
  request_.Be32(NFTA_CMP_OP, operation);
  request_.Nest(NFTA_CMP_DATA);
  request_.Bytes(NFTA_DATA_VALUE, value);
  request_.EndNest();
  EndExpression();
}

void NftBatch::Lookup(const std::string& set) {
  BeginExpression("lookup");
  request_.Text(NFTA_LOOKUP_SET, set);
  request_.Be32(NFTA_LOOKUP_SREG, kRegister);
  EndExpression();
}

void NftBatch::CountOver(uint32_t connections) {
  BeginExpression("connlimit");
  request_.Be32(NFTA_CONNLIMIT_COUNT, connections);
  request_.Be32(NFTA_CONNLIMIT_FLAGS, NFT_CONNLIMIT_F_INV);
  EndExpression();
}

void NftBatch::CounterObject(const std::string& name) {
  BeginExpression("objref");
  request_.Be32(NFTA_OBJREF_IMM_TYPE, NFT_OBJECT_COUNTER);
  request_.Text(NFTA_OBJREF_IMM_NAME, name);
  EndExpression();
}

void NftBatch::PutVerdict(int verdict, const std::string& chain) {
  request_.Nest(NFTA_DATA_VERDICT);
  request_.Be32(NFTA_VERDICT_CODE, static_cast<uint32_t>(verdict));
  if (!chain.empty()) request_.Text(NFTA_VERDICT_CHAIN, chain);
  request_.EndNest();
}

void NftBatch::PutImmediate(int verdict, const std::string& chain) {
  BeginExpression("immediate");
  request_.Be32(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
  request_.Nest(NFTA_IMMEDIATE_DATA);
  PutVerdict(verdict, chain);
  request_.EndNest();
  EndExpression();
}

void NftBatch::Verdict(int verdict) { PutImmediate(verdict, ""); }
void NftBatch::Goto(const std::string& chain) { PutImmediate(NFT_GOTO, chain); }

void NftBatch::Redirect(uint16_t port) {
  const uint16_t value = __builtin_bswap16(port);
  BeginExpression("immediate");
  request_.Be32(NFTA_IMMEDIATE_DREG, kRegister);
  request_.Nest(NFTA_IMMEDIATE_DATA);
  request_.Bytes(NFTA_DATA_VALUE, {reinterpret_cast<const char*>(&value), sizeof value});
  request_.EndNest();
  EndExpression();
  BeginExpression("redir");
  request_.Be32(NFTA_REDIR_REG_PROTO_MIN, kRegister);
  EndExpression();
}

void NftBatch::RejectAdmin() {
  BeginExpression("reject");
  request_.Be32(NFTA_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH);
  request_.U8(NFTA_REJECT_ICMP_CODE, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
  EndExpression();
}

void NftBatch::NoTrack() {
  request_.Nest(NFTA_LIST_ELEM);
  request_.Text(NFTA_EXPR_NAME, "notrack");
  request_.EndNest();
}

NetlinkRequest NftBatch::Take() {
  request_.AcknowledgeLast();  // that of the end itself is answered by newer kernels only
  request_.Begin(NFNL_MSG_BATCH_END, 0);
  request_.Header(Generic(AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
  return std::move(request_);
}

Result<NftCounter> ReadCounter(NetlinkSocket& socket, const std::string& table,
                               const std::string& name) {
  NetlinkRequest request;
  request.Begin(NftType(NFT_MSG_GETOBJ), NLM_F_ACK);
  request.Header(Generic(NFPROTO_INET, 0));
  request.Text(NFTA_OBJ_TABLE, table);
  request.Text(NFTA_OBJ_NAME, name);
  request.Be32(NFTA_OBJ_TYPE, NFT_OBJECT_COUNTER);
  NftCounter counter;
  RETURN_IF_ERROR(socket.Ask(std::move(request), "read a counter",
                             [&](const nlmsghdr&, std::string_view payload) {
                               if (payload.size() < sizeof(nfgenmsg)) return;
                               const NetlinkAttributes object(payload.substr(sizeof(nfgenmsg)));
                               counter = CounterOf(object.Find(NFTA_OBJ_DATA));
                             }));
  return counter;
}

Result<NftCounter> ReadElementCounter(NetlinkSocket& socket, const std::string& table,
                                      const std::string& set, const std::string& key) {
  NetlinkRequest request = GetElements(0, table, set);
  request.Nest(NFTA_SET_ELEM_LIST_ELEMENTS);
  request.Nest(NFTA_LIST_ELEM);
  request.Nest(NFTA_SET_ELEM_KEY);
  request.Bytes(NFTA_DATA_VALUE, key);
  request.EndNest();
  request.EndNest();
  request.EndNest();
  request.AcknowledgeLast();
  NftCounter counter;
  RETURN_IF_ERROR(socket.Ask(std::move(request), "read a counter",
                             [&](const nlmsghdr&, std::string_view payload) {
                               ForEachElement(payload, [&](const NetlinkAttributes& element) {
                                 const NetlinkAttributes state(element.Find(NFTA_SET_ELEM_EXPR));
                                 counter = CounterOf(state.Find(NFTA_EXPR_DATA));
                               });
                             }));
  return counter;
}

Result<std::vector<NftElement>> ListElements(NetlinkSocket& socket, const std::string& table,
                                             const std::string& set) {
  std::vector<NftElement> elements;
  RETURN_IF_ERROR(socket.Ask(GetElements(NLM_F_DUMP, table, set), "list a set",
                             [&](const nlmsghdr&, std::string_view payload) {
                               ForEachElement(payload, [&](const NetlinkAttributes& element) {
                                 const NetlinkAttributes key(element.Find(NFTA_SET_ELEM_KEY)),
                                     end(element.Find(NFTA_SET_ELEM_KEY_END));
                                 elements.push_back(
                                     {.key = std::string(key.Find(NFTA_DATA_VALUE)),
                                      .key_end = std::string(end.Find(NFTA_DATA_VALUE))});
                               });
                             }));
  return elements;
}

}  // namespace hutch::network

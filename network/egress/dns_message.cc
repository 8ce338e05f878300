#include "network/egress/dns_message.h"

#include <algorithm>

#include "network/egress/limits.h"

namespace hutch::network {
namespace {

constexpr size_t kHeaderBytes = 12;
constexpr size_t kMinUdpBytes = 512;
constexpr uint16_t kAnswerFlag = 0x8000, kTruncated = 0x0200, kRecursionWanted = 0x0100,
                   kRecursionHere = 0x0080;
constexpr uint16_t kClassIn = 1, kTypeOpt = 41;
constexpr uint16_t kPointerToQuestion = 0xc000 | kHeaderBytes;
constexpr size_t kMaxNameBytes = 255, kMaxLabelBytes = 63;

uint16_t Number(std::string_view bytes, size_t at) {
  return static_cast<uint16_t>(static_cast<uint8_t>(bytes[at]) << 8 |
                               static_cast<uint8_t>(bytes[at + 1]));
}

void Put(std::string* out, uint16_t value) {
  out->push_back(static_cast<char>(value >> 8));
  out->push_back(static_cast<char>(value & 0xff));
}
void Put32(std::string* out, uint32_t value) {
  Put(out, static_cast<uint16_t>(value >> 16));
  Put(out, static_cast<uint16_t>(value & 0xffff));
}

// An uncompressed name; false when it is cut off or not one. Bytes that no host name has are put
// as "?", so that the name is none.
bool ReadName(std::string_view message, size_t* at, std::string* name) {
  const size_t begin = *at;
  while (*at < message.size()) {
    const auto length = static_cast<size_t>(static_cast<uint8_t>(message[*at]));
    ++*at;
    if (length == 0) return *at - begin <= kMaxNameBytes;
    if (length > kMaxLabelBytes || *at + length > message.size()) return false;
    if (!name->empty()) name->push_back('.');
    for (const char c : message.substr(*at, length))
      name->push_back(c > ' ' && c < 0x7f && c != '.' ? c : '?');
    *at += length;
  }
  return false;
}

// The OPT record, if it is the first of the additional ones.
void ReadEdns(std::string_view message, size_t at, DnsQuestion* question) {
  if (Number(message, 6) != 0 || Number(message, 8) != 0 || Number(message, 10) == 0) return;
  if (message.size() < at + 11 || message[at] != 0 || Number(message, at + 1) != kTypeOpt) return;
  question->edns = true;
  question->max_bytes =
      std::clamp(static_cast<size_t>(Number(message, at + 3)), kMinUdpBytes, kMaxDnsMessageBytes);
}

}  // namespace

DnsQuestion ReadQuestion(std::string_view message) {
  DnsQuestion question;
  if (message.size() < kHeaderBytes) return question;
  question.id = Number(message, 0);
  const uint16_t flags = Number(message, 2);
  if ((flags & kAnswerFlag) != 0) return question;
  question.answerable = true;
  question.recursion = (flags & kRecursionWanted) != 0;
  if ((flags & 0x7800) != 0) {
    question.code = DnsCode::kNotImplemented;
    return question;
  }
  if (Number(message, 4) != 1) return question;
  size_t at = kHeaderBytes;
  if (!ReadName(message, &at, &question.name) || message.size() < at + 4) return question;
  question.type = Number(message, at);
  const uint16_t network_class = Number(message, at + 2);
  question.raw = std::string(message.substr(kHeaderBytes, at + 4 - kHeaderBytes));
  ReadEdns(message, at + 4, &question);
  question.code = network_class == kClassIn ? DnsCode::kOk : DnsCode::kRefused;
  return question;
}

std::string MakeAnswer(const DnsQuestion& question, DnsCode code,
                       std::span<const Address> addresses, uint32_t ttl_seconds, size_t max_bytes) {
  std::string records;
  uint16_t count = 0;
  bool cut = false;
  const size_t fixed = kHeaderBytes + question.raw.size() + (question.edns ? 11 : 0);
  for (const Address& address : addresses) {
    if (address.is_v4() != (question.type == kTypeA)) continue;
    const size_t skip = address.is_v4() ? 12 : 0;
    const size_t size = 12 + 16 - skip;
    if (fixed + records.size() + size > max_bytes) {
      cut = true;
      break;
    }
    Put(&records, kPointerToQuestion);
    Put(&records, question.type);
    Put(&records, kClassIn);
    Put32(&records, ttl_seconds);
    Put(&records, static_cast<uint16_t>(16 - skip));
    records.append(address.bytes.begin() + static_cast<ptrdiff_t>(skip), address.bytes.end());
    ++count;
  }
  std::string out;
  Put(&out, question.id);
  Put(&out, static_cast<uint16_t>(kAnswerFlag | kRecursionHere |
                                  (question.recursion ? kRecursionWanted : 0) |
                                  (cut ? kTruncated : 0) | static_cast<uint16_t>(code)));
  Put(&out, question.raw.empty() ? 0 : 1);
  Put(&out, count);
  Put(&out, 0);
  Put(&out, question.edns ? 1 : 0);
  out += question.raw + records;
  if (question.edns) {
    out.push_back('\0');
    Put(&out, kTypeOpt);
    Put(&out, static_cast<uint16_t>(kMaxDnsMessageBytes));
    Put32(&out, 0);
    Put(&out, 0);
  }
  return out;
}

}  // namespace hutch::network

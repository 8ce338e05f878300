// Questions of DNS: whatever comes, an answer is short enough and a question that reads the same.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "network/egress/dns_message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hutch::network;
  const DnsQuestion question = ReadQuestion({reinterpret_cast<const char*>(data), size});
  if (!question.answerable) return 0;
  const std::vector<Address> addresses(64);
  const std::string answer = MakeAnswer(question, question.code, addresses, 60, question.max_bytes);
  if (answer.size() > question.max_bytes || answer.size() < 12) std::abort();
  if (question.code != DnsCode::kOk) return 0;
  std::string again = answer;
  again[2] = static_cast<char>(again[2] & 0x01);  // a question once more
  again[3] = 0;
  const DnsQuestion same = ReadQuestion(again);
  if (same.name != question.name || same.type != question.type) std::abort();
  return 0;
}

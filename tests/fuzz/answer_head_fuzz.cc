// Answers from inside a sandbox: what goes on to the client is one head, whose end its reader sees
// where we do, and the end of its body is the same however the bytes arrive.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "daemon/chunk_scanner.h"
#include "daemon/proxy_head.h"

namespace hutch::daemon {
namespace {

void CheckHead(std::string_view bytes, const ProxyAsk& ask) {
  const Result<std::optional<AnswerHead>> read = ReadAnswerHead(bytes, ask);
  if (!read.has_value() || !*read) return;
  const AnswerHead& head = **read;
  if (head.size > bytes.size()) std::abort();
  if (head.text.find("\r\n\r\n") != head.text.size() - 4) std::abort();
  for (size_t i = 0; i < head.text.size(); ++i) {
    if (head.text[i] == '\0') std::abort();
    if (head.text[i] == '\n' && (i == 0 || head.text[i - 1] != '\r')) std::abort();
    if (head.text[i] == '\r' && (i + 1 == head.text.size() || head.text[i + 1] != '\n'))
      std::abort();
  }
  // What was written is read the same.
  if (head.status < 200) return;
  const Result<std::optional<AnswerHead>> again = ReadAnswerHead(head.text, ask);
  if (!again.has_value() || !*again) std::abort();
  if ((*again)->framing != head.framing || (*again)->length != head.length) std::abort();
}

std::string ScanAll(std::string_view bytes, size_t piece) {
  ChunkScanner scanner;
  size_t length = 0;
  for (size_t at = 0; at < bytes.size() && !scanner.done(); at += piece) {
    const Result<size_t> taken = scanner.Take(bytes.substr(at, piece));
    if (!taken.has_value()) return "malformed";
    length += *taken;
  }
  return std::to_string(length) + (scanner.done() ? " done" : "");
}

}  // namespace
}  // namespace hutch::daemon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using hutch::daemon::ProxyAsk;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  hutch::daemon::CheckHead(bytes, ProxyAsk{.prefix = "/p"});
  hutch::daemon::CheckHead(bytes, ProxyAsk{.head_only = true, .prefix = "/p"});
  hutch::daemon::CheckHead(bytes, ProxyAsk{.upgrade = true, .prefix = "/p"});
  const std::string whole = hutch::daemon::ScanAll(bytes, size + 1);
  for (const size_t piece : {1u, 7u})
    if (hutch::daemon::ScanAll(bytes, piece) != whole) std::abort();
  return 0;
}

// Requests from any client: however the bytes arrive, they are the same requests. Bodies that are
// put are streamed, others collected.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "daemon/http_parser.h"

namespace hutch::daemon {
namespace {

// What was understood, as text; up to the first failure.
std::string ParseAll(std::string_view bytes, size_t piece) {
  BodyBudget budget;
  const BodyLookup lookup = [](const Request& request) {
    return request.method == "PUT" ? Body::kStream : Body::kJson;
  };
  HttpParser parser(&budget, &lookup);
  std::string seen;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    parser.Feed(bytes.substr(at, piece));
    while (true) {
      if (!parser.body_done()) {
        if (!parser.ReadBody(&seen).has_value()) return seen + "!";
        if (!parser.body_done()) break;
        seen += ";";
      }
      const HttpParser::Progress progress = parser.Parse();
      if (progress == HttpParser::Progress::kSendContinue) continue;
      if (progress == HttpParser::Progress::kFailed) return seen + "!";
      if (progress == HttpParser::Progress::kNeedMore) break;
      const Request request = parser.Take();
      seen += request.method + " " + request.path + "\n";
      for (const auto& [name, value] : request.headers) seen += name + ":" + value + "\n";
      seen += request.body + ";";
    }
  }
  if (budget.used_bytes > budget.max_bytes) std::abort();
  return seen;
}

}  // namespace
}  // namespace hutch::daemon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 64 * 1024) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string whole = hutch::daemon::ParseAll(bytes, size + 1);
  for (const size_t piece : {1u, 7u})
    if (hutch::daemon::ParseAll(bytes, piece) != whole) std::abort();
  return 0;
}

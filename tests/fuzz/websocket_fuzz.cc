// Frames from any client: however the bytes arrive, they are the same events, and no message is
// longer than allowed.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/text.h"
#include "daemon/websocket_frames.h"

namespace hutch::daemon {
namespace {

using Kind = WebSocketEvent::Kind;
constexpr size_t kMaxMessageBytes = 1000;

std::string ReadAll(std::string_view bytes, size_t piece) {
  WebSocketReader reader(kMaxMessageBytes);
  std::string seen;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    reader.Feed(bytes.substr(at, piece));
    for (WebSocketEvent event; (event = reader.Next()).kind != Kind::kNeedMore;) {
      if (event.data.size() > kMaxMessageBytes) std::abort();
      if (event.kind == Kind::kMessage && !event.binary && !IsUtf8(event.data)) std::abort();
      seen += std::to_string(static_cast<int>(event.kind)) + " " + std::to_string(event.code) +
              " " + event.data + "\n";
    }
  }
  return seen;
}

}  // namespace
}  // namespace hutch::daemon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string whole = hutch::daemon::ReadAll(bytes, size + 1);
  for (const size_t piece : {1u, 13u})
    if (hutch::daemon::ReadAll(bytes, piece) != whole) std::abort();
  return 0;
}

// WebSocket (RFC 6455), the server's side, from and to bytes: handshake and frames. Knows no
// sockets. No extensions and no subprotocols are negotiated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "daemon/limits.h"
#include "daemon/message.h"

namespace hutch::daemon {

// The value of Sec-WebSocket-Accept; kInvalidArgument when the request is no WebSocket handshake.
Result<std::string> AcceptWebSocket(const Request& request);

// Close codes we send (RFC 6455, 7.4.1).
inline constexpr uint16_t kCloseNormal = 1000;
inline constexpr uint16_t kCloseGoingAway = 1001;
inline constexpr uint16_t kCloseProtocol = 1002;
inline constexpr uint16_t kCloseBadText = 1007;
inline constexpr uint16_t kCloseTooLarge = 1009;
inline constexpr uint16_t kCloseInternal = 1011;

// What a client says. Messages come whole.
struct WebSocketEvent {
  enum class Kind {
    kNeedMore,
    kMessage,
    kPing,  // answer with a pong of the same data
    kPong,
    kClose,  // `code` as sent, 0 for none
    kError,  // close with `code`; nothing comes after it
  };
  Kind kind = Kind::kNeedMore;
  bool binary = false;
  uint16_t code = 0;
  std::string data;  // for kClose and kError the reason
};

// Holds at most one message of `max_message_bytes` beside what was fed and not parsed.
class WebSocketReader {
 public:
  explicit WebSocketReader(size_t max_message_bytes = kMaxWebSocketMessageBytes)
      : max_message_bytes_(max_message_bytes) {}
  void Feed(std::string_view bytes) { buffer_.append(bytes); }
  // The next event of what was fed. After kClose and kError always that kind's kNeedMore.
  WebSocketEvent Next();

 private:
  struct Frame {
    bool final = false;
    uint8_t opcode = 0;
    uint64_t length = 0;
    unsigned char mask[4] = {};
  };
  enum class Parsed { kNeedMore, kFrame, kError };
  Parsed ParseHeader();  // into frame_ or error_
  Parsed Fail(uint16_t code, const char* reason);
  bool CheckHeader(unsigned char first, unsigned char second);
  void TakePayload();
  WebSocketEvent FinishFrame();
  WebSocketEvent FinishClose();

  size_t max_message_bytes_;
  std::string buffer_;
  size_t used_ = 0;  // of buffer_
  bool in_frame_ = false, in_message_ = false, ended_ = false;
  bool binary_ = false;
  Frame frame_;
  uint64_t taken_ = 0;   // of frame_'s payload
  std::string message_;  // of data frames; control frames may come in between
  std::string control_;
  WebSocketEvent error_;
};

// Frames of a server carry no mask. Each is a whole message.
enum class WebSocketOpcode : uint8_t { kText = 1, kBinary = 2, kClose = 8, kPing = 9, kPong = 10 };
std::string WebSocketFrame(WebSocketOpcode opcode, std::string_view payload);
// `code` 0: without one. The reason is cut to what a control frame holds.
std::string WebSocketCloseFrame(uint16_t code, std::string_view reason);

}  // namespace hutch::daemon

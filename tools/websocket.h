// WebSocket (RFC 6455), the client's side, to the daemon. Used by one thread, which
// polls fd() itself; nothing but Connect blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "tools/endpoint.h"

namespace hutch::tools {

struct WebSocketMessage {
  enum class Kind { kText, kBinary, kClose };
  Kind kind = Kind::kText;
  std::string data = {};  // of kClose: the reason
  uint16_t code = 0;      // of kClose; 0 for none
};

// Frames from bytes that come in pieces of any size. Pings are answered by whoever owns it.
class WebSocketFrames {
 public:
  void Feed(std::string_view bytes) { buffer_.append(bytes); }
  // What is complete by now. `pongs` gets the frames that answer pings. kCorrupt for frames that
  // the RFC forbids, kTooLarge for a message of more than 16 MiB.
  Result<std::vector<WebSocketMessage>> Take(std::string* pongs);

 private:
  struct Header {
    unsigned char opcode = 0;
    bool final = false;
    size_t size = 0;  // of the header itself
    uint64_t length = 0;
  };
  Result<Header> ReadHeader(std::string_view bytes) const;  // size 0: needs more
  Status TakeFrame(const Header& header, std::string_view payload, std::string* pongs,
                   std::vector<WebSocketMessage>* messages);

  std::string buffer_;
  std::string message_;  // fragments so far
  unsigned char message_opcode_ = 0;
};

// A frame as a client sends it, with a mask of zeros: masks protect proxies, and neither a Unix
// socket nor loopback has one.
enum class ClientFrame : unsigned char { kText = 1, kBinary = 2, kPong = 10 };
std::string MaskedFrame(ClientFrame opcode, std::string_view payload);

class WebSocket {
 public:
  // Connects and shakes hands. The error that the daemon answered where it refuses.
  static Result<WebSocket> Connect(const Endpoint& endpoint, const std::string& target);

  int fd() const { return socket_.get(); }
  // Of what was sent: bytes the daemon has not taken yet. Poll for POLLOUT while there are some.
  size_t queued_bytes() const { return out_.size(); }

  void SendText(std::string_view text) { out_ += MaskedFrame(ClientFrame::kText, text); }
  // At most 1 MiB: the daemon takes no more in one message.
  void SendBinary(std::string_view bytes) { out_ += MaskedFrame(ClientFrame::kBinary, bytes); }
  Status Flush();
  // What has arrived. kUnavailable when the daemon went away without a close frame.
  Result<std::vector<WebSocketMessage>> Receive();

 private:
  explicit WebSocket(UniqueFd socket) : socket_(std::move(socket)) {}

  UniqueFd socket_;
  WebSocketFrames frames_;
  std::string out_;
};

}  // namespace hutch::tools

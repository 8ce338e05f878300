#include "tools/websocket.h"

#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>

#include "tools/client.h"

namespace hutch::tools {
namespace {

namespace http = boost::beast::http;

// The example of RFC 6455, 1.3. A fresh key would only tell caching proxies apart.
constexpr const char* kKey = "dGhlIHNhbXBsZSBub25jZQ==";
constexpr std::string_view kAccept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
constexpr size_t kMaxMessageBytes = size_t{16} << 20;
constexpr size_t kMaxHandshakeBytes = size_t{1} << 20;
constexpr size_t kReadBytes = size_t{64} << 10;

constexpr unsigned char kContinuation = 0, kText = 1, kBinary = 2, kClose = 8, kPing = 9;
constexpr unsigned char kFirstControl = 8, kLastControl = 10;

Error Gone() {
  return Error{.code = Code::kUnavailable,
               .what = "the daemon went away",
               .hint = "what runs in the background goes on; `hutch ps ID` shows it"};
}

Error Forbidden(const char* what) {
  return Error{.code = Code::kCorrupt, .what = std::string("the daemon's WebSocket sent ") + what};
}

uint64_t BigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

void AppendBigEndian(uint64_t value, int bytes, std::string* text) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    *text += static_cast<char>(value >> shift & 0xff);
}

// Reads the answer to the handshake; what came behind its head is returned.
Result<std::string> ReadHandshake(int socket_fd) {
  http::response_parser<http::string_body> parser;
  parser.eager(true);
  parser.body_limit(kMaxHandshakeBytes);
  std::string pending;
  char piece[4096];
  while (!parser.is_done()) {
    const ssize_t got = ::recv(socket_fd, piece, sizeof piece, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Gone();
    pending.append(piece, static_cast<size_t>(got));
    boost::system::error_code failed;
    const size_t used = parser.put(boost::asio::buffer(pending), failed);
    if (failed && failed != http::error::need_more) return Forbidden("no HTTP reply");
    pending.erase(0, used);
  }
  const auto& reply = parser.get();
  if (reply.result_int() != 101)
    return ErrorFromReply(static_cast<int>(reply.result_int()), reply.body());
  const auto accept = reply["Sec-WebSocket-Accept"];
  if (std::string_view(accept.data(), accept.size()) != kAccept)
    return Forbidden("a wrong answer to the handshake");
  return pending;
}

}  // namespace

std::string MaskedFrame(ClientFrame opcode, std::string_view payload) {
  std::string frame(1, static_cast<char>(0x80 | static_cast<unsigned char>(opcode)));
  if (payload.size() < 126) {
    frame += static_cast<char>(0x80 | payload.size());
  } else if (payload.size() <= UINT16_MAX) {
    frame += static_cast<char>(0x80 | 126);
    AppendBigEndian(payload.size(), 2, &frame);
  } else {
    frame += static_cast<char>(0x80 | 127);
    AppendBigEndian(payload.size(), 8, &frame);
  }
  return frame.append(4, '\0').append(payload);
}

Result<WebSocketFrames::Header> WebSocketFrames::ReadHeader(std::string_view bytes) const {
  Header header;
  if (bytes.size() < 2) return header;
  const auto first = static_cast<unsigned char>(bytes[0]);
  const auto second = static_cast<unsigned char>(bytes[1]);
  if ((first & 0x70) != 0) return Forbidden("a frame with an extension");
  if ((second & 0x80) != 0) return Forbidden("a masked frame");
  header.opcode = first & 0x0f;
  header.final = (first & 0x80) != 0;
  const size_t wide = second == 126 ? 2 : second == 127 ? 8 : 0;
  if (bytes.size() < 2 + wide) return header;
  header.size = 2 + wide;
  header.length = wide == 0 ? second : BigEndian(bytes.substr(2, wide));
  if (header.opcode >= kFirstControl && (wide != 0 || !header.final))
    return Forbidden("a control frame in pieces");
  if (header.length > kMaxMessageBytes || message_.size() + header.length > kMaxMessageBytes)
    return Error{.code = Code::kTooLarge, .what = "a message of more than 16 MiB"};
  return header;
}

Status WebSocketFrames::TakeFrame(const Header& header, std::string_view payload,
                                  std::string* pongs, std::vector<WebSocketMessage>* messages) {
  if (header.opcode == kPing) *pongs += MaskedFrame(ClientFrame::kPong, payload);
  if (header.opcode == kClose) {
    WebSocketMessage message{.kind = WebSocketMessage::Kind::kClose};
    if (payload.size() >= 2) message.code = static_cast<uint16_t>(BigEndian(payload.substr(0, 2)));
    if (payload.size() > 2) message.data = payload.substr(2);
    messages->push_back(std::move(message));
  }
  if (header.opcode >= kFirstControl)
    return header.opcode <= kLastControl ? OkStatus() : Status(Forbidden("an unknown frame"));
  const bool goes_on = header.opcode == kContinuation;
  if (goes_on == (message_opcode_ == 0) || header.opcode > kBinary)
    return Forbidden("frames out of order");
  if (!goes_on) message_opcode_ = header.opcode;
  message_ += payload;
  if (!header.final) return OkStatus();
  messages->push_back({.kind = message_opcode_ == kText ? WebSocketMessage::Kind::kText
                                                        : WebSocketMessage::Kind::kBinary,
                       .data = std::move(message_)});
  message_.clear();
  message_opcode_ = 0;
  return OkStatus();
}

Result<std::vector<WebSocketMessage>> WebSocketFrames::Take(std::string* pongs) {
  std::vector<WebSocketMessage> messages;
  std::string_view rest = buffer_;
  for (;;) {
    ASSIGN_OR_RETURN(const Header header, ReadHeader(rest));
    if (header.size == 0 || rest.size() - header.size < header.length) break;
    RETURN_IF_ERROR(TakeFrame(header, rest.substr(header.size, header.length), pongs, &messages));
    rest.remove_prefix(header.size + header.length);
  }
  buffer_.erase(0, buffer_.size() - rest.size());
  return messages;
}

Result<WebSocket> WebSocket::Connect(const Endpoint& endpoint, const std::string& target) {
  ASSIGN_OR_RETURN(UniqueFd fd, ConnectToDaemon(endpoint));
  WebSocket connected(std::move(fd));
  std::string rest = "GET " + target + " HTTP/1.1\r\n" + endpoint.HeadLines() +
                     "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                     "User-Agent: hutch/" HUTCH_VERSION
                     "\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
                     kKey + "\r\n\r\n";
  while (!rest.empty()) {
    const ssize_t sent = ::send(connected.fd(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return Gone();
    rest.erase(0, static_cast<size_t>(sent));
  }
  ASSIGN_OR_RETURN(const std::string early, ReadHandshake(connected.fd()));
  connected.frames_.Feed(early);
  return connected;
}

Status WebSocket::Flush() {
  while (!out_.empty()) {
    const ssize_t sent = ::send(fd(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return OkStatus();
    // What the daemon said last may still be there to be received.
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) out_.clear();
    if (sent < 0) return out_.empty() ? OkStatus() : Status(SysError(errno, "send"));
    out_.erase(0, static_cast<size_t>(sent));
  }
  return OkStatus();
}

Result<std::vector<WebSocketMessage>> WebSocket::Receive() {
  std::string bytes(kReadBytes, '\0');
  bool ended = false;
  const ssize_t got = ::recv(fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) ended = true;
  if (got == 0) ended = true;
  if (got > 0) frames_.Feed(std::string_view(bytes).substr(0, static_cast<size_t>(got)));
  auto messages = frames_.Take(&out_);
  if (messages && messages->empty() && ended) return Gone();
  return messages;
}

}  // namespace hutch::tools

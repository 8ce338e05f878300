#include "daemon/websocket_frames.h"

#include <strings.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/text.h"
#include "daemon/output_buffer.h"

namespace hutch::daemon {
namespace {

using Kind = WebSocketEvent::Kind;

constexpr char kAcceptSuffix[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";  // RFC 6455, 1.3
constexpr size_t kKeyBytes = 16;
constexpr size_t kMaxControlBytes = 125;
constexpr uint8_t kContinuation = 0, kBinary = 2, kClose = 8, kPing = 9, kPong = 10;
constexpr unsigned char kFinalBit = 0x80, kReservedBits = 0x70, kOpcodeBits = 0x0f;
constexpr unsigned char kMaskBit = 0x80, kLengthBits = 0x7f;
constexpr unsigned char kLength16 = 126, kLength64 = 127;

// SHA-1 (FIPS 180-4): what the handshake asks for, where it protects nothing.
std::string Sha1(std::string_view text) {
  std::array<uint32_t, 5> h = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  std::string padded(text);
  padded += '\x80';
  while (padded.size() % 64 != 56) padded += '\0';
  for (int shift = 56; shift >= 0; shift -= 8)
    padded += static_cast<char>(static_cast<uint64_t>(text.size()) * 8 >> shift);
  for (size_t block = 0; block < padded.size(); block += 64) {
    std::array<uint32_t, 80> w{};
    for (size_t i = 0; i < 64; ++i)
      w[i / 4] = w[i / 4] << 8 | static_cast<unsigned char>(padded[block + i]);
    for (size_t i = 16; i < 80; ++i)
      w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    auto [a, b, c, d, e] = h;
    for (size_t i = 0; i < 80; ++i) {
      const uint32_t mixed[] = {((b & c) | (~b & d)) + 0x5a827999, (b ^ c ^ d) + 0x6ed9eba1,
                                ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc,
                                (b ^ c ^ d) + 0xca62c1d6};
      const uint32_t next = std::rotl(a, 5) + mixed[i / 20] + e + w[i];
      e = d;
      d = c;
      c = std::rotl(b, 30);
      b = a;
      a = next;
    }
    const uint32_t mixed[] = {a, b, c, d, e};
    for (size_t i = 0; i < h.size(); ++i) h[i] += mixed[i];
  }
  std::string digest;
  for (const uint32_t word : h)
    for (int shift = 24; shift >= 0; shift -= 8) digest += static_cast<char>(word >> shift);
  return digest;
}

bool SameWord(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// A header may come more than once; the lists of all count together.
bool ListHas(const Request& request, std::string_view name, std::string_view token) {
  for (const auto& [key, value] : request.headers) {
    if (!SameWord(key, name)) continue;
    for (const std::string& part : Split(value, ','))
      if (SameWord(Trim(part), token)) return true;
  }
  return false;
}

size_t CountHeader(const Request& request, std::string_view name) {
  return static_cast<size_t>(
      std::count_if(request.headers.begin(), request.headers.end(),
                    [&](const auto& field) { return SameWord(field.first, name); }));
}

Error Refused(std::string what) {
  return Error{.code = Code::kInvalidArgument,
               .what = "not a WebSocket handshake: " + std::move(what),
               .hint = "RFC 6455, version 13"};
}

WebSocketEvent ErrorEvent(uint16_t code, const char* reason) {
  WebSocketEvent event;
  event.kind = Kind::kError;
  event.code = code;
  event.data = reason;
  return event;
}

bool MayBeReceived(uint16_t code) {  // RFC 6455, 7.4
  return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
         (code >= 3000 && code <= 4999);
}

}  // namespace

Result<std::string> AcceptWebSocket(const Request& request) {
  if (request.method != "GET") return Refused("the method is not GET");
  if (!ListHas(request, "Upgrade", "websocket")) return Refused("no Upgrade: websocket");
  if (!ListHas(request, "Connection", "upgrade")) return Refused("no Connection: Upgrade");
  if (CountHeader(request, "Sec-WebSocket-Version") != 1 ||
      request.Header("Sec-WebSocket-Version") != "13")
    return Refused("Sec-WebSocket-Version is not 13");
  const std::string key(request.Header("Sec-WebSocket-Key"));
  std::string bytes;
  if (CountHeader(request, "Sec-WebSocket-Key") != 1 || !Base64Decode(key, &bytes) ||
      bytes.size() != kKeyBytes)
    return Refused("Sec-WebSocket-Key is not 16 bytes of base64");
  return Base64Encode(Sha1(key + kAcceptSuffix));
}

WebSocketReader::Parsed WebSocketReader::Fail(uint16_t code, const char* reason) {
  error_ = ErrorEvent(code, reason);
  return Parsed::kError;
}

bool WebSocketReader::CheckHeader(unsigned char first, unsigned char second) {
  const auto opcode = static_cast<uint8_t>(first & kOpcodeBits);
  const bool control = opcode >= kClose;
  const char* wrong = nullptr;
  if ((first & kReservedBits) != 0)
    wrong = "reserved bits are set";
  else if ((second & kMaskBit) == 0)
    wrong = "a client's frame without a mask";
  else if ((opcode > kBinary && !control) || opcode > kPong)
    wrong = "unknown opcode";
  else if (control && (first & kFinalBit) == 0)
    wrong = "a fragmented control frame";
  else if (control && (second & kLengthBits) > kMaxControlBytes)
    wrong = "a control frame of more than 125 bytes";
  else if (!control && in_message_ != (opcode == kContinuation))
    wrong = in_message_ ? "a message within a message" : "a continuation of nothing";
  if (wrong == nullptr) return true;
  Fail(kCloseProtocol, wrong);
  return false;
}

WebSocketReader::Parsed WebSocketReader::ParseHeader() {
  const auto* at = reinterpret_cast<const unsigned char*>(buffer_.data()) + used_;
  const size_t size = buffer_.size() - used_;
  if (size < 2) return Parsed::kNeedMore;
  if (!CheckHeader(at[0], at[1])) return Parsed::kError;
  const auto short_length = static_cast<unsigned char>(at[1] & kLengthBits);
  const size_t extra = short_length == kLength64 ? 8 : short_length == kLength16 ? 2 : 0;
  if (size < 2 + extra + sizeof frame_.mask) return Parsed::kNeedMore;
  frame_.final = (at[0] & kFinalBit) != 0;
  frame_.opcode = at[0] & kOpcodeBits;
  frame_.length = extra == 0 ? short_length : 0;
  for (size_t i = 0; i < extra; ++i) frame_.length = frame_.length << 8 | at[2 + i];
  if ((extra == 2 && frame_.length < kLength16) || (extra == 8 && frame_.length <= 0xffff))
    return Fail(kCloseProtocol, "a length in more bytes than it needs");
  if (frame_.length >> 63 != 0) return Fail(kCloseProtocol, "a length beyond 63 bits");
  if (frame_.opcode < kClose && frame_.length > max_message_bytes_ - message_.size())
    return Fail(kCloseTooLarge, "the message is too long");
  std::copy_n(at + 2 + extra, sizeof frame_.mask, frame_.mask);
  used_ += 2 + extra + sizeof frame_.mask;
  taken_ = 0;
  return Parsed::kFrame;
}

void WebSocketReader::TakePayload() {
  std::string& into = frame_.opcode >= kClose ? control_ : message_;
  const size_t count =
      static_cast<size_t>(std::min<uint64_t>(frame_.length - taken_, buffer_.size() - used_));
  const size_t start = into.size();
  into.append(buffer_, used_, count);
  for (size_t i = 0; i < count; ++i)
    into[start + i] = static_cast<char>(static_cast<unsigned char>(into[start + i]) ^
                                        frame_.mask[(taken_ + i) % sizeof frame_.mask]);
  used_ += count;
  taken_ += count;
}

WebSocketEvent WebSocketReader::FinishClose() {
  const std::string payload = std::exchange(control_, {});
  WebSocketEvent event;
  event.kind = Kind::kClose;
  if (payload.empty()) return event;
  if (payload.size() == 1) return ErrorEvent(kCloseProtocol, "half a close code");
  event.code = static_cast<uint16_t>(static_cast<unsigned char>(payload[0]) << 8 |
                                     static_cast<unsigned char>(payload[1]));
  event.data = payload.substr(2);
  if (!MayBeReceived(event.code))
    return ErrorEvent(kCloseProtocol, "a close code that is reserved");
  if (!IsUtf8(event.data)) return ErrorEvent(kCloseBadText, "the reason is not UTF-8");
  return event;
}

WebSocketEvent WebSocketReader::FinishFrame() {
  in_frame_ = false;
  if (frame_.opcode == kClose) return FinishClose();
  WebSocketEvent event;
  if (frame_.opcode > kClose) {
    event.kind = frame_.opcode == kPing ? Kind::kPing : Kind::kPong;
    event.data = std::exchange(control_, {});
    return event;
  }
  if (frame_.opcode != kContinuation) binary_ = frame_.opcode == kBinary;
  in_message_ = !frame_.final;
  if (in_message_) return event;
  if (!binary_ && !IsUtf8(message_)) return ErrorEvent(kCloseBadText, "the text is not UTF-8");
  event.kind = Kind::kMessage;
  event.binary = binary_;
  event.data = std::exchange(message_, {});
  return event;
}

WebSocketEvent WebSocketReader::Next() {
  WebSocketEvent event;
  while (!ended_ && event.kind == Kind::kNeedMore) {
    const Parsed parsed = in_frame_ ? Parsed::kFrame : ParseHeader();
    if (parsed == Parsed::kNeedMore) break;
    if (parsed == Parsed::kError) {
      event = error_;
      break;
    }
    in_frame_ = true;
    TakePayload();
    if (taken_ < frame_.length) break;
    event = FinishFrame();
  }
  ended_ = ended_ || event.kind == Kind::kClose || event.kind == Kind::kError;
  if (event.kind == Kind::kNeedMore || used_ >= buffer_.size() || ended_) {
    buffer_.erase(0, ended_ ? std::string::npos : used_);
    used_ = 0;
  }
  return event;
}

std::string WebSocketFrame(WebSocketOpcode opcode, std::string_view payload) {
  std::string frame;
  frame.reserve(payload.size() + 10);
  frame += static_cast<char>(kFinalBit | static_cast<uint8_t>(opcode));
  const uint64_t size = payload.size();
  const int extra = size > 0xffff ? 8 : size >= kLength16 ? 2 : 0;
  frame += static_cast<char>(extra == 8 ? kLength64 : extra == 2 ? kLength16 : size);
  for (int shift = (extra - 1) * 8; shift >= 0; shift -= 8)
    frame += static_cast<char>(size >> shift);
  return frame.append(payload);
}

std::string WebSocketCloseFrame(uint16_t code, std::string_view reason) {
  std::string payload;
  if (code != 0) {
    payload += static_cast<char>(code >> 8);
    payload += static_cast<char>(code & 0xff);
    reason = reason.substr(0, kMaxControlBytes - payload.size());
    while (!IsUtf8(reason)) reason.remove_suffix(1);  // cut within a character
    payload.append(reason);
  }
  return WebSocketFrame(WebSocketOpcode::kClose, payload);
}

}  // namespace hutch::daemon

#include "network/egress/client_hello.h"

#include <cstdint>
#include <set>

#include "network/egress/limits.h"

namespace hutch::network {
namespace {

constexpr uint8_t kHandshake = 22, kHello = 1;
constexpr size_t kRecordHeader = 5, kMessageHeader = 4;
constexpr size_t kMaxRecordBytes = 1 << 14;  // of plain text
constexpr uint16_t kServerName = 0, kEncryptedHello = 0xfe0d;
constexpr size_t kVersionAndRandom = 34;

uint8_t Byte(std::string_view bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

// Reads front to back; once something is missing all further reads are empty.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool ok() const { return ok_; }
  bool empty() const { return bytes_.empty(); }
  size_t Number(size_t size) {
    size_t value = 0;
    for (const char c : Bytes(size)) value = value << 8 | static_cast<uint8_t>(c);
    return value;
  }
  std::string_view Bytes(size_t size) {
    if (!ok_ || size > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  std::string_view Vector(size_t length_size) { return Bytes(Number(length_size)); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

ClientHello Malformed(const char* why) {
  ClientHello hello;
  hello.state = ClientHello::State::kMalformed;
  hello.why = why;
  return hello;
}

// server_name_list: exactly one host_name.
bool ReadServerName(std::string_view extension, std::string* name) {
  Reader outer(extension);
  Reader list(outer.Vector(2));
  const size_t type = list.Number(1);
  *name = std::string(list.Vector(2));
  return outer.ok() && list.ok() && outer.empty() && list.empty() && type == 0 && !name->empty() &&
         name->find('\0') == std::string::npos;
}

ClientHello ReadMessage(std::string_view message) {
  ClientHello hello;
  hello.state = ClientHello::State::kWhole;
  Reader reader(message);
  reader.Bytes(kVersionAndRandom);
  reader.Vector(1);  // session id
  reader.Vector(2);  // cipher suites
  reader.Vector(1);  // compression methods
  if (!reader.ok()) return Malformed("the hello is cut off");
  if (reader.empty()) return hello;
  Reader extensions(reader.Vector(2));
  if (!reader.ok() || !reader.empty()) return Malformed("the hello's length is wrong");
  std::set<size_t> seen;
  while (!extensions.empty()) {
    const size_t type = extensions.Number(2);
    const std::string_view body = extensions.Vector(2);
    if (!extensions.ok()) return Malformed("an extension is cut off");
    if (!seen.insert(type).second) return Malformed("an extension is there twice");
    if (type == kEncryptedHello) hello.encrypted = true;
    if (type == kServerName && !ReadServerName(body, &hello.name))
      return Malformed("the server name is no single name");
  }
  return hello;
}

}  // namespace

bool LooksLikeTls(std::string_view bytes) {
  return (bytes.empty() || Byte(bytes, 0) == kHandshake) &&
         (bytes.size() < 2 || Byte(bytes, 1) == 3) && (bytes.size() < 3 || Byte(bytes, 2) <= 4) &&
         (bytes.size() <= kRecordHeader || Byte(bytes, kRecordHeader) == kHello);
}

ClientHello ReadClientHello(std::string_view bytes) {
  ClientHello result;
  if (!LooksLikeTls(bytes)) {
    result.state = ClientHello::State::kNotTls;
    return result;
  }
  std::string message;
  size_t at = 0;
  while (bytes.size() - at > kRecordHeader) {
    const size_t length = static_cast<size_t>(Byte(bytes, at + 3)) << 8 | Byte(bytes, at + 4);
    if (Byte(bytes, at) != kHandshake || Byte(bytes, at + 1) != 3)
      return Malformed("the hello is cut off by another record");
    if (length == 0 || length > kMaxRecordBytes) return Malformed("a record's length is wrong");
    message += bytes.substr(at + kRecordHeader, length);
    if (message.size() >= kMessageHeader) {
      Reader header(message);
      header.Number(1);
      const size_t size = header.Number(3);
      if (size + kRecordHeader + kMessageHeader > kMaxHelloBytes)
        return Malformed("the hello is too long");
      if (message.size() >= kMessageHeader + size)
        return ReadMessage(std::string_view(message).substr(kMessageHeader, size));
    }
    if (bytes.size() - at - kRecordHeader < length) break;
    at += kRecordHeader + length;
  }
  if (bytes.size() >= kMaxHelloBytes) return Malformed("the hello is too long");
  return result;
}

}  // namespace hutch::network

// The three descriptors of a file request: bytes in, bytes out, and lines of JSON that answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "oci/json.h"

namespace hutch::files {

// Lines of JSON, each an object of one member that says what it is: {"ok": ...}, {"error": ...},
// {"entry": ...}. Lines are gathered until Flush(), Ok() or Fail().
class ReplyStream {
 public:
  explicit ReplyStream(int fd) : fd_(fd) {}  // borrowed
  int fd() const { return fd_; }

  Status Line(const char* kind, const oci::Json& value);
  Status Ok(const oci::Json& value);  // {"ok": value}, flushed
  void Fail(const Error& error);      // {"error": ...}, flushed; a reader that is gone is nobody
  Status Flush();
  // Whether a line of this many bytes would leave no room for the last one.
  bool Full(size_t more_bytes = 0) const;

 private:
  int fd_;
  uint64_t total_bytes_ = 0;
  std::string buffer_;
};

struct Io {
  int in;   // borrowed, like the others
  int out;  // a pipe, or a file in tests
  ReplyStream& reply;
};

// Writes everything, waiting where the descriptor does not block. EPIPE is an error as any other.
Status WriteFully(int fd, const char* bytes, size_t size);
inline Status WriteFully(int fd, std::string_view bytes) {
  return WriteFully(fd, bytes.data(), bytes.size());
}
// Reads up to `size` bytes, waiting where the descriptor does not block; 0 at the end.
Result<size_t> ReadSome(int fd, char* buffer, size_t size);
// Reads to the end; kTooLarge beyond max_bytes.
Result<std::string> ReadToEnd(int fd, size_t max_bytes);

}  // namespace hutch::files

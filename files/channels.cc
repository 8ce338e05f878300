#include "files/channels.h"

#include <poll.h>
#include <unistd.h>

#include <vector>

#include "files/errors.h"
#include "files/limits.h"

namespace hutch::files {
namespace {

constexpr size_t kFlushBytes = 64 * 1024;

// Waits until the descriptor can be used; false when `sys` is no reason to wait.
bool WaitFor(int sys, int fd, short events) {
  if (sys == EINTR) return true;
  if (sys != EAGAIN) return false;
  struct pollfd waited = {.fd = fd, .events = events, .revents = 0};
  return ::poll(&waited, 1, -1) >= 0 || errno == EINTR;
}

}  // namespace

Status WriteFully(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd, bytes, size);
    if (n < 0 && WaitFor(errno, fd, POLLOUT)) continue;
    if (n < 0) return FileError(errno, "write", "the answer");
    bytes += n;
    size -= static_cast<size_t>(n);
  }
  return OkStatus();
}

Result<size_t> ReadSome(int fd, char* buffer, size_t size) {
  while (true) {
    const ssize_t n = ::read(fd, buffer, size);
    if (n >= 0) return static_cast<size_t>(n);
    if (!WaitFor(errno, fd, POLLIN)) return FileError(errno, "read", "the bytes sent");
  }
}

Result<std::string> ReadToEnd(int fd, size_t max_bytes) {
  std::string text;
  std::vector<char> block(kCopyBytes);
  while (true) {
    ASSIGN_OR_RETURN(const size_t n, ReadSome(fd, block.data(), block.size()));
    if (n == 0) return text;
    if (text.size() + n > max_bytes)
      return Error{.code = Code::kTooLarge,
                   .what = "more than " + std::to_string(max_bytes) + " bytes"};
    text.append(block.data(), n);
  }
}

Status ReplyStream::Line(const char* kind, const oci::Json& value) {
  buffer_.append("{\"").append(kind).append("\":").append(oci::PrintJson(value)).append("}\n");
  return buffer_.size() < kFlushBytes ? OkStatus() : Flush();
}

Status ReplyStream::Ok(const oci::Json& value) {
  RETURN_IF_ERROR(Line("ok", value));
  return Flush();
}

void ReplyStream::Fail(const Error& error) {
  IgnoreError(Line("error", ErrorJson(error)), "nobody is left to hear it");
  IgnoreError(Flush(), "nobody is left to hear it");
}

Status ReplyStream::Flush() {
  total_bytes_ += buffer_.size();
  const std::string bytes = std::exchange(buffer_, {});
  return WriteFully(fd_, bytes);
}

bool ReplyStream::Full(size_t more_bytes) const {
  return total_bytes_ + buffer_.size() + more_bytes + kReplyReserveBytes > kMaxReplyBytes;
}

}  // namespace hutch::files

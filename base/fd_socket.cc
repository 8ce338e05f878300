#include "base/fd_socket.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>

namespace hutch {
namespace {

constexpr size_t kMaxParts = 8;

Error SocketError(int sys, const char* verb) {
  Error error = SysError(sys, verb);
  if (sys == EAGAIN) error.code = Code::kUnavailable;
  if (sys == EPIPE || sys == ECONNRESET || sys == ENOTCONN) error.code = Code::kBadState;
  return error;
}

}  // namespace

Result<SocketPair> MakeSeqpacketPair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
    return SysError(errno, "socketpair");
  return SocketPair{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Status SendMessage(int socket_fd, std::span<const std::string_view> parts,
                   std::span<const int> fds) {
  CHECK(fds.size() <= kMaxFdsPerMessage && parts.size() <= kMaxParts);
  iovec iov[kMaxParts];
  for (size_t i = 0; i < parts.size(); ++i)
    iov[i] = {const_cast<char*>(parts[i].data()), parts[i].size()};
  msghdr header{};
  header.msg_iov = iov;
  header.msg_iovlen = parts.size();
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFdsPerMessage * sizeof(int))];
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    *rights = {CMSG_LEN(fds.size() * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
  }
  ssize_t n;
  do n = ::sendmsg(socket_fd, &header, MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  if (n < 0) return SocketError(errno, "sendmsg");
  return OkStatus();
}

Result<Message> ReceiveMessage(int socket_fd, size_t max_bytes, int flags) {
  Message message;
  message.bytes.resize(max_bytes);
  iovec iov{message.bytes.data(), max_bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFdsPerMessage * sizeof(int))];
  msghdr header{};
  header.msg_iov = &iov;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t n;
  do n = ::recvmsg(socket_fd, &header, flags | MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n < 0) return SocketError(errno, "recvmsg");
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      message.fds.emplace_back(fd);
    }
  }
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return Error{.code = Code::kTooLarge, .what = "message or descriptor list was cut"};
  message.bytes.resize(static_cast<size_t>(n));
  return message;
}

}  // namespace hutch

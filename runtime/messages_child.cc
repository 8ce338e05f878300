#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/agent_child.h"

namespace hutch::runtime {
namespace {
constexpr size_t kFdCapacity = 32;
}

long ReceiveWithFds(int socket_fd, char* buffer, size_t capacity, int* fds, size_t fd_capacity,
                    size_t* fd_count) noexcept {
  iovec iov{buffer, capacity};
  alignas(cmsghdr) char control[CMSG_SPACE(kFdCapacity * sizeof(int))];
  msghdr header{};
  header.msg_iov = &iov;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t n;
  do n = ::recvmsg(socket_fd, &header, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n < 0) return -errno;
  size_t count = 0;
  bool too_many = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t got = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < got; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      if (count < fd_capacity)
        fds[count++] = fd;
      else
        ::close(fd), too_many = true;
    }
  }
  *fd_count = count;
  if (!too_many) return n;
  for (size_t i = 0; i < count; ++i) ::close(fds[i]);
  *fd_count = 0;
  return -EPROTO;
}

long SendWithFds(int socket_fd, const void* bytes, size_t size, const int* fds,
                 size_t fd_count) noexcept {
  iovec iov{const_cast<void*>(bytes), size};
  alignas(cmsghdr) char control[CMSG_SPACE(kFdCapacity * sizeof(int))];
  msghdr header{};
  header.msg_iov = &iov;
  header.msg_iovlen = 1;
  if (fd_count > kFdCapacity) return -EINVAL;
  if (fd_count > 0) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    std::memcpy(CMSG_DATA(rights), fds, fd_count * sizeof(int));
  }
  ssize_t n;
  do n = ::sendmsg(socket_fd, &header, MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  return n < 0 ? -errno : 0;
}

}  // namespace hutch::runtime

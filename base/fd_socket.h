// One message with descriptors over a SOCK_SEQPACKET Unix socket (unix(7), SCM_RIGHTS).
// Parent-side, allocating.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch {

inline constexpr size_t kMaxFdsPerMessage = 32;

struct Message {
  std::string bytes;  // empty and no descriptors: the peer closed
  std::vector<UniqueFd> fds;
};

struct SocketPair {
  UniqueFd a, b;
};
Result<SocketPair> MakeSeqpacketPair();  // AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC

// Sends `parts` as one message. Borrows the descriptors. kUnavailable on EAGAIN, kBadState when the
// peer is gone.
Status SendMessage(int socket_fd, std::span<const std::string_view> parts,
                   std::span<const int> fds);
// Receives one message of at most max_bytes; a truncated message or descriptor list is kTooLarge
// and is dropped whole. Received descriptors are O_CLOEXEC. kUnavailable on EAGAIN.
Result<Message> ReceiveMessage(int socket_fd, size_t max_bytes, int flags = 0);

}  // namespace hutch

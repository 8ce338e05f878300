// What the runtime and the first process of a container say to each other while it is made: short
// notes over a SOCK_SEQPACKET pair. Both ends run this program, the container's own does not yet.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::runtime {

enum class Note : char {
  kGo = 'g',        // to the child: go on. With kMounted's answer: the pid on the host, as text
  kStaged = 's',    // from a helper process: the child's pidfd, which it cloned
  kMounted = 'm',   // namespaces and mounts are there, the root is still the host's
  kTerminal = 't',  // the master of the container's terminal, as a descriptor
  kReady = 'r',     // everything that can fail before the program is executed has been done
  kListener = 'l',  // the number of the seccomp listener's descriptor, as text
  kFailed = 'e',    // an Error, then the end
  kClosed = 'c',    // never sent: the other side closed its end
};

struct ReceivedNote {
  Note note = Note::kClosed;
  std::string text;
  std::vector<UniqueFd> fds;
};

Status SendNote(int socket_fd, Note note, std::string_view text = {},
                const std::vector<int>& fds = {});
// Waits for the next one. A kFailed comes as its Error.
Result<ReceivedNote> ReceiveNote(int socket_fd);
// As ReceiveNote; anything but `wanted` is an error, the end of the peer too.
Result<ReceivedNote> ExpectNote(int socket_fd, Note wanted);
// Code, errno, text and field of the error; cut to what a note holds.
void SendFailure(int socket_fd, const Error& error);

}  // namespace hutch::runtime

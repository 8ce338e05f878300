// The terminal of a container's process: made inside, its master handed out.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::runtime {

struct TerminalPair {
  UniqueFd master, slave;
};

// What a line that the program writes ends with on the other side.
enum class Newlines { kWithReturn, kAsWritten };

struct TerminalRequest {
  uint16_t rows = 0, columns = 0;  // 0: as the kernel makes it
  uid_t owner = 0;                 // of the slave
  Newlines newlines = Newlines::kWithReturn;
};

// In the container, after its root is the root: a pair from its own devpts. The multiplexer is the
// file of a devpts with the right numbers, or it is refused: no link of an image leads elsewhere,
// and the slave is had from the master, by no path at all.
Result<TerminalPair> OpenTerminal(const TerminalRequest& request);

// Binds the slave at /dev/console of the container. Needs CAP_SYS_ADMIN there.
Status BindConsole(int slave_fd);

// The caller gets a new session with this terminal as its own, and as stdin, stdout and stderr.
Status TakeTerminal(int slave_fd);

// Connects to --console-socket, --pidfd-socket or a seccomp agent; `what` is for the error. Before
// anything is made, so that a wrong path leaves nothing.
Result<UniqueFd> ConnectToReceiver(const std::string& path, const char* what);
// One message with a descriptor and a name for it, as runc's receivers want it.
Status SendDescriptor(int socket_fd, int fd, std::string_view name);

}  // namespace hutch::runtime

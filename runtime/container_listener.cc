#include "runtime/container_listener.h"

#include <sys/socket.h>
#include <sys/types.h>

#include "base/fd_socket.h"
#include "base/pidfd.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "runtime/container_sync.h"
#include "runtime/container_terminal.h"

namespace hutch::runtime {
namespace {

// linux.seccomp.listenerPath: a ContainerProcessState with the descriptor beside it.
Status HandOver(int number, pid_t pid, const oci::ContainerConfig& config, const oci::Json& state) {
  ASSIGN_OR_RETURN(const Pidfd process, Pidfd::Open(pid));
  const UniqueFd listener(sys::PidfdGetfd(process.fd(), number));
  if (listener.get() < 0) return SysError(-listener.get(), "take the seccomp listener");
  const oci::LinuxSeccomp& seccomp = *config.linux_.seccomp;
  ASSIGN_OR_RETURN(const UniqueFd receiver,
                   ConnectToReceiver(seccomp.listener_path, "seccomp agent"));
  const std::string text = oci::PrintJson({{"ociVersion", config.oci_version},
                                           {"fds", {"seccompFd"}},
                                           {"pid", pid},
                                           {"metadata", seccomp.listener_metadata},
                                           {"state", state}});
  const std::string_view part = text;
  const int fds[] = {listener.get()};
  return SendMessage(receiver.get(), {&part, 1}, fds);
}

}  // namespace

Status AwaitExecution(int socket_fd, pid_t pid, const oci::ContainerConfig& config,
                      const oci::Json& state) {
  while (true) {
    ASSIGN_OR_RETURN(const ReceivedNote note, ReceiveNote(socket_fd));
    if (note.note == Note::kClosed) return OkStatus();
    if (note.note != Note::kListener || !config.linux_.seccomp)
      return Error{.code = Code::kInternal, .what = "an unexpected note"};
    ASSIGN_OR_RETURN(const uint64_t number, ParseUint(note.text, INT32_MAX));
    RETURN_IF_ERROR(HandOver(static_cast<int>(number), pid, config, state));
    RETURN_IF_ERROR(SendNote(socket_fd, Note::kGo));
  }
}

}  // namespace hutch::runtime

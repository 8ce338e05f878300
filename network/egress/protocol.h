// What hutchd and the egress program say to each other: JSON, one value a message, descriptors
// beside it. hutchd is trusted; the program is not, once it has read a byte from a sandbox.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/fd_socket.h"
#include "network/egress/client.h"
#include "network/egress/limits.h"

namespace hutch::network {

inline constexpr int kControlFd = 3;  // of the program

struct SetCommand {
  std::string sandbox;
  uint64_t number = 0;
  EgressSettings settings;
  std::vector<Listener> listeners;  // empty: those that are there stay
  UniqueFd counters;                // as well
};
struct ForgetCommand {
  std::string sandbox;
};
struct NamesCommand {
  std::string resolv_conf, hosts;  // the host's files as they stand
};
struct Command {
  enum class Kind { kSet, kForget, kNames };
  Kind kind = Kind::kSet;
  SetCommand set;
  ForgetCommand forget;
  NamesCommand names;
  std::optional<Error> error;  // kSet: why its settings cannot be used
};

// The message for a Set: its text, wiped by the caller, and the descriptors in their order.
std::string PrintSet(const std::string& sandbox, uint64_t number, const EgressSettings& settings,
                     const std::vector<Listener>& listeners, int counters_fd);
std::string PrintForget(const std::string& sandbox);
std::string PrintNames(const std::string& resolv_conf, const std::string& hosts);
// Sends `text`, as a sealed file if it is too long for a message. kUnavailable when the other side
// does not keep up, kTooLarge.
Status SendControl(int socket_fd, std::string_view text, std::vector<int> fds);

// In the program. Everything about the sandbox is checked: an error is our bug or a newer hutchd.
Result<Command> ReadCommand(Message message);

// Events. `ready` says that the program is confined and listens to commands.
struct ProgramEvent {
  enum class Kind { kReady, kStale, kEvent };  // kStale: names could not be resolved, look anew
  Kind kind = Kind::kEvent;
  EgressEvent event{};
};
std::string PrintEvent(const ProgramEvent& event);
Result<ProgramEvent> ReadEvent(std::string_view text);

void Wipe(std::string* secret);
void WipeSecrets(EgressSettings* settings);

}  // namespace hutch::network

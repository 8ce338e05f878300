#include "daemon/kept_sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "daemon/listener.h"

namespace hutch::daemon {
namespace {

constexpr int kFirstPassedFd = 3;
constexpr uint64_t kMostPassed = 1 << 20;  // what LISTEN_FDS may claim
constexpr std::string_view kNamePrefix = "hutch-";

Error Invalid(std::string what) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what)};
}

int SocketOption(int fd, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

std::string TakeVariable(const char* name) {
  const char* value = ::getenv(name);
  const std::string text = value == nullptr ? "" : value;
  ::unsetenv(name);
  return text;
}

// A name of the store has no colon (sd_notify(3)) and at most 255 characters.
std::string StoreName(const std::string& address) {
  std::string name(kNamePrefix);
  name += address.substr(0, 200);
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

void RemoveFromStore(const std::string& name) {
  IgnoreError(NotifySystemd("FDSTOREREMOVE=1\nFDNAME=" + name), "the next hutchd does it");
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(separator, from), text.size());
    parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

}  // namespace

Result<std::string> InternetAddress(const struct sockaddr& address) {
  char text[INET6_ADDRSTRLEN];
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const struct sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(v4.sin_port));
  }
  if (address.sa_family != AF_INET6) return Invalid("a socket of an unknown family");
  const auto& v6 = reinterpret_cast<const struct sockaddr_in6&>(address);
  ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  return "[" + std::string(text) + "]:" + std::to_string(ntohs(v6.sin6_port));
}

Result<std::string> ListeningAddress(int fd) {
  if (SocketOption(fd, SO_TYPE) != SOCK_STREAM || SocketOption(fd, SO_ACCEPTCONN) != 1)
    return Invalid("no listening stream socket");
  struct sockaddr_storage storage {};
  socklen_t size = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<struct sockaddr*>(&storage), &size) != 0)
    return SysError(errno, "getsockname");
  if (storage.ss_family != AF_UNIX)
    return InternetAddress(reinterpret_cast<const struct sockaddr&>(storage));
  const auto* local = reinterpret_cast<const struct sockaddr_un*>(&storage);
  const size_t length = size - std::min<size_t>(size, offsetof(struct sockaddr_un, sun_path));
  if (length > 0 && local->sun_path[0] == '\0')
    return "@" + std::string(local->sun_path + 1, length - 1);
  return std::string(local->sun_path, ::strnlen(local->sun_path, length));
}

Status KeptSockets::TakePassed() {
  const std::string pid = TakeVariable("LISTEN_PID"), count = TakeVariable("LISTEN_FDS");
  const std::vector<std::string> names = Split(TakeVariable("LISTEN_FDNAMES"), ':');
  if (pid != std::to_string(::getpid()) || count.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const uint64_t passed, ParseUint(count, kMostPassed));
  std::vector<UniqueFd> fds;
  for (uint64_t i = 0; i < passed; ++i) fds.emplace_back(kFirstPassedFd + static_cast<int>(i));
  for (size_t i = 0; i < fds.size(); ++i) {
    const bool stored = i < names.size() && names[i].starts_with(kNamePrefix);
    const Result<std::string> address = ListeningAddress(fds[i].get());
    const bool local = SocketOption(fds[i].get(), SO_DOMAIN) == AF_UNIX;
    if (!address.has_value() || (!stored && !local)) {
      if (!stored) return Invalid("a passed descriptor is no listening Unix stream socket");
      Log(LogLevel::kWarning, "a descriptor of systemd's store is of no use", {{"name", names[i]}});
      RemoveFromStore(names[i]);
      continue;
    }
    if (stored) stored_[*address] = names[i];
    if (!stored && activated_) return Invalid("systemd passed two Unix sockets, one is needed");
    if (::fcntl(fds[i].get(), F_SETFD, FD_CLOEXEC) != 0 ||
        ::fcntl(fds[i].get(), F_SETFL, O_NONBLOCK) != 0)
      return SysError(errno, "fcntl of a passed socket");
    if (stored)
      found_[*address] = std::move(fds[i]);
    else
      activated_ = std::move(fds[i]);
  }
  return OkStatus();
}

Status KeptSockets::Add(UniqueFd fd) {
  ASSIGN_OR_RETURN(const std::string address, ListeningAddress(fd.get()));
  found_[address] = std::move(fd);
  return OkStatus();
}

UniqueFd KeptSockets::Take(const std::string& address) {
  auto node = found_.extract(address);
  return node.empty() ? UniqueFd() : std::move(node.mapped());
}

void KeptSockets::CloseRest() {
  for (const auto& [address, fd] : std::exchange(found_, {})) {
    Log(LogLevel::kInfo, "a listening socket that was kept is of no use any more",
        {{"address", address}});
    Drop(address);
  }
}

void KeptSockets::Keep(int fd, Store store) {
  Result<std::string> address = ListeningAddress(fd);
  Result<UniqueFd> copy = Duplicate(fd);
  if (!address.has_value() || !copy.has_value()) return;
  kept_[*address] = std::move(*copy);
  if (store == Store::kSystemds || ::getenv("NOTIFY_SOCKET") == nullptr) return;
  if (!stored_.emplace(*address, StoreName(*address)).second) return;
  IgnoreError(NotifySystemd("FDSTORE=1\nFDNAME=" + StoreName(*address), fd),
              "the next hutchd binds anew");
}

void KeptSockets::Drop(const std::string& address) {
  kept_.erase(address);
  const auto node = stored_.extract(address);
  if (!node.empty()) RemoveFromStore(node.mapped());
}

std::vector<int> KeptSockets::kept() const {
  std::vector<int> fds;
  for (const auto& [address, fd] : kept_) fds.push_back(fd.get());
  return fds;
}

}  // namespace hutch::daemon

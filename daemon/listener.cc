#include "daemon/listener.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <span>

#include "base/fd_socket.h"
#include "base/file.h"
#include "base/text.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83  // Linux 6.16
#endif

namespace hutch::daemon {
namespace {

constexpr int kBacklog = 1024;

Error Invalid(std::string what) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what)};
}

// A leading "@" stands for the abstract name space, as systemd writes it.
Result<socklen_t> FillAddress(const std::string& path, struct sockaddr_un* address) {
  if (path.empty() || path.size() >= sizeof address->sun_path)
    return Invalid("socket path of " + std::to_string(path.size()) + " bytes: " + path);
  std::memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path, path.data(), path.size());
  if (path[0] == '@') address->sun_path[0] = '\0';
  return static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + path.size() +
                                (path[0] == '@' ? 0 : 1));
}

std::string Environment(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

// Removes a socket file; anything else in its place is somebody's and stays.
Status RemoveStaleSocket(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0)
    return errno == ENOENT ? OkStatus() : Status(SysError(errno, "stat " + path));
  if (!S_ISSOCK(st.st_mode)) return Invalid(path + " exists and is no socket");
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return SysError(errno, "remove " + path);
  return OkStatus();
}

// Ours, but to be passed through by those who may use the socket; the umask would forbid that. An
// existing one is left as it is.
Status MakeSharedDirectory(const std::string& path) {
  if (PathExists(path)) return OkStatus();
  RETURN_IF_ERROR(MakeDirectories(path, 0755));
  if (::chmod(path.c_str(), 0755) != 0) return SysError(errno, "chmod " + path);
  return OkStatus();
}

}  // namespace

Result<UniqueFd> LockRunDirectory(const std::string& run_dir) {
  RETURN_IF_ERROR(MakeSharedDirectory(run_dir));
  const std::string path = run_dir + "/hutchd.lock";
  ASSIGN_OR_RETURN(UniqueFd lock, Open(path, O_RDWR | O_CREAT, 0600));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return SysError(errno, "lock " + path);
  return Error{.code = Code::kExists,
               .what = "another hutchd uses " + run_dir,
               .hint = "stop it, or give --run-dir"};
}

Result<UniqueFd> BindSocket(const std::string& path, const std::string& group) {
  struct sockaddr_un address {};
  ASSIGN_OR_RETURN(const socklen_t size, FillAddress(path, &address));
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos && slash > 0)
    RETURN_IF_ERROR(MakeSharedDirectory(path.substr(0, slash)));
  RETURN_IF_ERROR(RemoveStaleSocket(path));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return SysError(errno, "make a socket");
  // The umask of 077 stands: nobody else can connect before mode and group are what they shall be.
  if (::bind(socket.get(), reinterpret_cast<const struct sockaddr*>(&address), size) != 0)
    return SysError(errno, "bind " + path);
  const struct group* entry = group.empty() ? nullptr : ::getgrnam(group.c_str());
  if (entry != nullptr && ::chown(path.c_str(), static_cast<uid_t>(-1), entry->gr_gid) != 0)
    return SysError(errno, "chown " + path + " to group " + group);
  if (::chmod(path.c_str(), 0660) != 0) return SysError(errno, "chmod " + path);
  if (::listen(socket.get(), kBacklog) != 0) return SysError(errno, "listen on " + path);
  return socket;
}

Status RefuseDescriptors(int socket_fd) {
  const int off = 0;
  if (::setsockopt(socket_fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off) == 0) return OkStatus();
  Error error = SysError(errno, "setsockopt SO_PASSRIGHTS");
  if (error.sys == ENOPROTOOPT) error.code = Code::kUnsupported;
  return error;
}

Status NotifySystemd(std::string_view state, int fd) {
  const std::string path = Environment("NOTIFY_SOCKET");
  if (path.empty()) return OkStatus();
  struct sockaddr_un address {};
  ASSIGN_OR_RETURN(const socklen_t size, FillAddress(path, &address));
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return SysError(errno, "make a socket");
  if (::connect(socket.get(), reinterpret_cast<const struct sockaddr*>(&address), size) != 0)
    return SysError(errno, "notify " + path);
  Status sent = SendMessage(socket.get(), {&state, 1}, std::span(&fd, fd >= 0 ? 1 : 0));
  if (sent.has_value()) return sent;
  Error error = std::move(sent).error();
  error.what = "notify " + path + ": " + error.what;
  return error;
}

}  // namespace hutch::daemon

#include "runtime/container_terminal.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <termios.h>

#include <cstring>

#include "base/fd_socket.h"
#include "base/file.h"
#include "base/rooted_path.h"
#include "base/sys_raw.h"

#ifndef TIOCGPTPEER
#define TIOCGPTPEER 0x5441  // _IO('T', 0x41), Linux 4.13
#endif

namespace hutch::runtime {
namespace {

constexpr unsigned kTtyMajor = 5;
constexpr unsigned kPtmxMinor = 2;

Result<UniqueFd> OpenMultiplexer() {
  ASSIGN_OR_RETURN(const UniqueFd root, Open("/", O_PATH | O_DIRECTORY));
  Result<UniqueFd> found = Error{.code = Code::kNotFound, .what = "no devpts in the container"};
  for (const char* path : {"dev/pts/ptmx", "dev/ptmx"}) {
    ASSIGN_OR_RETURN(const RootedPath place, RootedPath::Make(root.get(), path));
    found = place.Open(O_PATH);
    if (!found) continue;
    struct stat st;
    struct statfs fs;
    if (::fstat(found->get(), &st) != 0 || ::fstatfs(found->get(), &fs) != 0)
      return SysError(errno, "/dev/ptmx");
    const bool right = S_ISCHR(st.st_mode) && major(st.st_rdev) == kTtyMajor &&
                       minor(st.st_rdev) == kPtmxMinor && fs.f_type == DEVPTS_SUPER_MAGIC;
    if (right) return place.Open(O_RDWR | O_NOCTTY);
    found = Error{.code = Code::kForbidden, .what = "/dev/ptmx is no multiplexer of a devpts"};
  }
  return found;
}

Result<sockaddr_un> AddressOf(const std::string& path, UniqueFd* directory) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string shown = path;
  if (path.size() >= sizeof address.sun_path) {  // by its directory's descriptor
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos)
      return Error{.code = Code::kInvalidArgument, .what = "the socket's path is too long"};
    ASSIGN_OR_RETURN(*directory, Open(path.substr(0, slash + 1), O_PATH | O_DIRECTORY));
    shown = "/proc/self/fd/" + std::to_string(directory->get()) + path.substr(slash);
    if (shown.size() >= sizeof address.sun_path)
      return Error{.code = Code::kInvalidArgument, .what = "the socket's name is too long"};
  }
  std::memcpy(address.sun_path, shown.data(), shown.size());
  return address;
}

}  // namespace

Result<TerminalPair> OpenTerminal(const TerminalRequest& request) {
  TerminalPair pair;
  ASSIGN_OR_RETURN(pair.master, OpenMultiplexer());
  int locked = 0;
  if (::ioctl(pair.master.get(), TIOCSPTLCK, &locked) != 0)
    return SysError(errno, "unlock the pty");
  pair.slave.reset(::ioctl(pair.master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!pair.slave.valid()) return SysError(errno, "open the pty's other side");
  if (request.rows != 0 || request.columns != 0) {
    const winsize size{request.rows, request.columns, 0, 0};
    if (::ioctl(pair.master.get(), TIOCSWINSZ, &size) != 0) return SysError(errno, "console size");
  }
  if (request.newlines == Newlines::kAsWritten) {
    termios mode;
    if (::tcgetattr(pair.slave.get(), &mode) != 0) return SysError(errno, "tcgetattr");
    mode.c_oflag &= ~static_cast<tcflag_t>(ONLCR);
    if (::tcsetattr(pair.slave.get(), TCSANOW, &mode) != 0) return SysError(errno, "tcsetattr");
  }
  if (::fchown(pair.slave.get(), request.owner, static_cast<gid_t>(-1)) != 0 && errno != EPERM &&
      errno != EINVAL && errno != EROFS)
    return SysError(errno, "chown the terminal");
  return pair;
}

Status BindConsole(int slave_fd) {
  ASSIGN_OR_RETURN(const UniqueFd root, Open("/", O_PATH | O_DIRECTORY));
  ASSIGN_OR_RETURN(const RootedPath place,
                   RootedPath::Make(root.get(), "dev/console", Links::kNone));
  if (Result<UniqueFd> made = place.CreateFile(0600); !made && made.error().sys != EEXIST)
    return std::move(made).error();
  ASSIGN_OR_RETURN(const UniqueFd target, place.Open(O_PATH | O_NOFOLLOW));
  const UniqueFd tree(sys::OpenTree(slave_fd, "", OPEN_TREE_CLONE | AT_EMPTY_PATH));
  if (tree.get() < 0) return SysError(-tree.get(), "clone the terminal's mount");
  const int rc = sys::MoveMount(tree.get(), "", target.get(), "",
                                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
  return rc < 0 ? Status(SysError(-rc, "bind /dev/console")) : OkStatus();
}

Status TakeTerminal(int slave_fd) {
  if (::setsid() < 0 && errno != EPERM) return SysError(errno, "setsid");
  if (::ioctl(slave_fd, TIOCSCTTY, 0) != 0) return SysError(errno, "take the terminal");
  for (int fd = 0; fd < 3; ++fd)
    if (::dup3(slave_fd, fd, 0) < 0 && errno != EINVAL) return SysError(errno, "dup3");
  return OkStatus();
}

Result<UniqueFd> ConnectToReceiver(const std::string& path, const char* what) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SysError(errno, "socket");
  UniqueFd directory;
  ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path, &directory));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return SysError(errno, "failed to connect with " + std::string(what) + " " + path);
  return fd;
}

Status SendDescriptor(int socket_fd, int fd, std::string_view name) {
  const int fds[] = {fd};
  return SendMessage(socket_fd, {&name, 1}, fds);
}

}  // namespace hutch::runtime

#include "tools/endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>

#include "base/file.h"
#include "base/text.h"

namespace hutch::tools {
namespace {

constexpr const char* kStartHint =
    "start it with `systemctl start hutchd`, or `sudo hutchd` without systemd; "
    "--socket or HUTCH_SOCKET names another socket";
constexpr const char* kGroupHint =
    "add yourself to group hutch with `sudo usermod -aG hutch $USER`, then log in again";
constexpr const char* kTcpHint =
    "tcp.listen in its configuration makes it listen there; is a tunnel open?";
constexpr size_t kMaxTokenBytes = 1024;
constexpr std::string_view kScheme = "http://";
constexpr uint32_t kLoopbackNet = 127, kLoopbackShift = 24;

Error Invalid(std::string what, std::string hint = "") {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .hint = std::move(hint)};
}

Error ConnectError(int sys, const Endpoint& endpoint) {
  if (sys == EACCES || sys == EPERM)
    return Error{.code = Code::kForbidden,
                 .sys = sys,
                 .what = "you may not use the socket " + endpoint.name,
                 .hint = kGroupHint};
  if (sys != ENOENT && sys != ECONNREFUSED) return SysError(sys, "connect to " + endpoint.name);
  const bool tcp = endpoint.socket.empty();
  return Error{
      .code = Code::kUnavailable,
      .sys = sys,
      .what = (tcp ? "no daemon answers at " : "no daemon answers on the socket ") + endpoint.name,
      .hint = tcp ? kTcpHint : kStartHint};
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Status CheckToken(const std::string& token, const std::string& from) {
  for (const char c : token)
    if (c <= ' ' || c > '~') return Invalid(from + " holds more than a token");
  return token.empty() ? Status(Invalid(from + " holds no token")) : OkStatus();
}

Result<std::string> ReadToken(const std::string& path) {
  ASSIGN_OR_RETURN(const UniqueFd file, Open(path, O_RDONLY | O_NONBLOCK));
  struct stat st = {};
  if (::fstat(file.get(), &st) != 0) return SysError(errno, "stat " + path);
  if (S_ISREG(st.st_mode) && (st.st_mode & 077) != 0)
    return Error{.code = Code::kForbidden,
                 .what = path + " may be read by others",
                 .hint = "chmod 600 " + path};
  ASSIGN_OR_RETURN(const std::string text, ReadAll(file.get(), kMaxTokenBytes));
  std::string token(Trim(text));
  RETURN_IF_ERROR(CheckToken(token, path));
  return token;
}

Result<std::string> FindToken(const Options& options) {
  if (!options.token_file.empty()) return ReadToken(options.token_file);
  if (const std::string token = Environment("HUTCH_TOKEN"); !token.empty()) {
    RETURN_IF_ERROR(CheckToken(token, "HUTCH_TOKEN"));
    return token;
  }
  const std::string path = Environment("HUTCH_TOKEN_FILE");
  if (!path.empty()) return ReadToken(path);
  return Invalid(
      "TCP needs a token",
      "--token-file FILE, HUTCH_TOKEN_FILE or HUTCH_TOKEN; hutchd --new-token makes one");
}

bool IsLoopback(const std::string& address) {
  in_addr v4 = {};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1)
    return ntohl(v4.s_addr) >> kLoopbackShift == kLoopbackNet;
  in6_addr v6 = {};
  return ::inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

// "http://127.0.0.1:7788", "http://[::1]:7788/", "http://localhost:7788".
Result<Endpoint> ParseUrl(const std::string& url) {
  const Error wrong = Invalid("\"" + url + "\" must be http://127.0.0.1:PORT",
                              "elsewhere only through a tunnel: ssh -L 7788:127.0.0.1:7788 HOST");
  if (!url.starts_with(kScheme)) return wrong;
  std::string authority = url.substr(kScheme.size());
  if (authority.ends_with('/')) authority.pop_back();
  const size_t colon = authority.rfind(':');
  if (colon == std::string::npos) return wrong;
  const Result<uint64_t> port = ParseUint(authority.substr(colon + 1), UINT16_MAX);
  if (!port.has_value() || *port == 0) return wrong;
  std::string host = authority.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (!IsLoopback(host)) return wrong;
  Endpoint endpoint("");
  endpoint.name = url;
  endpoint.authority = authority;
  endpoint.address = host;
  endpoint.port = static_cast<uint16_t>(*port);
  return endpoint;
}

Result<UniqueFd> ConnectUnix(const Endpoint& endpoint) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string& path = endpoint.socket;
  if (path.size() >= sizeof address.sun_path)
    return Invalid("the socket's path \"" + path + "\" must have 1 to 107 bytes");
  std::memcpy(address.sun_path, path.c_str(), path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SysError(errno, "socket");
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return ConnectError(errno, endpoint);
  return fd;
}

Result<UniqueFd> ConnectTcp(const Endpoint& endpoint) {
  sockaddr_in v4 = {};
  sockaddr_in6 v6 = {};
  const bool is_v4 = ::inet_pton(AF_INET, endpoint.address.c_str(), &v4.sin_addr) == 1;
  if (!is_v4 && ::inet_pton(AF_INET6, endpoint.address.c_str(), &v6.sin6_addr) != 1)
    return Invalid("no address: " + endpoint.address);
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  v4.sin_port = v6.sin6_port = htons(endpoint.port);
  const auto* address =
      is_v4 ? reinterpret_cast<const sockaddr*>(&v4) : reinterpret_cast<const sockaddr*>(&v6);
  UniqueFd fd(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SysError(errno, "socket");
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // slower without, no more
  if (::connect(fd.get(), address, is_v4 ? sizeof v4 : sizeof v6) != 0)
    return ConnectError(errno, endpoint);
  return fd;
}

}  // namespace

void FillEndpoint(Options* options) {
  if (!options->socket.empty()) return;
  if (options->host.empty()) options->host = Environment("HUTCH_HOST");
  options->socket = Environment("HUTCH_SOCKET");
  if (options->socket.empty()) options->socket = kDefaultSocket;
}

std::string Endpoint::HeadLines() const {
  std::string lines = "Host: " + authority + "\r\n";
  if (!token.empty()) lines += "Authorization: Bearer " + token + "\r\n";
  return lines;
}

Result<Endpoint> EndpointOf(const Options& options) {
  if (options.host.empty()) return Endpoint(options.socket);
  ASSIGN_OR_RETURN(Endpoint endpoint, ParseUrl(options.host));
  ASSIGN_OR_RETURN(endpoint.token, FindToken(options));
  return endpoint;
}

Result<UniqueFd> ConnectToDaemon(const Endpoint& endpoint) {
  if (!endpoint.address.empty()) return ConnectTcp(endpoint);
  if (endpoint.socket.empty()) return Invalid("the socket's path \"\" must have 1 to 107 bytes");
  return ConnectUnix(endpoint);
}

}  // namespace hutch::tools

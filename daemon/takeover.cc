#include "daemon/takeover.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "base/fault_point.h"
#include "base/fd_socket.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/listener.h"
#include "oci/json.h"

namespace hutch::daemon {
namespace {

constexpr char kSocketName[] = "/takeover.sock";
constexpr char kAsk[] = "hutchd takeover 1";  // a successor of another version says another number
constexpr char kGo[] = "go";
constexpr size_t kMaxTextBytes = 16 * 1024;
constexpr int kAnswerMs = 10'000;
constexpr int kLockAttempts = 500;  // of 20 ms: between its last word and the end of its process
constexpr auto kLockPause = std::chrono::milliseconds(20);
// What systemd told the running hutchd, and its successor needs.
constexpr const char* kVariables[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC"};

// The path goes through the directory's descriptor: sun_path holds 108 bytes.
struct ControlAddress {
  UniqueFd directory;
  struct sockaddr_un address {};
  const struct sockaddr* get() const { return reinterpret_cast<const struct sockaddr*>(&address); }
};

Result<ControlAddress> AddressIn(const std::string& run_dir) {
  ControlAddress control;
  ASSIGN_OR_RETURN(control.directory, Open(run_dir, O_RDONLY | O_DIRECTORY));
  control.address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(control.directory.get()) + kSocketName;
  std::memcpy(control.address.sun_path, path.data(), path.size());
  return control;
}

Status SendText(int fd, const std::string& text, std::span<const int> fds = {}) {
  const std::string_view bytes(text);
  return SendMessage(fd, {&bytes, 1}, fds);
}

// One process that is this user, which is root.
bool IsOurs(int socket, pid_t* pid) {
  struct ucred peer {};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  *pid = peer.pid;
  return peer.uid == ::geteuid();
}

Result<Message> ReceiveInTime(int fd) {
  struct pollfd poll {
    .fd = fd, .events = POLLIN, .revents = 0
  };
  int ready;
  do ready = ::poll(&poll, 1, kAnswerMs);
  while (ready < 0 && errno == EINTR);
  if (ready > 0) return ReceiveMessage(fd, kMaxTextBytes);
  return Error{.code = Code::kUnavailable, .what = "the running hutchd does not answer"};
}

}  // namespace

StringPairs SystemdVariables() {
  StringPairs variables;
  for (const char* name : kVariables)
    if (const char* value = ::getenv(name)) variables.emplace_back(name, value);
  return variables;
}

// --- the one that runs

TakeoverServer::TakeoverServer(const std::string& run_dir, Parts parts)
    : path_(run_dir), parts_(std::move(parts)) {}

TakeoverServer::~TakeoverServer() {
  if (listener_.valid()) ::unlink((path_ + kSocketName).c_str());
}

Status TakeoverServer::Start() {
  ASSIGN_OR_RETURN(const ControlAddress control, AddressIn(path_));
  const std::string path = path_ + kSocketName;
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return SysError(errno, "remove " + path);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return SysError(errno, "make a socket");
  if (::bind(socket.get(), control.get(), sizeof control.address) != 0)
    return SysError(errno, "bind " + path);
  if (::chmod(path.c_str(), 0600) != 0) return SysError(errno, "chmod " + path);
  if (::listen(socket.get(), 1) != 0) return SysError(errno, "listen on " + path);
  listener_ = std::move(socket);
  listener_watch_ = parts_.loop.Add(listener_.get(), [this](Ready) { Accept(); });
  listener_watch_.Arm(Ready::kReadable);
  return OkStatus();
}

// One at a time; a second one waits, or gives up.
void TakeoverServer::Accept() {
  UniqueFd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  pid_t pid = 0;
  if (!peer.valid() || !IsOurs(peer.get(), &pid)) return listener_watch_.Arm(Ready::kReadable);
  successor_ = std::move(peer);
  successor_watch_ = parts_.loop.Add(successor_.get(), [this](Ready) { OnMessage(); });
  successor_watch_.Arm(Ready::kReadable);
}

void TakeoverServer::HangUp() {
  successor_watch_.Reset();
  successor_.reset();
  if (std::exchange(leaving_, false)) parts_.stay();
  listener_watch_.Arm(Ready::kReadable);
}

void TakeoverServer::OnMessage() {
  Result<Message> message = ReceiveMessage(successor_.get(), kMaxTextBytes);
  if (!message.has_value() && message.error().code == Code::kUnavailable)
    return successor_watch_.Arm(Ready::kReadable);
  if (!message.has_value() || (message->bytes != kAsk && message->bytes != kGo)) return HangUp();
  if (message->bytes == kAsk) {
    if (const Status handed = HandOver(); !handed.has_value()) {
      Log(LogLevel::kError, "cannot hand the sockets over", {{"error", handed.error().ToString()}});
      return HangUp();
    }
    FaultPoint("listeners handed over");
  } else if (!std::exchange(leaving_, true)) {
    pid_t pid = 0;
    if (!IsOurs(successor_.get(), &pid)) return HangUp();
    Log(LogLevel::kInfo, "a successor takes over", {{"pid", std::to_string(pid)}});
    parts_.leave();
    // Only this one is believed by systemd so far.
    IgnoreError(NotifySystemd("MAINPID=" + std::to_string(pid)), "without systemd there is none");
  }
  successor_watch_.Arm(Ready::kReadable);
}

// First what is to be known, then the sockets, as many in a message as go.
Status TakeoverServer::HandOver() {
  const std::vector<int> fds = parts_.kept.kept();
  oci::Json facts = {{"sockets", fds.size()}, {"socket_passed", parts_.socket_passed}};
  for (const auto& [name, value] : parts_.environment) facts["environment"][name] = value;
  RETURN_IF_ERROR(SendText(successor_.get(), oci::PrintJson(facts)));
  for (size_t at = 0; at < fds.size(); at += kMaxFdsPerMessage) {
    const size_t count = std::min(kMaxFdsPerMessage, fds.size() - at);
    RETURN_IF_ERROR(SendText(successor_.get(), "sockets", std::span(fds).subspan(at, count)));
  }
  return OkStatus();
}

// --- the one that comes

Result<Takeover> Takeover::Begin(const std::string& run_dir) {
  const Error nobody{.code = Code::kNotFound,
                     .what = "no hutchd runs in " + run_dir,
                     .hint = "start it without --takeover"};
  if (!PathExists(run_dir)) return nobody;
  ASSIGN_OR_RETURN(const ControlAddress control, AddressIn(run_dir));
  Takeover takeover;
  takeover.connection_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const int fd = takeover.connection_.get();
  if (fd < 0) return SysError(errno, "make a socket");
  if (::connect(fd, control.get(), sizeof control.address) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) return nobody;
    return SysError(errno, "connect to " + run_dir + kSocketName);
  }
  RETURN_IF_ERROR(SendText(fd, kAsk));
  ASSIGN_OR_RETURN(const Message answer, ReceiveInTime(fd));
  if (answer.bytes.empty())
    return Error{.code = Code::kUnavailable, .what = "the running hutchd refuses to hand over"};
  ASSIGN_OR_RETURN(const oci::Json facts,
                   oci::ParseJson(answer.bytes, {.max_bytes = kMaxTextBytes, .max_depth = 4}));
  uint64_t sockets = 0;
  oci::ObjectReader reader(facts, "");
  reader.Uint("sockets", &sockets).Bool("socket_passed", &takeover.socket_passed_);
  const oci::Json* environment = reader.Member("environment");
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kIgnore));
  for (const char* name : kVariables)
    if (environment != nullptr && environment->contains(name) && (*environment)[name].is_string())
      ::setenv(name, (*environment)[name].get<std::string>().c_str(), 1);
  while (sockets > 0) {
    ASSIGN_OR_RETURN(Message message, ReceiveInTime(fd));
    if (message.fds.empty() || message.fds.size() > sockets)
      return Error{.code = Code::kUnavailable, .what = "the running hutchd hung up"};
    sockets -= message.fds.size();
    for (UniqueFd& one : message.fds) RETURN_IF_ERROR(takeover.sockets_.Add(std::move(one)));
  }
  return takeover;
}

// It says nothing more: the end of its process is the end of the connection.
Status Takeover::Finish() {
  RETURN_IF_ERROR(SendText(connection_.get(), kGo));
  while (true) {
    struct pollfd poll {
      .fd = connection_.get(), .events = POLLIN, .revents = 0
    };
    if (::poll(&poll, 1, -1) < 0) {
      if (errno == EINTR) continue;
      return SysError(errno, "poll");
    }
    Result<Message> message = ReceiveMessage(connection_.get(), kMaxTextBytes);
    if (message.has_value() && !message->bytes.empty()) continue;
    connection_.reset();
    FaultPoint("predecessor gone");
    return OkStatus();
  }
}

Result<Place> TakePlace(const std::string& run_dir, const std::string& socket, Arrival arrival) {
  Place place;
  if (arrival == Arrival::kFirst) {
    RETURN_IF_ERROR(place.sockets.TakePassed());
    ASSIGN_OR_RETURN(place.lock, LockRunDirectory(run_dir));
    return place;
  }
  KeptSockets of_no_use;  // whoever started this one may have passed something
  RETURN_IF_ERROR(of_no_use.TakePassed());
  ASSIGN_OR_RETURN(Takeover takeover, Takeover::Begin(run_dir));
  if (!takeover.sockets().Has(socket))
    return Error{.code = Code::kInvalidArgument,
                 .what = "the running hutchd does not listen on " + socket,
                 .hint = "a takeover cannot move the socket: restart instead"};
  RETURN_IF_ERROR(takeover.Finish());
  place.sockets = std::move(takeover.sockets());
  place.socket_passed = takeover.socket_passed();
  Result<UniqueFd> lock = LockRunDirectory(run_dir);
  for (int i = 0; i < kLockAttempts && !lock.has_value(); ++i) {
    if (lock.error().code != Code::kExists) break;
    std::this_thread::sleep_for(kLockPause);
    lock = LockRunDirectory(run_dir);
  }
  if (!lock.has_value()) return lock.error();
  place.lock = std::move(*lock);
  return place;
}

}  // namespace hutch::daemon

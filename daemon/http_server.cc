#include "daemon/http_server.h"

#include <sys/socket.h>

#include "base/log.h"
#include "daemon/http_session.h"

namespace hutch::daemon {
namespace {

constexpr int kAcceptsPerTurn = 16;
constexpr Milliseconds kAcceptPause{100};
constexpr size_t kScratchBytes = 64 * 1024;

Peer PeerOf(int socket) {
  struct ucred credentials {};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return Peer{};
  return Peer{.pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid};
}

}  // namespace

HttpServer::HttpServer(Loop& loop, UniqueFd listen_fd, Options options, Dispatch dispatch,
                       BodyLookup lookup)
    : loop_(loop),
      listen_fd_(std::move(listen_fd)),
      options_(options),
      dispatch_(std::move(dispatch)),
      lookup_(std::move(lookup)),
      scratch_(kScratchBytes, '\0') {}

HttpServer::~HttpServer() { CloseAll(); }

void HttpServer::Start() {
  watch_ = loop_.Add(listen_fd_.get(), [this](Ready) { AcceptSome(); });
  watch_.Arm(Ready::kReadable);
}

void HttpServer::StopAccepting(Backlog backlog) {
  stopping_ = true;
  accept_again_.Cancel();
  watch_.Reset();
  if (backlog == Backlog::kRefused) listen_fd_.reset();
  const auto sessions = sessions_;
  for (const auto& session : sessions) session->CloseWhenIdle();
}

void HttpServer::AcceptAgain() {
  stopping_ = false;
  Start();
}

void HttpServer::CloseAll() {
  const auto sessions = std::move(sessions_);
  sessions_.clear();
  for (const auto& session : sessions) session->Close();
}

void HttpServer::AcceptSome() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    UniqueFd socket(::accept4(listen_fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid()) {
      Admit(std::move(socket));
      continue;
    }
    if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) break;
    // Out of descriptors or memory: the connection stays in the backlog; look again when something
    // may have been freed.
    Log(LogLevel::kWarning, "cannot accept a connection", {{"error", ErrnoName(errno)}});
    accept_again_.Start(loop_, kAcceptPause, [this] { AcceptSome(); });
    return;
  }
  watch_.Arm(Ready::kReadable);
}

void HttpServer::Admit(UniqueFd socket) {
  const Peer peer = options_.transport == Transport::kUnix ? PeerOf(socket.get()) : Peer{};
  const bool full = sessions_.size() >= options_.max_connections;
  auto session = std::make_shared<HttpSession>(*this, std::move(socket), peer);
  sessions_.insert(session);
  session->Start();
  if (!full) return;
  session->CloseWithError(Error{.code = Code::kUnavailable, .what = "too many connections"});
}

}  // namespace hutch::daemon

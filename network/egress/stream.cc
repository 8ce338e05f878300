#include "network/egress/stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace hutch::network {
namespace {

constexpr char kAuthorities[] = "/etc/ssl/certs/ca-certificates.crt";

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
SocketAddress ToSockaddr(const Address& address, uint16_t port) {
  SocketAddress result;
  if (address.is_v4()) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&result.storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    std::copy_n(&address.bytes[12], 4, reinterpret_cast<uint8_t*>(&v4->sin_addr));
    result.size = sizeof *v4;
  } else {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    std::copy_n(address.bytes.data(), 16, reinterpret_cast<uint8_t*>(&v6->sin6_addr));
    result.size = sizeof *v6;
  }
  return result;
}

bool CanBind(const Address& address) {
  const UniqueFd fd(::socket(address.is_v4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const SocketAddress to = ToSockaddr(address, 0);
  return fd.valid() && ::bind(fd.get(), to.get(), to.size) == 0;
}

bool IsCalledFrom(const Address& address) {
  const UniqueFd fd(::socket(address.is_v4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const SocketAddress to = ToSockaddr(address, 9);
  if (!fd.valid() || ::connect(fd.get(), to.get(), to.size) != 0) return false;
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&from), &size) != 0) return false;
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&from);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&from);
  return address.is_v4() ? std::memcmp(&v4->sin_addr, &address.bytes[12], 4) == 0
                         : std::memcmp(&v6->sin6_addr, address.bytes.data(), 16) == 0;
}

std::string TlsReason(ssl_st* tls) {
  if (const long verify = ::SSL_get_verify_result(tls); verify != X509_V_OK)
    return std::string("its certificate is not valid: ") + ::X509_verify_cert_error_string(verify);
  const unsigned long code = ::ERR_peek_last_error();
  const char* reason = ::ERR_reason_error_string(code);
  return std::string("TLS: ") + (reason != nullptr ? reason : "the server closed the connection");
}

}  // namespace

TlsClient::TlsClient() {
  context_ = ::SSL_CTX_new(::TLS_client_method());
  CHECK(context_ != nullptr);
  ::SSL_CTX_set_min_proto_version(context_, TLS1_2_VERSION);
  ::SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
  ::SSL_CTX_set_mode(context_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                   SSL_MODE_RELEASE_BUFFERS);
  if (::SSL_CTX_load_verify_file(context_, kAuthorities) == 1) return;
  ::SSL_CTX_free(context_);
  context_ = nullptr;
}

TlsClient::~TlsClient() { ::SSL_CTX_free(context_); }

Stream::Stream(Loop& loop, UniqueFd fd, std::function<void()> on_ready)
    : fd_(std::move(fd)), on_ready_(std::move(on_ready)) {
  watch_ = loop.Add(fd_.get(), [this](Ready ready) {
    ready_[static_cast<size_t>(ready)] = true;
    on_ready_();
  });
}

Stream::~Stream() { ::SSL_free(tls_); }

ssize_t Stream::Later(Ready ready) {
  ready_[static_cast<size_t>(ready)] = false;
  watch_.Arm(ready);
  return -EAGAIN;
}

ssize_t Stream::TlsResult(int rc) {
  switch (::SSL_get_error(tls_, rc)) {
    case SSL_ERROR_WANT_READ:
      return Later(Ready::kReadable);
    case SSL_ERROR_WANT_WRITE:
      return Later(Ready::kWritable);
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    default:
      return -EPROTO;
  }
}

ssize_t Stream::Read(char* to, size_t size) {
  if (tls_ != nullptr) {
    ::ERR_clear_error();
    size_t moved = 0;
    const int rc = ::SSL_read_ex(tls_, to, size, &moved);
    return rc == 1 ? static_cast<ssize_t>(moved) : TlsResult(rc);
  }
  if (!ready_[0]) return Later(Ready::kReadable);
  ssize_t n;
  do n = ::recv(fd_.get(), to, size, 0);
  while (n < 0 && errno == EINTR);
  if (n < 0) return errno == EAGAIN ? Later(Ready::kReadable) : -errno;
  // Less than asked for: it is empty now, and waiting says when it is not.
  if (n > 0 && static_cast<size_t>(n) < size) ready_[0] = false;
  return n;
}

ssize_t Stream::Write(const char* from, size_t size) {
  if (tls_ != nullptr) {
    ::ERR_clear_error();
    size_t moved = 0;
    const int rc = ::SSL_write_ex(tls_, from, size, &moved);
    if (rc == 1) return static_cast<ssize_t>(moved);
    const ssize_t result = TlsResult(rc);
    return result == 0 ? -EPIPE : result;
  }
  if (!ready_[1]) return Later(Ready::kWritable);
  ssize_t n;
  do n = ::send(fd_.get(), from, size, MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  if (n >= 0) return n;
  return errno == EAGAIN ? Later(Ready::kWritable) : -errno;
}

void Stream::ShutdownWrite() {
  if (tls_ != nullptr) ::SSL_shutdown(tls_);
  if (::shutdown(fd_.get(), SHUT_WR) != 0) ready_[0] = true;  // gone: reading says so
}

void Stream::ResetOnClose() {
  const linger now{1, 0};
  if (::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now) != 0) ready_[0] = true;
}

bool Stream::IsIdle() const {
  char byte = 0;
  const bool decrypted = tls_ != nullptr && ::SSL_has_pending(tls_) != 0;
  return in.empty() && !decrypted && ::recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         errno == EAGAIN;
}

Status Stream::StartTls(const TlsClient& client, const std::string& host) {
  if (client.context() == nullptr)
    return Error{.code = Code::kUnavailable,
                 .what = "the host has no certificates of authorities (ca-certificates)"};
  tls_ = ::SSL_new(client.context());
  if (tls_ == nullptr || ::SSL_set_fd(tls_, fd_.get()) != 1 ||
      ::SSL_set_tlsext_host_name(tls_, host.c_str()) != 1 ||
      ::SSL_set1_host(tls_, host.c_str()) != 1)
    return Error{.code = Code::kKernel, .what = "TLS cannot be begun"};
  ::SSL_set_hostflags(tls_, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  ::SSL_set_connect_state(tls_);
  return OkStatus();
}

int Stream::Handshake(std::string* why) {
  ::ERR_clear_error();
  const int rc = ::SSL_do_handshake(tls_);
  if (rc == 1) return 0;
  if (TlsResult(rc) == -EAGAIN) return -EAGAIN;
  *why = TlsReason(tls_);
  return -EPROTO;
}

bool IsOwnAddress(const Address& address) {
  if (!CanBind(address)) return false;
  // Where addresses of others can be bound as well (ip_nonlocal_bind, a local range), that says
  // nothing: then it is ours if we would call from it.
  Address other = address;
  other.bytes[15] = static_cast<uint8_t>(other.bytes[15] ^ 0x5a);
  other.bytes[13] = static_cast<uint8_t>(other.bytes[13] ^ 0xa5);
  return !CanBind(other) || WhyClosed(address) != nullptr || IsCalledFrom(address);
}

Connector::Connector(Loop& loop, std::vector<Address> addresses, uint16_t port, Callback callback)
    : loop_(loop),
      addresses_(std::move(addresses)),
      port_(port),
      callback_(std::move(callback)),
      stagger_(loop),
      deadline_(loop) {
  deadline_.Start(kConnectDeadline, [this] { Finish(SysError(ETIMEDOUT, "connect"), {}); });
  stagger_.Start(Milliseconds(0), [this] { Next(); });
}

// Starts the next attempt; those that cannot even begin are passed over.
void Connector::Next() {
  while (next_ < addresses_.size()) {
    auto attempt = std::make_unique<Attempt>();
    attempt->address = addresses_[next_++];
    const int family = attempt->address.is_v4() ? AF_INET : AF_INET6;
    attempt->fd = UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const SocketAddress to = ToSockaddr(attempt->address, port_);
    const int on = 1;
    if (!attempt->fd.valid() ||
        ::setsockopt(attempt->fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        ::setsockopt(attempt->fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) != 0 ||
        (::connect(attempt->fd.get(), to.get(), to.size) != 0 && errno != EINPROGRESS)) {
      last_error_ = errno;
      continue;
    }
    const size_t index = attempts_.size();
    attempts_.push_back(std::move(attempt));
    ++open_;
    attempts_[index]->watch =
        loop_.Add(attempts_[index]->fd.get(), [this, index](Ready) { OnReady(index); });
    attempts_[index]->watch.Arm(Ready::kWritable);
    if (next_ < addresses_.size()) stagger_.Start(kNextAddress, [this] { Next(); });
    return;
  }
  if (open_ == 0) Finish(SysError(last_error_, "connect"), {});
}

void Connector::OnReady(size_t index) {
  Attempt& attempt = *attempts_[index];
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(attempt.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  attempt.watch.Reset();
  if (error == 0) return Finish(std::move(attempt.fd), attempt.address);
  last_error_ = error;
  attempt.fd.reset();
  --open_;
  Next();
}

void Connector::Finish(Result<UniqueFd> result, const Address& address) {
  const Address to = address;
  stagger_.Cancel();
  deadline_.Cancel();
  const Callback callback = std::move(callback_);
  attempts_.clear();
  callback(std::move(result), to);  // may destroy this
}

}  // namespace hutch::network

// hutch-egress: answers DNS, HTTP, CONNECT, SOCKS5 and caught connections of sandboxes, confined.
// Started by hutchd, which it is told by on descriptor 3; not for people.
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <csignal>
#include <cstdio>

#include "base/sys_raw.h"
#include "network/egress/confine.h"
#include "network/egress/server.h"

namespace hutch::network {
namespace {

int Main() {
  int type = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(kControlFd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) {
    std::fputs("hutch-egress is started by hutchd, not by hand.\n", stderr);
    return 2;
  }
  ::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  UniqueFd control(kControlFd);
  if (::fcntl(kControlFd, F_SETFD, FD_CLOEXEC) != 0) return 1;
  // What libraries read from files, before there are none.
  ::OPENSSL_init_ssl(OPENSSL_INIT_LOAD_SSL_STRINGS | OPENSSL_INIT_LOAD_CRYPTO_STRINGS, nullptr);
  const EgressUser user = FindEgressUser();
  auto server = EgressServer::Make(std::move(control));
  if (!server) {
    std::fprintf(stderr, "hutch-egress: %s\n", server.error().ToString().c_str());
    return 1;
  }
  if (const Status confined = ConfineEgress(user); !confined) {
    (*server)->SendFailed(confined.error());
    return 1;
  }
  (*server)->SendReady();
  (*server)->Run();
  return 0;
}

}  // namespace
}  // namespace hutch::network

int main() { return hutch::network::Main(); }

// A connected socket, non-blocking, with TLS on it or without, that says when to try again.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "network/egress/loop.h"
#include "network/policy.h"

struct ssl_ctx_st;
struct ssl_st;

namespace hutch::network {

// What verifies servers that we speak TLS to: the system's authorities, TLS 1.2 or newer.
class TlsClient {
 public:
  TlsClient();  // reads the authorities: before confinement
  ~TlsClient();
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;
  ssl_ctx_st* context() const { return context_; }  // nullptr: there are no authorities

 private:
  ssl_ctx_st* context_ = nullptr;
};

class Stream {
 public:
  // `on_ready`: something that had to wait can be tried again.
  Stream(Loop& loop, UniqueFd fd, std::function<void()> on_ready);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Bytes moved, 0 for the end, -EAGAIN (on_ready will come), or -errno.
  ssize_t Read(char* to, size_t size);
  ssize_t Write(const char* from, size_t size);
  void ShutdownWrite();
  void ResetOnClose();  // the other side gets a reset instead of an end
  bool IsIdle() const;  // open, and nothing has come
  int fd() const { return fd_.get(); }

  // TLS as a client, from now on. Handshake: 0 when done, -EAGAIN, -EPROTO with the reason.
  Status StartTls(const TlsClient& client, const std::string& host);
  int Handshake(std::string* why);

  std::string in;  // read ahead and not used yet

 private:
  ssize_t TlsResult(int rc);
  ssize_t Later(Ready ready);

  UniqueFd fd_;
  std::function<void()> on_ready_;
  ssl_st* tls_ = nullptr;
  bool ready_[2] = {true, true};
  Watch watch_;  // last: gone before the descriptor
};

// An address of this host's, whose services are no part of the outside.
bool IsOwnAddress(const Address& address);

// Connects to the first of the addresses that answers; a slow one is not waited for (RFC 8305).
class Connector {
 public:
  using Callback = std::function<void(Result<UniqueFd>, const Address&)>;
  // One call back, never from within; none once this is gone.
  Connector(Loop& loop, std::vector<Address> addresses, uint16_t port, Callback callback);

 private:
  struct Attempt {
    Address address;
    UniqueFd fd;
    Watch watch;
  };
  void Next();
  void OnReady(size_t index);
  void Finish(Result<UniqueFd> result, const Address& address);

  Loop& loop_;
  std::vector<Address> addresses_;
  uint16_t port_;
  Callback callback_;
  std::vector<std::unique_ptr<Attempt>> attempts_;
  size_t next_ = 0, open_ = 0;
  int last_error_ = 0;
  Timer stagger_, deadline_;
};

}  // namespace hutch::network

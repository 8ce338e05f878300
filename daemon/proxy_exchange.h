// One request and its answer between a client of the API and a port inside, on the relay's thread.
// The client's connection ends with it, so that nothing of an answer can be taken for the next one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "daemon/byte_mover.h"
#include "daemon/forwards.h"
#include "daemon/proxy_request.h"
#include "daemon/relay.h"
#include "daemon/relay_group.h"

namespace hutch::daemon {

class ProxyExchange final : public Relayed, public std::enable_shared_from_this<ProxyExchange> {
 public:
  ProxyExchange(RelayThread& thread, RelayGroup& group, ProxyRequest request,
                std::shared_ptr<PortCounters> counters);
  // Joins the group, and leaves it at its end.
  void Start();
  void Abort() override;

 private:
  enum class State { kDialing, kHead, kBody, kDraining, kOver };

  void Dialed(Result<UniqueFd> inside);
  void OnClient(Ready ready);
  void OnInside(Ready ready);
  void RunUp();
  void RunDown();
  void Soon(void (ProxyExchange::*call)());
  void ReadHead();
  void TakeHead();
  void PassInterim(const std::string& text);
  void BeginBody(AnswerHead head);
  void BecomeRelay(AnswerHead head);
  void Answer(int status, Error error);
  void AnswerText(std::string text);
  void BeginDraining();
  void Drain();
  void RestartTimer();
  void OnTimeout();
  void Tell();
  void Release();
  void Over();

  RelayThread& thread_;
  RelayGroup& group_;
  ProxyRequest request_;
  std::shared_ptr<PortCounters> counters_;
  State state_ = State::kDialing;
  std::unique_ptr<Dialer> dialer_;
  UniqueFd inside_;
  std::string head_;     // of the answer, as far as it came
  std::string interim_;  // of 1xx answers, what the client did not take at once
  int interims_ = 0;
  std::optional<ByteMover> up_, down_;
  bool up_done_ = false;
  uint64_t up_told_ = 0, down_told_ = 0;
  size_t drained_ = 0;
  Watch client_watch_, inside_watch_;
  Timer timer_;
};

}  // namespace hutch::daemon

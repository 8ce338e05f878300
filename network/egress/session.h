// One connection from inside: what it wants, whether it may, and then the bytes. A table of states
// whose steps are run until one has to wait. Owned by its sandbox's set; gone after Close().
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "network/egress/judge.h"
#include "network/egress/limits.h"
#include "network/egress/pump.h"
#include "network/egress/stream.h"
#include "network/egress/tenant.h"

namespace hutch::network {

// All sandboxes' connections: only to bound them together.
struct SessionBudget {
  size_t open = 0, most = kMaxAllSessions;
  // What is full for one that has many is not for one that has few.
  bool Admits(size_t own) const {
    return open < most || (own < kAssuredSessions && open < most + most / 2);
  }
};

// What all sandboxes share.
struct Services {
  Loop& loop;
  Resolver& resolver;
  LookupBudget& budget;
  SessionBudget& sessions;
  const TlsClient& tls;
  std::span<char> block;  // for one read at a time
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  // kProxy and kCatch. Refused at once when the sandbox has too many.
  static void Start(Services& services, Tenant& tenant, UniqueFd fd, ListenerKind kind);
  Session(Services& services, Tenant& tenant, UniqueFd fd, ListenerKind kind);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool StillAllowed() const;  // by the settings as they are now
  void DropUnusedUpstream();  // if it is kept for further requests, and closed to us now
  bool connected() const { return connected_; }
  void Refuse(const std::string& reason);  // what is no longer allowed
  void Close();
  void Abort() { Reset(); }  // as Close, and both sides see a reset

 private:
  enum class State {
    kFirstBytes,
    kCatch,
    kSocksGreeting,
    kSocksRequest,
    kHead,
    kHello,
    kConnecting,  // resolves as well
    kHandshake,
    kRelay,
    kExchange,
    kDraining,
    kClosed
  };
  // How a refusal can be said.
  enum class Front { kNone, kHttp, kConnect, kSocks, kReset };
  using Step = bool (Session::*)();  // true: go on with the state that is set now
  struct StepRow {
    State state;
    Step run;
  };
  static const StepRow kSteps[];

  // session.cc
  void Advance();
  enum class Fill { kMore, kWait, kEnd, kFull };
  Fill FillIn(Stream& stream, size_t max_bytes);
  void StartDeadline(Milliseconds delay, const char* reason);
  bool Deny(const char* protocol, const std::string& reason);
  bool Malformed(const std::string& reason);
  bool Fail(int http_status, const std::string& reason);
  bool Answer(int http_status, const std::string& text);
  bool Drain();
  bool Go(State state);
  bool Reset();
  void Pause();

  // session_front.cc
  bool FirstBytes();
  bool Catch();
  bool SocksGreeting();
  bool SocksRequest();
  bool OpenTunnel(Target target);
  bool OpenAddress(const Address& address, uint16_t port, const Verdict& refused);
  bool TunnelReady();
  bool Hello();

  // session_upstream.cc
  bool Connect(const Target& target, bool tls);
  void OnResolved(const NameAnswer& answer);
  void ConnectTo(const std::vector<Address>& addresses);
  std::vector<Address> OpenNow(const std::vector<Address>& addresses, uint16_t asked,
                               std::string* why) const;
  bool UpstreamOpenNow(uint16_t asked) const;
  void OnConnected(Result<UniqueFd> fd);
  bool Handshake();
  bool Waiting() { return false; }
  void CloseUpstream();
  void SetConnected(bool connected);

  // session_relay.cc
  bool StartRelay();
  bool Relay();
  enum class Sniff { kPass, kWait, kRefused };
  Sniff SniffTls();
  bool RunPump(Pump& pump, bool* ended);

  // session_http.cc
  bool Head();
  bool TakeRequest(size_t head_bytes);
  bool IsForTunnel(const RequestHead& request);
  bool StartExchange();
  bool Exchange();
  bool ReadAnswerHead();
  bool Interim(const ResponseHead& interim);
  bool NoAnswer(const std::string& reason);
  bool EndExchange();

  Services& services_;
  Tenant& tenant_;
  const ListenerKind kind_;
  State state_ = State::kFirstBytes;
  Front front_ = Front::kNone;
  bool half_open_ = true, connected_ = false;
  Stream client_;
  Timer deadline_, pause_;

  // What was asked for. With plain HTTP through the proxy, each request has its own.
  std::optional<Target> tunnel_;
  Carrier carrier_ = Carrier::kHttp;
  bool catch_names_host_ = false;  // caught on 80 and 443: the client's words say where to
  std::optional<Address> asked_;   // caught: the address that was connected to
  uint16_t asked_port_ = 0;

  std::optional<Target> upstream_target_;    // what is connected to, or being connected to
  uint16_t upstream_asked_port_ = 0;         // what rules name, whatever port TLS of ours goes to
  std::vector<Address> upstream_addresses_;  // being tried; the one, once connected
  bool upstream_tls_ = false;
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<Stream> upstream_;
  std::unique_ptr<Pump> up_, down_;
  bool up_ended_ = false, down_ended_ = false, sniffing_ = false;

  std::optional<RequestHead> request_;
  RequestVerdict verdict_;
  std::optional<ResponseHead> answer_;
  BodyReader up_body_, down_body_;
  int interims_ = 0;       // before this answer
  bool answered_ = false;  // bytes of this answer went to the client
  size_t drained_ = 0;
};

}  // namespace hutch::network

// A host, an internet of our own behind a veth pair, and a sandbox; the real hutch-egress between.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "network/counters.h"
#include "network/egress/client.h"
#include "tests/kernel/network/network_fixture.h"

namespace hutch::network {

enum class Manner {
  kEcho,   // sends back what comes
  kGreet,  // speaks first, then echoes
  kHttp,   // answers each request with its head as the body
  kMute    // reads, and says nothing
};

// Servers in a namespace, each connection on a thread of its own.
class Origin {
 public:
  explicit Origin(int netns) : netns_(netns) {}
  ~Origin();
  void Serve(const Peer& at, Manner manner);
  void ServeOnce(const Peer& at, std::string answer);  // to every first bytes, then closes
  // What came, one string a connection, in the order of their ends.
  std::vector<std::string> Heard();
  size_t connections() const { return connections_; }

 private:
  void Accepts(int listener, Manner manner, const std::string& answer);
  void Talk(UniqueFd fd, Manner manner, const std::string& answer);
  int netns_;
  std::mutex mutex_;
  std::vector<std::string> heard_;
  std::atomic<size_t> connections_ = 0;
  std::vector<UniqueFd> listeners_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stop_ = false;
};

// The host's resolver on 127.0.0.1, by a table that tests may change.
class NameServer {
 public:
  explicit NameServer(int netns);
  ~NameServer();
  void Set(const std::string& name, std::vector<Address> addresses);
  size_t asked(const std::string& name);

 private:
  void Run();
  UniqueFd fd_;
  std::mutex mutex_;
  std::map<std::string, std::vector<Address>> table_;
  std::map<std::string, size_t> asked_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

struct Said {
  int connect_error = 0;
  std::string text;
  enum class End { kClosed, kReset, kSilence } end = End::kSilence;
};
// Not only for messages: what a dialogue ended with.
std::ostream& operator<<(std::ostream& out, const Said& said);

// A TLS ClientHello; no name: without the extension.
std::string MakeHello(const std::string& name, bool encrypted = false);

struct DnsReply {
  int code = -1;  // -1: no answer
  std::vector<Address> addresses;
  bool cut = false;
};

class EgressTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // The settings of the one sandbox "box"; waits until they hold.
  void Allow(const std::string& network_json, std::map<std::string, Secret> secrets = {},
             std::map<std::string, std::vector<Address>> hosts = {});
  void Apply(const EgressSettings& settings);
  // Waits for a denial whose reason contains this.
  Denial AwaitDenial(const std::string& reason);
  // All events that have come; kApplied is waited for with this.
  EgressEvent Await(EgressEvent::Kind kind);

  // From inside: sends, then reads until the end or until `until` has come.
  Said Say(const Peer& to, const std::string& bytes, const std::string& until = "");
  Said SayOn(int fd, const std::string& bytes, const std::string& until = "");
  Said Proxy(const std::string& bytes, const std::string& until = "");
  // CONNECT, then `bytes` if it was granted.
  Said ThroughConnect(const std::string& authority, const std::string& bytes,
                      const std::string& until = "");
  DnsReply Resolve(const std::string& name, uint16_t type = 1, bool tcp = false);

  int box() const { return box_.get(); }
  const Counters& counters() const { return **counters_; }

  UniqueFd host_, internet_, box_, counters_fd_;
  std::string directory_;
  std::unique_ptr<NameServer> names_;
  std::unique_ptr<Origin> origin_;
  std::unique_ptr<EgressClient> client_;
  std::optional<CountersFile> counters_;
  std::vector<Listener> listeners_;
  std::vector<EgressEvent> events_;
  bool listening_ = false;
};

inline const Address kServer = V4(11, 0, 0, 2), kOther = V4(11, 0, 0, 3);
inline const Address kServerV6 = V6(0x2600, 2);
inline const Address kHostOutside = V4(11, 0, 0, 1);

}  // namespace hutch::network

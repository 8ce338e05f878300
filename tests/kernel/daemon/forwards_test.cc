// Forwards into a network namespace of the test's own, with servers on its loopback.
#include "daemon/forwards.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/file.h"
#include "daemon/limits.h"
#include "network/inside.h"
#include "network/netns.h"
#include "tests/support/open_files.h"

namespace hutch::daemon {
namespace {

using testing::HasSubstr;

constexpr char kBox[] = "sb-test";
constexpr uint16_t kPort = 3000;

class ForwardsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);  // as main does
    Result<UniqueFd> made = network::MakeNetns();
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    netns_ = std::move(*made);
    ASSERT_TRUE(forwards_.Open(kBox, netns_.get()).has_value());
  }

  // Listens inside, on 127.0.0.1 or ::1.
  UniqueFd Serve(int family = AF_INET, uint16_t port = kPort, int backlog = 512) {
    Result<UniqueFd> made = network::SocketIn(netns_.get(), family, SOCK_STREAM);
    EXPECT_TRUE(made.has_value());
    struct sockaddr_in v4 {};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct sockaddr_in6 v6 {};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    v6.sin6_addr = in6addr_loopback;
    const auto* address = family == AF_INET ? reinterpret_cast<const struct sockaddr*>(&v4)
                                            : reinterpret_cast<const struct sockaddr*>(&v6);
    EXPECT_EQ(::bind(made->get(), address, family == AF_INET ? sizeof v4 : sizeof v6), 0);
    EXPECT_EQ(::listen(made->get(), backlog), 0);
    SetPatience(made->get());
    return std::move(*made);
  }

  PortFacts Forward(uint16_t host_port = 0, uint16_t port = kPort) {
    PortFacts wanted;
    wanted.port = port;
    wanted.host_port = host_port;
    Result<ReservedPort> reserved = forwards_.Reserve(wanted, "host_port");
    EXPECT_TRUE(reserved.has_value()) << reserved.error().ToString();
    const PortFacts facts = reserved->facts;
    forwards_.Add(kBox, std::move(*reserved));
    return facts;
  }

  static void SetPatience(int fd) {
    const struct timeval patience { .tv_sec = 60, .tv_usec = 0 };
    EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
  }

  static UniqueFd Connect(uint16_t port) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    struct sockaddr_in address {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const auto* any = reinterpret_cast<const struct sockaddr*>(&address);
    if (::connect(fd.get(), any, sizeof address) != 0) fd.reset();
    if (fd.valid()) SetPatience(fd.get());
    return fd;
  }

  static UniqueFd Accept(const UniqueFd& server) {
    UniqueFd fd(::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(fd.valid());
    SetPatience(fd.get());
    return fd;
  }

  static std::string ReadAll(const UniqueFd& fd) {
    std::string text;
    char buffer[65536];
    for (ssize_t count = 0; (count = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;)
      text.append(buffer, static_cast<size_t>(count));
    return text;
  }
  static void Send(const UniqueFd& fd, std::string_view text) {
    ASSERT_TRUE(WriteAll(fd.get(), text).has_value());
  }
  // errno of a read that must fail.
  static int ReadError(const UniqueFd& fd) {
    char byte = 0;
    return ::recv(fd.get(), &byte, 1, 0) < 0 ? errno : 0;
  }

  template <class Condition>
  void WaitUntil(Condition condition, const char* what) {
    for (int i = 0; i < 6000; ++i) {
      loop_.RunPending();
      if (condition()) return;
      std::this_thread::sleep_for(Milliseconds(10));
    }
    FAIL() << "not in a minute: " << what;
  }

  ForwardView View() { return forwards_.List(kBox).at(0); }

  Loop loop_;
  UniqueFd netns_;
  Forwards forwards_{loop_};
};

TEST_F(ForwardsTest, BytesGoBothWaysAndAreCounted) {
  const UniqueFd server = Serve();
  const UniqueFd client = Connect(Forward().host_port);
  const UniqueFd inside = Accept(server);
  Send(client, "question");
  char text[8];
  ASSERT_EQ(::recv(inside.get(), text, sizeof text, MSG_WAITALL), 8);
  EXPECT_EQ(std::string(text, 8), "question");
  Send(inside, "ok");
  ASSERT_EQ(::recv(client.get(), text, 2, MSG_WAITALL), 2);
  WaitUntil([&] { return View().received == 2; }, "it is counted");
  EXPECT_EQ(View().sent, 8u);
  EXPECT_EQ(View().open, 1u);
  EXPECT_TRUE(forwards_.TakeActivity(kBox));
}

TEST_F(ForwardsTest, TheEndOfOneWayIsPassedOnAndTheOtherGoesOn) {
  const UniqueFd server = Serve();
  const uint16_t port = Forward().host_port;
  for (const bool client_ends : {true, false}) {
    const UniqueFd client = Connect(port), inside = Accept(server);
    const UniqueFd& first = client_ends ? client : inside;
    const UniqueFd& second = client_ends ? inside : client;
    Send(first, "all I have");
    ASSERT_EQ(::shutdown(first.get(), SHUT_WR), 0);
    EXPECT_EQ(ReadAll(second), "all I have");
    Send(second, "the answer");
    ASSERT_EQ(::shutdown(second.get(), SHUT_WR), 0);
    EXPECT_EQ(ReadAll(first), "the answer");
    WaitUntil([&] { return View().open == 0; }, "it is over");
  }
}

TEST_F(ForwardsTest, AResetIsPassedOnAsOne) {
  const UniqueFd server = Serve();
  const uint16_t port = Forward().host_port;
  for (const bool client_resets : {true, false}) {
    UniqueFd client = Connect(port), inside = Accept(server);
    UniqueFd& first = client_resets ? client : inside;
    UniqueFd& second = client_resets ? inside : client;
    ResetOnClose(first.get());
    first.reset();
    EXPECT_EQ(ReadError(second), ECONNRESET);
    WaitUntil([&] { return View().open == 0; }, "it is over");
  }
}

TEST_F(ForwardsTest, ASlowReaderHoldsTheOtherSideBackAndLosesNothing) {
  const UniqueFd server = Serve();
  const UniqueFd client = Connect(Forward().host_port), inside = Accept(server);
  std::string sent(size_t{48} << 20, '\0');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 2654435761u >> 13);
  std::thread writer([&] {
    Send(inside, sent);
    ::shutdown(inside.get(), SHUT_WR);
  });
  uint64_t last = 1;
  const auto stands_still = [&] {
    std::this_thread::sleep_for(Milliseconds(300));
    const uint64_t now = View().received;
    return std::exchange(last, now) == now;
  };
  WaitUntil(stands_still, "nothing more is moved");
  EXPECT_LT(last, sent.size());
  const std::string got = ReadAll(client);
  writer.join();
  EXPECT_TRUE(got == sent);
}

TEST_F(ForwardsTest, IPv6LoopbackIsTriedWhereNobodyListensOnIPv4) {
  const UniqueFd server = Serve(AF_INET6);
  const UniqueFd client = Connect(Forward().host_port), inside = Accept(server);
  Send(client, "x");
  ::shutdown(client.get(), SHUT_WR);
  EXPECT_EQ(ReadAll(inside), "x");
}

TEST_F(ForwardsTest, WhereNobodyListensTheClientIsReset) {
  const uint16_t port = Forward().host_port;
  const UniqueFd client = Connect(port);
  EXPECT_EQ(ReadError(client), ECONNRESET);
  WaitUntil([&] { return View().open == 0; }, "it is over");
  EXPECT_EQ(View().connections, 1u);
}

TEST_F(ForwardsTest, ConnectionsBeyondTheBoundWait) {
  ASSERT_NO_FATAL_FAILURE(RaiseOpenFiles());
  const UniqueFd server = Serve();
  const uint16_t port = Forward().host_port;
  std::vector<UniqueFd> clients;
  for (size_t i = 0; i < kMaxForwardConnections + 3; ++i) clients.push_back(Connect(port));
  WaitUntil([&] { return View().open == kMaxForwardConnections; }, "all that may are in");
  // Those behind the bound do not come in by waiting.
  std::this_thread::sleep_for(Milliseconds(200));
  EXPECT_EQ(View().connections, kMaxForwardConnections);
  for (size_t i = 0; i < 3; ++i) {
    ResetOnClose(clients[i].get());
    clients[i].reset();
  }
  WaitUntil([&] { return View().connections == kMaxForwardConnections + 3; }, "the others are");
  EXPECT_EQ(View().open, kMaxForwardConnections);
}

TEST_F(ForwardsTest, RequestsBeyondTheBoundAreRefused) {
  ASSERT_NO_FATAL_FAILURE(RaiseOpenFiles());
  const UniqueFd server = Serve();
  std::vector<UniqueFd> clients;
  for (size_t i = 0; i < kMaxProxiedConnections; ++i) {
    ASSERT_TRUE(forwards_.CheckProxy(kBox).has_value()) << i;
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    clients.emplace_back(ends[0]);
    ProxyRequest request;
    request.connection.socket.reset(ends[1]);
    request.head = "GET / HTTP/1.1\r\n\r\n";
    request.port = kPort;
    forwards_.Proxy(kBox, std::move(request));
  }
  const Status refused = forwards_.CheckProxy(kBox);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kLimit);
  clients.pop_back();
  WaitUntil([&] { return forwards_.CheckProxy(kBox).has_value(); }, "one that left makes room");
}

TEST_F(ForwardsTest, TheEndOfTheSandboxResetsAllAndFreesThePort) {
  const UniqueFd server = Serve();
  const PortFacts facts = Forward();
  const UniqueFd client = Connect(facts.host_port), inside = Accept(server);
  Send(client, "x");
  WaitUntil([&] { return View().sent == 1; }, "it is inside");
  forwards_.Close(kBox);
  EXPECT_EQ(ReadError(client), ECONNRESET);
  char byte = 0;
  ASSERT_EQ(::recv(inside.get(), &byte, 1, 0), 1);
  EXPECT_EQ(ReadError(inside), ECONNRESET);
  EXPECT_TRUE(forwards_.List(kBox).empty());
  WaitUntil([&] { return forwards_.Reserve(facts, "").has_value(); }, "the port is free");
}

TEST_F(ForwardsTest, ARemovedPortIsFreeOnceThatIsTold) {
  const UniqueFd server = Serve();
  const PortFacts facts = Forward();
  const UniqueFd client = Connect(facts.host_port), inside = Accept(server);
  bool removed = false;
  ASSERT_TRUE(forwards_.Remove(kBox, kPort, [&] { removed = true; }).has_value());
  WaitUntil([&] { return removed; }, "it is removed");
  EXPECT_FALSE(Connect(facts.host_port).valid());
  EXPECT_EQ(ReadError(client), ECONNRESET);
  EXPECT_EQ(forwards_.Remove(kBox, kPort, [] {}).error().code, Code::kNotFound);
  EXPECT_TRUE(forwards_.Reserve(facts, "").has_value());
}

TEST_F(ForwardsTest, ATakenPortIsToldWithWhoHasIt) {
  const PortFacts facts = Forward();
  const Result<ReservedPort> again = forwards_.Reserve(facts, "ports[0].host_port");
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, Code::kExists);
  EXPECT_EQ(again.error().field, "ports[0].host_port");
  EXPECT_THAT(again.error().what, HasSubstr("sandbox sb-test has it for its port 3000"));
  // After a restart it is shown with the reason.
  forwards_.Restore(kBox, {facts});
  ASSERT_EQ(forwards_.List(kBox).size(), 2u);
  EXPECT_THAT(forwards_.List(kBox)[1].error.value_or(""), HasSubstr("in use"));
}

TEST_F(ForwardsTest, TheThreadIsInItsOwnNamespaceAgain) {
  // A host port could not be reached from a thread that stayed inside.
  const UniqueFd server = Serve();
  for (int i = 0; i < 3; ++i) {
    const UniqueFd client = Connect(Forward(0, kPort).host_port);
    Send(client, "x");
    const UniqueFd inside = Accept(server);
    bool removed = false;
    ASSERT_TRUE(forwards_.Remove(kBox, kPort, [&] { removed = true; }).has_value());
    WaitUntil([&] { return removed; }, "it is removed");
  }
}

TEST_F(ForwardsTest, WhatListensInsideIsToldAndNothingOfOurs) {
  const UniqueFd one = Serve(), two = Serve(AF_INET6, 4000), ours = Serve(AF_INET, 3128);
  const auto ports = network::ListeningPorts(netns_.get());
  ASSERT_TRUE(ports.has_value());
  ASSERT_EQ(ports->size(), 2u);
  EXPECT_EQ((*ports)[0].port, kPort);
  EXPECT_EQ((*ports)[0].address.bytes[12], 127);
  EXPECT_EQ((*ports)[1].port, 4000);
  EXPECT_EQ((*ports)[1].address.bytes[15], 1);
}

}  // namespace
}  // namespace hutch::daemon

#include "daemon/http_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "daemon/listener.h"
#include "tests/base/temp_dir.h"

namespace hutch::daemon {
namespace {

// A server on the test's thread, a blocking client on another.
class HttpServerTest : public testing::Test {
 protected:
  void Serve(HttpServer::Dispatch dispatch, HttpServer::Options options,
             const std::function<void()>& client) {
    Result<UniqueFd> listen_fd = BindSocket(directory_ / "socket", "");
    ASSERT_TRUE(listen_fd.has_value()) << listen_fd.error().what;
    HttpServer server(loop_, std::move(*listen_fd), options, std::move(dispatch));
    server_ = &server;
    server.Start();
    std::thread thread([&] {
      client();
      loop_.Stop();
    });
    loop_.Run();
    thread.join();
    server.CloseAll();
    loop_.RunPending();
    server_ = nullptr;
  }

  UniqueFd Connect() {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    struct sockaddr_un address {};
    address.sun_family = AF_UNIX;
    const std::string path = directory_ / "socket";
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(
        ::connect(fd.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  static void Send(int fd, std::string_view text) { ASSERT_TRUE(WriteAll(fd, text).has_value()); }
  static std::string ReadUntil(int fd, std::string_view end) {
    std::string text;
    char buffer[4096];
    while (text.find(end) == std::string::npos) {
      const ssize_t count = ::recv(fd, buffer, sizeof buffer, 0);
      if (count <= 0) break;
      text.append(buffer, static_cast<size_t>(count));
    }
    return text;
  }
  static std::string ReadToEnd(int fd) { return ReadUntil(fd, "no such text"); }

  static Reply Text(std::string body) { return Reply{.status = 200, .body = std::move(body)}; }

  TempDir directory_;
  Loop loop_;
  HttpServer* server_ = nullptr;
};

constexpr char kGet[] = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";

TEST_F(HttpServerTest, AnswersOneRequestAfterAnotherOnOneConnection) {
  Peer peer;
  Serve(
      [&](Request request, Responder responder) {
        peer = request.peer;
        responder.Send(Text("<" + request.path + ">"));
      },
      {},
      [&] {
        const UniqueFd fd = Connect();
        for (int i = 0; i < 3; ++i) {
          Send(fd.get(), kGet);
          EXPECT_NE(ReadUntil(fd.get(), "</a>").find("HTTP/1.1 200 OK\r\n"), std::string::npos);
        }
        Send(fd.get(), std::string(kGet) + "GET /b HTTP/1.1\r\nHost: h\r\n\r\n");
        EXPECT_NE(ReadUntil(fd.get(), "</b>").find("</a>"), std::string::npos);
      });
  EXPECT_EQ(peer.uid, ::getuid());
  EXPECT_EQ(peer.pid, ::getpid());
}

TEST_F(HttpServerTest, AnswersMayComeLater) {
  Timer timer;
  Serve(
      [&](Request, Responder responder) {
        const auto shared = std::make_shared<Responder>(std::move(responder));
        timer.Start(loop_, Milliseconds(10), [shared] { shared->Send(Text("later")); });
      },
      {},
      [&] {
        const UniqueFd fd = Connect();
        Send(fd.get(), kGet);
        EXPECT_NE(ReadUntil(fd.get(), "later").find("Content-Length: 5"), std::string::npos);
      });
}

TEST_F(HttpServerTest, ANeglectedRequestIsAnsweredAsOurFault) {
  Serve([](Request, Responder) {}, {},
        [&] {
          const UniqueFd fd = Connect();
          Send(fd.get(), kGet);
          EXPECT_NE(ReadUntil(fd.get(), "internal").find("HTTP/1.1 500"), std::string::npos);
        });
}

TEST_F(HttpServerTest, AHangUpIsToldOnceAndOnlyBeforeTheAnswer) {
  int hangups = 0;
  std::vector<std::shared_ptr<Responder>> kept;
  Serve(
      [&](Request request, Responder responder) {
        const auto shared = std::make_shared<Responder>(std::move(responder));
        shared->OnHangup([&] { ++hangups; });
        if (request.path == "/answer")
          shared->Send(Text("answered"));
        else
          kept.push_back(shared);
      },
      {},
      [&] {
        UniqueFd waiting = Connect();
        Send(waiting.get(), kGet);
        UniqueFd answered = Connect();
        Send(answered.get(), "GET /answer HTTP/1.1\r\nHost: h\r\n\r\n");
        ReadUntil(answered.get(), "answered");
        answered.reset();
        waiting.reset();
        const UniqueFd after = Connect();
        Send(after.get(), "GET /answer HTTP/1.1\r\nHost: h\r\n\r\n");
        ReadUntil(after.get(), "answered");
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      });
  EXPECT_EQ(hangups, 1);
}

TEST_F(HttpServerTest, AClientThatOnlyStoppedSendingGetsItsAnswer) {
  Timer timer;
  bool hung_up = false;
  Serve(
      [&](Request, Responder responder) {
        const auto shared = std::make_shared<Responder>(std::move(responder));
        shared->OnHangup([&] { hung_up = true; });
        timer.Start(loop_, Milliseconds(30), [shared] { shared->Send(Text("still here")); });
      },
      {},
      [&] {
        const UniqueFd fd = Connect();
        Send(fd.get(), kGet);
        ::shutdown(fd.get(), SHUT_WR);
        EXPECT_NE(ReadToEnd(fd.get()).find("still here"), std::string::npos);
      });
  EXPECT_FALSE(hung_up);
}

TEST_F(HttpServerTest, ATooLargeBodyIsRefusedWithAnAnswerTheClientGetsToRead) {
  Serve([](Request, Responder) { ADD_FAILURE(); }, {},
        [&] {
          const UniqueFd fd = Connect();
          const size_t size = 10u << 20;
          Send(fd.get(), "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(size) +
                             "\r\n\r\n");
          Send(fd.get(), std::string(size, 'x'));
          EXPECT_NE(ReadToEnd(fd.get()).find("HTTP/1.1 413"), std::string::npos);
        });
}

TEST_F(HttpServerTest, AHalfSentRequestEndsWithTheTimeOut) {
  Serve([](Request, Responder) { ADD_FAILURE(); }, {.timeout = Milliseconds(50)},
        [&] {
          const UniqueFd slow = Connect(), silent = Connect();
          Send(slow.get(), "GET / HTTP/1.1\r\nHo");
          EXPECT_NE(ReadToEnd(slow.get()).find("HTTP/1.1 400"), std::string::npos);
          EXPECT_EQ(ReadToEnd(silent.get()), "");
        });
}

TEST_F(HttpServerTest, AnAnswerNobodyFetchesEndsWithTheTimeOut) {
  Serve([](Request, Responder responder) { responder.Send(Text(std::string(8u << 20, 'x'))); },
        {.timeout = Milliseconds(50)},
        [&] {
          const UniqueFd fd = Connect();
          Send(fd.get(), kGet);
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          loop_.Post([this] { EXPECT_EQ(server_->connections(), 0u); });
          EXPECT_LT(ReadToEnd(fd.get()).size(), 8u << 20);
        });
}

TEST_F(HttpServerTest, MoreConnectionsThanAllowedAreToldSo) {
  Serve([](Request, Responder responder) { responder.Send(Text("ok")); }, {.max_connections = 2},
        [&] {
          const UniqueFd first = Connect(), second = Connect();
          Send(first.get(), kGet);
          Send(second.get(), kGet);
          ReadUntil(first.get(), "ok");
          ReadUntil(second.get(), "ok");
          const UniqueFd third = Connect();
          EXPECT_NE(ReadToEnd(third.get()).find("HTTP/1.1 503"), std::string::npos);
        });
}

TEST_F(HttpServerTest, EventsAreStreamed) {
  Serve(
      [](Request, Responder responder) {
        responder.StartEvents();
        responder.Event("progress", "{}");
        responder.Event("result", "{\"a\":1}");
        responder.End();
      },
      {},
      [&] {
        const UniqueFd fd = Connect();
        Send(fd.get(), kGet);
        const std::string text = ReadUntil(fd.get(), "0\r\n\r\n");
        EXPECT_NE(text.find("Content-Type: text/event-stream"), std::string::npos);
        EXPECT_NE(text.find("event: result\ndata: {\"a\":1}\n\n"), std::string::npos);
        Send(fd.get(), kGet);  // the connection lives on
        EXPECT_FALSE(ReadUntil(fd.get(), "0\r\n\r\n").empty());
      });
}

TEST_F(HttpServerTest, ASlowReaderMissesProgressButNotTheResult) {
  Serve(
      [](Request, Responder responder) {
        responder.StartEvents();
        for (int i = 0; i < 100; ++i)
          responder.Event("progress", std::string(kMaxStreamBacklogBytes / 10, 'p'));
        responder.Event("result", "{}");
        responder.End();
      },
      {},
      [&] {
        const UniqueFd fd = Connect();
        Send(fd.get(), kGet);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        const std::string text = ReadUntil(fd.get(), "0\r\n\r\n");
        EXPECT_LT(text.size(), 4 * kMaxStreamBacklogBytes);
        EXPECT_NE(text.find("event: result"), std::string::npos);
      });
}

TEST_F(HttpServerTest, StoppingClosesIdleConnectionsAndFinishesTheOthers) {
  std::shared_ptr<Responder> kept;
  Timer timer;
  Serve(
      [&](Request, Responder responder) {
        kept = std::make_shared<Responder>(std::move(responder));
        server_->StopAccepting();
        timer.Start(loop_, Milliseconds(20), [&] { kept->Send(Text("finished")); });
      },
      {},
      [&] {
        const UniqueFd idle = Connect(), busy = Connect();
        Send(busy.get(), kGet);
        const std::string text = ReadToEnd(busy.get());
        EXPECT_NE(text.find("finished"), std::string::npos);
        EXPECT_NE(text.find("Connection: close"), std::string::npos);
        EXPECT_EQ(ReadToEnd(idle.get()), "");
      });
}

}  // namespace
}  // namespace hutch::daemon

#include "daemon/http_server.h"

#include <future>

#include "tests/daemon/http_fixture.h"

namespace hutch::daemon {
namespace {

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
  std::promise<void> all_told;
  Serve(
      [&](Request, Responder responder) {
        responder.StartEvents();
        for (int i = 0; i < 100; ++i)
          responder.Event("progress", std::string(kMaxStreamBacklogBytes / 10, 'p'));
        responder.Event("result", "{}");
        responder.End();
        all_told.set_value();
      },
      {},
      [&] {
        const UniqueFd fd = Connect();
        Send(fd.get(), kGet);
        all_told.get_future().wait();
        const std::string text = ReadUntil(fd.get(), "0\r\n\r\n");
        EXPECT_LT(text.size(), 4 * kMaxStreamBacklogBytes);
        EXPECT_NE(text.find("event: result"), std::string::npos);
      });
}

TEST_F(HttpServerTest, HeadGetsTheLengthAndNoBody) {
  Serve(
      [](Request request, Responder responder) {
        Reply reply = Text("12345");
        reply.content_type = "text/plain";
        reply.headers = {{"X-Name", "a\r\nb"}};
        EXPECT_EQ(request.Header("x-QUESTION"), "why not");
        responder.Send(std::move(reply));
      },
      {},
      [&] {
        const UniqueFd fd = Connect();
        const std::string rest = " /a HTTP/1.1\r\nHost: h\r\nX-Question:  why not \r\n";
        Send(fd.get(), "HEAD" + rest + "\r\nGET" + rest + "Connection: close\r\n\r\n");
        const std::string text = ReadToEnd(fd.get());
        const size_t second = text.find("HTTP/1.1", 1);
        ASSERT_NE(second, std::string::npos);
        EXPECT_TRUE(text.substr(0, second).ends_with("\r\n\r\n")) << text;
        EXPECT_NE(text.find("Content-Length: 5\r\n"), std::string::npos);
        EXPECT_NE(text.find("Content-Type: text/plain\r\nX-Name: a??b\r\n"), std::string::npos);
        EXPECT_TRUE(text.ends_with("\r\n\r\n12345"));
      });
}

TEST_F(HttpServerTest, EventsAreLinesOfJsonWhenAskedFor) {
  Serve(
      [](Request request, Responder responder) {
        EXPECT_TRUE(request.wants_ndjson);
        EXPECT_FALSE(request.wants_events);
        responder.StartEvents();
        responder.Event("output", "{\"a\":\"x\\ny\"}", "7");
        responder.Event("end", "{ }");
        responder.End();
      },
      {},
      [&] {
        const UniqueFd fd = Connect();
        Send(
            fd.get(),
            "GET /a HTTP/1.0\r\nAccept: text/event-stream;q=0, application/x-ndjson;q=0.5\r\n\r\n");
        const std::string text = ReadToEnd(fd.get());
        EXPECT_NE(text.find("Content-Type: application/x-ndjson\r\n"), std::string::npos);
        EXPECT_TRUE(
            text.ends_with("\r\n\r\n{\"event\":\"output\",\"id\":\"7\",\"a\":\"x\\ny\"}\n"
                           "{\"event\":\"end\"}\n"))
            << text;
      });
}

TEST_F(HttpServerTest, EventsCarryIdsAndStayOneLine) {
  EXPECT_EQ(EventText(EventFormat::kServerSent, "out", "{\n\"a\": 1}", "4"),
            "event: out\nid: 4\ndata: { \"a\": 1}\n\n");
  EXPECT_EQ(EventText(EventFormat::kNdjson, "out", "{\n\"a\": 1}", ""),
            "{\"event\":\"out\",\"a\": 1}\n");
}

TEST_F(HttpServerTest, ASlowReaderCongestsAndDrains) {
  std::shared_ptr<Responder> kept;
  size_t sent = 0;
  int drains = 0;
  std::promise<void> behind;
  std::function<void()> produce = [&] {
    const std::string data = "{\"x\":\"" + std::string(50'000, 'x') + "\"}";
    while (sent < 200 && !kept->Congested()) {
      kept->Event("out", data);
      ++sent;
    }
    if (sent == 200) return kept->End();
    kept->OnDrained([&] {
      ++drains;
      produce();
    });
  };
  Serve(
      [&](Request, Responder responder) {
        kept = std::make_shared<Responder>(std::move(responder));
        kept->StartEvents();
        produce();
        EXPECT_LT(sent * 50'000, 2 * kMaxStreamBacklogBytes);
        behind.set_value();
      },
      {},
      [&] {
        const UniqueFd fd = Connect();
        Send(fd.get(), kGet);
        behind.get_future().wait_for(std::chrono::seconds(60));
        EXPECT_GT(ReadUntil(fd.get(), "0\r\n\r\n").size(), 200u * 50'000);
      });
  EXPECT_GE(drains, 1);  // a reader that keeps up afterwards is never behind again
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

// WebSockets through a real connection.
#include "daemon/websocket_frames.h"
#include "tests/daemon/http_fixture.h"
#include "tests/daemon/websocket_client.h"

namespace hutch::daemon {
namespace {

constexpr char kHandshake[] =
    "GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

std::string CloseCode(uint16_t code) {
  return {static_cast<char>(code >> 8), static_cast<char>(code & 0xff)};
}

class WebSocketTest : public HttpServerTest {
 protected:
  // Sends every message back; "bye" closes.
  HttpServer::Dispatch Echo() {
    return [this](Request, Responder responder) {
      kept_ = std::make_shared<Responder>(std::move(responder));
      const Status started =
          kept_->StartWebSocket({.on_message =
                                     [this](bool binary, std::string data) {
                                       if (data == "bye")
                                         return kept_->CloseWebSocket(4000, "as asked");
                                       kept_->Message(binary, std::move(data));
                                     },
                                 .on_closed = [this] { ++closed_; }});
      if (!started.has_value()) kept_->Send(started.error());
    };
  }
  UniqueFd Open() {
    UniqueFd fd = Connect();
    Send(fd.get(), kHandshake);
    const std::string head = ReadUntil(fd.get(), "\r\n\r\n");
    EXPECT_TRUE(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n")) << head;
    EXPECT_NE(head.find("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"),
              std::string::npos);
    return fd;
  }
  static std::string Text(std::string_view text) {
    return WebSocketFrame(WebSocketOpcode::kText, text);
  }

  std::shared_ptr<Responder> kept_;
  int closed_ = 0;
};

TEST_F(WebSocketTest, MessagesGoBothWaysAndPingsAreAnswered) {
  Serve(Echo(), {.timeout = Milliseconds(30)}, [&] {
    const UniqueFd fd = Connect();
    Send(fd.get(), std::string(kHandshake) + ClientFrame(0x81, "early"));
    EXPECT_TRUE(ReadUntil(fd.get(), "early").ends_with("\r\n\r\n" + Text("early")));
    Send(fd.get(), ClientFrame(0x01, "a") + ClientFrame(0x89, "p") + ClientFrame(0x80, "b"));
    EXPECT_EQ(ReadUntil(fd.get(), "ab"), WebSocketFrame(WebSocketOpcode::kPong, "p") + Text("ab"));
    std::this_thread::sleep_for(std::chrono::milliseconds(80));  // silence is fine
    const std::string big(kMaxWebSocketMessageBytes - 3, 'b');
    Send(fd.get(), ClientFrame(0x82, big + "end"));
    EXPECT_EQ(ReadUntil(fd.get(), "end"), WebSocketFrame(WebSocketOpcode::kBinary, big + "end"));
    Send(fd.get(), ClientFrame(0x88, CloseCode(1000)));
    EXPECT_EQ(ReadToEnd(fd.get()), WebSocketCloseFrame(1000, ""));
  });
  EXPECT_EQ(closed_, 1);
}

TEST_F(WebSocketTest, OtherRequestsAreRefusedAndTheConnectionStays) {
  Serve(Echo(), {}, [&] {
    const UniqueFd fd = Connect();
    Send(fd.get(), "GET /ws HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_TRUE(ReadUntil(fd.get(), "}}").starts_with("HTTP/1.1 400"));
    std::string old = kHandshake;
    old.replace(old.find("13\r\n"), 2, "12");
    Send(fd.get(), old);
    EXPECT_TRUE(ReadUntil(fd.get(), "}}").starts_with("HTTP/1.1 400"));
    std::string http10 = kHandshake;
    http10.replace(http10.find("1.1"), 3, "1.0");
    Send(fd.get(), http10);
    EXPECT_TRUE(ReadUntil(fd.get(), "}}").starts_with("HTTP/1.1 400"));
  });
}

TEST_F(WebSocketTest, TooLargeMessagesAndBadFramesAreClosedWithTheirCode) {
  Serve(Echo(), {}, [&] {
    const UniqueFd large = Open();
    Send(large.get(), ClientFrame(0x82, std::string(kMaxWebSocketMessageBytes + 1, 'x')));
    EXPECT_EQ(ReadToEnd(large.get()).substr(2, 2), CloseCode(kCloseTooLarge));
    const UniqueFd bare = Open();
    Send(bare.get(), Text("no mask"));
    EXPECT_EQ(ReadToEnd(bare.get()).substr(2, 2), CloseCode(kCloseProtocol));
    const UniqueFd text = Open();
    Send(text.get(), ClientFrame(0x81, "\xff"));
    EXPECT_EQ(ReadToEnd(text.get()).substr(2, 2), CloseCode(kCloseBadText));
  });
  EXPECT_EQ(closed_, 3);
}

TEST_F(WebSocketTest, TheHandlerClosesAndTheClientAnswers) {
  Serve(Echo(), {}, [&] {
    const UniqueFd fd = Open();
    Send(fd.get(), ClientFrame(0x81, "bye") + ClientFrame(0x81, "too late"));
    EXPECT_EQ(ReadUntil(fd.get(), "asked"), WebSocketCloseFrame(4000, "as asked"));
    Send(fd.get(), ClientFrame(0x88, CloseCode(4000)));
    EXPECT_EQ(ReadToEnd(fd.get()), "");
  });
  EXPECT_EQ(closed_, 1);
}

TEST_F(WebSocketTest, AClientThatIsGoneIsToldOnce) {
  Serve(Echo(), {}, [&] {
    Open().reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  });
  EXPECT_EQ(closed_, 1);
}

TEST_F(WebSocketTest, ANeglectedOneIsClosedAsOurFault) {
  Serve([](Request, Responder responder) { ASSERT_TRUE(responder.StartWebSocket({}).has_value()); },
        {},
        [&] {
          const UniqueFd fd = Connect();
          Send(fd.get(), kHandshake);
          EXPECT_TRUE(ReadUntil(fd.get(), "given up")
                          .ends_with("\r\n\r\n" + WebSocketCloseFrame(1011, "given up")));
        });
}

TEST_F(WebSocketTest, StoppingSaysThatWeGoAway) {
  Serve(Echo(), {}, [&] {
    const UniqueFd fd = Open();
    loop_.Post([&] {
      EXPECT_EQ(server_->requests_under_way(), 1u);
      server_->StopAccepting();
    });
    EXPECT_EQ(ReadUntil(fd.get(), "stops").substr(2, 2), CloseCode(kCloseGoingAway));
    Send(fd.get(), ClientFrame(0x88, CloseCode(1001)));
    EXPECT_EQ(ReadToEnd(fd.get()), "");
    loop_.Post([&] { EXPECT_EQ(server_->requests_under_way(), 0u); });
  });
  EXPECT_EQ(closed_, 1);
}

TEST_F(WebSocketTest, WhoeverDoesNotReadIsNotReadFrom) {
  Serve(Echo(), {}, [&] {
    const UniqueFd fd = Open();
    const std::string frame = ClientFrame(0x82, std::string(100'000, 'x'));
    size_t sent = 0;
    for (int waits = 0; waits < 20;) {
      const ssize_t count = ::send(fd.get(), frame.data() + sent % frame.size(),
                                   frame.size() - sent % frame.size(), MSG_DONTWAIT);
      if (count > 0) sent += static_cast<size_t>(count);
      waits = count > 0 ? 0 : waits + 1;
      if (count <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ASSERT_LT(sent, 16u << 20);
    }
    // It goes on once it reads.
    std::thread reader([&] { ReadUntil(fd.get(), "done"); });
    Send(fd.get(), frame.substr(sent % frame.size()));
    Send(fd.get(), ClientFrame(0x81, "done"));
    reader.join();
  });
}

TEST_F(WebSocketTest, PausedMessagesWaitForTheHandler) {
  std::string got;
  Timer timer;
  WebSocketHandler handler;
  handler.on_message = [&](bool, std::string data) {
    got += data;
    kept_->PauseMessages(true);
    timer.Start(loop_, Milliseconds(50), [&] { kept_->PauseMessages(false); });
  };
  Serve(
      [&](Request, Responder responder) {
        kept_ = std::make_shared<Responder>(std::move(responder));
        ASSERT_TRUE(kept_->StartWebSocket(handler).has_value());
      },
      {},
      [&] {
        const UniqueFd fd = Open();
        Send(fd.get(), ClientFrame(0x81, "a") + ClientFrame(0x81, "b"));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        loop_.Post([&] { EXPECT_EQ(got, "a"); });
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        loop_.Post([&] { EXPECT_EQ(got, "ab"); });
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      });
}

}  // namespace
}  // namespace hutch::daemon

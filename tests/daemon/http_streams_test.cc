// Bodies into pipes and answers out of pipes, through a real connection.
#include <poll.h>

#include <atomic>
#include <future>

#include "tests/daemon/http_fixture.h"

namespace hutch::daemon {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
#else
constexpr bool kAddressSanitizer = false;
#endif
constexpr size_t kMiB = 1u << 20;

// A cheap digest; order matters.
struct Digest {
  uint64_t bytes = 0, sum = 14695981039346656037u;
  void Add(const char* data, size_t size) {
    bytes += size;
    for (size_t i = 0; i < size; ++i)
      sum = (sum ^ static_cast<unsigned char>(data[i])) * 1099511628211u;
  }
  bool operator==(const Digest&) const = default;
};

std::string Pattern(size_t size, uint64_t seed) {
  std::string text(size, '\0');
  for (char& c : text) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>(seed >> 56);
  }
  return text;
}

Digest ReadDigest(int fd) {
  Digest digest;
  std::string buffer(kMiB / 4, '\0');
  for (ssize_t count; (count = ::read(fd, buffer.data(), buffer.size())) > 0;)
    digest.Add(buffer.data(), static_cast<size_t>(count));
  return digest;
}

// "Content-Length: 5" and so on, with the end of the head.
std::string Put(const std::string& header) {
  return "PUT /f HTTP/1.1\r\nHost: h\r\n" + header + "\r\n\r\n";
}
std::string PutLength(size_t size) { return Put("Content-Length: " + std::to_string(size)); }

class HttpStreamsTest : public HttpServerTest {
 protected:
  ~HttpStreamsTest() override {
    if (reader_.joinable()) reader_.join();
  }
  // Receives bodies into a pipe (or what `make` gives) that a thread reads.
  void Receive(Request, Responder responder) {
    Result<Pipe> pipe = MakePipe();
    ASSERT_TRUE(pipe.has_value());
    reader_ = std::thread([this, fd = std::move(pipe->read)] { received_ = ReadDigest(fd.get()); });
    ReceiveInto(std::move(pipe->write), std::move(responder));
  }
  void ReceiveInto(UniqueFd fd, Responder responder) {
    const auto shared = std::make_shared<Responder>(std::move(responder));
    shared->OnHangup([this] { ++hangups_; });
    shared->ReceiveBody(std::move(fd), [this, shared](Result<uint64_t> moved) {
      if (reader_.joinable()) reader_.join();
      outcomes_.push_back(moved);
      ++ended_;
      if (moved.has_value()) return shared->Send(Text("took " + std::to_string(*moved) + "."));
      shared->Send(moved.error());
    });
  }
  HttpServer::Dispatch Receiver() {
    return [this](Request request, Responder responder) {
      if (request.method != "PUT") return responder.Send(Text("other"));
      Receive(std::move(request), std::move(responder));
    };
  }

  std::thread reader_;
  Digest received_;
  std::vector<Result<uint64_t>> outcomes_;
  int hangups_ = 0;
  std::atomic<int> ended_ = 0;  // outcomes, for those who wait on another thread
};

TEST_F(HttpStreamsTest, ALargeBodyArrivesWholeAndInBoundedMemory) {
  Digest sent;
  std::string text;
  size_t resident_before = 0, resident_after = 0;
  const auto resident = [] {
    const Result<std::string> statm = ReadFile("/proc/self/statm", 4096);
    return std::stoul(statm->substr(statm->find(' '))) * 4096;
  };
  Serve(Receiver(), {}, [&] {
    const UniqueFd fd = Connect();
    const std::string piece = Pattern(kMiB, 1);
    resident_before = resident();
    Send(fd.get(), PutLength(64 * kMiB));
    for (int i = 0; i < 64; ++i) {
      sent.Add(piece.data(), piece.size());
      Send(fd.get(), piece);
    }
    resident_after = resident();
    Send(fd.get(), kGet);
    text = ReadUntil(fd.get(), "other");
  });
  EXPECT_EQ(received_, sent);
  EXPECT_NE(text.find("took 67108864."), std::string::npos);
  EXPECT_NE(text.find("other"), std::string::npos) << "the next request on the connection";
  // The address sanitizer keeps what is freed: nothing can be told there.
  if (!kAddressSanitizer) {
    EXPECT_LT(resident_after, resident_before + 6 * kMiB);
  }
}

TEST_F(HttpStreamsTest, WhatIsNoPipeIsFilledWithoutSplicing) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  UniqueFd ours(ends[0]);
  reader_ = std::thread([this, fd = ends[1]] {
    received_ = ReadDigest(fd);
    ::close(fd);
  });
  const std::string body = Pattern(3 * kMiB, 2);
  Serve([&](Request, Responder responder) { ReceiveInto(std::move(ours), std::move(responder)); },
        {},
        [&] {
          const UniqueFd fd = Connect();
          Send(fd.get(), PutLength(body.size()) + body);
          EXPECT_NE(ReadUntil(fd.get(), ".").find("took 3145728"), std::string::npos);
        });
  Digest sent;
  sent.Add(body.data(), body.size());
  EXPECT_EQ(received_, sent);
}

TEST_F(HttpStreamsTest, ChunkedBodiesAreDecodedAndWhatFollowsIsTheNextRequest) {
  const std::string piece = Pattern(100'000, 3);
  Digest sent;
  Serve(Receiver(), {}, [&] {
    const UniqueFd fd = Connect();
    std::string text = Put("Transfer-Encoding: chunked");
    for (int i = 0; i < 100; ++i) {  // more than a collected body may hold
      sent.Add(piece.data(), piece.size());
      text += "186a0;x=y\r\n" + piece + "\r\n";
    }
    Send(fd.get(), text + "0\r\nT: t\r\n\r\n" + kGet);
    const std::string answers = ReadUntil(fd.get(), "other");
    EXPECT_NE(answers.find("took 10000000."), std::string::npos);
    EXPECT_NE(answers.find("other"), std::string::npos);
  });
  EXPECT_EQ(received_, sent);
}

TEST_F(HttpStreamsTest, AMalformedChunkIsAnError) {
  Serve(Receiver(), {}, [&] {
    const UniqueFd fd = Connect();
    Send(fd.get(), Put("Transfer-Encoding: chunked") + "5\r\nhelloXX0\r\n\r\n");
    EXPECT_NE(ReadToEnd(fd.get()).find("HTTP/1.1 400"), std::string::npos);
  });
}

TEST_F(HttpStreamsTest, AnEmptyBodyIsAnEmptyPipe) {
  Serve(Receiver(), {}, [&] {
    const UniqueFd fd = Connect();
    Send(fd.get(), PutLength(0) + Put("Transfer-Encoding: chunked") + "0\r\n\r\n" + kGet);
    const std::string text = ReadUntil(fd.get(), "other");
    EXPECT_NE(text.find("took 0.", text.find("took 0.") + 1), std::string::npos) << text;
  });
}

TEST_F(HttpStreamsTest, AClientThatWaitsIsToldToGoOnOnceTheBodyIsWanted) {
  Serve(Receiver(), {}, [&] {
    const UniqueFd fd = Connect();
    Send(fd.get(), Put("Content-Length: 5\r\nExpect: 100-continue"));
    EXPECT_EQ(ReadUntil(fd.get(), "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    Send(fd.get(), "hello");
    EXPECT_NE(ReadUntil(fd.get(), ".").find("took 5"), std::string::npos);
  });
}

TEST_F(HttpStreamsTest, AClientThatWaitsIsRefusedWithoutItsBody) {
  Serve([](Request, Responder responder) { responder.Send(Text("no")); }, {},
        [&] {
          const UniqueFd fd = Connect();
          Send(fd.get(), Put("Content-Length: 5\r\nExpect: 100-continue"));
          const std::string text = ReadUntil(fd.get(), "no");
          EXPECT_TRUE(text.starts_with("HTTP/1.1 200")) << text;
          EXPECT_NE(text.find("Connection: close"), std::string::npos);
        });
}

TEST_F(HttpStreamsTest, ABodyNobodyReceivesIsThrownAway) {
  Serve([](Request, Responder responder) { responder.Send(Text("refused")); }, {},
        [&] {
          const UniqueFd fd = Connect();
          Send(fd.get(), PutLength(10 * kMiB));
          Send(fd.get(), std::string(10 * kMiB, 'x'));
          const std::string text = ReadToEnd(fd.get());
          EXPECT_NE(text.find("refused"), std::string::npos);
          EXPECT_NE(text.find("Connection: close"), std::string::npos);
          const UniqueFd whole = Connect();  // but one that is there already is skipped
          Send(whole.get(), PutLength(5) + "hello" + kGet);
          EXPECT_NE(ReadUntil(whole.get(), "refused").find("Content-Length"), std::string::npos);
        });
}

TEST_F(HttpStreamsTest, ASlowReaderHoldsTheClientBack) {
  Result<Pipe> pipe = MakePipe();
  ASSERT_TRUE(pipe.has_value());
  const std::string body = Pattern(8 * kMiB, 4);
  size_t sent_before = 0;
  Serve([&](Request,
            Responder responder) { ReceiveInto(std::move(pipe->write), std::move(responder)); },
        {.timeout = Milliseconds(60)},  // waiting for the pipe is not the client's fault
        [&] {
          const UniqueFd fd = Connect();
          Send(fd.get(), PutLength(body.size()));
          for (struct pollfd out = {fd.get(), POLLOUT, 0}; ::poll(&out, 1, 200) > 0;) {
            const ssize_t count = ::send(fd.get(), body.data() + sent_before,
                                         body.size() - sent_before, MSG_DONTWAIT);
            if (count > 0) sent_before += static_cast<size_t>(count);
          }
          std::thread reader([&] { received_ = ReadDigest(pipe->read.get()); });
          Send(fd.get(), std::string_view(body).substr(sent_before));
          EXPECT_NE(ReadUntil(fd.get(), ".").find("took 8388608"), std::string::npos);
          reader.join();
        });
  EXPECT_LT(sent_before, 2 * kMiB);
  Digest sent;
  sent.Add(body.data(), body.size());
  EXPECT_EQ(received_, sent);
}

TEST_F(HttpStreamsTest, APipeWithoutAReaderIsAnErrorThatTheClientReads) {
  Serve(
      [&](Request, Responder responder) {
        Result<Pipe> pipe = MakePipe();
        pipe->read.reset();
        ReceiveInto(std::move(pipe->write), std::move(responder));
      },
      {},
      [&] {
        const UniqueFd fd = Connect();
        Send(fd.get(), PutLength(4 * kMiB));
        // Told before a byte came, as much as in the middle.
        EXPECT_NE(ReadUntil(fd.get(), "EPIPE").find("HTTP/1.1 500"), std::string::npos);
        Send(fd.get(), std::string(4 * kMiB, 'x'));
        const UniqueFd chunked = Connect();
        Send(chunked.get(), Put("Transfer-Encoding: chunked") + "5\r\nhello\r\n");
        EXPECT_NE(ReadToEnd(chunked.get()).find("EPIPE"), std::string::npos);
      });
}

TEST_F(HttpStreamsTest, AClientThatGoesInTheMiddleIsTold) {
  Serve(Receiver(), {}, [&] {
    UniqueFd fd = Connect();
    Send(fd.get(), PutLength(100) + "hello");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    fd.reset();
    for (int i = 0; i < 1000 && ended_ == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  ASSERT_EQ(outcomes_.size(), 1u);
  ASSERT_FALSE(outcomes_[0].has_value());
  EXPECT_EQ(outcomes_[0].error().code, Code::kUnavailable);
  EXPECT_EQ(hangups_, 1);
  EXPECT_EQ(received_.bytes, 5u);
}

TEST_F(HttpStreamsTest, ABodyThatStopsArrivingIsGivenUpAndOneThatTricklesIsNot) {
  Serve(Receiver(), {.timeout = Milliseconds(60)}, [&] {
    const UniqueFd fd = Connect();
    Send(fd.get(), PutLength(10));
    for (int i = 0; i < 9; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      Send(fd.get(), "x");
    }
    const std::string text = ReadToEnd(fd.get());
    EXPECT_NE(text.find("HTTP/1.1 400"), std::string::npos);
    EXPECT_NE(text.find("did not arrive in time"), std::string::npos);
  });
  EXPECT_EQ(received_.bytes, 9u);
}

// Answers with what a thread writes into a pipe.
class HttpAnswerTest : public HttpStreamsTest {
 protected:
  ~HttpAnswerTest() override {
    if (writer_.joinable()) writer_.join();
  }
  HttpServer::Dispatch Sender(std::string body, std::optional<uint64_t> length) {
    return [this, body = std::move(body), length](Request, Responder responder) {
      Result<Pipe> pipe = MakePipe();
      if (writer_.joinable()) writer_.join();
      writer_ = std::thread([this, body, fd = std::move(pipe->write)] {
        write_failed_ = !WriteAll(fd.get(), body).has_value();
      });
      StreamHead head;
      head.length = length;
      head.headers = {{"X-Kind", "file"}};
      responder.SendStream(head, std::move(pipe->read),
                           [this](Result<uint64_t> moved) { outcomes_.push_back(moved); });
    };
  }
  std::thread writer_;
  std::atomic<bool> write_failed_ = false;
};

TEST_F(HttpAnswerTest, AnAnswerOfKnownLengthIsSentWholeAndTheConnectionStays) {
  const std::string body = Pattern(20 * kMiB, 5) + "the end.";
  Serve(Sender(body, body.size()), {}, [&] {
    const UniqueFd fd = Connect();
    for (int i = 0; i < 2; ++i) {
      Send(fd.get(), kGet);
      const std::string text = ReadUntil(fd.get(), "the end.");
      EXPECT_NE(text.find("X-Kind: file\r\nContent-Length: 20971528\r\n\r\n"), std::string::npos);
      EXPECT_TRUE(text.ends_with(body));
    }
  });
  ASSERT_EQ(outcomes_.size(), 2u);
  EXPECT_EQ(*outcomes_[1], body.size());
}

TEST_F(HttpAnswerTest, AnAnswerOfUnknownLengthIsChunkedOrEndsTheConnection) {
  Serve(Sender("hello", std::nullopt), {}, [&] {
    const UniqueFd fd = Connect();
    Send(fd.get(), kGet);
    EXPECT_TRUE(ReadUntil(fd.get(), "0\r\n\r\n").ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"));
    Send(fd.get(), kGet);
    ReadUntil(fd.get(), "0\r\n\r\n");
    const UniqueFd old = Connect();
    Send(old.get(), "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_TRUE(ReadToEnd(old.get()).ends_with("Connection: close\r\n\r\nhello"));
  });
}

TEST_F(HttpAnswerTest, AnEndBeforeTheLengthCutsTheConnection) {
  Serve(Sender("hello", 10), {}, [&] {
    const UniqueFd fd = Connect();
    Send(fd.get(), kGet);
    EXPECT_TRUE(ReadToEnd(fd.get()).ends_with("\r\n\r\nhello"));
  });
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_FALSE(outcomes_[0].has_value());
}

TEST_F(HttpAnswerTest, MoreThanTheLengthIsNotSent) {
  Serve(Sender(std::string(kMiB, 'x'), 10), {}, [&] {
    const UniqueFd fd = Connect();
    Send(fd.get(), "GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    EXPECT_TRUE(ReadToEnd(fd.get()).ends_with("\r\n\r\nxxxxxxxxxx"));
  });
  writer_.join();
  EXPECT_TRUE(write_failed_) << "the writer learns that nobody reads on";
}

TEST_F(HttpAnswerTest, HeadOfAStreamIsItsHeadOnly) {
  Serve(Sender(std::string(kMiB, 'x'), kMiB), {}, [&] {
    const UniqueFd fd = Connect();
    Send(fd.get(), "HEAD /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    const std::string text = ReadToEnd(fd.get());
    EXPECT_NE(text.find("Content-Length: 1048576\r\n"), std::string::npos);
    EXPECT_TRUE(text.ends_with("\r\n\r\n"));
  });
  writer_.join();
  EXPECT_TRUE(write_failed_);
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_EQ(*outcomes_[0], 0u);
}

TEST_F(HttpAnswerTest, AClientThatGoesOrDoesNotFetchEndsTheWriter) {
  for (const bool goes : {true, false}) {
    outcomes_.clear();
    write_failed_ = false;
    Serve(Sender(std::string(16 * kMiB, 'x'), std::nullopt), {.timeout = Milliseconds(60)}, [&] {
      UniqueFd fd = Connect();
      Send(fd.get(), kGet);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (goes) fd.reset();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    });
    writer_.join();
    EXPECT_TRUE(write_failed_);
    ASSERT_EQ(outcomes_.size(), 1u) << goes;
    ASSERT_FALSE(outcomes_[0].has_value());
    EXPECT_EQ(outcomes_[0].error().code, Code::kUnavailable);
    ASSERT_TRUE(::unlink((directory_ / "socket").c_str()) == 0);
  }
}

TEST_F(HttpAnswerTest, AStreamIsARequestUnderWayWhileTheServerStops) {
  const std::string body = std::string(4 * kMiB, 'x') + "the end.";
  const HttpServer::Dispatch send = Sender(body, body.size());
  size_t under_way = 0;
  Serve(
      [&](Request request, Responder responder) {
        send(std::move(request), std::move(responder));
        server_->StopAccepting();
        under_way = server_->requests_under_way();
      },
      {},
      [&] {
        const UniqueFd fd = Connect();
        Send(fd.get(), kGet);
        EXPECT_TRUE(ReadToEnd(fd.get()).ends_with("the end."));
        loop_.Post([&] { EXPECT_EQ(server_->requests_under_way(), 0u); });
      });
  EXPECT_EQ(under_way, 1u);
}

TEST_F(HttpStreamsTest, AHangUpIsNotToldFromWithinACall) {
  std::promise<void> closed, told;
  std::shared_ptr<Responder> kept;
  bool inside = false, told_inside = false;
  Serve(
      [&](Request, Responder responder) {
        kept = std::make_shared<Responder>(std::move(responder));
        kept->OnHangup([&] {
          told_inside = inside;
          told.set_value();
        });
        kept->StartEvents();
        closed.get_future().wait();
        inside = true;
        kept->Event("output", "{}");  // finds that nobody is there
        inside = false;
      },
      {},
      [&] {
        UniqueFd fd = Connect();
        Send(fd.get(), kGet);
        ReadUntil(fd.get(), "\r\n\r\n");
        fd.reset();
        closed.set_value();
        told.get_future().wait();
      });
  EXPECT_FALSE(told_inside);
}

}  // namespace
}  // namespace hutch::daemon

// A server on the test's thread, blocking clients on others.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <thread>

#include "base/file.h"
#include "daemon/http_server.h"
#include "daemon/listener.h"
#include "tests/base/temp_dir.h"

namespace hutch::daemon {

inline constexpr char kGet[] = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() { std::signal(SIGPIPE, SIG_IGN); }  // as main does

  void Serve(HttpServer::Dispatch dispatch, HttpServer::Options options,
             const std::function<void()>& client) {
    Result<UniqueFd> listen_fd = BindSocket(directory_ / "socket", "");
    ASSERT_TRUE(listen_fd.has_value()) << listen_fd.error().what;
    // What is put is streamed.
    const auto lookup = [](const Request& r) {
      return r.method == "PUT" ? Body::kStream : Body::kJson;
    };
    HttpServer server(loop_, std::move(*listen_fd), options, std::move(dispatch), lookup);
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
    char buffer[64 * 1024];
    size_t searched = 0;
    while (text.find(end, searched) == std::string::npos) {
      searched = text.size() - std::min(text.size(), end.size());
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

}  // namespace hutch::daemon

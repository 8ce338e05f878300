// A connection that became a WebSocket.
#include <sys/socket.h>

#include "daemon/http_server.h"
#include "daemon/http_session.h"

namespace hutch::daemon {
namespace {

constexpr Milliseconds kCloseTime{5'000};  // for the client's answer to our close

}  // namespace

Status HttpSession::StartWebSocket(WebSocketHandler handler) {
  if (state_ == State::kClosed)
    return Error{.code = Code::kUnavailable, .what = "the client closed the connection"};
  if (server_->stopping_) return Error{.code = Code::kUnavailable, .what = "the daemon stops"};
  if (state_ != State::kProcessing || !websocket_accept_ || !parser_.body_done())
    return Error{.code = Code::kInvalidArgument,
                 .what = "this call needs a WebSocket handshake",
                 .hint = "RFC 6455, version 13"};
  if (!websocket_accept_->has_value()) return websocket_accept_->error();
  const Headers headers = {{"Upgrade", "websocket"},
                           {"Connection", "Upgrade"},
                           {"Sec-WebSocket-Accept", **websocket_accept_}};
  out_.append(ResponseHead({.status = 101, .headers = &headers}));
  if (!request_line_.empty()) LogRequest(101);
  on_hangup_ = nullptr;
  timer_.Cancel();
  websocket_ = std::make_shared<WebSocket>();
  websocket_->handler = std::move(handler);
  websocket_->reader.Feed(parser_.TakeBuffered());
  close_after_ = true;
  state_ = State::kWebSocket;
  Soon(&HttpSession::HandleFrames);
  Flush();
  return OkStatus();
}

// Whoever does not read what it is sent is not read from: answers to its pings would pile up.
bool HttpSession::ReadsFrames() const {
  return (!websocket_->paused || websocket_->close_sent) && !Congested();
}

void HttpSession::ExpectFrames() {
  watch_.Arm(ReadsFrames() ? Ready::kReadable : Ready::kPriority);
}

void HttpSession::ReadFrames() {
  if (!ReadsFrames()) return ExpectFrames();
  std::string& scratch = server_->scratch_;
  const ssize_t count = ::recv(socket_.get(), scratch.data(), scratch.size(), MSG_DONTWAIT);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return ClientIsGone();
  if (count > 0) websocket_->reader.Feed({scratch.data(), static_cast<size_t>(count)});
  HandleFrames();
}

void HttpSession::HandleFrames() {
  if (state_ != State::kWebSocket) return;
  const std::shared_ptr<WebSocket> socket = websocket_;  // a handler may end it
  while (state_ == State::kWebSocket && (!socket->paused || socket->close_sent))
    if (!HandleFrame(socket->reader.Next())) break;
  if (state_ == State::kWebSocket) ExpectFrames();
}

// False when there is nothing more for now.
bool HttpSession::HandleFrame(WebSocketEvent event) {
  using Kind = WebSocketEvent::Kind;
  const bool closing = websocket_->close_sent;
  if (event.kind == Kind::kNeedMore) return false;
  if (event.kind == Kind::kClose) {
    EndWebSocket(closing ? "" : WebSocketCloseFrame(event.code, ""));
    return false;
  }
  if (event.kind == Kind::kError) {
    EndWebSocket(closing ? "" : WebSocketCloseFrame(event.code, event.data));
    return false;
  }
  if (closing) return true;  // too late
  if (event.kind == Kind::kPing) {
    out_.append(WebSocketFrame(WebSocketOpcode::kPong, event.data));
    Flush();
  }
  if (event.kind == Kind::kMessage && websocket_->handler.on_message)
    websocket_->handler.on_message(event.binary, std::move(event.data));
  return true;
}

void HttpSession::SendMessage(bool binary, std::string data) {
  if (state_ != State::kWebSocket || websocket_->close_sent) return;
  out_.append(WebSocketFrame(binary ? WebSocketOpcode::kBinary : WebSocketOpcode::kText, data));
  Flush();
}

void HttpSession::PauseMessages(bool paused) {
  if (state_ != State::kWebSocket) return;
  websocket_->paused = paused;
  if (!paused) Soon(&HttpSession::HandleFrames);
}

void HttpSession::CloseWebSocket(uint16_t code, std::string reason) {
  if (state_ != State::kWebSocket || websocket_->close_sent) return;
  out_.append(WebSocketCloseFrame(code, reason));
  websocket_->close_sent = true;
  timer_.Start(server_->loop_, kCloseTime, [this] {
    const auto self = shared_from_this();
    OnTimeout();
  });
  Soon(&HttpSession::HandleFrames);
  Flush();
}

// Both have said what they had to say, or the client cannot be understood.
void HttpSession::EndWebSocket(std::string last_frame) {
  out_.append(last_frame);
  EndRequest();
  TellWebSocketClosed();
  state_ = State::kWriting;
  RestartTimer();
  Flush();
}

void HttpSession::TellWebSocketClosed() {
  const std::shared_ptr<WebSocket> socket = std::exchange(websocket_, nullptr);
  if (socket == nullptr) return;
  if (state_ == State::kClosed && !socket->close_sent && backlog() == 0) {
    // The daemon ends, or the client is gone and this goes nowhere.
    const std::string frame = WebSocketCloseFrame(kCloseGoingAway, "");
    IgnoreError(Result<ssize_t>(
                    ::send(socket_.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL)),
                "the connection ends with or without a word");
  }
  // The handler may hold what holds this connection: let it go with the call.
  if (socket->handler.on_closed) server_->loop_.Post(std::move(socket->handler.on_closed));
  socket->handler.on_message = nullptr;
}

}  // namespace hutch::daemon

#include "daemon/http_session.h"

#include <poll.h>
#include <sys/socket.h>

#include "base/log.h"
#include "daemon/http_server.h"

namespace hutch::daemon {
namespace {

constexpr size_t kMaxDiscardBytes = 64 * 1024 * 1024;
constexpr Milliseconds kDiscardTime{5'000};
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

struct StatusRow {
  int status;
  const char* reason;
};
constexpr StatusRow kStatuses[] = {
    {200, "OK"},
    {201, "Created"},
    {204, "No Content"},
    {400, "Bad Request"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {507, "Insufficient Storage"},
};

const char* Reason(int status) {
  for (const StatusRow& row : kStatuses)
    if (row.status == status) return row.reason;
  return "Status";
}

std::string Hex(size_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "%zx", value);
  return text;
}

}  // namespace

HttpSession::HttpSession(HttpServer& server, UniqueFd socket, Peer peer)
    : server_(&server), socket_(std::move(socket)), peer_(peer), parser_(&server.budget_) {}

HttpSession::~HttpSession() = default;

void HttpSession::Start() {
  watch_ = server_->loop_.Add(socket_.get(), [this](Ready ready) {
    const auto self = shared_from_this();
    OnReady(ready);
  });
  if (!watch_.active()) return Close();
  RestartTimer();
  watch_.Arm(Ready::kReadable);
}

void HttpSession::RestartTimer() {
  timer_.Start(server_->loop_, server_->options_.timeout, [this] {
    const auto self = shared_from_this();
    if (state_ == State::kWriting) return Close();  // an answer nobody fetches
    if (state_ != State::kReading) return;
    if (parser_.idle()) return Close();  // silence between requests ends without a word
    CloseWithError(
        Error{.code = Code::kInvalidArgument, .what = "the request did not arrive in time"});
  });
}

void HttpSession::CloseWithError(const Error& error) {
  close_after_ = true;
  SendReply(ErrorReply(error));
}

void HttpSession::Close() {
  if (state_ == State::kClosed) return;
  if (state_ == State::kProcessing || state_ == State::kStreaming) --server_->under_way_;
  state_ = State::kClosed;
  watch_.Reset();
  timer_.Cancel();
  socket_.reset();
  server_->sessions_.erase(shared_from_this());
}

void HttpSession::CloseWhenIdle() {
  close_after_ = true;
  if (state_ == State::kReading) Close();
}

void HttpSession::OnReady(Ready ready) {
  switch (state_) {
    case State::kReading:
      if (ready == Ready::kReadable) ReadSome();
      break;
    case State::kProcessing:
      if (ready == Ready::kPriority) HandleHangup();
      break;
    case State::kStreaming:
      if (ready == Ready::kPriority) HandleHangup();
      if (ready == Ready::kWritable) Flush();
      break;
    case State::kWriting:
      if (ready == Ready::kWritable) Flush();
      break;
    case State::kDiscarding:
      if (ready == Ready::kReadable) Discard();
      break;
    case State::kClosed:
      break;
  }
}

void HttpSession::ReadSome() {
  std::string& scratch = server_->scratch_;
  const ssize_t count = ::recv(socket_.get(), scratch.data(), scratch.size(), MSG_DONTWAIT);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return Close();
  if (count < 0) return watch_.Arm(Ready::kReadable);
  const bool first = parser_.idle();
  parser_.Feed({scratch.data(), static_cast<size_t>(count)});
  if (first) RestartTimer();  // from its first byte a request has the whole time
  Advance();
}

// Not recursive: an answer given inside HandRequestOn() comes back here by the loop.
void HttpSession::Advance() {
  if (in_advance_) return;
  in_advance_ = true;
  while (state_ == State::kReading) {
    const HttpParser::Progress progress = parser_.Parse();
    if (progress == HttpParser::Progress::kNeedMore) {
      watch_.Arm(Ready::kReadable);
      break;
    }
    if (progress == HttpParser::Progress::kSendContinue) {
      out_.append(kContinue);
      Flush();
    } else if (progress == HttpParser::Progress::kFailed) {
      CloseWithError(parser_.error());
    } else {
      HandRequestOn();
    }
  }
  in_advance_ = false;
}

void HttpSession::HandRequestOn() {
  Request request = parser_.Take();
  request.peer = peer_;
  if (server_->options_.log_requests) {
    request_line_ = request.method + " " + request.path;
    request_start_ = Loop::Now();
  }
  if (!parser_.keep_alive() || server_->stopping_) close_after_ = true;
  state_ = State::kProcessing;
  ++server_->under_way_;
  server_->dispatch_(std::move(request), Responder(shared_from_this()));
  if (state_ == State::kProcessing || state_ == State::kStreaming) watch_.Arm(Ready::kPriority);
}

// Only a client that closed its socket has hung up. One that merely stopped sending (shutdown(2),
// SHUT_WR) waits for its answer.
void HttpSession::HandleHangup() {
  struct pollfd gone {
    .fd = socket_.get(), .events = 0, .revents = 0
  };
  if (::poll(&gone, 1, 0) == 0 || (gone.revents & (POLLHUP | POLLERR)) == 0)
    return watch_.Arm(Ready::kPriority);
  const std::function<void()> handler = std::move(on_hangup_);
  on_hangup_ = nullptr;
  Close();
  if (handler) handler();
}

void HttpSession::SetHangupHandler(std::function<void()> handler) {
  if (state_ == State::kProcessing || state_ == State::kStreaming) on_hangup_ = std::move(handler);
}

void HttpSession::AppendHead(int status, const char* content_type, const std::string& length_line) {
  out_.append("HTTP/1.1 ")
      .append(std::to_string(status))
      .append(" ")
      .append(Reason(status))
      .append("\r\n");
  if (content_type != nullptr) out_.append("Content-Type: ").append(content_type).append("\r\n");
  out_.append(length_line);
  if (close_after_)
    out_.append("Connection: close\r\n");
  else if (parser_.is_http_1_0())
    out_.append("Connection: keep-alive\r\n");
  out_.append("\r\n");
}

void HttpSession::SendReply(Reply reply) {
  if (state_ == State::kStreaming) return EndEvents();  // a handler that gave up in mid-stream
  if (state_ == State::kClosed) return;
  on_hangup_ = nullptr;
  if (state_ == State::kProcessing) --server_->under_way_;
  const bool has_body = reply.status != 204;
  out_.reserve(256 + reply.body.size());
  AppendHead(reply.status, has_body ? reply.content_type : nullptr,
             has_body ? "Content-Length: " + std::to_string(reply.body.size()) + "\r\n" : "");
  if (has_body) out_.append(reply.body);
  if (!request_line_.empty()) LogRequest(reply.status);
  state_ = State::kWriting;
  Flush();
}

void HttpSession::LogRequest(int status) {
  const auto took =
      std::chrono::duration_cast<std::chrono::microseconds>(Loop::Now() - request_start_);
  Log(LogLevel::kDebug, "request",
      {{"line", request_line_},
       {"status", std::to_string(status)},
       {"us", std::to_string(took.count())},
       {"peer_uid", std::to_string(peer_.uid)}});
  request_line_.clear();
}

void HttpSession::StartEvents() {
  if (state_ != State::kProcessing) return;
  state_ = State::kStreaming;
  stream_ended_ = false;
  chunked_ = !parser_.is_http_1_0();
  if (!chunked_) close_after_ = true;
  AppendHead(200, "text/event-stream",
             chunked_ ? "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n" : "");
  Flush();
}

void HttpSession::SendEvent(std::string_view name, std::string data) {
  if (state_ != State::kStreaming) return;
  // Progress is what a slow reader can do without.
  if (name == "progress" && out_.size() - out_done_ > kMaxStreamBacklogBytes) return;
  std::string event;
  event.append("event: ").append(name).append("\ndata: ").append(data).append("\n\n");
  if (chunked_)
    out_.append(Hex(event.size())).append("\r\n").append(event).append("\r\n");
  else
    out_.append(event);
  Flush();
}

void HttpSession::EndEvents() {
  if (state_ != State::kStreaming) return;
  on_hangup_ = nullptr;
  if (chunked_) out_.append("0\r\n\r\n");
  --server_->under_way_;
  state_ = State::kWriting;
  Flush();
}

void HttpSession::Flush() {
  while (out_done_ < out_.size()) {
    const ssize_t count = ::send(socket_.get(), out_.data() + out_done_, out_.size() - out_done_,
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      if (state_ == State::kWriting) RestartTimer();
      return watch_.Arm(Ready::kWritable);
    }
    if (count < 0) return state_ == State::kStreaming ? HandleHangup() : Close();
    out_done_ += static_cast<size_t>(count);
  }
  out_.clear();
  out_done_ = 0;
  if (state_ == State::kWriting) AnswerWritten();
}

void HttpSession::AnswerWritten() {
  if (!close_after_) {
    state_ = State::kReading;
    RestartTimer();
    return Advance();
  }
  ::shutdown(socket_.get(), SHUT_WR);
  state_ = State::kDiscarding;
  timer_.Start(server_->loop_, kDiscardTime, [this] { shared_from_this()->Close(); });
  watch_.Arm(Ready::kReadable);
}

void HttpSession::Discard() {
  std::string& scratch = server_->scratch_;
  const ssize_t count = ::recv(socket_.get(), scratch.data(), scratch.size(), MSG_DONTWAIT);
  if (count > 0) discarded_ += static_cast<size_t>(count);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR) ||
      discarded_ > kMaxDiscardBytes)
    return Close();
  watch_.Arm(Ready::kReadable);
}

}  // namespace hutch::daemon

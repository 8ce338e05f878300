// Bodies from and to pipes, and events.
#include <sys/socket.h>

#include "daemon/http_server.h"
#include "daemon/http_session.h"

namespace hutch::daemon {
namespace {

Error NotNow(const char* what) { return Error{.code = Code::kUnavailable, .what = what}; }

}  // namespace

CopyPort HttpSession::Port(void (HttpSession::*run)()) {
  return CopyPort{.loop = server_->loop_,
                  .socket = socket_.get(),
                  .scratch = server_->scratch_,
                  .on_pipe_ready = [weak = weak_from_this(), run] {
                    if (const auto self = weak.lock()) ((*self).*run)();
                  }};
}

// From the loop: handlers do not expect to be called from within their own calls.
void HttpSession::TellDone(StreamDone* done, Result<uint64_t> result) {
  StreamDone handler = std::exchange(*done, nullptr);
  if (!handler) return;
  server_->loop_.Post([call = std::move(handler), value = std::move(result)] { call(value); });
}

// The time-out counts while the client is waited for; whoever is at a pipe's other end is the
// handler's matter.
void HttpSession::FollowCopy(CopyState state, Ready ready, bool moved, void (HttpSession::*run)()) {
  if (state == CopyState::kOnPipe) return timer_.Cancel();
  if (moved || !timer_.running()) RestartTimer();
  if (state == CopyState::kAgain) return Soon(run);
  watch_.Arm(ready);
}

void HttpSession::ReceiveBody(UniqueFd pipe, StreamDone done) {
  receiver_done_ = std::move(done);
  if (state_ != State::kProcessing && state_ != State::kStreaming)
    return TellDone(&receiver_done_, NotNow("the client closed the connection"));
  if (parser_.TakeContinueWanted() && state_ == State::kProcessing) {
    out_.append(kContinueHead);
    Flush();
    if (state_ == State::kClosed) return;
  }
  receiver_ =
      std::make_unique<BodyReceiver>(Port(&HttpSession::RunReceiver), parser_, std::move(pipe));
  RestartTimer();
  Soon(&HttpSession::RunReceiver);
}

void HttpSession::RunReceiver() {
  if (receiver_ == nullptr) return;
  const uint64_t before = receiver_->moved();
  const Result<CopyState> state = receiver_->Run();
  const uint64_t moved = receiver_->moved();
  if (state.has_value() && *state != CopyState::kDone)
    return FollowCopy(*state, Ready::kReadable, moved != before, &HttpSession::RunReceiver);
  if (state.has_value()) return FinishReceiver(moved);
  if (HungUp()) return ClientIsGone();
  FinishReceiver(state.error());
}

void HttpSession::FinishReceiver(Result<uint64_t> result) {
  receiver_.reset();
  timer_.Cancel();
  ExpectHangup();
  TellDone(&receiver_done_, std::move(result));
}

void HttpSession::LeaveBody() {
  if (receiver_ != nullptr)
    FinishReceiver(Error{.code = Code::kBadState, .what = "answered before the end of the body"});
  std::string rest;
  if (!parser_.ReadBody(&rest).has_value() || !parser_.body_done()) close_after_ = true;
}

void HttpSession::SendStream(StreamHead head, UniqueFd pipe, StreamDone done) {
  sender_done_ = std::move(done);
  if (state_ != State::kProcessing)
    return TellDone(&sender_done_, NotNow("the client closed the connection"));
  LeaveBody();
  on_hangup_ = nullptr;
  const bool chunked = !head.length && !parser_.is_http_1_0();
  if (!head.length && !chunked) close_after_ = true;  // the end of the connection is that of it
  std::string framing = head.length ? ContentLengthLine(*head.length) : chunked ? kChunkedLine : "";
  out_.append(Head(head.status, head.content_type, &head.headers, std::move(framing)));
  if (!request_line_.empty()) LogRequest(head.status);
  if (head_only_) {
    pipe.reset();
    TellDone(&sender_done_, uint64_t{0});
    EndRequest();
    state_ = State::kWriting;
    return Flush();
  }
  state_ = State::kSending;
  sender_ = std::make_unique<BodySender>(
      Port(&HttpSession::RunSender), out_.substr(out_done_), head.length,
      chunked ? CopyFraming::kChunked : CopyFraming::kPlain, std::move(pipe));
  out_.clear();
  out_done_ = 0;
  RestartTimer();
  ExpectHangup();
  Soon(&HttpSession::RunSender);
}

void HttpSession::RunSender() {
  if (sender_ == nullptr) return;
  const uint64_t before = sender_->moved();
  const Result<CopyState> state = sender_->Run();
  const uint64_t moved = sender_->moved();
  if (state.has_value() && *state != CopyState::kDone)
    return FollowCopy(*state, Ready::kWritable, moved != before, &HttpSession::RunSender);
  if (state.has_value()) return FinishSender(moved);
  FinishSender(state.error());
}

void HttpSession::FinishSender(Result<uint64_t> result) {
  sender_.reset();
  const bool whole = result.has_value();
  TellDone(&sender_done_, std::move(result));
  if (!whole) return Close();
  timer_.Cancel();
  EndRequest();
  state_ = State::kWriting;
  Flush();
}

void HttpSession::StartEvents() {
  if (state_ != State::kProcessing) return;
  state_ = State::kStreaming;
  chunked_ = !parser_.is_http_1_0();
  // A body that is still on its way may not come to its end.
  if (!chunked_ || !parser_.body_done()) close_after_ = true;
  const bool ndjson = event_format_ == EventFormat::kNdjson;
  const Headers headers = {{"Cache-Control", "no-cache"}};
  out_.append(Head(200, ndjson ? "application/x-ndjson" : "text/event-stream", &headers,
                   chunked_ ? kChunkedLine : ""));
  if (!request_line_.empty()) LogRequest(200);
  Flush();
}

void HttpSession::SendEvent(std::string_view name, std::string json_object, std::string_view id) {
  if (state_ != State::kStreaming || head_only_) return;
  // Progress is what a slow reader can do without.
  if (name == "progress" && Congested()) return;
  const std::string text = EventText(event_format_, name, json_object, id);
  if (chunked_)
    out_.append(ChunkSizeLine(text.size())).append(text).append("\r\n");
  else
    out_.append(text);
  Flush();
}

void HttpSession::EndEvents() {
  if (state_ == State::kClosed) on_hangup_ = nullptr;
  if (state_ != State::kStreaming) return;
  on_hangup_ = nullptr;
  on_drained_ = nullptr;
  LeaveBody();
  if (chunked_ && !head_only_) out_.append("0\r\n\r\n");
  EndRequest();
  state_ = State::kWriting;
  Flush();
}

bool HttpSession::Congested() const { return backlog() > kMaxStreamBacklogBytes; }

void HttpSession::OnDrained(std::function<void()> handler) {
  if (state_ != State::kStreaming && state_ != State::kWebSocket) return;
  on_drained_ = std::move(handler);
  TellDrained();
}

// At half the bound, so that a producer does not start and stop with every event.
void HttpSession::TellDrained() {
  if (backlog() > kMaxStreamBacklogBytes / 2) return;
  if (state_ == State::kWebSocket) ExpectFrames();
  if (!on_drained_) return;
  server_->loop_.Post([weak = weak_from_this(), call = std::exchange(on_drained_, nullptr)] {
    const auto self = weak.lock();
    if (self != nullptr && (self->state_ == State::kStreaming || self->state_ == State::kWebSocket))
      call();
  });
}

}  // namespace hutch::daemon

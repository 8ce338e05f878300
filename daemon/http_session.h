// One connection: read a request, hand it on, write the answer, again. What a handler may ask of it
// is in three files: http_session.cc (replies), http_session_streams.cc (bodies from and to pipes,
// events) and http_session_websocket.cc.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "daemon/http_head.h"
#include "daemon/http_parser.h"
#include "daemon/loop.h"
#include "daemon/message.h"
#include "daemon/stream_copy.h"
#include "daemon/websocket_frames.h"

namespace hutch::daemon {

class HttpServer;

class HttpSession final : public ReplySink, public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(HttpServer& server, UniqueFd socket, Peer peer);
  ~HttpSession() override;

  void Start();
  void Close();
  // Closes now when no request is under way, else after its answer. A WebSocket is told 1001.
  void CloseWhenIdle();
  void CloseWithError(const Error& error);

  // ReplySink.
  void SendReply(Reply reply) override;
  void SetHangupHandler(std::function<void()> handler) override;
  void ReceiveBody(UniqueFd pipe, StreamDone done) override;
  void SendStream(StreamHead head, UniqueFd pipe, StreamDone done) override;
  void StartEvents() override;
  void SendEvent(std::string_view name, std::string json_object, std::string_view id) override;
  void EndEvents() override;
  bool Congested() const override;
  void OnDrained(std::function<void()> handler) override;
  Status StartWebSocket(WebSocketHandler handler) override;
  void SendMessage(bool binary, std::string data) override;
  void PauseMessages(bool paused) override;
  void CloseWebSocket(uint16_t code, std::string reason) override;
  Result<TakenConnection> TakeOver() override;

 private:
  enum class State {
    kReading,     // a request arrives, or nothing does
    kProcessing,  // with the handler; its body may be on its way into a pipe
    kStreaming,   // events flow
    kSending,     // a pipe's bytes flow
    kWebSocket,
    kWriting,     // the rest of an answer waits for the client
    kDiscarding,  // an error was answered: what the client still sends is thrown away, so that it
                  // gets to read the answer
    kClosed,
  };
  struct WebSocket {
    WebSocketReader reader;
    WebSocketHandler handler;
    bool paused = false;
    bool close_sent = false;
  };

  void OnReady(Ready ready);
  void ReadSome();
  void Advance();
  void HandRequestOn();
  void BeginRequest();
  void EndRequest();
  bool HungUp() const;
  bool SomethingArrived() const;
  void ExpectHangup();
  void LookForHangup();
  void HandleHangup();
  void ClientIsGone();
  void TellHangup();
  void Discard();
  void Answer(Reply reply);
  std::string Head(int status, std::string_view content_type, const Headers* headers,
                   std::string framing) const;
  void Flush();
  void AnswerWritten();
  void RestartTimer();
  void OnTimeout();
  void LogRequest(int status);
  void Soon(void (HttpSession::*call)());  // from the loop, if the connection is still there

  CopyPort Port(void (HttpSession::*run)());
  void RunReceiver();
  void RunSender();
  void FinishReceiver(Result<uint64_t> result);
  void FinishSender(Result<uint64_t> result);
  void LeaveBody();  // the answer comes before the body's end
  void FollowCopy(CopyState state, Ready ready, bool moved, void (HttpSession::*run)());
  void TellDone(StreamDone* done, Result<uint64_t> result);

  size_t backlog() const { return out_.size() - out_done_; }
  void TellDrained();
  void AppendEvent(std::string_view text);

  bool ReadsFrames() const;
  void ReadFrames();
  void HandleFrames();
  bool HandleFrame(WebSocketEvent event);
  void ExpectFrames();
  void EndWebSocket(std::string last_frame);
  void TellWebSocketClosed();

  HttpServer* server_;
  UniqueFd socket_;
  Peer peer_;
  HttpParser parser_;
  State state_ = State::kReading;
  std::string out_;
  size_t out_done_ = 0;
  size_t discarded_ = 0;
  bool in_advance_ = false;
  bool close_after_ = false;
  bool counted_ = false;    // as a request under way
  bool head_only_ = false;  // the request is HEAD
  bool chunked_ = false;    // events are
  EventFormat event_format_ = EventFormat::kServerSent;
  std::function<void()> on_hangup_;
  std::function<void()> on_drained_;
  std::unique_ptr<BodyReceiver> receiver_;
  StreamDone receiver_done_;
  std::unique_ptr<BodySender> sender_;
  StreamDone sender_done_;
  std::optional<Result<std::string>> websocket_accept_;  // of a request that wants an upgrade
  std::shared_ptr<WebSocket> websocket_;
  SteadyTime request_start_;
  std::string request_line_;  // for the log, at debug level
  Watch watch_;
  Timer timer_;
};

}  // namespace hutch::daemon

// One connection: read a request, hand it on, write the answer, again.
#pragma once

#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "daemon/http_parser.h"
#include "daemon/loop.h"
#include "daemon/message.h"

namespace hutch::daemon {

class HttpServer;

class HttpSession final : public ReplySink, public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(HttpServer& server, UniqueFd socket, Peer peer);
  ~HttpSession() override;

  void Start();
  void Close();
  // Closes now when no request is under way, else after its answer.
  void CloseWhenIdle();
  void CloseWithError(const Error& error);

  // ReplySink.
  void SendReply(Reply reply) override;
  void StartEvents() override;
  void SendEvent(std::string_view name, std::string data) override;
  void EndEvents() override;
  void SetHangupHandler(std::function<void()> handler) override;

 private:
  enum class State {
    kReading,     // a request arrives, or nothing does
    kProcessing,  // with the handler
    kStreaming,   // events flow
    kWriting,     // the rest of an answer waits for the client
    kDiscarding,  // an error was answered: what the client still sends is thrown away, so that it
                  // gets to read the answer
    kClosed,
  };

  void OnReady(Ready ready);
  void ReadSome();
  void Advance();
  void HandRequestOn();
  void HandleHangup();
  void Discard();
  void AppendHead(int status, const char* content_type, const std::string& length_line);
  void Flush();
  void AnswerWritten();
  void RestartTimer();
  void LogRequest(int status);

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
  bool stream_ended_ = false;
  bool chunked_ = false;
  std::function<void()> on_hangup_;
  SteadyTime request_start_;
  std::string request_line_;  // for the log, at debug level
  Watch watch_;
  Timer timer_;
};

}  // namespace hutch::daemon

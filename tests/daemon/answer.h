// What a handler answers, as tests see it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "daemon/message.h"
#include "oci/json.h"

namespace hutch::daemon {

struct Answer final : ReplySink {
  std::optional<Reply> reply;
  std::vector<std::pair<std::string, std::string>> events;
  bool ended = false;
  std::function<void()> hangup;
  std::string streamed_body;  // what ReceiveBody() puts into the pipe, and no more than it holds
  std::optional<StreamHead> stream_head;  // of SendStream(); the rest of it is the test's to read
  UniqueFd stream_pipe;
  StreamDone stream_done;
  std::optional<WebSocketHandler> websocket;
  std::vector<std::pair<bool, std::string>> messages;  // binary, data
  std::optional<uint16_t> close_code;
  bool congested = false, messages_paused = false;
  std::function<void()> drained;

  void SendReply(Reply r) override { reply = std::move(r); }
  void SetHangupHandler(std::function<void()> handler) override { hangup = std::move(handler); }
  void ReceiveBody(UniqueFd pipe, StreamDone done) override {
    const Status written = WriteAll(pipe.get(), streamed_body);
    pipe.reset();
    done(written.has_value() ? Result<uint64_t>(streamed_body.size()) : written.error());
  }
  void SendStream(StreamHead head, UniqueFd pipe, StreamDone done) override {
    stream_head = std::move(head);
    stream_pipe = std::move(pipe);
    stream_done = std::move(done);
  }
  void StartEvents() override {}
  void SendEvent(std::string_view name, std::string data, std::string_view) override {
    events.emplace_back(name, std::move(data));
  }
  void EndEvents() override { ended = true; }
  bool Congested() const override { return congested; }
  void OnDrained(std::function<void()> handler) override { drained = std::move(handler); }
  Status StartWebSocket(WebSocketHandler handler) override {
    websocket = std::move(handler);
    return OkStatus();
  }
  void SendMessage(bool binary, std::string data) override {
    messages.emplace_back(binary, std::move(data));
  }
  void PauseMessages(bool paused) override { messages_paused = paused; }
  void CloseWebSocket(uint16_t code, std::string) override {
    close_code = code;
    ended = true;
  }

  bool done() const { return reply.has_value() || ended; }
  int status() const { return reply ? reply->status : 0; }
  oci::Json json() const {
    // The list of all tombstones is long.
    Result<oci::Json> parsed =
        oci::ParseJson(reply ? reply->body : "null", {.max_bytes = size_t{16} << 20});
    return parsed.has_value() ? *parsed : oci::Json();
  }
  std::string code() const {
    const oci::Json body = json();
    const auto error = body.find("error");  // of a sandbox mostly null
    return error != body.end() && error->is_object() ? (*error)["code"].get<std::string>() : "";
  }
};

}  // namespace hutch::daemon

#include <memory>

#include "daemon/handlers.h"
#include "daemon/log_tail.h"
#include "daemon/output_events.h"
#include "daemon/process_calls.h"

namespace hutch::daemon {
namespace {

using Process = std::shared_ptr<BackgroundProcess>;

struct OutputQuery {
  uint64_t cursor = 0;
  uint64_t max_bytes = 1024 * 1024;
  Encoding encoding = Encoding::kAuto;
  std::optional<StreamId> stream;  // both otherwise
  bool follow = false;

  bool Wants(StreamId id) const { return !stream || *stream == id; }
};

Error BadQuery(std::string what, std::string field) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = std::move(field)};
}

struct QueryRow {
  const char* name;
  Status (*parse)(const std::string& value, const ProcessLog& log, OutputQuery* query);
};

constexpr QueryRow kQueryRows[] = {
    {"cursor",
     [](const std::string& value, const ProcessLog&, OutputQuery* query) -> Status {
       ASSIGN_OR_RETURN(query->cursor, ParseUint(value));
       return OkStatus();
     }},
    {"max_bytes",
     [](const std::string& value, const ProcessLog&, OutputQuery* query) -> Status {
       ASSIGN_OR_RETURN(query->max_bytes, ParseUint(value, kMaxOutputReadBytes));
       return OkStatus();
     }},
    {"tail_bytes",
     [](const std::string& value, const ProcessLog& log, OutputQuery* query) -> Status {
       ASSIGN_OR_RETURN(const uint64_t bytes, ParseUint(value));
       query->cursor = log.end() - std::min(bytes, log.end() - log.begin());
       return OkStatus();
     }},
    {"since",
     [](const std::string& value, const ProcessLog& log, OutputQuery* query) -> Status {
       ASSIGN_OR_RETURN(const WallTime time, ParseRfc3339(value));
       const auto us =
           std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch());
       query->cursor = log.FindTime(us.count());
       return OkStatus();
     }},
    {"encoding",
     [](const std::string& value, const ProcessLog&, OutputQuery* query) -> Status {
       const std::optional<Encoding> encoding = ParseEncoding(value);
       if (!encoding) return BadQuery("must be auto, utf-8 or base64", "encoding");
       query->encoding = *encoding;
       return OkStatus();
     }},
    {"stream",
     [](const std::string& value, const ProcessLog&, OutputQuery* query) -> Status {
       for (const StreamId id : {StreamId::kStdout, StreamId::kStderr})
         if (value == StreamName(id)) query->stream = id;
       return query->stream ? OkStatus() : BadQuery("must be stdout or stderr", "stream");
     }},
    {"follow",
     [](const std::string& value, const ProcessLog&, OutputQuery* query) -> Status {
       if (value != "true" && value != "false") return BadQuery("must be true or false", "follow");
       query->follow = value == "true";
       return OkStatus();
     }},
};

Result<OutputQuery> ParseOutputQuery(const Request& request, const ProcessLog& log) {
  OutputQuery query;
  for (const auto& [name, value] : request.query)
    for (const QueryRow& row : kQueryRows) {
      if (name != row.name) continue;
      Status parsed = row.parse(value, log, &query);
      if (parsed.has_value()) continue;
      Error error = std::move(parsed).error();
      error.field = name;
      return error;
    }
  return query;
}

std::string TimeText(int64_t time_us) {
  return FormatRfc3339(WallTime(std::chrono::microseconds(time_us)));
}

void AddChunk(oci::Json chunk, uint64_t offset, int64_t time_us, oci::Json* chunks) {
  if (chunk["data"].get_ref<const std::string&>().empty()) return;
  chunk["offset"] = offset;
  chunk["time"] = TimeText(time_us);
  chunks->push_back(std::move(chunk));
}

// An unfinished character at the very end waits for the next call, while more may come.
oci::Json OutputJson(const BackgroundProcess& process, const OutputQuery& query,
                     const std::vector<LogRun>& runs) {
  const ProcessLog& log = process.log();
  const uint64_t from = std::clamp(query.cursor, log.begin(), log.end());
  uint64_t next = from;
  Pieces pieces(query.encoding);
  oci::Json chunks = oci::Json::array();
  for (const LogRun& run : runs) {
    next = run.offset + run.bytes.size();
    if (query.Wants(run.stream))
      AddChunk(ChunkJson(run.stream, pieces.Of(run.stream).Next(run.bytes)), run.offset,
               run.time_us, &chunks);
  }
  const bool more_may_come = next < log.end() || !process.ended() || process.streams_open();
  for (const StreamId id : {StreamId::kStdout, StreamId::kStderr}) {
    const size_t held = pieces.Of(id).held_bytes();
    if (held == 0) continue;
    if (more_may_come && runs.back().stream == id && held < next - from)
      next -= held;
    else
      AddChunk(ChunkJson(id, pieces.Of(id).Finish()), next - held, runs.back().time_us, &chunks);
  }
  return {{"cursor", from},
          {"next_cursor", next},
          {"dropped_bytes", from - std::min(from, query.cursor)},
          {"lost_bytes", log.lost()},
          {"ended", process.ended()},
          {"chunks", std::move(chunks)}};
}

// A log as events.
class EventTail final : public TailClient {
 public:
  EventTail(Loop& loop, Responder responder, Process process, const OutputQuery& query)
      : responder_(std::move(responder)),
        process_(std::move(process)),
        query_(query),
        pieces_(query.encoding),
        heartbeat_(loop, responder_) {}

  Responder& responder() { return responder_; }
  void Begin() {
    responder_.StartEvents();
    heartbeat_.Start();
  }
  void OnRun(const LogRun& run) override {
    if (!query_.Wants(run.stream)) return;
    Tell(run.stream, pieces_.Of(run.stream).Next(run.bytes), run.offset + run.bytes.size(),
         run.time_us);
  }
  void OnGap(uint64_t dropped_bytes) override {
    responder_.Event("gap", oci::PrintJson({{"dropped_bytes", dropped_bytes}}));
  }
  void OnEnd() override {
    for (const StreamId id : {StreamId::kStdout, StreamId::kStderr})
      if (pieces_.Of(id).held_bytes() > 0)
        Tell(id, pieces_.Of(id).Finish(), process_->log().end(), 0);
    responder_.Event("exit", oci::PrintJson(process_->ToJson()));
    responder_.End();
    heartbeat_.Stop();
  }
  void OnError(const Error& error) override {
    responder_.Event("error", oci::PrintJson(ErrorJson(error)));
    responder_.End();
    heartbeat_.Stop();
  }
  bool Congested() override { return responder_.Congested(); }
  void OnDrained(std::function<void()> handler) override {
    responder_.OnDrained(std::move(handler));
  }

 private:
  void Tell(StreamId id, EncodedText text, uint64_t cursor, int64_t time_us) {
    if (text.text.empty()) return;
    oci::Json json = ChunkJson(id, std::move(text));
    json["cursor"] = cursor;
    if (time_us != 0) json["time"] = TimeText(time_us);
    responder_.Event("output", oci::PrintJson(json), std::to_string(cursor));
  }

  Responder responder_;
  Process process_;
  OutputQuery query_;
  Pieces pieces_;
  Heartbeat heartbeat_;
};

void FollowEvents(Api& api, Process process, const OutputQuery& query, Responder responder) {
  const auto client = std::make_shared<EventTail>(api.loop, std::move(responder), process, query);
  const Result<std::shared_ptr<LogTail>> tail =
      LogTail::Start(api.loop, process, query.cursor, client);
  if (!tail.has_value()) return client->responder().Send(tail.error());
  client->Begin();
  client->responder().OnHangup([tail = *tail] { tail->Stop(); });
}

}  // namespace

void HandleReadOutput(Api& api, Request request, Responder responder) {
  const Result<Process> process = FindProcess(api, request);
  if (!process.has_value()) return responder.Send(process.error());
  Result<OutputQuery> query = ParseOutputQuery(request, (*process)->log());
  if (!query.has_value()) return responder.Send(query.error());
  // What a reader of events saw last is where it goes on (the EventSource standard).
  if (const auto last = ParseUint(request.Header("Last-Event-ID"))) query->cursor = *last;
  if (query->follow || request.wants_events || request.wants_ndjson)
    return FollowEvents(api, *process, *query, std::move(responder));
  const Result<std::vector<LogRun>> runs = (*process)->log().Read(query->cursor, query->max_bytes);
  if (!runs.has_value()) return responder.Send(runs.error());
  responder.Send(JsonReply(200, OutputJson(**process, *query, *runs)));
}

}  // namespace hutch::daemon

// What the event streams of commands and of processes share.
#pragma once

#include "daemon/limits.h"
#include "daemon/loop.h"
#include "daemon/message.h"
#include "daemon/process_log.h"
#include "daemon/text_encoding.h"

namespace hutch::daemon {

// Both streams in pieces, with no character cut.
class Pieces {
 public:
  explicit Pieces(Encoding encoding) : encoders_{PieceEncoder(encoding), PieceEncoder(encoding)} {}
  PieceEncoder& Of(StreamId id) { return encoders_[id == StreamId::kStdout ? 0 : 1]; }

 private:
  PieceEncoder encoders_[2];
};

// {"stream", "data", "encoding"}, and "replaced" where it is so.
inline oci::Json ChunkJson(StreamId stream, EncodedText text) {
  oci::Json json = {
      {"stream", StreamName(stream)}, {"data", std::move(text.text)}, {"encoding", text.encoding}};
  if (text.replaced) json["replaced"] = true;
  return json;
}

// An event every kHeartbeat, so that proxies and clients can tell silence from death.
class Heartbeat {
 public:
  Heartbeat(Loop& loop, Responder& responder) : loop_(loop), responder_(responder) {}
  void Start() {
    timer_.Start(loop_, kHeartbeat, [this] {
      Start();  // first: nothing is touched once the client was told, or was found gone
      if (!responder_.Congested()) responder_.Event("heartbeat", "{}");
    });
  }
  void Stop() { timer_.Cancel(); }

 private:
  Loop& loop_;
  Responder& responder_;
  Timer timer_;
};

}  // namespace hutch::daemon

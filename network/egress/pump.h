// One direction of a connection: bytes from one stream to the other, as many as its sandbox may
// move, no more held than one read.
#pragma once

#include <span>
#include <string>

#include "network/egress/http_body.h"
#include "network/egress/stream.h"
#include "network/egress/tenant.h"

namespace hutch::network {

class Pump {
 public:
  enum class State {
    kWaiting,  // a stream will be ready
    kPaused,   // the sandbox's rate is used up: try in a moment
    kYield,    // others' turn
    kDone,     // the body is whole, and on its way
    kEnd,      // the source has ended
    kFailed,   // one of the two is gone, or the body was cut off
    kBad,      // the body is malformed
    kSpent     // the sandbox's quota is used up
  };
  // `body`: ends with it; nullptr: with the source.
  Pump(Stream& from, Stream& to, Tenant& tenant, Direction direction, BodyReader* body)
      : from_(from), to_(to), tenant_(tenant), direction_(direction), body_(body) {}
  State Run(std::span<char> block);
  // To be written before anything else, uncounted: heads.
  void Put(std::string_view bytes) { pending_ += bytes; }
  State Flush();  // kYield: there is room for more

 private:
  State Move(std::span<char> block);
  State Pass(std::string_view bytes);

  Stream& from_;
  Stream& to_;
  Tenant& tenant_;
  Direction direction_;
  BodyReader* body_;
  std::string pending_;
  bool ended_ = false;
};

}  // namespace hutch::network

// Server-sent events (the WHATWG format) from bytes that come in pieces of any size.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hutch::tools {

struct SseEvent {
  std::string name;  // "message" when the stream names none
  std::string data;  // several data lines joined by line feeds
};

class SseReader {
 public:
  // The events that these bytes complete. kTooLarge when one event grows beyond 16 MiB.
  Result<std::vector<SseEvent>> Feed(std::string_view bytes);

 private:
  void TakeLine(std::string_view line, std::vector<SseEvent>* events);

  std::string line_;
  SseEvent event_;
  bool has_data_ = false;
};

}  // namespace hutch::tools

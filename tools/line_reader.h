// Lines from bytes that come in pieces of any size.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hutch::tools {

class LineReader {
 public:
  // Calls `on_line` for each line that these bytes complete, without its line feed; empty ones are
  // left out. The first error of `on_line` is returned. kTooLarge for a line of more than 16 MiB.
  Status Feed(std::string_view bytes, const std::function<Status(std::string_view line)>& on_line);

 private:
  std::string line_;
};

}  // namespace hutch::tools

// How an import or a build goes on: one live line a stage on a terminal, else plain lines.
#pragma once

#include <string>

#include "oci/json.h"
#include "tools/table.h"

namespace hutch::tools {

enum class ProgressStyle { kLive, kPlain };

class Progress {
 public:
  Progress(ProgressStyle style, Colours colours) : style_(style), colours_(colours) {}

  // The text to write for one event {"stage","subject","done","total"}; may be empty. A live line
  // overwrites itself while the stage lasts; plain style says each stage and subject once.
  std::string Take(const oci::Json& event);
  // What ends the last line.
  std::string Finish();

 private:
  ProgressStyle style_;
  Colours colours_;
  std::string stage_, subject_;
  bool line_open_ = false;
};

}  // namespace hutch::tools

// How a pull, an import or a build goes on: live lines on a terminal, else plain ones.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "oci/json.h"
#include "tools/table.h"

namespace hutch::tools {

enum class ProgressStyle { kLive, kPlain };

class Progress {
 public:
  Progress(ProgressStyle style, Colours colours) : style_(style), colours_(colours) {}

  // The text to write for one event {"stage","subject","done","total"}; may be empty. A live line
  // overwrites itself: there is one for each subject whose extent is known (the layers of a pull),
  // and one for each stage of the others. Plain style says each stage and subject once.
  std::string Take(const oci::Json& event);
  // What ends the last line.
  std::string Finish();

 private:
  ProgressStyle style_;
  Colours colours_;
  std::string LiveLine(const std::string& key, const std::string& text);

  std::set<std::pair<std::string, std::string>> said_;  // plain style
  std::vector<std::string> lines_;                      // live style: keys, top to bottom
};

}  // namespace hutch::tools

// Glob patterns for paths: * and ? and [a-z] within a name, ** for any number of directories,
// {a,b} for alternatives, \ before a character that stands for itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hutch::files {

class GlobPattern {
 public:
  // kInvalidArgument: empty, longer than kMaxGlobBytes, unbalanced or nested braces, or more than
  // kMaxGlobAlternatives alternatives.
  static Result<GlobPattern> Parse(std::string_view text);

  // Matches a whole relative path. Time is bounded by the product of both lengths.
  bool MatchesPath(std::string_view path) const;
  // A pattern without a slash matches the last component wherever it stands; others the path.
  bool Matches(std::string_view path) const;

 private:
  std::vector<std::vector<std::string>> alternatives_;  // components of each
};

}  // namespace hutch::files

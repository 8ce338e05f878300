#include "files/glob_pattern.h"

#include "base/text.h"
#include "files/errors.h"
#include "files/limits.h"

namespace hutch::files {
namespace {

// Whether `c` is in the class that begins behind "[" at *at; *at is moved behind its "]". A class
// without an end is the character "[" itself: npos in *at.
bool InClass(std::string_view pattern, size_t* at, char c) {
  size_t i = *at;
  bool negated = false, found = false;
  if (i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^')) negated = true, ++i;
  for (const size_t first = i; i < pattern.size() && (i == first || pattern[i] != ']'); ++i) {
    const auto low = static_cast<unsigned char>(pattern[i]);
    auto high = low;
    if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']')
      high = static_cast<unsigned char>(pattern[i += 2]);
    const auto value = static_cast<unsigned char>(c);
    found = found || (low <= value && value <= high);
  }
  *at = i < pattern.size() ? i + 1 : std::string_view::npos;
  return found != negated;
}

// Whether the pattern's item at *p matches `c`; *p is moved behind it.
bool ItemMatches(std::string_view pattern, size_t* p, char c) {
  const char item = pattern[*p];
  if (item == '?') return ++*p, true;
  if (item == '[') {
    size_t at = *p + 1;
    const bool in = InClass(pattern, &at, c);
    if (at != std::string_view::npos) return *p = at, in;
  }
  if (item == '\\' && *p + 1 < pattern.size()) ++*p;
  return pattern[(*p)++] == c;
}

// One component. Going back to the last star is enough: an earlier one has nothing to add.
bool NameMatches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, star_n = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_n = n;
      continue;
    }
    size_t next = p;
    if (p < pattern.size() && ItemMatches(pattern, &next, name[n])) {
      p = next;
      ++n;
      continue;
    }
    if (star == std::string_view::npos) return false;
    p = star + 1;
    n = ++star_n;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// The same one level up: "**" is the star, components are the characters.
bool ComponentsMatch(const std::vector<std::string>& pattern,
                     const std::vector<std::string>& path) {
  size_t p = 0, n = 0, star = SIZE_MAX, star_n = 0;
  while (n < path.size()) {
    if (p < pattern.size() && pattern[p] == "**") {
      star = p++;
      star_n = n;
    } else if (p < pattern.size() && NameMatches(pattern[p], path[n])) {
      ++p;
      ++n;
    } else if (star != SIZE_MAX) {
      p = star + 1;
      n = ++star_n;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == "**") ++p;
  return p == pattern.size();
}

// The first group of braces that is no escape, as positions; false when there is none.
bool FindBraces(std::string_view text, size_t* open, size_t* close) {
  *open = *close = std::string_view::npos;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '{' && *open == std::string_view::npos) {
      *open = i;
    } else if (text[i] == '}' && *open != std::string_view::npos) {
      *close = i;
      return true;
    }
  }
  return *open != std::string_view::npos;
}

// Replaces groups of braces by what they stand for.
Result<std::vector<std::string>> Expand(std::string_view text) {
  std::vector<std::string> todo = {std::string(text)}, done;
  while (!todo.empty()) {
    const std::string one = std::move(todo.back());
    todo.pop_back();
    size_t open = 0, close = 0;
    if (!FindBraces(one, &open, &close)) {
      done.push_back(one);
      continue;
    }
    const std::string inside =
        close == std::string::npos ? "{" : one.substr(open + 1, close - open - 1);
    if (inside.find('{') != std::string::npos)
      return Invalid("braces that are nested or without an end in a glob", "glob");
    for (const std::string& part : Split(inside, ','))
      todo.push_back(one.substr(0, open) + part + one.substr(close + 1));
    if (todo.size() + done.size() > kMaxGlobAlternatives)
      return Invalid(
          "a glob of more than " + std::to_string(kMaxGlobAlternatives) + " alternatives", "glob");
  }
  return done;
}

}  // namespace

Result<GlobPattern> GlobPattern::Parse(std::string_view text) {
  if (text.empty()) return Invalid("an empty glob", "glob");
  if (text.size() > kMaxGlobBytes)
    return Invalid("a glob of more than " + std::to_string(kMaxGlobBytes) + " bytes", "glob");
  GlobPattern pattern;
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, Expand(text));
  for (const std::string& one : texts) {
    std::vector<std::string> components;
    for (std::string& part : Split(one, '/'))
      if (!part.empty() && part != ".") components.push_back(std::move(part));
    pattern.alternatives_.push_back(std::move(components));
  }
  return pattern;
}

bool GlobPattern::MatchesPath(std::string_view path) const {
  const std::vector<std::string> components = Split(path, '/');
  for (const auto& alternative : alternatives_)
    if (ComponentsMatch(alternative, components)) return true;
  return false;
}

bool GlobPattern::Matches(std::string_view path) const {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (const auto& alternative : alternatives_)
    if (alternative.size() == 1 && alternative[0] != "**" && NameMatches(alternative[0], name))
      return true;
  return MatchesPath(path);
}

}  // namespace hutch::files

#include "rootfs/registry/challenge.h"

#include <algorithm>
#include <optional>

#include "rootfs/registry/limits.h"

namespace hutch::rootfs::registry {
namespace {

bool IsTokenChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  bool AtEnd() const { return text_.empty(); }
  bool Take(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void SkipSpace() { Skip(" \t"); }
  void SkipSpaceAndCommas() { Skip(" \t,"); }
  void SkipTo(char c) { text_.remove_prefix(std::min(text_.find(c), text_.size())); }
  std::string Token() {
    const auto end = std::find_if_not(text_.begin(), text_.end(), IsTokenChar);
    const std::string token(text_.begin(), end);
    text_.remove_prefix(token.size());
    return token;
  }
  // What follows its opening quote; none when it is not closed.
  std::optional<std::string> Quoted() {
    std::string value;
    for (size_t i = 0; i < text_.size(); ++i) {
      if (text_[i] == '"') {
        text_.remove_prefix(i + 1);
        return value;
      }
      if (text_[i] == '\\' && ++i == text_.size()) break;
      value += text_[i];
    }
    return std::nullopt;
  }

 private:
  void Skip(std::string_view which) {
    text_.remove_prefix(std::min(text_.find_first_not_of(which), text_.size()));
  }
  std::string_view text_;
};

std::string Lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return text;
}

// The value of a parameter whose "=" was taken; none when it is malformed.
std::optional<std::string> Value(Reader& reader) {
  reader.SkipSpace();
  if (reader.Take('"')) return reader.Quoted();
  std::string token = reader.Token();
  if (token.empty()) reader.SkipTo(',');  // the padding of a token68, which nothing here reads
  return token;
}

}  // namespace

std::string Challenge::Parameter(const std::string& name) const {
  const auto it = parameters.find(name);
  return it == parameters.end() ? "" : it->second;
}

std::vector<Challenge> ParseChallenges(std::string_view header) {
  std::vector<Challenge> challenges;
  Reader reader(header);
  while (true) {
    reader.SkipSpaceAndCommas();
    if (reader.AtEnd()) return challenges;
    std::string word = Lower(reader.Token());
    if (word.empty()) return challenges;
    reader.SkipSpace();
    if (!reader.Take('=')) {
      if (challenges.size() == kMaxChallenges) return challenges;
      challenges.push_back({std::move(word), {}});
      continue;
    }
    std::optional<std::string> value = Value(reader);
    if (!value || challenges.empty() ||
        challenges.back().parameters.size() == kMaxChallengeParameters)
      return challenges;
    challenges.back().parameters.try_emplace(std::move(word), *std::move(value));
  }
}

}  // namespace hutch::rootfs::registry

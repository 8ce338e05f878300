#include "oci/jsonc.h"

#include <algorithm>

namespace hutch::oci {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// What may stand before a comma that is left over: the end of a value.
bool EndsValue(char c) { return c != 0 && c != '[' && c != '{' && c != ',' && c != ':'; }

class Cleaner {
 public:
  explicit Cleaner(std::string_view text) : text_(text) {}

  Status Run() {
    if (text_.starts_with(kByteOrderMark)) Blank(0, kByteOrderMark.size());
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"')
        SkipString();
      else if (text_.substr(at_).starts_with("//"))
        BlankLine();
      else if (text_.substr(at_).starts_with("/*"))
        RETURN_IF_ERROR(BlankBlock());
      else
        Take(c);
    }
    return OkStatus();
  }

  std::string Text() && { return std::move(text_copy_); }

 private:
  // Line breaks stay: whoever counts lines still can.
  void Blank(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
      if (text_[i] != '\n' && text_[i] != '\r') text_copy_[i] = ' ';
    at_ = std::max(at_, end);
  }

  void SkipString() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_)
      if (text_[at_] == '\\') ++at_;
    ++at_;
    before_ = last_;
    last_ = '"';
  }

  void BlankLine() {
    const size_t end = text_.find_first_of("\r\n", at_);
    Blank(at_, end == std::string_view::npos ? text_.size() : end);
  }

  Status BlankBlock() {
    const size_t end = text_.find("*/", at_ + 2);
    if (end == std::string_view::npos)
      return Error{.code = Code::kInvalidArgument,
                   .what = "a comment without an end at byte " + std::to_string(at_ + 1)};
    Blank(at_, end + 2);
    return OkStatus();
  }

  void Take(char c) {
    if (!IsSpace(c)) {
      if ((c == ']' || c == '}') && last_ == ',' && EndsValue(before_)) text_copy_[comma_at_] = ' ';
      if (c == ',') comma_at_ = at_;
      before_ = last_;
      last_ = c;
    }
    ++at_;
  }

  std::string_view text_;
  std::string text_copy_{text_};
  size_t at_ = 0, comma_at_ = 0;
  char last_ = 0, before_ = 0;  // what stood last outside of white space and comments
};

}  // namespace

Result<std::string> JsoncToJson(std::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes)
    return Error{.code = Code::kTooLarge,
                 .what = "more than " + std::to_string(max_bytes) + " bytes"};
  Cleaner cleaner(text);
  RETURN_IF_ERROR(cleaner.Run());
  return std::move(cleaner).Text();
}

}  // namespace hutch::oci

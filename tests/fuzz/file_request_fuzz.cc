// The JSON of a file request. Nothing it names can be there: paths are put below a directory that
// does not exist, and what would follow is refused. Whatever the bytes, an answer of lines.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/file.h"
#include "files/glob_pattern.h"
#include "files/operations.h"
#include "oci/json.h"

namespace {

// Turns every absolute path of the request into one of nothing.
void Divert(hutch::oci::Json& value) {
  if (value.is_string() && value.get_ref<std::string&>().starts_with('/'))
    value = "/nonexistent-" + std::to_string(::getpid()) + value.get<std::string>();
  if (value.is_structured())
    for (hutch::oci::Json& item : value) Divert(item);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto glob = hutch::files::GlobPattern::Parse(text)) {
    // A path matches itself only by way of the pattern: what is asked here is that it ends.
    if (glob->Matches("src/a/b.cc") && glob->MatchesPath(text) && text.empty()) return 0;
  }
  static const int null_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  hutch::files::ReplyStream reply(null_fd);
  hutch::files::Io io{.in = null_fd, .out = null_fd, .reply = reply};
  auto request = hutch::oci::ParseJson(text, {.max_depth = 8});
  if (!request) {
    if (hutch::files::RunRequest(text == "-" ? "" : text, io) != 1) std::abort();
    return 0;
  }
  // Base64 would hide a path from the diversion; ".." would leave it.
  if (text.find("base64") != std::string_view::npos || text.find("..") != std::string_view::npos ||
      text.find("parents") != std::string_view::npos)
    return 0;
  Divert(*request);
  const int answered = hutch::files::RunRequest(hutch::oci::PrintJson(*request), io);
  if (answered != 0 && answered != 1) std::abort();
  return 0;
}

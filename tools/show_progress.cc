#include "tools/show_progress.h"

#include <unistd.h>

#include "base/file.h"
#include "tools/progress.h"

namespace hutch::tools {

Result<oci::Json> PostShowingProgress(Context& context, const char* target, const oci::Json& body) {
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  Progress progress(terminal ? ProgressStyle::kLive : ProgressStyle::kPlain,
                    ColoursFor(STDERR_FILENO));
  const auto say = [&](const std::string& text) {
    if (!context.options.json) IgnoreError(WriteAll(STDERR_FILENO, text), "only decoration");
  };
  auto result = context.client.PostWithProgress(
      target, body, [&](const oci::Json& event) { say(progress.Take(event)); });
  say(progress.Finish());
  return result;
}

}  // namespace hutch::tools
